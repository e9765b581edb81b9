/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading a log beside its writer: handles that only read, and what they believe. */
#include "pmem/log/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/minmax.h"
#include "pmem/log/driver.h"

enum {
    NAP_MS = 5,    /* between two looks where nothing is new */
    LOOK_MS = 100, /* for copies that do not answer */
    /* A copy that a writer is working on may look damaged for a moment. */
    DAMAGED_MS = 1000,
    CHUNK_BYTES = 1 << 16,
};

static void follow_end_chain(void *arg, const struct sw_pmem_result *result)
{
    struct follow_link *link = arg;
    link->is_busy = false;
    link->is_fine = result->status == SW_PMEM_OK;
}

static struct sw_pmem_op read_op(uint64_t offset, void *to, uint64_t bytes)
{
    return (struct sw_pmem_op){.opcode = SW_PMEM_OP_READ,
                               .offset = offset,
                               .bytes = bytes,
                               .pieces = {{to, (uint32_t)bytes, NULL}},
                               .pieces_count = 1};
}

static bool post_reads(struct follow_link *link, struct follow_memory *memory,
                       const struct sw_pmem_op *ops, uint32_t count)
{
    sw_pmem_poll(link->pmem);
    if (sw_pmem_state_of(link->pmem) != SW_PMEM_LIVE || link->is_busy)
        return false;
    if (!memory->mem && sw_pmem_mem_register(link->pmem, memory->data, memory->bytes, &memory->mem))
        return false;
    struct sw_pmem_op with_mem[SW_PMEM_CHAIN_MAX];
    for (uint32_t i = 0; i < count; i++) {
        with_mem[i] = ops[i];
        with_mem[i].pieces[0].mem = memory->mem;
    }
    const struct sw_pmem_chain chain = {.ops = with_mem,
                                        .count = count,
                                        .session = sw_pmem_session(link->pmem),
                                        .done = follow_end_chain,
                                        .arg = link};
    link->is_busy = sw_pmem_post(link->pmem, &chain) == SW_PMEM_OK;
    return link->is_busy;
}

/* Until it has its result or LOOK_MS have passed. */
static bool await_reads(struct follow_link *link, uint64_t deadline_ns)
{
    while (link->is_busy && !pml_is_over(deadline_ns))
        sw_pmem_wait(link->pmem, deadline_ns);
    return !link->is_busy && link->is_fine;
}

static bool follow_is_ours(const struct sw_pmem_log_reader *r, unsigned copy,
                           const uint8_t *superblock)
{
    struct pml_geometry geometry;
    uint16_t which = 0;
    return pml_superblock_parse(superblock, &geometry, &which) == PML_FINE && which == copy &&
           pml_geometry_is_same(&geometry, &r->geometry);
}

/* Looks at all copies at once; one that does not answer is waited for once, and left alone then. */
static void follow_look_around(struct sw_pmem_log_reader *r)
{
    const uint64_t deadline_ns = sw_pmem_deadline_ms(LOOK_MS);
    bool is_asked[PML_COPIES_MAX] = {false};
    r->unseen = 0;
    for (unsigned i = 0; i < r->geometry.copies; i++) {
        struct follow_link *link = &r->links[i];
        const struct sw_pmem_op ops[] = {
            read_op(PML_WORDS_OFFSET, link->look->before, PML_WORDS_BYTES),
            read_op(PML_TAIL_OFFSET, link->look->tail, sizeof(link->look->tail)),
            read_op(PML_WORDS_OFFSET, link->look->after, PML_WORDS_BYTES),
            read_op(0, link->look->superblock, PML_LINE_BYTES),
        };
        is_asked[i] = post_reads(link, &link->look_memory, ops, sizeof(ops) / sizeof(*ops));
    }
    for (unsigned i = 0; i < r->geometry.copies; i++) {
        const struct follow_look *look = r->links[i].look;
        if (!is_asked[i] || !await_reads(&r->links[i], deadline_ns)) {
            r->unseen |= 1u << i;
            continue;
        }
        r->foreign &= ~(1u << i);
        pml_reader_view(&r->reader, i, look->before, pml_word_at(look->tail, 0), look->after);
        if (follow_is_ours(r, i, look->superblock))
            continue;
        r->foreign |= 1u << i; /* words of another log, or of none */
        pml_reader_forget(&r->reader, i);
    }
}

