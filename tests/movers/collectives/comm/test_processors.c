// SPDX-License-Identifier: BSD-2-Clause
#include "collectives/comm/processors.h"

#include "ranks.h"

#include <sched.h>

#include "collectives/comm/comm.h"

static void processors__are_short(void **state)
{
    const struct coll_processors free = {.usable = 4}, bound = {.bound = 3, .usable = 4};
    (void)state;
    assert_false(coll_processors_are_short(&free, 4, 4));
    assert_true(coll_processors_are_short(&free, 5, 0));
    assert_false(coll_processors_are_short(&bound, 4, 1));
    assert_true(coll_processors_are_short(&bound, 5, 1));
    assert_true(coll_processors_are_short(&bound, 2, 2));
}

// Processors that this test may use; ranks are bound to one of them, if to any.
static cpu_set_t allowed;

static void bind_to(uint32_t number)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &allowed) && !number--)
            CPU_SET(i, &one);
    need(!sched_setaffinity(0, sizeof(one), &one));
}

static void be_bound_apart(struct rank *rank)
{
    bind_to(rank->rank);
}

static void be_bound_together(struct rank *rank)
{
    (void)rank;
    bind_to(0);
}

static void keep_processors(struct rank *rank)
{
    need(!rank->coll->must_yield);
}

static void yield_processors(struct rank *rank)
{
    need(rank->coll->must_yield);
}

static void run_bound(uint32_t size, rank_main *run, rank_options *set)
{
    struct ranks ranks;
    ranks_start(&ranks, size, run, set);
    ranks_end(&ranks, 0);
}

// Each yield takes a system call, or longer by far where another program wants the processor.
static void wait__yields_where_ranks_share_a_processor(void **state)
{
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    run_bound(2, yield_processors, be_bound_together);
    if (CPU_COUNT(&allowed) < 2)
        return;
    run_bound(2, keep_processors, be_bound_apart);
    run_bound(2, keep_processors, NULL);
    if (CPU_COUNT(&allowed) < RANKS)
        run_bound((uint32_t)CPU_COUNT(&allowed) + 1, yield_processors, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors__are_short),
        cmocka_unit_test(wait__yields_where_ranks_share_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
