/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading a log beside its writer: handles that only read, and what they believe. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/minmax.h"
#include "pmem/log/driver.h"
#include "pmem/log/reader.h"

enum {
    NAP_MS = 5,    /* between two looks where nothing is new */
    LOOK_MS = 100, /* for copies that do not answer */
    CHUNK_BYTES = 1 << 16,
    SLOTS_BYTES = PML_EPOCH_OFFSET - PML_SLOT_OFFSET,
};

/* What the READs of one copy bring. */
struct look {
    uint8_t before[PML_WORDS_BYTES], after[PML_WORDS_BYTES];
    uint8_t tail[8];
    uint8_t superblock[PML_LINE_BYTES];
    uint8_t control[PML_CONTROL_BYTES];
};

struct follow_link {
    struct sw_pmem *pmem;
    struct sw_pmem_mem *mem;
    struct look *look; /* in the reader's memory */
    bool is_busy, is_fine;
    bool fills_chunk; /* what is under way */
};

struct sw_pmem_log_reader {
    struct sw_pmem_log_options options;
    struct pml_geometry geometry;
    struct pml_reader reader;
    struct follow_link links[PML_COPIES_MAX];
    uint8_t *memory, *chunk;
    uint64_t memory_bytes, chunk_bytes;
    uint64_t from, len; /* what of the log is in the chunk */
    unsigned source;    /* where that comes from */
    uint32_t foreign;   /* copies that are none of this log */
};

static void follow_end_chain(void *arg, const struct sw_pmem_result *result)
{
    struct follow_link *link = arg;
    link->is_busy = link->fills_chunk = false;
    link->is_fine = result->status == SW_PMEM_OK;
}

static struct sw_pmem_op read_op(struct follow_link *link, uint64_t offset, void *to,
                                 uint64_t bytes)
{
    return (struct sw_pmem_op){.opcode = SW_PMEM_OP_READ,
                               .offset = offset,
                               .bytes = bytes,
                               .pieces = {{to, (uint32_t)bytes, link->mem}},
                               .pieces_count = 1};
}