bool pml_follow_limit(struct sw_pmem_log_reader *r, uint64_t *limit)
{
    if (!pml_reader_limit(&r->reader, limit))
        return false;
    *limit = r->acked = mover_max_u64(r->acked, *limit);
    return true;
}

/* So many that no quorum is left. */
static bool are_too_many(const struct sw_pmem_log_reader *r, uint32_t copies)
{
    return __builtin_popcount(copies) > r->geometry.copies - r->geometry.quorum;
}

bool pml_follow_ask_control(struct sw_pmem_log_reader *r, unsigned copy)
{
    struct follow_link *link = &r->links[copy];
    const struct sw_pmem_op op = read_op(0, link->look->control, PML_CONTROL_BYTES);
    return post_reads(link, &link->look_memory, &op, 1);
}

/* Once more all of a copy's control page; false: it cannot be had. */
static bool follow_read_control(struct sw_pmem_log_reader *r, unsigned copy, uint64_t deadline_ns)
{
    return pml_follow_ask_control(r, copy) && await_reads(&r->links[copy], deadline_ns);
}

/* The head slot of a copy whose control page has been read. False: there is none, or it is beyond
 * all that is acknowledged; then another copy is asked first from now on. */
static bool follow_take_head(struct sw_pmem_log_reader *r, unsigned copy, uint64_t limit,
                             struct pml_slot *slot)
{
    const uint8_t *control = r->links[copy].look->control;
    pml_slot_parse(&r->geometry, control, slot);
    bool is_fine = slot->count && follow_is_ours(r, copy, control);
    if (is_fine && slot->head.position > limit) { /* the writer may have gone on meanwhile */
        follow_look_around(r);
        is_fine = pml_follow_limit(r, &limit) && slot->head.position <= limit;
    }
    if (!is_fine)
        pml_reader_distrust(&r->reader, copy);
    return is_fine;
}

/* Fills a copy's chunk with what is acknowledged from `at` on, and then reads its control page. */
static enum sw_pmem_log_status fill_chunk(struct sw_pmem_log_reader *r, unsigned source,
                                          struct pml_mark *at, uint64_t limit, uint64_t deadline_ns)
{
    struct follow_link *link = &r->links[source];
    const uint64_t ring = r->geometry.ring_bytes, offset = at->position % ring;
    const uint64_t end = mover_min_u64(limit, r->reader.views[source].tail);
    struct pml_slot slot;
    if (end <= at->position)
        return SW_PMEM_LOG_AGAIN;
    const uint64_t len = mover_min_u64(end - at->position, r->chunk_bytes);
    const uint64_t first = mover_min_u64(len, ring - offset);
    const struct sw_pmem_op parts[] = {
        read_op(PML_RING_OFFSET + offset, link->chunk, first),
        read_op(PML_RING_OFFSET, link->chunk + first, len - first),
    };
    r->len = 0;
    if (!post_reads(link, &link->chunk_memory, parts, first < len ? 2 : 1) ||
        !await_reads(link, deadline_ns) || !follow_read_control(r, source, deadline_ns) ||
        !follow_take_head(r, source, limit, &slot))
        return SW_PMEM_LOG_AGAIN;
    if (pml_reader_is_trimmed(&slot, at)) {
        *at = slot.head;
        return SW_PMEM_LOG_TRIMMED;
    }
    r->from = at->position;
    r->len = len;
    r->source = source;
    return SW_PMEM_LOG_OK;
}

