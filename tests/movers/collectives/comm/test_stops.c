// SPDX-License-Identifier: BSD-2-Clause
// A rank that is stopped is no dead one, however long. With an argument: so many milliseconds.
#include "survivors.h"

#include <signal.h>
#include <stdlib.h>

enum { READY, GO };

static uint32_t stop_ms = 1500;

// Both sizes, so that it is stopped in the midst of either, until all know that it is over.
static void sum_until_told(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    enum sw_coll_status status = SW_COLL_OK;
    flag_raise(rank->shared, READY);
    while (!is_time_to_end(rank->coll, rank->shared, GO, &status, &error) && !status)
        sum_both_ways(rank, rank->coll);
    need_ok(rank, status, &error);
    need(sw_coll_error(rank->coll, NULL) == SW_COLL_OK);
}

static void stop__is_no_death(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, sum_until_told, NULL);
    flag_await(ranks.shared, READY, 3);
    for (uint32_t i = 0; i < 3; i++) {
        nap_ms(3 * i);
        kill(ranks.pids[i], SIGSTOP);
        nap_ms(stop_ms / 3);
        kill(ranks.pids[i], SIGCONT);
    }
    kill(ranks.pids[1], SIGSTOP);
    nap_ms(stop_ms);
    kill(ranks.pids[1], SIGCONT);
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
}

// Rank 1 dies, and rank 2 is stopped while the others want its word.
static void outlive_rank_1(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    enum sw_coll_status status;
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    while (!(status = sum_and_look(rank->coll, FEW, &error)))
        continue;
    need(status == SW_COLL_RANK_GONE);
    keep_words(rank, error.text);
    shrink_now(rank, rank->coll, &shrunk);
    need(sw_coll_size(shrunk) == rank->size - 1);
    sw_coll_close(rank->coll);
    rank->coll = shrunk;
    sum_both_ways(rank, shrunk);
}

static void death__beside_a_rank_that_is_stopped(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 4, outlive_rank_1, NULL);
    flag_await(ranks.shared, READY, 4);
    kill(ranks.pids[2], SIGSTOP);
    kill(ranks.pids[1], SIGKILL);
    nap_ms(stop_ms);
    kill(ranks.pids[2], SIGCONT);
    await_others(&ranks, 1u << 1);
    expect_same(&ranks, 1u << 1, "rank 1 died");
    ranks_end(&ranks, 1u << 1);
}

// None of them has failed before: it revokes. Rank 1 is stopped for a while amid it.
static void shrink_when_called(struct rank *rank)
{
    struct sw_coll *shrunk = NULL;
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, rank->size);
    shrink_now(rank, rank->coll, &shrunk);
    need(sw_coll_size(shrunk) == rank->size);
    sum_both_ways(rank, shrunk);
    sw_coll_close(shrunk);
}

static void shrink__waits_for_a_rank_that_is_stopped(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, shrink_when_called, NULL);
    flag_await(ranks.shared, READY, 3);
    kill(ranks.pids[1], SIGSTOP);
    nap_ms(stop_ms);
    kill(ranks.pids[1], SIGCONT);
    ranks_end(&ranks, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop__is_no_death),
        cmocka_unit_test(death__beside_a_rank_that_is_stopped),
        cmocka_unit_test(shrink__waits_for_a_rank_that_is_stopped),
    };
    if (argc > 1)
        stop_ms = (uint32_t)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
