/* SPDX-License-Identifier: BSD-2-Clause */
/* Reservations where all members are active. A change that a host was told of is known to each
 * member that serves a host, and nothing that it forbids is under way there any more. */
#include <errno.h>
#include <string.h>

#include "world.h"

enum { ASK_PERCENT = 4, HOLD_MS = 30 };

void world_take_reserved(struct world *w, int process, const struct nvg_event *event)
{
    struct world_reserved *reserved = &w->processes[process].reserved[event->nsid];
    const struct nvt_applied *applied = &event->applied;
    if (applied->number <= reserved->told)
        world_fail(w, "a change of a reservation comes twice");
    if (applied->is_next && applied->number != reserved->told + 1)
        world_fail(w, "a change of a reservation was left out");
    if (applied->after.generation && !applied->after.count)
        world_fail(w, "a reservation without its registrant");
    reserved->told = applied->number;
    reserved->due = w->now + world_draw(w, HOLD_MS);
    if (applied->id)
        w->media[event->nsid].numbers[applied->id] = applied->number;
    if (!w->options.awaits)
        nvg_machine_applied(w->processes[process].machine, event->nsid, applied->number);
}

static bool breaks_change(const struct world_process *p, uint32_t nsid, uint64_t number)
{
    for (uint32_t i = 1; p->is_used && i <= WORLD_PLACES; i++) {
        const struct world_place *place = &p->places[i];
        if (place->holding == HAS_SERVING && !place->is_fenced && place->knew[nsid] < number &&
            p->reserved[nsid].held < number)
            return true;
    }
    return false;
}

void world_take_answer(struct world *w, int process, const struct nvg_event *event)
{
    struct world_reserved *reserved = &w->processes[process].reserved[event->nsid];
    struct world_medium *medium = &w->media[event->nsid];
    if (!reserved->asked || event->id != reserved->asked)
        world_fail(w, "COMMITTED of what was not asked for");
    const uint64_t number = medium->numbers[event->id];
    reserved->asked = 0;
    w->commits += event->status == 0;
    w->refusals += event->status != 0;
    if (event->status == -EAGAIN && number)
        world_fail(w, "a change of a reservation was refused, and is there");
    if (event->status || !number)
        return;
    medium->settled = number > medium->settled ? number : medium->settled;
    for (int i = 0; i < WORLD_PROCESSES; i++)
        if (breaks_change(&w->processes[i], event->nsid, number))
            world_fail(w, "a change was answered, and does not hold where a host is served");
}

void world_note_serve(struct world *w, int process, struct world_place *place)
{
    for (uint32_t nsid = 1; w->options.is_all_active && nsid <= WORLD_PLACES; nsid++) {
        place->knew[nsid] = w->processes[process].reserved[nsid].told;
        if (place->knew[nsid] < w->media[nsid].settled)
            world_fail(w, "a host is served by a member that does not know of a change");
    }
}

/* Each change registers a host anew, which has that key already, or another one: the number of it
 * counts all the same. */
static void ask_registration(struct world *w, struct world_process *p, uint32_t nsid)
{
    struct nvt_reservation_change change = {.opcode = nvme_cmd_resv_register};
    if (w->media[nsid].drawn + 1 >= WORLD_VALUES)
        return;
    const uint64_t value = ++w->media[nsid].drawn;
    change.host.bytes[0] = (uint8_t)(1 + value % 8);
    change.data[8] = (uint8_t)(value % 16);
    if (!nvg_machine_change(p->machine, nsid, &change, value))
        p->reserved[nsid].asked = value;
}

void world_reserve_step(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    for (uint32_t nsid = 1; w->options.is_all_active && nsid <= WORLD_PLACES; nsid++) {
        struct world_reserved *reserved = &p->reserved[nsid];
        if (reserved->held < reserved->told && w->now >= reserved->due) {
            reserved->held = reserved->told;
            nvg_machine_applied(p->machine, nsid, reserved->held);
        }
        if (!w->is_quiet && !reserved->asked && world_chance(w, ASK_PERCENT))
            ask_registration(w, p, nsid);
    }
}
