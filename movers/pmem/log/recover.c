/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading copies, and the election: a quorum that has been read takes a new epoch and a log. */
#include <string.h>

#include "common/base/minmax.h"
#include "pmem/log/steps.h"

static void read_control(struct pml_copy *copy)
{
    copy->state = PML_READING;
    copy->slot_busy = copy->writes_chunk = copy->has_settled = copy->is_doubted = false;
    copy->passed = 0;
    pml_push(copy, &(struct pml_op){
                       .verb = PML_READ, .len_bytes = PML_CONTROL_BYTES, .data = copy->control});
    pml_push_group(copy, PML_FOR_CONTROL, PML_NOBODY, 0);
}

void pml_condemn(struct pml_copy *copy, enum pml_verdict verdict)
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
        pml_condemn(copy, PML_DAMAGED);
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
    else if (verdict == PML_FINE && !pml_geometry_is_same(&geometry, ours))
        verdict = PML_DAMAGED;
    pml_slot_parse(ours, copy->control, &copy->slot);
    /* No writer can come after the greatest epoch. */
    if (verdict == PML_FINE &&
        (!copy->slot.count || pml_word_at(copy->control, PML_EPOCH_OFFSET) >= PML_NUMBER_MAX))
        verdict = PML_DAMAGED;
    if (verdict != PML_FINE) {
        pml_condemn(copy, verdict);
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

/* Epoch of the log's owner: the writer of its last record, or one that claimed it since and added
 * nothing. */
static uint64_t log_epoch(const struct pml_copy *copy)
{
    return copy->settled > copy->scan.epoch ? copy->settled : copy->scan.epoch;
}

/* Its epoch word is far beyond what we had, and what all other copies say. */
static bool leaps_alone(const struct pml_log *log, unsigned which)
{
    const uint64_t epoch = log->copies[which].epoch;
    bool has_other = log->epoch != 0;
    uint64_t most = log->epoch;
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        if (i == which || log->copies[i].state != PML_SCANNED)
            continue;
        has_other = true;
        most = mover_max_u64(most, log->copies[i].epoch);
    }
    return has_other && epoch > PML_EPOCH_LEAP && epoch - PML_EPOCH_LEAP > most;
}

/* A writer that settles or appends has been promised by a quorum before; trimmed records have been
 * on a quorum. So if that many other copies know nothing of it, there was no quorum. */
static bool claims_alone(const struct pml_log *log, unsigned which)
{
    const struct pml_geometry *geometry = &log->config.geometry;
    const struct pml_copy *copy = &log->copies[which];
    unsigned unaware = 0;
    for (unsigned i = 0; i < geometry->copies; i++)
        unaware += i != which && log->copies[i].state == PML_SCANNED &&
                   (log->copies[i].epoch < log_epoch(copy) ||
                    log->copies[i].scan.position < copy->slot.head.position);
    return unaware > (unsigned)(geometry->copies - geometry->quorum);
}

/* One copy's words never decide for the others. False: too few copies are left without it. */
static bool doubt_copies(struct pml_log *log)
{
    unsigned left = 0;
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        struct pml_copy *copy = &log->copies[i];
        const bool is_there = copy->state == PML_SCANNED;
        copy->is_doubted = is_there && (leaps_alone(log, i) || claims_alone(log, i));
        left += is_there && !copy->is_doubted;
    }
    return left >= log->config.geometry.quorum;
}

