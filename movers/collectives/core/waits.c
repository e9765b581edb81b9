/* SPDX-License-Identifier: BSD-2-Clause */
/* What a machine waits for, in words. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/machine.h"
#include "collectives/core/ranks.h"
#include "collectives/core/unlike.h"

enum { NAMED_MAX = 16 };

static const struct coll_step *awaiting_step(const struct coll_machine *machine)
{
    if (machine->status != SW_COLL_AGAIN || machine->step >= machine->table.count)
        return NULL;
    const struct coll_step *step = &machine->table.steps[machine->step];
    return step->action == COLL_AWAIT && machine->cursor ? step : NULL;
}

uint32_t coll_machine_absent(const struct coll_machine *machine, bool *is_absent)
{
    memset(is_absent, 0, machine->site.size * sizeof(*is_absent));
    if (!awaiting_step(machine))
        return 0;
    for (uint32_t i = 0; i < machine->missing_count; i++)
        is_absent[machine->missing[i]] = true;
    return machine->missing_count;
}

bool coll_machine_is_amid_rounds(const struct coll_machine *machine)
{
    const struct coll_step *step = awaiting_step(machine);
    return step && step->slot != COLL_OPEN && coll_plan_has_rounds(machine->table.plan);
}

uint32_t coll_machine_follow(const struct coll_machine *machine, uint32_t rank,
                             const struct coll_shown *shown, bool *is_step)
{
    const uint64_t next = shown->awaited ? shown->awaited : shown->unconfirmed;
    *is_step = shown->awaited;
    return shown->number == machine->number && next && next <= machine->site.size
               ? (uint32_t)next - 1
               : rank;
}

void coll_machine_late_text(const struct coll_machine *machine, const bool *is_late, char *text,
                            size_t room)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < machine->site.size; i++)
        count += is_late[i];
    const char *has = count == 1 ? "has" : "have";
    const size_t used = coll_ranks_text(is_late, machine->site.size, NAMED_MAX, text, room);
    snprintf(text + used, room - used, " %s begun operation %" PRIu64 " (%s), and %s not finished",
             has, machine->number, sw_coll_kind_name(machine->call.kind), has);
}

/* "ranks 2 and 5 have not begun operation 17 (reduce)" */
static void say_missing(const struct coll_machine *machine, enum coll_slot slot, char *text,
                        size_t room)
{
    bool is_absent[SW_COLL_RANKS_MAX];
    const bool is_one = coll_machine_absent(machine, is_absent) == 1;
    const char *has = is_one ? "has" : "have", *kind = sw_coll_kind_name(machine->call.kind);
    if (slot == COLL_DONE) {
        coll_machine_late_text(machine, is_absent, text, room);
        return;
    }
    const size_t used = coll_ranks_text(is_absent, machine->site.size, NAMED_MAX, text, room);
    if (slot == COLL_OPEN)
        snprintf(text + used, room - used, " %s not begun operation %" PRIu64 " (%s)", has,
                 machine->number, kind);
    else /* which may wait for another one itself */
        snprintf(text + used, room - used,
                 " has begun operation %" PRIu64 " (%s), and not given its part of it to rank %u",
                 machine->number, kind, machine->site.rank);
}

void coll_machine_waits_text(const struct coll_machine *machine, char *text, size_t room)
{
    const struct coll_step *step = awaiting_step(machine);
    if (machine->status != SW_COLL_AGAIN)
        snprintf(text, room, "no operation is under way");
    else if (coll_unlike_is_under_way(machine))
        snprintf(text, room,
                 "rank %u calls %s with other counts than rank 0, which are not read yet",
                 machine->unlike, sw_coll_kind_name(machine->call.kind));
    else if (step)
        say_missing(machine, step->slot, text, room);
    else
        snprintf(text, room,
                 "operation %" PRIu64 " (%s) waits for %" PRIu64 " of its reads and writes",
                 machine->number, sw_coll_kind_name(machine->call.kind),
                 machine->posted - machine->settled);
}