/* Out of the chunk; false: it is not there. */
static bool follow_take_record(struct sw_pmem_log_reader *r, const struct pml_mark *at,
                               struct pml_record *out)
{
    uint64_t need = 0;
    if (at->position < r->from || at->position - r->from >= r->len)
        return false;
    const uint64_t skip = at->position - r->from;
    return pml_record_parse(&r->geometry, at, r->links[r->source].chunk + skip, r->len - skip, out,
                            &need) == PML_RECORD;
}

static struct sw_pmem_log_mark follow_mark_out(const struct pml_mark *mark)
{
    return (struct sw_pmem_log_mark){mark->position, mark->check, mark->epoch, mark->sequence};
}

static struct pml_mark follow_mark_in(const struct sw_pmem_log_mark *mark)
{
    return (struct pml_mark){mark->position, mark->check, mark->epoch, mark->sequence};
}

void pml_follow_nap(struct sw_pmem_log_reader *r)
{
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000};
    for (unsigned i = 0; i < r->geometry.copies; i++)
        sw_pmem_poll(r->links[i].pmem);
    nanosleep(&nap, NULL);
}

/* OK: the copy has a record there, or the log ends. DAMAGED: something else is there. */
static enum sw_pmem_log_status look_at_record(struct sw_pmem_log_reader *r, unsigned copy,
                                              struct pml_mark at, uint64_t limit)
{
    struct pml_record record;
    if (at.position >= limit)
        return SW_PMEM_LOG_OK;
    const enum sw_pmem_log_status status =
        fill_chunk(r, copy, &at, limit, sw_pmem_deadline_ms(LOOK_MS));
    if (status == SW_PMEM_LOG_OK && !follow_take_record(r, &at, &record))
        return SW_PMEM_LOG_DAMAGED;
    return status;
}

/* OK: the record is in the chunk. TRIMMED: `at` has moved on. AGAIN: the copy does not answer.
 * DAMAGED: it is not any more what its words say. */
static enum sw_pmem_log_status ask_copy(struct sw_pmem_log_reader *r, unsigned copy,
                                        struct pml_mark *at, uint64_t limit)
{
    const struct pml_mark asked = *at;
    struct pml_record record;
    const enum sw_pmem_log_status status =
        fill_chunk(r, copy, at, limit, sw_pmem_deadline_ms(LOOK_MS));
    if (status == SW_PMEM_LOG_AGAIN ||
        (status == SW_PMEM_LOG_OK && follow_take_record(r, at, &record)) ||
        (status == SW_PMEM_LOG_TRIMMED && !look_at_record(r, copy, *at, limit)))
        return status;
    pml_reader_distrust(&r->reader, copy);
    r->len = 0;
    *at = asked;
    return SW_PMEM_LOG_DAMAGED;
}

/* Each copy that should have the record, until one brings it: one that is lost, slow or wrong is no
 * reason to do without what others have. */
static enum sw_pmem_log_status ask_copies(struct sw_pmem_log_reader *r, struct pml_mark *at,
                                          uint64_t limit)
{
    uint32_t asked = 0, silent = 0;
    unsigned copy;
    enum sw_pmem_log_status status = SW_PMEM_LOG_AGAIN;
    while (pml_reader_source(&r->reader, asked, at->position, &copy)) {
        asked |= 1u << copy;
        status = ask_copy(r, copy, at, limit);
        if (status == SW_PMEM_LOG_OK || status == SW_PMEM_LOG_TRIMMED)
            break;
        silent |= status == SW_PMEM_LOG_AGAIN ? 1u << copy : 0;
    }
    for (unsigned i = 0; i < r->geometry.copies; i++)
        if (silent >> i & 1) /* not before: with it, the others were a quorum */
            pml_reader_forget(&r->reader, i);
    return status == SW_PMEM_LOG_DAMAGED && silent ? SW_PMEM_LOG_AGAIN : status;
}