static bool post_reads(struct sw_pmem_log_reader *r, struct follow_link *link,
                       const struct sw_pmem_op *ops, uint32_t count)
{
    sw_pmem_poll(link->pmem);
    if (sw_pmem_state_of(link->pmem) != SW_PMEM_LIVE || link->is_busy)
        return false;
    if (!link->mem && sw_pmem_mem_register(link->pmem, r->memory, r->memory_bytes, &link->mem))
        return false;
    struct sw_pmem_op with_mem[SW_PMEM_CHAIN_MAX];
    for (uint32_t i = 0; i < count; i++) {
        with_mem[i] = ops[i];
        with_mem[i].pieces[0].mem = link->mem;
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

static bool is_our_copy(const struct sw_pmem_log_reader *r, unsigned copy,
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
    for (unsigned i = 0; i < r->geometry.copies; i++) {
        struct follow_link *link = &r->links[i];
        const struct sw_pmem_op ops[] = {
            read_op(link, PML_WORDS_OFFSET, link->look->before, PML_WORDS_BYTES),
            read_op(link, PML_TAIL_OFFSET, link->look->tail, sizeof(link->look->tail)),
            read_op(link, PML_WORDS_OFFSET, link->look->after, PML_WORDS_BYTES),
            read_op(link, 0, link->look->superblock, PML_LINE_BYTES),
        };
        is_asked[i] = post_reads(r, link, ops, sizeof(ops) / sizeof(*ops));
    }
    for (unsigned i = 0; i < r->geometry.copies; i++) {
        const struct look *look = r->links[i].look;
        if (!is_asked[i] || !await_reads(&r->links[i], deadline_ns))
            continue;
        r->foreign &= ~(1u << i);
        pml_reader_view(&r->reader, i, look->before, pml_word_at(look->tail, 0), look->after);
        if (is_our_copy(r, i, look->superblock))
            continue;
        r->foreign |= 1u << i; /* words of another log, or of none */
        pml_reader_forget(&r->reader, i);
    }
}

/* So many that no quorum is left. */
static bool is_replaced(const struct sw_pmem_log_reader *r)
{
    return __builtin_popcount(r->foreign) > r->geometry.copies - r->geometry.quorum;
}

/* Once more all of a copy's control page; false: it cannot be had. */
static bool follow_read_control(struct sw_pmem_log_reader *r, unsigned copy, uint64_t deadline_ns)
{
    struct follow_link *link = &r->links[copy];
    const struct sw_pmem_op op = read_op(link, 0, link->look->control, PML_CONTROL_BYTES);
    return post_reads(r, link, &op, 1) && await_reads(link, deadline_ns);
}

/* The head slot of a copy whose control page has been read. False: there is none, or it is beyond
 * all that is acknowledged; then another copy is asked first from now on. */
static bool follow_take_head(struct sw_pmem_log_reader *r, unsigned copy, uint64_t limit,
                             struct pml_slot *slot)
{
    const uint8_t *control = r->links[copy].look->control;
    pml_slot_parse(&r->geometry, control, slot);
    bool is_fine = slot->count && is_our_copy(r, copy, control);
    if (is_fine && slot->head.position > limit) { /* the writer may have gone on meanwhile */
        follow_look_around(r);
        is_fine = pml_reader_limit(&r->reader, &limit) && slot->head.position <= limit;
    }
    if (!is_fine)
        pml_reader_distrust(&r->reader, copy);
    return is_fine;
}

/* Fills the chunk with what is acknowledged from `at` on, and then reads the control page. */
static enum sw_pmem_log_status fill_chunk(struct sw_pmem_log_reader *r, unsigned source,
                                          struct pml_mark *at, uint64_t limit, uint64_t deadline_ns)
{
    struct follow_link *link = &r->links[source];
    const uint64_t ring = r->geometry.ring_bytes, offset = at->position % ring;
    uint64_t len = limit - at->position;
    struct pml_slot slot;
    if (len > r->chunk_bytes)
        len = r->chunk_bytes;
    const uint64_t first = mover_min_u64(len, ring - offset);
    const struct sw_pmem_op parts[] = {
        read_op(link, PML_RING_OFFSET + offset, r->chunk, first),
        read_op(link, PML_RING_OFFSET, r->chunk + first, len - first),
    };
    for (unsigned i = 0; i < r->geometry.copies; i++)
        if (r->links[i].fills_chunk) /* a slow copy: the chunk is not ours before it ends */
            return SW_PMEM_LOG_AGAIN;
    r->len = 0;
    link->fills_chunk = post_reads(r, link, parts, first < len ? 2 : 1);
    if (!link->fills_chunk || !await_reads(link, deadline_ns) ||
        !follow_read_control(r, source, deadline_ns)) {
        pml_reader_forget(&r->reader, source);
        return SW_PMEM_LOG_AGAIN;
    }
    if (!follow_take_head(r, source, limit, &slot))
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
    return pml_record_parse(&r->geometry, at, r->chunk + skip, r->len - skip, out, &need) ==
           PML_RECORD;
}

static struct sw_pmem_log_mark follow_mark_out(const struct pml_mark *mark)
{
    return (struct sw_pmem_log_mark){mark->position, mark->check, mark->epoch, mark->sequence};
}

static struct pml_mark follow_mark_in(const struct sw_pmem_log_mark *mark)
{
    return (struct pml_mark){mark->position, mark->check, mark->epoch, mark->sequence};
}

static void nap_between(struct sw_pmem_log_reader *r)
{
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000};
    for (unsigned i = 0; i < r->geometry.copies; i++)
        sw_pmem_poll(r->links[i].pmem);
    nanosleep(&nap, NULL);
}

/* The copy has a record there, or the log ends. */
static bool has_record_at(struct sw_pmem_log_reader *r, unsigned copy, struct pml_mark at,
                          uint64_t limit)
{
    struct pml_record record;
    if (at.position >= limit)
        return true;
    return fill_chunk(r, copy, &at, limit, sw_pmem_deadline_ms(LOOK_MS)) == SW_PMEM_LOG_OK &&
           follow_take_record(r, &at, &record);
}

enum sw_pmem_log_status sw_pmem_log_reader_next(struct sw_pmem_log_reader *r,
                                                struct sw_pmem_log_mark *mark, void *record,
                                                uint32_t bytes_max, uint32_t *bytes,
                                                uint64_t deadline_ns)
{
    struct pml_mark at = follow_mark_in(mark);
    struct pml_record found;
    uint64_t limit = 0, has = 0;
    bool was_wrong = false;
    while (!follow_take_record(r, &at, &found)) {
        follow_look_around(r);
        if (is_replaced(r))
            return SW_PMEM_LOG_NO_LOG;
        const bool is_known = pml_reader_limit(&r->reader, &limit);
        if (is_known && limit > at.position) {
            const unsigned source = pml_reader_source(&r->reader, &has);
            const enum sw_pmem_log_status status =
                fill_chunk(r, source, &at, limit, sw_pmem_deadline_ms(LOOK_MS));
            if (status == SW_PMEM_LOG_TRIMMED && has_record_at(r, source, at, limit)) {
                *mark = follow_mark_out(&at);
                return status;
            }
            if (status == SW_PMEM_LOG_TRIMMED) { /* no: its head is wrong */
                pml_reader_distrust(&r->reader, source);
                at = follow_mark_in(mark);
            }
            if (status == SW_PMEM_LOG_OK && follow_take_record(r, &at, &found))
                break;
            if (status == SW_PMEM_LOG_OK) { /* it is not any more what it was; another one may be */
                was_wrong = true;
                pml_reader_distrust(&r->reader, r->source);
            }
            r->len = 0;
        }
        if (pml_is_over(deadline_ns))
            return was_wrong  ? SW_PMEM_LOG_DAMAGED
                   : is_known ? SW_PMEM_LOG_END
                              : SW_PMEM_LOG_TIMEOUT;
        nap_between(r);
    }
    if (found.payload_bytes > bytes_max)
        return SW_PMEM_LOG_TOO_LONG;
    memcpy(record, found.payload, found.payload_bytes);
    *bytes = found.payload_bytes;
    *mark = follow_mark_out(&found.next);
    return SW_PMEM_LOG_OK;
}

/* The furthest of all copies that are up to date: a trim may not have come to each of them yet. */
static bool find_head(struct sw_pmem_log_reader *r, uint64_t limit, struct pml_mark *head)
{
    bool any = false;
    struct pml_slot slot;
    for (unsigned i = 0; i < r->geometry.copies; i++) {
        if (!pml_reader_is_current(&r->reader, i) ||
            !follow_read_control(r, i, sw_pmem_deadline_ms(LOOK_MS)) ||
            !follow_take_head(r, i, limit, &slot) || (any && slot.head.position < head->position) ||
            !has_record_at(r, i, slot.head, limit))
            continue;
        any = true;
        *head = slot.head;
    }
    return any;
}

enum sw_pmem_log_status sw_pmem_log_reader_head(struct sw_pmem_log_reader *r,
                                                struct sw_pmem_log_mark *mark, uint64_t deadline_ns)
{
    struct pml_mark head = {0};
    uint64_t limit = 0;
    for (;;) {
        follow_look_around(r);
        if (is_replaced(r))
            return SW_PMEM_LOG_NO_LOG;
        if (pml_reader_limit(&r->reader, &limit) && find_head(r, limit, &head)) {
            *mark = follow_mark_out(&head);
            return SW_PMEM_LOG_OK;
        }
        if (pml_is_over(deadline_ns))
            return SW_PMEM_LOG_TIMEOUT;
        nap_between(r);
    }
}

uint32_t sw_pmem_log_reader_record_bytes(const struct sw_pmem_log_reader *r)
{
    return r->geometry.payload_max;
}

/* ---- what is seen of it ---- */

static enum sw_pmem_log_copy_state survey_copy(struct sw_pmem_log_reader *r, unsigned copy,
                                               uint64_t deadline_ns)
{
    struct pml_slot slot;
    if (!follow_read_control(r, copy, deadline_ns))
        return SW_PMEM_LOG_COPY_LOST;
    if (!is_our_copy(r, copy, r->links[copy].look->control))
        return SW_PMEM_LOG_COPY_DAMAGED;
    pml_slot_parse(&r->geometry, r->links[copy].look->control, &slot);
    if (!slot.count)
        return SW_PMEM_LOG_COPY_DAMAGED;
    return pml_reader_is_current(&r->reader, copy) ? SW_PMEM_LOG_COPY_LIVE
                                                   : SW_PMEM_LOG_COPY_BEHIND;
}

/* Reads on to where the log's end was. */
static enum sw_pmem_log_status count_records(struct sw_pmem_log_reader *r,
                                             struct sw_pmem_log_mark *mark, uint64_t limit,
                                             struct sw_pmem_log_info *info, uint64_t deadline_ns)
{
    uint32_t bytes;
    enum sw_pmem_log_status status = SW_PMEM_LOG_OK;
    uint8_t *record = malloc(r->geometry.payload_max + 1ul);
    if (!record)
        return SW_PMEM_LOG_NO_MEMORY;
    info->first_sequence = mark->sequence;
    uint64_t from = mark->position;
    while (mark->position < limit && !status) {
        status =
            sw_pmem_log_reader_next(r, mark, record, r->geometry.payload_max, &bytes, deadline_ns);
        if (status != SW_PMEM_LOG_TRIMMED)
            continue;
        info->first_sequence = mark->sequence;
        from = mark->position;
        status = SW_PMEM_LOG_OK;
    }
    free(record);
    info->next_sequence = mark->sequence;
    info->used_bytes = mark->position - from;
    return status;
}

enum sw_pmem_log_status sw_pmem_log_reader_info_of(struct sw_pmem_log_reader *r,
                                                   struct sw_pmem_log_info *info,
                                                   uint64_t deadline_ns)
{
    struct sw_pmem_log_mark mark;
    uint64_t limit = 0;
    memset(info, 0, sizeof(*info));
    info->ring_bytes = r->geometry.ring_bytes;
    info->record_bytes = r->geometry.payload_max;
    info->copies = r->geometry.copies;
    info->quorum = r->geometry.quorum;
    enum sw_pmem_log_status status = sw_pmem_log_reader_head(r, &mark, deadline_ns);
    for (unsigned i = 0; i < r->geometry.copies; i++)
        info->states[i] = survey_copy(r, i, sw_pmem_deadline_ms(LOOK_MS));
    info->ready = !status && pml_reader_limit(&r->reader, &limit);
    if (info->ready) {
        info->epoch = pml_reader_epoch(&r->reader);
        status = count_records(r, &mark, limit, info, deadline_ns);
    }
    return status ? status : info->ready ? SW_PMEM_LOG_OK : SW_PMEM_LOG_TIMEOUT;
}

/* ---- opening ---- */

static bool lay_out(struct sw_pmem_log_reader *r, uint64_t chunk_bytes)
{
    const uint64_t looks = PML_COPIES_MAX * sizeof(struct look);
    r->chunk_bytes = chunk_bytes;
    r->memory_bytes =
        (chunk_bytes + looks + PML_CONTROL_BYTES - 1) / PML_CONTROL_BYTES * PML_CONTROL_BYTES;
    r->memory = aligned_alloc(PML_CONTROL_BYTES, r->memory_bytes);
    if (!r->memory)
        return false;
    memset(r->memory, 0, r->memory_bytes);
    r->chunk = r->memory;
    for (unsigned i = 0; i < PML_COPIES_MAX; i++)
        r->links[i].look = (struct look *)(void *)(r->memory + chunk_bytes) + i;
    return true;
}

static void release_memory(struct sw_pmem_log_reader *r)
{
    for (unsigned i = 0; i < r->options.copies_count; i++) {
        sw_pmem_mem_release(r->links[i].mem);
        r->links[i].mem = NULL;
    }
    free(r->memory);
    r->memory = NULL;
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

static enum sw_pmem_log_status follow_open_all(struct sw_pmem_log_reader *r, uint64_t deadline_ns,
                                               struct sw_pmem_error *error)
{
    for (unsigned i = 0; i < r->options.copies_count; i++) {
        struct sw_pmem_options copy = r->options.copies[i];
        copy.loss_timeout_ms = UINT32_MAX; /* a writer that begins ends our session, too */
        copy.keeps_trying = true;
        if (sw_pmem_start(&copy, error, &r->links[i].pmem) != SW_PMEM_OK)
            return SW_PMEM_LOG_COPY;
    }
    if (!lay_out(r, CHUNK_BYTES))
        return SW_PMEM_LOG_NO_MEMORY;
    const enum sw_pmem_log_status status = find_log(r, deadline_ns, error);
    const uint64_t record = status ? 0 : pml_record_bytes(r->geometry.payload_max);
    pml_reader_init(&r->reader, &r->geometry);
    if (record <= CHUNK_BYTES)
        return status;
    release_memory(r); /* nothing is under way */
    return lay_out(r, record) ? SW_PMEM_LOG_OK : SW_PMEM_LOG_NO_MEMORY;
}

enum sw_pmem_log_status sw_pmem_log_reader_open(const struct sw_pmem_log_options *options,
                                                uint64_t deadline_ns, struct sw_pmem_error *error,
                                                struct sw_pmem_log_reader **out)
{
    struct sw_pmem_error unused;
    if (!error)
        error = &unused;
    memset(error, 0, sizeof(*error));
    if (options->copies_count < 1 || options->copies_count > PML_COPIES_MAX)
        return SW_PMEM_LOG_INVALID;
    struct sw_pmem_log_reader *r = calloc(1, sizeof(*r));
    if (!r)
        return SW_PMEM_LOG_NO_MEMORY;
    r->options = *options;
    r->geometry.copies = (uint16_t)options->copies_count;
    const enum sw_pmem_log_status status = follow_open_all(r, deadline_ns, error);
    if (status == SW_PMEM_LOG_OK) {
        *out = r;
        return SW_PMEM_LOG_OK;
    }
    if (!error->text[0])
        snprintf(error->text, sizeof(error->text), "%s", sw_pmem_log_status_text(status));
    sw_pmem_log_reader_close(r);
    return status;
}

void sw_pmem_log_reader_close(struct sw_pmem_log_reader *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < r->options.copies_count; i++) {
        struct follow_link *link = &r->links[i];
        const uint64_t deadline_ns = sw_pmem_deadline_ms(LOOK_MS);
        while (link->is_busy && !pml_is_over(deadline_ns))
            sw_pmem_wait(link->pmem, deadline_ns);
    }
    for (unsigned i = 0; i < r->options.copies_count; i++) {
        struct follow_link *link = &r->links[i];
        if (link->mem && !link->is_busy) {
            sw_pmem_mem_release(link->mem);
            link->mem = NULL;
        }
        if (link->pmem)
            sw_pmem_close(link->pmem);
    }
    free(r->memory);
    free(r);
}
