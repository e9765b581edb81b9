/* SPDX-License-Identifier: BSD-2-Clause */
/* A copy is brought up to date from one that is. */
#include <string.h>

#include "pmem/log/steps.h"

static uint8_t catch_up_find_source(const struct pml_log *log, unsigned but)
{
    uint8_t source = PML_NOBODY;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        if (i != but && log->copies[i].state == PML_LIVE && pml_has_room(&log->copies[i]) &&
            (source == PML_NOBODY || log->copies[i].done > log->copies[source].done))
            source = (uint8_t)i;
    return source;
}

/* `from`: all behind it is written again; NULL: what there is stays. */
static void begin_reset(struct pml_log *log, unsigned which, const struct pml_mark *from)
{
    struct pml_copy *copy = &log->copies[which];
    copy->state = PML_RESETTING;
    if (from) {
        copy->scan = *from;
        pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                        .offset = PML_TAIL_OFFSET,
                                        .len_bytes = sizeof(uint64_t)});
    }
    pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                    .offset = PML_EPOCH_OFFSET,
                                    .len_bytes = sizeof(uint64_t),
                                    .word = log->epoch});
    /* Records that were read may never have been flushed by their writer. */
    pml_push_flush_all(log, copy);
    pml_push_group(copy, PML_FOR_RESET, PML_NOBODY, 0);
}

static const struct pml_passed *passed_at(const struct pml_copy *copy, uint64_t record)
{
    return &copy->trail[record % PML_TRAIL_MAX];
}

static bool catch_up_is_same(const struct pml_mark *a, const struct pml_mark *b)
{
    return a->position == b->position && a->check == b->check;
}

/* Compares a record of the trail with that of an up-to-date copy; ends where none is left. */
static void match_on(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    const struct pml_mark *common = copy->match_low > copy->match_first
                                        ? &passed_at(copy, copy->match_low - 1)->next
                                        : &log->head;
    if (copy->match_low == copy->match_high) {
        begin_reset(log, which, catch_up_is_same(common, &copy->scan) ? NULL : common);
        return;
    }
    const uint8_t source = catch_up_find_source(log, which);
    if (source == PML_NOBODY)
        return;
    struct pml_copy *from = &log->copies[source];
    copy->chunk_busy = true;
    pml_push_ring(log, from, PML_READ, passed_at(copy, copy->probe)->position, PML_LINE_BYTES,
                  copy->chunk);
    pml_push_group(from, PML_FOR_MATCH, (uint8_t)which, 0);
}

/* Which records of its trail can be compared: those that the log still has, and a source has. */
static void begin_trail(struct pml_log *log, unsigned which, uint64_t source_end)
{
    struct pml_copy *copy = &log->copies[which];
    uint64_t low = copy->passed > PML_TRAIL_MAX ? copy->passed - PML_TRAIL_MAX : 0;
    uint64_t high = copy->passed;
    while (low < high && passed_at(copy, low)->position < log->head.position)
        low++;
    while (low < high && passed_at(copy, high - 1)->next.position > source_end)
        high--;
    copy->state = PML_MATCHING;
    copy->match_first = copy->match_low = low;
    copy->match_high = high;
    copy->probe = high - 1; /* most copies lack only what came after their end */
    match_on(log, which);
}

static void begin_match(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    /* No writer can have come so far: its word fences nobody. */
    if (copy->epoch > PML_EPOCH_LEAP && copy->epoch - PML_EPOCH_LEAP > log->epoch) {
        pml_condemn(copy, PML_DAMAGED);
        return;
    }
    if (copy->epoch > log->epoch) {
        log->fenced = true;
        return;
    }
    /* A trim that had got no further than to this copy; else it is none, or nobody can tell. */
    if (copy->slot.head.position > log->head.position) {
        if (pml_confirms_head(&log->copies[log->best], &copy->slot.head)) {
            log->head = copy->slot.head;
        } else if (log->recovered && copy->slot.head.position <= log->end.position) {
            begin_reset(log, which, &log->head);
            return;
        } else {
            pml_condemn(copy, PML_DAMAGED);
            return;
        }
    }
    /* Records of this epoch are this writer's own: it may be that no other copy has them yet. */
    if ((which == log->best && !log->recovered) ||
        (log->recovered && copy->scan.epoch == log->epoch)) {
        begin_reset(log, which, NULL);
        return;
    }
    const uint8_t source = catch_up_find_source(log, which);
    if (source == PML_NOBODY)
        return;
    if (catch_up_is_same(&copy->scan, &log->head))
        begin_reset(log, which, NULL);
    else
        begin_trail(log, which, log->copies[source].done);
}

void pml_match_done(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    copy->chunk_busy = false;
    if (copy->state != PML_MATCHING)
        return;
    const struct pml_passed *passed = passed_at(copy, copy->probe);
    if (passed->position < log->head.position) { /* trimmed meanwhile, and maybe overwritten */
        begin_reset(log, which, &log->head);
        return;
    }
    /* The last eight bytes of a header are its check. */
    if (pml_word_at(copy->chunk, PML_LINE_BYTES - sizeof(uint64_t)) == passed->next.check)
        copy->match_low = copy->probe + 1;
    else
        copy->match_high = copy->probe;
    copy->probe = copy->match_low + (copy->match_high - copy->match_low) / 2;
    match_on(log, which);
}