enum sw_pmem_log_status sw_pmem_log_reader_next(struct sw_pmem_log_reader *r,
                                                struct sw_pmem_log_mark *mark, void *record,
                                                uint32_t bytes_max, uint32_t *bytes,
                                                uint64_t deadline_ns)
{
    struct pml_mark at = follow_mark_in(mark);
    struct pml_record found;
    uint64_t limit = 0;
    if (mover_is_forked(&r->guard))
        return SW_PMEM_LOG_FORKED;
    while (!follow_take_record(r, &at, &found)) {
        follow_look_around(r);
        if (are_too_many(r, r->foreign))
            return SW_PMEM_LOG_NO_LOG;
        const bool is_known = pml_follow_limit(r, &limit);
        enum sw_pmem_log_status status = SW_PMEM_LOG_AGAIN;
        if (is_known && at.position < limit)
            status = ask_copies(r, &at, limit);
        else if (is_known && !pml_reader_may_go_on(&r->reader, limit, r->unseen))
            status = SW_PMEM_LOG_END;
        if (status == SW_PMEM_LOG_OK)
            continue;
        if (status == SW_PMEM_LOG_TRIMMED) {
            *mark = follow_mark_out(&at);
            return status;
        }
        if (pml_is_over(deadline_ns))
            return status == SW_PMEM_LOG_AGAIN ? SW_PMEM_LOG_TIMEOUT : status;
        pml_follow_nap(r);
    }
    if (found.payload_bytes > bytes_max)
        return SW_PMEM_LOG_TOO_LONG;
    memcpy(record, found.payload, found.payload_bytes);
    *bytes = found.payload_bytes;
    *mark = follow_mark_out(&found.next);
    return SW_PMEM_LOG_OK;
}

bool pml_follow_is_spoilt(const struct sw_pmem_log_reader *r, unsigned copy)
{
    const uint8_t *control = r->links[copy].look->control;
    const uint64_t tail = pml_word_at(control, PML_TAIL_OFFSET);
    struct pml_slot slot;
    pml_slot_parse(&r->geometry, control, &slot);
    /* No writer can come after the greatest epoch. */
    return !follow_is_ours(r, copy, control) || !slot.count ||
           pml_word_at(control, PML_EPOCH_OFFSET) >= PML_NUMBER_MAX || tail > PML_NUMBER_MAX ||
           tail % PML_LINE_BYTES != 0;
}

/* AGAIN: nothing can be said of it now. DAMAGED: it lacks what its words say. */
static enum sw_pmem_log_status look_at_head(struct sw_pmem_log_reader *r, unsigned copy,
                                            bool is_limit_known, uint64_t limit,
                                            struct pml_mark *head)
{
    struct pml_slot slot;
    if (r->unseen >> copy & 1 || !follow_read_control(r, copy, sw_pmem_deadline_ms(LOOK_MS)))
        return SW_PMEM_LOG_AGAIN;
    if (pml_follow_is_spoilt(r, copy))
        return SW_PMEM_LOG_DAMAGED;
    if (!is_limit_known || !pml_reader_is_current(&r->reader, copy))
        return SW_PMEM_LOG_AGAIN;
    if (!follow_take_head(r, copy, limit, &slot))
        return SW_PMEM_LOG_DAMAGED;
    *head = slot.head;
    return look_at_record(r, copy, slot.head, limit);
}

/* The furthest of all copies that are up to date: a trim may not have come to each of them yet. */
static bool find_head(struct sw_pmem_log_reader *r, struct pml_mark *head)
{
    bool any = false;
    struct pml_mark one;
    uint64_t limit = 0;
    const bool is_limit_known = pml_follow_limit(r, &limit);
    r->damaged = 0;
    for (unsigned i = 0; i < r->geometry.copies; i++) {
        const enum sw_pmem_log_status status = look_at_head(r, i, is_limit_known, limit, &one);
        r->damaged |= status == SW_PMEM_LOG_DAMAGED ? 1u << i : 0;
        if (status || (any && one.position < head->position))
            continue;
        any = true;
        *head = one;
    }
    return any;
}

