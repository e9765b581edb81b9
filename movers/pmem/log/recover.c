/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading copies, and the election: a quorum that has been read takes a new epoch and a log. */
#include <string.h>

#include "common/minmax.h"
#include "pmem/log/steps.h"

void pml_read_control(struct pml_copy *copy)
{
    copy->state = PML_READING;
    copy->slot_busy = copy->writes_chunk = copy->has_settled = false;
    copy->passed = 0;
    pml_push(copy, &(struct pml_op){
                       .verb = PML_READ, .len_bytes = PML_CONTROL_BYTES, .data = copy->control});
    pml_push_group(copy, PML_FOR_CONTROL, PML_NOBODY, 0);
}

static void condemn_copy(struct pml_copy *copy, enum pml_verdict verdict)
{
    copy->state = PML_BAD;
    copy->verdict = verdict;
}

static uint64_t scan_limit(const struct pml_log *log, const struct pml_copy *copy)
{
    return copy->slot.head.position + log->config.geometry.ring_bytes - copy->scan.position;
}

static void end_scan(struct pml_copy *copy)
{
    /* Words say what had been flushed before they were written. */
    if ((copy->tail && copy->tail > copy->scan.position) || copy->epoch < copy->scan.epoch ||
        copy->epoch < copy->settled)
        condemn_copy(copy, PML_DAMAGED);
    else
        copy->state = PML_SCANNED;
}

static void read_on(struct pml_log *log, struct pml_copy *copy)
{
    const uint64_t limit = scan_limit(log, copy);
    const uint64_t len = mover_min_u64(limit, log->config.chunk_bytes);
    if (!len) {
        end_scan(copy);
        return;
    }
    pml_push_ring(log, copy, PML_READ, copy->scan.position, len, copy->chunk);
    pml_push_group(copy, PML_FOR_SCAN, PML_NOBODY, len);
}

void pml_control_done(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    const struct pml_geometry *ours = &log->config.geometry;
    struct pml_geometry geometry;
    uint16_t index = 0;
    if (copy->state != PML_READING)
        return;
    memset(&geometry, 0, sizeof(geometry));
    enum pml_verdict verdict = pml_superblock_parse(copy->control, &geometry, &index);
    if (verdict == PML_FINE && memcmp(geometry.id, ours->id, PML_ID_BYTES) != 0)
        verdict = PML_OTHER_LOG;
    else if (verdict == PML_FINE && index != which)
        verdict = PML_OTHER_COPY;
    else if (verdict == PML_FINE &&
             (geometry.ring_bytes != ours->ring_bytes || geometry.copies != ours->copies ||
              geometry.payload_max != ours->payload_max))
        verdict = PML_DAMAGED;
    pml_slot_parse(ours, copy->control, &copy->slot);
    if (verdict == PML_FINE &&
        (!copy->slot.count || pml_word_at(copy->control, PML_EPOCH_OFFSET) > PML_NUMBER_MAX))
        verdict = PML_DAMAGED;
    if (verdict != PML_FINE) {
        condemn_copy(copy, verdict);
        return;
    }
    copy->verdict = PML_FINE;
    copy->epoch = pml_word_at(copy->control, PML_EPOCH_OFFSET);
    copy->tail = pml_word_at(copy->control, PML_TAIL_OFFSET);
    copy->settled = pml_word_at(copy->control, PML_SETTLED_OFFSET);
    copy->scan = copy->slot.head;
    copy->state = PML_SCANNING;
    read_on(log, copy);
}

void pml_scan_done(struct pml_log *log, unsigned which, uint64_t len)
{
    struct pml_copy *copy = &log->copies[which];
    struct pml_record record;
    uint64_t at = 0, need = 0;
    if (copy->state != PML_SCANNING)
        return;
    for (;;) {
        const enum pml_found found = pml_record_parse(&log->config.geometry, &copy->scan,
                                                      copy->chunk + at, len - at, &record, &need);
        if (found == PML_END || (found == PML_MORE && need > scan_limit(log, copy))) {
            end_scan(copy);
            return;
        }
        if (found == PML_MORE) {
            read_on(log, copy);
            return;
        }
        copy->trail[copy->passed++ % PML_TRAIL_MAX] =
            (struct pml_passed){copy->scan.position, record.next};
        at += record.next.position - copy->scan.position;
        copy->scan = record.next;
    }
}

