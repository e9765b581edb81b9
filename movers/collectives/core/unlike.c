/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/unlike.h"

#include "collectives/core/compare.h"
#include "collectives/core/messages.h"
#include "collectives/core/moves.h"

/* Nothing else is in scratch: no rank has begun to move data, and OPENs have left. */
static uint64_t *counts_place(const struct coll_machine *machine, bool is_first)
{
    return (uint64_t *)machine->scratch + (is_first ? 0 : machine->site.size);
}

static bool pull_counts(struct coll_machine *machine, uint32_t rank, bool is_first)
{
    const struct coll_port *port = machine->port;
    struct coll_memory from = port->shown(port->context, rank);
    from.address += offsetof(struct coll_shown, counts);
    if (!port->pull(port->context, rank, counts_place(machine, is_first), from,
                    machine->site.size * sizeof(uint64_t)))
        return coll_lose_rank(machine, rank);
    machine->posted++;
    return true;
}

static const uint64_t *counts_of(const struct coll_machine *machine, uint32_t rank)
{
    return rank == machine->site.rank ? machine->counts : counts_place(machine, !rank);
}

bool coll_unlike_begin(struct coll_machine *machine, uint32_t rank)
{
    machine->unlike = rank;
    if (machine->site.rank && !pull_counts(machine, 0, true))
        return false;
    if (machine->site.rank != rank && !pull_counts(machine, rank, false))
        return false;
    return coll_unlike_go(machine);
}

bool coll_unlike_go(struct coll_machine *machine)
{
    char text[200];
    const uint32_t rank = machine->unlike, size = machine->site.size;
    if (!coll_has_settled(machine, machine->posted))
        return false;
    coll_counts_text(machine->records, rank, counts_of(machine, rank), counts_of(machine, 0), size,
                     text, sizeof(text));
    return coll_fail_operation(machine, SW_COLL_MISMATCH, "%s", text);
}