enum sw_pmem_log_status sw_pmem_log_reader_head(struct sw_pmem_log_reader *r,
                                                struct sw_pmem_log_mark *mark, uint64_t deadline_ns)
{
    struct pml_mark head = {0};
    uint64_t damaged_ns = 0; /* when so many of them are called damaged; 0: they are not */
    if (mover_is_forked(&r->guard))
        return SW_PMEM_LOG_FORKED;
    for (;;) {
        follow_look_around(r);
        if (are_too_many(r, r->foreign))
            return SW_PMEM_LOG_NO_LOG;
        if (find_head(r, &head)) {
            r->damaged = 0;
            *mark = follow_mark_out(&head);
            return SW_PMEM_LOG_OK;
        }
        if (!are_too_many(r, r->damaged))
            damaged_ns = 0;
        else if (!damaged_ns)
            damaged_ns = sw_pmem_deadline_ms(DAMAGED_MS);
        else if (pml_is_over(damaged_ns))
            return SW_PMEM_LOG_DAMAGED;
        if (pml_is_over(deadline_ns))
            return SW_PMEM_LOG_TIMEOUT;
        pml_follow_nap(r);
    }
}

uint32_t sw_pmem_log_reader_record_bytes(const struct sw_pmem_log_reader *r)
{
    return r->geometry.payload_max;
}

/* ---- opening ---- */

static bool make_memory(struct follow_memory *memory, uint64_t bytes)
{
    memory->bytes = (bytes + PML_CONTROL_BYTES - 1) / PML_CONTROL_BYTES * PML_CONTROL_BYTES;
    memory->data = aligned_alloc(PML_CONTROL_BYTES, memory->bytes);
    return memory->data;
}

static bool make_looks(struct sw_pmem_log_reader *r)
{
    for (unsigned i = 0; i < r->options.copies_count; i++) {
        struct follow_link *link = &r->links[i];
        if (!make_memory(&link->look_memory, sizeof(struct follow_look)))
            return false;
        link->look = memset(link->look_memory.data, 0, sizeof(struct follow_look));
    }
    return true;
}

static bool make_chunks(struct sw_pmem_log_reader *r)
{
    r->chunk_bytes = mover_max_u64(CHUNK_BYTES, pml_record_bytes(r->geometry.payload_max));
    for (unsigned i = 0; i < r->options.copies_count; i++) {
        struct follow_link *link = &r->links[i];
        if (!make_memory(&link->chunk_memory, r->chunk_bytes))
            return false;
        link->chunk = link->chunk_memory.data;
    }
    return true;
}

static bool are_all_dead(const struct sw_pmem_log_reader *r)
{
    for (unsigned i = 0; i < r->options.copies_count; i++)
        if (sw_pmem_state_of(r->links[i].pmem) != SW_PMEM_DEAD)
            return false;
    return true;
}

/* Waits for a quorum of copies that say the same of the log. */
static enum sw_pmem_log_status find_log(struct sw_pmem_log_reader *r, uint64_t deadline_ns,
                                        struct sw_pmem_error *error)
{
    struct pml_census census = {.copies = (uint16_t)r->options.copies_count};
    for (unsigned i = 0;; i = (i + 1) % r->options.copies_count) {
        struct follow_link *link = &r->links[i];
        struct sw_pmem_info info;
        const bool is_read = follow_read_control(r, i, sw_pmem_deadline_ms(LOOK_MS));
        sw_pmem_info_of(link->pmem, &info);
        if (is_read)
            pml_census_take(&census, i, link->look->control, info.bytes);
        else
            sw_pmem_last_error(link->pmem, error);
        const enum pml_verdict verdict = pml_census_end(&census, &r->geometry);
        if (verdict != PML_UNDECIDED)
            return verdict == PML_FINE ? SW_PMEM_LOG_OK : SW_PMEM_LOG_NO_LOG;
        if (are_all_dead(r))
            return SW_PMEM_LOG_COPY;
        if (pml_is_over(deadline_ns))
            return SW_PMEM_LOG_TIMEOUT;
        if (!is_read)
            sw_pmem_wait_live(link->pmem, sw_pmem_deadline_ms(NAP_MS));
    }
}

