// SPDX-License-Identifier: BSD-2-Clause
// More ranks than connect when the communicator opens.
#include "survivors.h"

#include <signal.h>
#include <unistd.h>

enum { READY, CALLED, MANY_RANKS = 18, DEATHS = 2 };

// So many connect only when they first write to each other. One dies before that, one when they are
// connected; 17 are left, then 16, and those connect at once.
static void outlive_two(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    flag_raise(rank->shared, READY);
    if (rank->rank == 3)
        pause();
    for (uint32_t deaths = 0; deaths < DEATHS; deaths++) {
        struct sw_coll *shrunk = NULL;
        enum sw_coll_status status;
        while (!(status = sum_and_look(rank->coll, FEW, &error)))
            continue;
        need(status == SW_COLL_RANK_GONE);
        keep_words(rank, error.text);
        shrink_now(rank, rank->coll, &shrunk);
        need(sw_coll_size(shrunk) == MANY_RANKS - 1 - deaths);
        sw_coll_close(rank->coll);
        rank->coll = shrunk;
        sum_both_ways(rank, shrunk);
        flag_raise(rank->shared, CALLED);
    }
}

static void shrink__of_more_ranks_than_connect_at_once(void **state)
{
    const uint32_t killed = 1u << 3 | 1u << 7;
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, MANY_RANKS, outlive_two, NULL);
    flag_await(ranks.shared, READY, MANY_RANKS);
    kill(ranks.pids[3], SIGKILL);
    flag_await(ranks.shared, CALLED, MANY_RANKS - 1);
    kill(ranks.pids[7], SIGKILL);
    await_others(&ranks, killed);
    expect_same(&ranks, killed, "rank 3 died");
    ranks_end(&ranks, killed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrink__of_more_ranks_than_connect_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
