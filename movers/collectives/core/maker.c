/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/maker.h"

#include <assert.h>

void coll_plan_add(struct coll_plan_maker *maker, struct coll_step step)
{
    struct coll_table *table = maker->table;
    if (!step.peers)
        return;
    assert(table->count < table->room);
    if (!step.leaves)
        step.leaves = 1;
    table->steps[table->count++] = step;
}

void coll_plan_for_others(struct coll_plan_maker *maker, struct coll_step step)
{
    step.peer = (maker->rank + 1) % maker->size;
    step.peers = maker->size - 1;
    coll_plan_add(maker, step);
}

void coll_plan_for_one(struct coll_plan_maker *maker, uint32_t peer, struct coll_step step)
{
    step.peer = peer;
    step.peers = 1;
    coll_plan_add(maker, step);
}

void coll_plan_mail_step(struct coll_plan_maker *maker, uint32_t rank)
{
    coll_plan_for_one(maker, rank, (struct coll_step){.action = COLL_MAIL, .slot = COLL_STEP});
}

void coll_plan_await_step(struct coll_plan_maker *maker, uint32_t rank)
{
    coll_plan_for_one(maker, rank, (struct coll_step){.action = COLL_AWAIT, .slot = COLL_STEP});
}
