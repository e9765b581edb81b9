/* SPDX-License-Identifier: BSD-2-Clause */
/* What is to be posted on each copy, and what is said of it. */
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "common/base/minmax.h"
#include "pmem/log/steps.h"

/* The most that one group needs: a WRITE, two FLUSHes and three ATOMIC WRITEs, of settling. */
enum { OPS_PER_GROUP_MAX = 6 };

uint64_t pml_memory_bytes(const struct pml_config *config)
{
    const struct pml_geometry *geometry = &config->geometry;
    const uint64_t record = pml_record_bytes(geometry->payload_max);
    if (!pml_geometry_is_valid(geometry) || config->window < 1 || config->window > PML_WINDOW_MAX ||
        config->stage_bytes < 2 * record || config->stage_bytes % PML_LINE_BYTES ||
        geometry->ring_bytes % config->stage_bytes || config->chunk_bytes < record ||
        config->chunk_bytes % PML_LINE_BYTES)
        return 0;
    return config->stage_bytes + record +
           geometry->copies * (PML_CONTROL_BYTES + PML_LINE_BYTES + config->chunk_bytes);
}

void pml_init(struct pml_log *log, const struct pml_config *config, uint8_t *memory)
{
    assert(pml_memory_bytes(config));
    memset(log, 0, sizeof(*log));
    log->config = *config;
    log->stage = memory;
    memory += config->stage_bytes;
    log->scratch = memory;
    memory += pml_record_bytes(config->geometry.payload_max);
    for (unsigned i = 0; i < config->geometry.copies; i++) {
        struct pml_copy *copy = &log->copies[i];
        copy->control = memory;
        copy->slot_line = memory + PML_CONTROL_BYTES;
        copy->chunk = copy->slot_line + PML_LINE_BYTES;
        memory = copy->chunk + config->chunk_bytes;
    }
}

void pml_push(struct pml_copy *copy, const struct pml_op *op)
{
    assert(copy->op_count < PML_OPS_MAX);
    struct pml_op *last = &copy->ops[(copy->op_first + copy->op_count++) % PML_OPS_MAX];
    *last = *op;
    last->word = htole64(op->word);
}

void pml_push_ring(struct pml_log *log, struct pml_copy *copy, enum pml_verb verb,
                   uint64_t position, uint64_t len, uint8_t *data)
{
    const uint64_t ring = log->config.geometry.ring_bytes, at = position % ring;
    const uint64_t first = mover_min_u64(len, ring - at);
    assert(len <= ring);
    pml_push(copy,
             &(struct pml_op){
                 .verb = verb, .offset = PML_RING_OFFSET + at, .len_bytes = first, .data = data});
    if (first < len)
        pml_push(copy, &(struct pml_op){.verb = verb,
                                        .offset = PML_RING_OFFSET,
                                        .len_bytes = len - first,
                                        .data = data ? data + first : NULL});
}

void pml_push_group(struct pml_copy *copy, enum pml_purpose purpose, uint8_t for_copy,
                    uint64_t position)
{
    assert(copy->op_count && copy->group_count < PML_GROUPS_MAX);
    copy->ops[(copy->op_first + copy->op_count - 1) % PML_OPS_MAX].signals = true;
    copy->groups[(copy->group_first + copy->group_count++) % PML_GROUPS_MAX] =
        (struct pml_group){purpose, for_copy, position};
}

bool pml_has_room(const struct pml_copy *copy)
{
    return copy->op_count + OPS_PER_GROUP_MAX <= PML_OPS_MAX && copy->group_count < PML_GROUPS_MAX;
}

void pml_push_flush_all(struct pml_log *log, struct pml_copy *copy)
{
    pml_push(copy,
             &(struct pml_op){.verb = PML_FLUSH,
                              .offset = 0,
                              .len_bytes = PML_RING_OFFSET + log->config.geometry.ring_bytes});
}

void pml_push_slot(struct pml_log *log, struct pml_copy *copy, enum pml_purpose purpose)
{
    assert(!copy->slot_busy); /* the line is still being written */
    copy->slot_to = (struct pml_slot){copy->slot.count + 1, log->head};
    pml_slot_format(&log->config.geometry, &copy->slot_to, copy->slot_line);
    /* Count 1 was written by `create` to the first. */
    const uint64_t offset = copy->slot_to.count % 2 ? PML_SLOT_OFFSET : 2 * PML_SLOT_OFFSET;
    pml_push(copy, &(struct pml_op){.verb = PML_WRITE,
                                    .offset = offset,
                                    .len_bytes = PML_LINE_BYTES,
                                    .data = copy->slot_line});
    pml_push(copy,
             &(struct pml_op){.verb = PML_FLUSH, .offset = offset, .len_bytes = PML_LINE_BYTES});
    copy->slot_busy = true;
    pml_push_group(copy, purpose, PML_NOBODY, 0);
}

