/* SPDX-License-Identifier: BSD-2-Clause */
/* Records are staged once, and written from there to each copy that is live. */
#include <assert.h>
#include <string.h>

#include "common/base/minmax.h"
#include "pmem/log/steps.h"

uint64_t pml_stage_low(const struct pml_log *log)
{
    const uint64_t stage = log->config.stage_bytes, end = log->end.position;
    return end > stage && end - stage > log->stage_base ? end - stage : log->stage_base;
}

static void stage_record(struct pml_log *log, const void *payload, uint32_t len)
{
    const uint64_t all = pml_record_bytes(len), stage = log->config.stage_bytes;
    assert(len <= log->config.geometry.payload_max);
    const uint64_t at = log->end.position % stage;
    const uint64_t first = mover_min_u64(all, stage - at);
    uint8_t *to = first == all ? log->stage + at : log->scratch;
    pml_record_format(&log->config.geometry, &log->end, log->epoch, payload, len, to, &log->end);
    if (first < all) {
        memcpy(log->stage + at, to, first);
        memcpy(log->stage, to + first, all - first);
    }
}

static bool stage_has_room(const struct pml_log *log, uint64_t len)
{
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        if (log->copies[i].state == PML_LIVE &&
            log->end.position + len > log->copies[i].done + log->config.stage_bytes)
            return false;
    return true;
}

enum pml_status pml_append(struct pml_log *log, const void *payload, uint32_t len, uint64_t user)
{
    const uint64_t all = pml_record_bytes(len);
    if (log->fenced || log->broken)
        return log->fenced ? PML_FENCED : PML_BROKEN;
    if (len > log->config.geometry.payload_max)
        return PML_TOO_LONG;
    if (!log->recovered || log->pending_count + log->outcome_count >= log->config.window)
        return PML_AGAIN;
    if (log->end.position + all > log->head.position + log->config.geometry.ring_bytes)
        return PML_FULL;
    if (!stage_has_room(log, all))
        return PML_AGAIN;
    stage_record(log, payload, len);
    log->pending[(log->pending_first + log->pending_count++) % PML_WINDOW_MAX] =
        (struct pml_pending){user, log->end};
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        pml_append_step(log, i);
    return PML_OK;
}

static void post_record(struct pml_log *log, struct pml_copy *copy, uint64_t len)
{
    const uint64_t stage = log->config.stage_bytes, at = copy->posted % stage;
    const uint64_t first = mover_min_u64(len, stage - at);
    /* The stage divides the ring: where that wraps, the stage does. */
    pml_push_ring(log, copy, PML_WRITE, copy->posted, first, log->stage + at);
    if (first < len)
        pml_push_ring(log, copy, PML_WRITE, copy->posted + first, len - first, log->stage);
    pml_push_ring(log, copy, PML_FLUSH, copy->posted, len, NULL);
    copy->posted += len;
    pml_push(copy, &(struct pml_op){.verb = PML_PUBLISH,
                                    .offset = PML_TAIL_OFFSET,
                                    .len_bytes = sizeof(uint64_t),
                                    .word = copy->posted});
    pml_push_group(copy, PML_FOR_APPEND, PML_NOBODY, copy->posted);
}

void pml_append_step(struct pml_log *log, unsigned which)
{
    struct pml_copy *copy = &log->copies[which];
    if (copy->state != PML_LIVE)
        return;
    if (copy->slot.head.position < log->head.position && !copy->slot_busy &&
        copy->done >= log->head.position && pml_has_room(copy))
        pml_push_slot(log, copy, PML_FOR_TRIM);
    while (copy->posted < log->end.position && pml_has_room(copy)) {
        const uint8_t *header = log->stage + copy->posted % log->config.stage_bytes;
        const uint64_t len = pml_record_bytes((uint32_t)pml_word_at(header, 8));
        /* Space is used again only when the head beyond it is persistent. */
        if (copy->posted + len > copy->slot.head.position + log->config.geometry.ring_bytes)
            return;
        post_record(log, copy, len);
    }
}

static void put_outcome(struct pml_log *log, enum pml_status status)
{
    const struct pml_pending *pending = &log->pending[log->pending_first];
    assert(log->pending_count && log->outcome_count < PML_WINDOW_MAX);
    log->outcomes[(log->outcome_first + log->outcome_count++) % PML_WINDOW_MAX] =
        (struct pml_outcome){pending->user, status, pending->next};
    log->pending_first = (log->pending_first + 1) % PML_WINDOW_MAX;
    log->pending_count--;
}

void pml_end_pending(struct pml_log *log, enum pml_status status)
{
    while (log->pending_count)
        put_outcome(log, status);
}

/* The furthest position that a quorum has; false: there is no quorum. */
static bool quorum_position(const struct pml_log *log, uint64_t *out)
{
    bool any = false;
    for (unsigned i = 0; i < log->config.geometry.copies; i++) {
        const uint64_t done = log->copies[i].done;
        unsigned have = 0;
        for (unsigned j = 0; j < log->config.geometry.copies; j++)
            have += log->copies[j].state == PML_LIVE && log->copies[j].done >= done;
        if (log->copies[i].state == PML_LIVE && have >= log->config.geometry.quorum &&
            (!any || done > *out)) {
            any = true;
            *out = done;
        }
    }
    return any;
}

void pml_count_quorum(struct pml_log *log)
{
    uint64_t position = 0;
    if (!log->established || !quorum_position(log, &position) || position < log->found.position)
        return;
    /* Appends from before recovery: those that were found are on a quorum now, the rest nowhere. */
    while (log->pending_count && log->pending[log->pending_first].next.position <= position) {
        log->acked = log->pending[log->pending_first].next;
        put_outcome(log, PML_OK);
    }
    if (log->recovered)
        return;
    log->recovered = log->has_acked = true;
    log->acked = log->found;
    pml_end_pending(log, PML_NOT_DONE);
}

bool pml_outcome(struct pml_log *log, struct pml_outcome *out)
{
    if (!log->outcome_count)
        return false;
    *out = log->outcomes[log->outcome_first];
    log->outcome_first = (log->outcome_first + 1) % PML_WINDOW_MAX;
    log->outcome_count--;
    return true;
}

enum pml_status pml_trim(struct pml_log *log, const struct pml_mark *to)
{
    if (log->fenced || log->broken)
        return log->fenced ? PML_FENCED : PML_BROKEN;
    if (!log->recovered)
        return PML_AGAIN;
    assert(to->position <= log->acked.position);
    if (to->position > log->head.position)
        log->head = *to;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        pml_append_step(log, i);
    return PML_OK;
}