static enum sw_pmem_log_status follow_start_links(struct sw_pmem_log_reader *r,
                                                  struct sw_pmem_error *error)
{
    for (unsigned i = 0; i < r->options.copies_count; i++) {
        struct sw_pmem_options copy = r->options.copies[i];
        copy.loss_timeout_ms = UINT32_MAX; /* a writer that begins ends our session, too */
        copy.keeps_trying = true;
        if (sw_pmem_start(&copy, error, &r->links[i].pmem) != SW_PMEM_OK)
            return SW_PMEM_LOG_COPY;
    }
    return make_looks(r) ? SW_PMEM_LOG_OK : SW_PMEM_LOG_NO_MEMORY;
}

static enum sw_pmem_log_status open_links(struct sw_pmem_log_reader *r, uint64_t deadline_ns,
                                          struct sw_pmem_error *error)
{
    const enum sw_pmem_log_status status = find_log(r, deadline_ns, error);
    pml_reader_init(&r->reader, &r->geometry);
    return status ? status : make_chunks(r) ? SW_PMEM_LOG_OK : SW_PMEM_LOG_NO_MEMORY;
}

enum sw_pmem_log_status pml_follow_open(const struct sw_pmem_log_options *options,
                                        uint64_t deadline_ns, struct sw_pmem_error *error,
                                        struct sw_pmem_log_reader **out)
{
    *out = NULL;
    memset(error, 0, sizeof(*error));
    if (options->copies_count < 1 || options->copies_count > PML_COPIES_MAX)
        return SW_PMEM_LOG_INVALID;
    struct sw_pmem_log_reader *r = calloc(1, sizeof(*r));
    if (!r)
        return SW_PMEM_LOG_NO_MEMORY;
    r->options = *options;
    r->geometry.copies = (uint16_t)options->copies_count;
    enum sw_pmem_log_status status =
        mover_fork_guard_open(&r->guard) ? follow_start_links(r, error) : SW_PMEM_LOG_NO_MEMORY;
    if (status == SW_PMEM_LOG_OK) {
        status = open_links(r, deadline_ns, error);
        *out = r;
    } else {
        sw_pmem_log_reader_close(r);
    }
    if (status && !error->text[0])
        snprintf(error->text, sizeof(error->text), "%s", sw_pmem_log_status_text(status));
    return status;
}

enum sw_pmem_log_status sw_pmem_log_reader_open(const struct sw_pmem_log_options *options,
                                                uint64_t deadline_ns, struct sw_pmem_error *error,
                                                struct sw_pmem_log_reader **out)
{
    struct sw_pmem_error unused;
    struct sw_pmem_log_reader *r;
    const enum sw_pmem_log_status status =
        pml_follow_open(options, deadline_ns, error ? error : &unused, &r);
    if (status)
        sw_pmem_log_reader_close(r);
    else
        *out = r;
    return status;
}

void sw_pmem_log_reader_close(struct sw_pmem_log_reader *r)
{
    if (!r)
        return;
    const bool is_ours = !mover_is_forked(&r->guard);
    for (unsigned i = 0; i < r->options.copies_count && is_ours; i++) {
        struct follow_link *link = &r->links[i];
        const uint64_t deadline_ns = sw_pmem_deadline_ms(LOOK_MS);
        while (link->is_busy && !pml_is_over(deadline_ns))
            sw_pmem_wait(link->pmem, deadline_ns);
    }
    for (unsigned i = 0; i < r->options.copies_count; i++) {
        struct follow_link *link = &r->links[i];
        if (link->pmem)
            sw_pmem_close(link->pmem); /* and the memory that a READ still uses */
        if (!is_ours) /* the parent's devices have these pages, which a child may lack */
            continue;
        free(link->look_memory.data);
        free(link->chunk_memory.data);
    }
    mover_fork_guard_close(&r->guard);
    free(r);
}