static unsigned count_live(const struct pml_log *log)
{
    unsigned live = 0;
    for (unsigned i = 0; i < log->config.geometry.copies; i++)
        live += log->copies[i].state == PML_LIVE;
    return live;
}

static void step_all(struct pml_log *log)
{
    for (unsigned live = PML_COPIES_MAX + 1; live != count_live(log);) {
        live = count_live(log); /* who comes to live is a source for the others */
        if (!log->fenced && !log->broken)
            pml_recover_step(log);
        for (unsigned i = 0; i < log->config.geometry.copies && !log->fenced && !log->broken; i++) {
            pml_catch_up_step(log, i);
            pml_append_step(log, i);
        }
    }
    if (log->fenced || log->broken)
        pml_end_pending(log, PML_MAYBE_DONE);
}

void pml_be_patient(struct pml_log *log, bool is_patient)
{
    const bool was_patient = log->is_patient;
    log->is_patient = is_patient;
    if (was_patient && !is_patient)
        step_all(log);
}

void pml_found(struct pml_log *log, unsigned copy)
{
    assert(copy < log->config.geometry.copies && log->copies[copy].state == PML_ABSENT);
    log->copies[copy].found = true;
    log->copies[copy].state = PML_DRAINING; /* a fetch for it may still be under way elsewhere */
    step_all(log);
}

void pml_lost(struct pml_log *log, unsigned copy)
{
    assert(copy < log->config.geometry.copies);
    struct pml_copy *c = &log->copies[copy];
    const enum pml_copy_state state = c->state;
    for (unsigned i = 0; i < c->group_count; i++) {
        const struct pml_group *group = &c->groups[(c->group_first + i) % PML_GROUPS_MAX];
        if (group->purpose == PML_FOR_FETCH || group->purpose == PML_FOR_MATCH)
            log->copies[group->copy].chunk_busy = false;
    }
    c->op_count = c->group_count = 0;
    c->found = c->slot_busy = c->writes_chunk = false;
    c->state = PML_ABSENT;
    pml_copy_gone(log, state);
    step_all(log);
}

static void finish_group(struct pml_log *log, unsigned copy, const struct pml_group *group)
{
    struct pml_copy *c = &log->copies[copy];
    switch (group->purpose) {
    case PML_FOR_CONTROL:
        pml_control_done(log, copy);
        break;
    case PML_FOR_SCAN:
        pml_scan_done(log, copy, group->position);
        break;
    case PML_FOR_PROMISE:
        if (c->state == PML_PROMISING) {
            c->epoch = log->epoch;
            c->state = PML_PROMISED;
        }
        break;
    case PML_FOR_MATCH:
        pml_match_done(log, group->copy);
        break;
    case PML_FOR_RESET:
    case PML_FOR_RESLOT:
        pml_reset_done(log, copy);
        break;
    case PML_FOR_FETCH:
        pml_fetch_done(log, copy, group->copy, group->position);
        break;
    case PML_FOR_COPY:
        c->writes_chunk = false;
        break;
    case PML_FOR_SETTLE:
        pml_settle_done(log, copy);
        break;
    case PML_FOR_APPEND:
        if (c->state == PML_LIVE)
            c->done = group->position;
        pml_count_quorum(log);
        break;
    case PML_FOR_TRIM:
        c->slot = c->slot_to;
        c->slot_busy = false;
        break;
    }
}

void pml_done(struct pml_log *log, unsigned copy)
{
    assert(copy < log->config.geometry.copies && log->copies[copy].group_count);
    struct pml_copy *c = &log->copies[copy];
    const struct pml_group group = c->groups[c->group_first];
    c->group_first = (c->group_first + 1) % PML_GROUPS_MAX;
    c->group_count--;
    finish_group(log, copy, &group);
    step_all(log);
}

bool pml_next(struct pml_log *log, struct pml_op *out)
{
    const unsigned copies = log->config.geometry.copies;
    for (unsigned i = 0; i < copies && !log->fenced && !log->broken; i++) {
        const unsigned which = (log->turn + i) % copies;
        struct pml_copy *copy = &log->copies[which];
        if (!copy->op_count)
            continue;
        *out = copy->ops[copy->op_first];
        out->copy = (uint8_t)which;
        copy->op_first = (copy->op_first + 1) % PML_OPS_MAX;
        copy->op_count--;
        log->turn = which + 1;
        return true;
    }
    return false;
}
