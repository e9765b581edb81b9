/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/machine.h"

#include <assert.h>
#include <string.h>

#include "collectives/core/compare.h"
#include "collectives/core/fold.h"
#include "collectives/core/messages.h"
#include "collectives/core/moves.h"

/* ---- memory ---- */

enum { ALIGN = 64 };

/* Takes the next part of the machine's memory; with a NULL base it only counts. */
static void *machine_part(uint8_t *base, size_t *used, size_t bytes)
{
    void *part = base ? base + *used : NULL;
    *used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return part;
}

static size_t lay_out(struct coll_machine *machine, uint32_t size, uint8_t *base)
{
    size_t used = 0;
    machine->records = machine_part(base, &used, size * sizeof(*machine->records));
    machine->mails = machine_part(base, &used, size * sizeof(*machine->mails));
    machine->missing = machine_part(base, &used, size * sizeof(*machine->missing));
    machine->counts = machine_part(base, &used, size * sizeof(*machine->counts));
    machine->recv_counts = machine_part(base, &used, size * sizeof(*machine->recv_counts));
    machine->steps_mailed = machine_part(base, &used, size * sizeof(*machine->steps_mailed));
    machine->steps_heard = machine_part(base, &used, size * sizeof(*machine->steps_heard));
    machine->sources =
        machine_part(base, &used, (size_t)size * SW_COLL_LEAVES_MAX * sizeof(*machine->sources));
    machine->mailed = machine_part(base, &used, size * sizeof(*machine->mailed));
    machine->table.room = coll_steps_max(size);
    machine->table.steps =
        machine_part(base, &used, machine->table.room * sizeof(*machine->table.steps));
    return used;
}

size_t coll_machine_bytes(uint32_t size)
{
    struct coll_machine none;
    return lay_out(&none, size, NULL);
}

void coll_machine_init(struct coll_machine *machine, const struct coll_site *site,
                       const struct coll_port *port, void *memory, void *scratch,
                       struct coll_shown *shown)
{
    assert(site->rank < site->size && site->size <= SW_COLL_RANKS_MAX && port->posts_max);
    assert(site->scratch_bytes >= coll_scratch_min(site->size, site->eager_bytes));
    *machine = (struct coll_machine){
        .site = *site, .port = port, .scratch = scratch, .shown = shown, .unlike = site->size};
    lay_out(machine, site->size, memory);
    memset(machine->steps_mailed, 0, site->size * sizeof(*machine->steps_mailed));
    memset(machine->steps_heard, 0, site->size * sizeof(*machine->steps_heard));
}

/* ---- the machine ---- */

/* False: it waits, or has failed. */
static bool do_step(struct coll_machine *machine, const struct coll_step *step)
{
    switch (step->action) {
    case COLL_MAIL:
        return coll_mail_step(machine, step);
    case COLL_AWAIT:
        return coll_await_step(machine, step);
    case COLL_PULL:
    case COLL_PUSH:
        return coll_post_step(machine, step);
    case COLL_SETTLE_PULLS:
        return coll_has_settled(machine, machine->pulled[machine->chunk & 1]);
    case COLL_SETTLE:
        return coll_has_settled(machine, machine->posted);
    case COLL_FOLD:
        coll_fold_step(machine, step);
        return true;
    case COLL_COPY:
        coll_copy_step(machine, step);
        return true;
    case COLL_FOLD_LEAVES:
    case COLL_FOLD_PARTIALS:
        coll_fold_pair_step(machine, step);
        return true;
    case COLL_FINISH:
        coll_finish_step(machine, step);
        return true;
    case COLL_DELIVER:
        return coll_deliver_step(machine, step);
    case COLL_ACTIONS:
        break;
    }
    assert(false);
    return false;
}

enum sw_coll_status coll_machine_go(struct coll_machine *machine)
{
    const struct coll_table *table = &machine->table;
    while (machine->status == SW_COLL_AGAIN) {
        if (machine->step == table->loop && machine->chunk >= table->chunks)
            machine->step = table->loop_end;
        if (machine->step == table->count) {
            machine->status = SW_COLL_OK;
            break;
        }
        if (!do_step(machine, &table->steps[machine->step]))
            break;
        if (++machine->step == table->loop_end && machine->chunk < table->chunks) {
            machine->chunk++;
            machine->step = table->loop;
        }
    }
    return machine->status;
}

static bool is_same_shape(const struct sw_coll_call *one, const struct sw_coll_call *other)
{
    return one->kind == other->kind && one->type == other->type && one->op == other->op &&
           one->root == other->root && one->count == other->count && one->leaves == other->leaves &&
           !other->counts;
}

static const uint64_t *keep_counts(const struct coll_machine *machine, const uint64_t *counts,
                                   uint64_t *kept)
{
    return counts ? memcpy(kept, counts, machine->site.size * sizeof(*counts)) : NULL;
}

/* A table for the call, and all that follows from the call beside its buffers. */
static void plan_operation(struct coll_machine *machine, const struct sw_coll_call *call)
{
    const struct coll_site *site = &machine->site;
    machine->asked = *call;
    machine->has_table = !call->counts;
    machine->call = coll_call_plain(call, site->rank);
    machine->call.counts = keep_counts(machine, machine->call.counts, machine->counts);
    machine->call.recv_counts =
        keep_counts(machine, machine->call.recv_counts, machine->recv_counts);
    if (machine->call.counts)
        memcpy(machine->shown->counts, machine->counts, site->size * sizeof(*machine->counts));
    coll_plan_make(&machine->table, &machine->call, site);
    coll_record_of_call(&machine->records[site->rank], &machine->call, site, machine->table.plan);
    machine->type_shift = (uint8_t)__builtin_ctzl(sw_coll_type_bytes(machine->call.type));
    machine->partial_shift =
        (uint8_t)__builtin_ctzl(coll_partial_bytes(machine->call.type)) - machine->type_shift;
    const bool is_eager = machine->table.plan == COLL_PLAN_EAGER;
    for (uint32_t i = 0; i < site->size; i++)
        machine->mailed[i] =
            is_eager ? (uint32_t)coll_call_mailed(&machine->call, i, site->rank) : 0;
}

void coll_machine_begin(struct coll_machine *machine, const struct sw_coll_call *call,
                        uint64_t number, struct coll_memory send, struct coll_memory recv)
{
    const struct coll_site *site = &machine->site;
    assert(machine->status == SW_COLL_OK && number == machine->number + 1);
    if (!machine->has_table || !is_same_shape(&machine->asked, call))
        plan_operation(machine, call);
    machine->call.send = coll_call_send(call, site->rank);
    machine->call.recv = call->recv;
    if (coll_plan_has_rounds(machine->table.plan)) {
        coll_show_word(&machine->shown->awaited, 0);
        coll_show_word(&machine->shown->unconfirmed, 0);
        coll_show_word(&machine->shown->number, number);
    }
    machine->records[site->rank].mark = machine->number = number;
    machine->send = send;
    machine->recv = recv;
    machine->step = machine->cursor = 0;
    machine->chunk = 0;
    machine->finding = machine->judge = machine->unlike = site->size;
    machine->is_judged = false;
    machine->status = SW_COLL_AGAIN;
}