static unsigned count_state(const struct pml_log *log, enum pml_copy_state state)
{
    unsigned count = 0;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        count += log->copies[i].state == state;
    return count;
}

/* All is read anew where nothing is left to go on from. */
void pml_copy_gone(struct pml_log *log, enum pml_copy_state was)
{
    if (log->recovered ? count_state(log, PML_LIVE) > 0 : was < PML_PROMISING || was > PML_LIVE)
        return;
    log->electing = log->established = log->recovered = false;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        if (log->copies[i].state >= PML_SCANNED && log->copies[i].state <= PML_LIVE)
            log->copies[i].state = PML_DRAINING;
}

static void promise_epoch(struct pml_log *log)
{
    uint64_t epoch = log->epoch;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        if (log->copies[i].state == PML_SCANNED && log->copies[i].epoch > epoch)
            epoch = log->copies[i].epoch;
    /* A writer that has had an epoch does not take the log back from a later one. */
    if (log->epoch && epoch > log->epoch) {
        log->fenced = true;
        return;
    }
    log->epoch = epoch + 1;
    log->electing = true;
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        struct pml_copy *copy = &log->copies[i];
        if (copy->state != PML_SCANNED)
            continue;
        copy->state = PML_PROMISING;
        pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                        .offset = PML_EPOCH_OFFSET,
                                        .len_bytes = sizeof(uint64_t),
                                        .word = log->epoch});
        pml_push(copy, &(struct pml_op){.verb = PML_FLUSH,
                                        .offset = PML_EPOCH_OFFSET,
                                        .len_bytes = sizeof(uint64_t)});
        pml_push_group(copy, PML_FOR_PROMISE, PML_NOBODY, 0);
    }
}

/* Whose log it is: its last record's writer, or one that made it its own and added nothing. */
static uint64_t log_epoch(const struct pml_copy *copy)
{
    return copy->settled > copy->scan.epoch ? copy->settled : copy->scan.epoch;
}

static bool is_better(const struct pml_copy *a, const struct pml_copy *b)
{
    return log_epoch(a) != log_epoch(b) ? log_epoch(a) > log_epoch(b)
                                        : a->scan.position > b->scan.position;
}

/* Two writers that both failed to be elected may have tried the same epoch. So it is the log itself
 * that shows whether another one has written to it since. */
static bool is_our_own(const struct pml_log *log, const struct pml_mark *end)
{
    bool ours = end->position == log->acked.position && end->check == log->acked.check;
    for (unsigned i = 0; i < log->pending_count && !ours; i++) {
        const struct pml_mark *next = &log->pending[(log->pending_first + i) % PML_WINDOW_MAX].next;
        ours = end->position == next->position && end->check == next->check;
    }
    return ours;
}

/* A quorum has the epoch: the best of it is the log. */
static void establish_epoch(struct pml_log *log)
{
    log->best = PML_NOBODY;
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        struct pml_copy *copy = &log->copies[i];
        if (copy->state != PML_PROMISED)
            continue;
        if (log->best == PML_NOBODY || is_better(copy, &log->copies[log->best]))
            log->best = (uint8_t)i;
        if (!log->has_head || copy->slot.head.position > log->head.position) {
            log->head = copy->slot.head;
            log->has_head = true;
        }
    }
    const struct pml_copy *best = &log->copies[log->best];
    if (log->head.position > best->scan.position || log->acked.position > best->scan.position) {
        log->broken = true;
        return;
    }
    if (log->has_acked && !is_our_own(log, &best->scan)) {
        log->fenced = true;
        return;
    }
    log->electing = false;
    log->established = true;
    log->end = best->scan;
    log->found = best->scan;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        if (log->copies[i].state == PML_PROMISED)
            log->copies[i].state = PML_SCANNED;
    log->stage_base = log->end.position;
}

void pml_recover_step(struct pml_log *log)
{
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        struct pml_copy *copy = &log->copies[i];
        if (copy->state == PML_DRAINING && !copy->op_count && !copy->group_count &&
            !copy->chunk_busy)
            pml_read_control(copy);
    }
    if (log->established)
        return;
    if (!log->electing && count_state(log, PML_SCANNED) >= log->config.geometry.quorum)
        promise_epoch(log);
    /* What drains may still be reading from the stage. */
    if (log->electing && !count_state(log, PML_PROMISING) && !count_state(log, PML_DRAINING) &&
        count_state(log, PML_PROMISED) >= log->config.geometry.quorum)
        establish_epoch(log);
}
