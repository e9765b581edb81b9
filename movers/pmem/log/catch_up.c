/* SPDX-License-Identifier: BSD-2-Clause */
/* A copy is brought up to date from one that is. */
#include <string.h>

#include "pmem/log/steps.h"

static uint8_t find_source(const struct pml_log *log, unsigned but)
{
    uint8_t source = PML_NOBODY;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        if (i != but && log->copies[i].state == PML_LIVE && pml_has_room(&log->copies[i]) &&
            (source == PML_NOBODY || log->copies[i].done > log->copies[source].done))
            source = (uint8_t)i;
    return source;
}

static void begin_reset(struct pml_log *log, unsigned which, bool truncates)
{
    struct pml_copy *copy = &log->copies[which];
    copy->state = PML_RESETTING;
    if (truncates) {
        copy->scan = log->head;
        pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                        .offset = PML_TAIL_OFFSET,
                                        .len_bytes = sizeof(uint64_t)});
    }
    pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                    .offset = PML_EPOCH_OFFSET,
                                    .len_bytes = sizeof(uint64_t),
                                    .word = log->epoch});
    /* Records that were read may never have been flushed by who wrote them. */
    pml_push_flush_all(log, copy);
    pml_push_group(copy, PML_FOR_RESET, PML_NOBODY, 0);
}

static void begin_match(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    if (copy->epoch > log->epoch) {
        log->fenced = true;
        return;
    }
    /* A trim that had got no further than to this copy. */
    if (copy->slot.head.position > log->head.position)
        log->head = copy->slot.head;
    if (log->head.position > log->end.position) {
        log->broken = true;
        return;
    }
    if (which == log->best && !log->recovered) {
        begin_reset(log, which, false);
        return;
    }
    const uint8_t source = find_source(log, which);
    if (source == PML_NOBODY)
        return;
    struct pml_copy *from = &log->copies[source];
    if (copy->scan.position == log->head.position && copy->scan.check == log->head.check) {
        begin_reset(log, which, false);
    } else if (!copy->has_last || copy->last_position < log->head.position ||
               copy->scan.position > from->done) {
        begin_reset(log, which, true);
    } else {
        copy->state = PML_MATCHING;
        copy->chunk_busy = true;
        pml_push_ring(log, from, PML_READ, copy->last_position, PML_LINE_BYTES, copy->chunk);
        pml_push_group(from, PML_FOR_MATCH, (uint8_t)which, 0);
    }
}

void pml_match_done(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    copy->chunk_busy = false;
    if (copy->state != PML_MATCHING)
        return;
    /* The last eight bytes of a header are its check. */
    const uint64_t check = pml_word_at(copy->chunk, PML_LINE_BYTES - sizeof(uint64_t));
    begin_reset(log, which, check != copy->scan.check || copy->last_position < log->head.position);
}

void pml_reset_done(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    if (copy->slot_busy) {
        copy->slot = copy->slot_to;
        copy->slot_busy = false;
    }
    if (copy->state == PML_RESETTING && copy->scan.position < log->head.position) {
        begin_reset(log, which, true); /* a trim came in between */
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
    if (copy->settled != log->epoch) {
        copy->state = PML_SETTLING;
        erase_next(log, copy);
        pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                        .offset = PML_SETTLED_OFFSET,
                                        .len_bytes = sizeof(uint64_t),
                                        .word = log->epoch});
        pml_push(copy, &(struct pml_op){.verb = PML_FLUSH,
                                        .offset = PML_SETTLED_OFFSET,
                                        .len_bytes = sizeof(uint64_t)});
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
    copy->state = PML_COPYING; /* the stage may have moved on */
}

static void copy_on(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    if (copy->chunk_busy || copy->writes_chunk)
        return;
    if (copy->scan.position < log->head.position) {
        begin_reset(log, which, true);
        return;
    }
    if (copy->scan.position >= pml_stage_low(log)) {
        go_live(log, copy);
        return;
    }
    const uint8_t source = find_source(log, which);
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
    else if (state == PML_COPYING)
        copy_on(log, which);
}