void pml_reset_done(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    if (copy->slot_busy) {
        copy->slot = copy->slot_to;
        copy->slot_busy = false;
    }
    if (copy->state == PML_RESETTING && copy->scan.position < log->head.position) {
        begin_reset(log, which, &log->head); /* a trim came in between */
    } else if (copy->state == PML_RESETTING) {
        copy->epoch = log->epoch;
        copy->state = PML_RESLOTTING;
        if (copy->slot.head.position == log->head.position &&
            copy->slot.head.check == log->head.check)
            copy->state = PML_COPYING;
        else
            pml_push_slot(log, copy, PML_FOR_RESLOT);
    } else if (copy->state == PML_RESLOTTING) {
        copy->state = PML_COPYING;
    }
}

void pml_fetch_done(struct pml_log *log, unsigned source, unsigned which, uint64_t len)
{
    struct pml_copy *copy = &log->copies[which];
    struct pml_record record;
    uint64_t at = 0, need = 0;
    copy->chunk_busy = false;
    if (copy->state != PML_COPYING || copy->scan.position < log->head.position)
        return;
    const uint64_t from = copy->scan.position;
    enum pml_found found = PML_RECORD;
    while (at < len) {
        found = pml_record_parse(&log->config.geometry, &copy->scan, copy->chunk + at, len - at,
                                 &record, &need);
        if (found != PML_RECORD)
            break;
        at += record.next.position - copy->scan.position;
        copy->scan = record.next;
    }
    if (found == PML_END || !at) { /* the source is not what it was */
        log->copies[source].state = PML_BAD;
        log->copies[source].verdict = PML_DAMAGED;
        pml_copy_gone(log, PML_LIVE);
    }
    if (!at || copy->state != PML_COPYING)
        return;
    pml_push_ring(log, copy, PML_WRITE, from, at, copy->chunk);
    pml_push_ring(log, copy, PML_FLUSH, from, at, NULL);
    pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                    .offset = PML_TAIL_OFFSET,
                                    .len_bytes = sizeof(uint64_t),
                                    .word = copy->scan.position});
    copy->writes_chunk = true;
    pml_push_group(copy, PML_FOR_COPY, PML_NOBODY, 0);
}

/* Its next record may be one that the log does not have, and would then be found again. */
static void erase_next(struct pml_log *log, struct pml_copy *copy)
{
    const uint64_t limit = copy->slot.head.position + log->config.geometry.ring_bytes;
    if (copy->scan.position >= limit)
        return;
    memset(copy->slot_line, 0, PML_LINE_BYTES);
    pml_push_ring(log, copy, PML_WRITE, copy->scan.position, PML_LINE_BYTES, copy->slot_line);
    pml_push_ring(log, copy, PML_FLUSH, copy->scan.position, PML_LINE_BYTES, NULL);
}

static void go_live(struct pml_log *log, struct pml_copy *copy)
{
    if (!copy->has_settled) {
        copy->state = PML_SETTLING;
        erase_next(log, copy);
        /* Readers go by it; a cut may have taken it back. */
        pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                        .offset = PML_TAIL_OFFSET,
                                        .len_bytes = sizeof(uint64_t),
                                        .word = copy->scan.position});
        pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                        .offset = PML_SETTLED_OFFSET,
                                        .len_bytes = sizeof(uint64_t),
                                        .word = log->epoch});
        pml_push(copy, &(struct pml_op){.verb = PML_FLUSH,
                                        .offset = PML_SETTLED_OFFSET,
                                        .len_bytes = sizeof(uint64_t)});
        /* Behind the FLUSH: a reader that sees it knows that the settled word outlives the
         * power. */
        pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                        .offset = PML_SHOWN_OFFSET,
                                        .len_bytes = sizeof(uint64_t),
                                        .word = log->epoch});
        pml_push_group(copy, PML_FOR_SETTLE, PML_NOBODY, 0);
        return;
    }
    copy->state = PML_LIVE;
    copy->posted = copy->done = copy->scan.position;
    pml_count_quorum(log);
}

void pml_settle_done(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    if (copy->state != PML_SETTLING)
        return;
    copy->settled = log->epoch;
    copy->has_settled = true;
    copy->state = PML_COPYING; /* the stage may have moved on */
}

static void copy_on(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    if (copy->chunk_busy || copy->writes_chunk)
        return;
    if (copy->scan.position < log->head.position) {
        begin_reset(log, which, &log->head);
        return;
    }
    if (copy->scan.position >= pml_stage_low(log)) {
        go_live(log, copy);
        return;
    }
    const uint8_t source = catch_up_find_source(log, which);
    if (source == PML_NOBODY)
        return;
    struct pml_copy *from = &log->copies[source];
    const uint64_t room =
        copy->slot.head.position + log->config.geometry.ring_bytes - copy->scan.position;
    if (from->done - copy->scan.position > room && copy->slot.head.position < log->head.position) {
        copy->state = PML_RESLOTTING;
        pml_push_slot(log, copy, PML_FOR_RESLOT);
        return;
    }
    uint64_t len = from->done - copy->scan.position;
    if (len > log->config.chunk_bytes)
        len = log->config.chunk_bytes;
    copy->chunk_busy = true;
    pml_push_ring(log, from, PML_READ, copy->scan.position, len, copy->chunk);
    pml_push_group(from, PML_FOR_FETCH, (uint8_t)which, len);
}

void pml_catch_up_step(struct pml_log *log, unsigned which)
{
    const enum pml_copy_state state = log->copies[which].state;
    if (!log->established)
        return;
    if (state == PML_SCANNED)
        begin_match(log, which);
    else if (state == PML_MATCHING && !log->copies[which].chunk_busy)
        match_on(log, which); /* its source was lost, or had no room */
    else if (state == PML_COPYING)
        copy_on(log, which);
}