static void promise_epoch(struct pml_log *log)
{
    uint64_t epoch = log->epoch;
    if (!doubt_copies(log))
        return;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        if (log->copies[i].state == PML_SCANNED && !log->copies[i].is_doubted)
            epoch = mover_max_u64(epoch, log->copies[i].epoch);
    /* A writer that has had an epoch does not take the log back from a later one. */
    if (log->epoch && epoch > log->epoch) {
        log->fenced = true;
        return;
    }
    log->epoch = epoch + 1;
    log->electing = true;
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        struct pml_copy *copy = &log->copies[i];
        if (copy->state != PML_SCANNED || copy->is_doubted)
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

static void find_best(struct pml_log *log)
{
    log->best = PML_NOBODY;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        if (log->copies[i].state == PML_PROMISED &&
            (log->best == PML_NOBODY || is_better(&log->copies[i], &log->copies[log->best])))
            log->best = (uint8_t)i;
}

/* As far as the last records tell that were read of it: what is before them is believed. */
bool pml_confirms_head(const struct pml_copy *best, const struct pml_mark *head)
{
    const uint64_t low = best->passed > PML_TRAIL_MAX ? best->passed - PML_TRAIL_MAX : 0;
    uint64_t start = best->scan.position;
    if (head->position == start)
        return head->check == best->scan.check && head->sequence == best->scan.sequence;
    if (head->position == best->slot.head.position)
        return head->check == best->slot.head.check;
    for (uint64_t i = best->passed; i-- > low;) {
        const struct pml_passed *passed = &best->trail[i % PML_TRAIL_MAX];
        if (passed->next.position == head->position)
            return passed->next.check == head->check && passed->next.sequence == head->sequence;
        start = passed->position;
    }
    return head->position < start;
}

/* Records that one writer has settled or appended on two copies begin alike, so the end of the
 * shorter ones is a place in the longer ones. */
static bool parts_from(const struct pml_copy *copy, const struct pml_copy *best)
{
    return log_epoch(copy) == log_epoch(best) && !pml_confirms_head(best, &copy->scan);
}

/* Only what was acknowledged is trimmed, and the best has all of that: a head that it does not have
 * is wrong, or the best is, where more say so than may be. */
static void doubt_heads(struct pml_log *log)
{
    const struct pml_geometry *geometry = &log->config.geometry;
    struct pml_copy *best = &log->copies[log->best];
    bool is_wrong[PML_COPIES_MAX] = {false};
    unsigned wrong = 0;
    for (unsigned i = 0; i < geometry->copies; i++) {
        const struct pml_copy *copy = &log->copies[i];
        is_wrong[i] = copy->state == PML_PROMISED &&
                      (!pml_confirms_head(best, &copy->slot.head) || parts_from(copy, best));
        wrong += is_wrong[i];
    }
    if (wrong > (unsigned)(geometry->copies - geometry->quorum)) {
        pml_condemn(best, PML_DAMAGED);
        return;
    }
    for (unsigned i = 0; i < geometry->copies; i++)
        if (is_wrong[i])
            pml_condemn(&log->copies[i], PML_DAMAGED);
}

static void take_heads(struct pml_log *log)
{
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        const struct pml_copy *copy = &log->copies[i];
        if (copy->state == PML_PROMISED &&
            (!log->has_head || copy->slot.head.position > log->head.position)) {
            log->head = copy->slot.head;
            log->has_head = true;
        }
    }
}

/* A quorum has the epoch: the best of it is the log. */
static void establish_epoch(struct pml_log *log)
{
    find_best(log);
    doubt_heads(log);
    if (log->copies[log->best].state == PML_BAD ||
        count_state(log, PML_PROMISED) < log->config.geometry.quorum) {
        pml_copy_gone(log, PML_PROMISED); /* another election, without it */
        return;
    }
    take_heads(log);
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
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        struct pml_copy *copy = &log->copies[i];
        /* A quorum was ours till now, so no other writer was at work that it could know of. */
        if (copy->state == PML_SCANNED && copy->is_doubted)
            pml_condemn(copy, PML_DAMAGED);
        else if (copy->state == PML_PROMISED)
            copy->state = PML_SCANNED;
    }
    log->stage_base = log->end.position;
}

void pml_recover_step(struct pml_log *log)
{
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        struct pml_copy *copy = &log->copies[i];
        if (copy->state == PML_DRAINING && !copy->op_count && !copy->group_count &&
            !copy->chunk_busy)
            read_control(copy);
    }
    if (log->established)
        return;
    const unsigned scanned = count_state(log, PML_SCANNED);
    const bool has_all = scanned + count_state(log, PML_BAD) == log->config.geometry.copies;
    if (!log->electing && scanned >= log->config.geometry.quorum && (has_all || !log->is_patient))
        promise_epoch(log);
    /* A copy that drains may still be reading from the stage. */
    if (log->electing && !count_state(log, PML_PROMISING) && !count_state(log, PML_DRAINING) &&
        count_state(log, PML_PROMISED) >= log->config.geometry.quorum)
        establish_epoch(log);
}
