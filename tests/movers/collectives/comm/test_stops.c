// SPDX-License-Identifier: BSD-2-Clause
// A rank that is stopped is no dead one, however long, and those that run on overwrite nothing.
//
// usage: test_coll_stops [MILLISECONDS [OPERATIONS]]
#include "survivors.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { READY, GO, ENDED };

static uint32_t stop_ms = 1500, operations = 5000;

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
        nap_ms(stop_ms / 6); // in all less than the deadline: a sum may get no further between
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

// Roots run ahead of the others in a broadcast, and these of the root in a reduction.
static void do_tiny(struct rank *rank, uint32_t number, struct sw_coll_error *error)
{
    static const enum sw_coll_kind kinds[] = {SW_COLL_BROADCAST, SW_COLL_REDUCE,
                                              SW_COLL_ALL_REDUCE};
    const uint32_t mine = number * (rank->rank + 1);
    const uint32_t whole = number * (rank->size * (rank->size + 1) / 2);
    uint32_t got = 0;
    const struct sw_coll_call call = {.kind = kinds[number / rank->size % 3],
                                      .type = SW_COLL_U32,
                                      .op = SW_COLL_SUM,
                                      .root = number % rank->size,
                                      .send = &mine,
                                      .recv = &got,
                                      .count = 1};
    need_ok(rank, sw_coll_run(rank->coll, &call, 0, error), error);
    if (call.kind == SW_COLL_BROADCAST)
        need(got == number * (call.root + 1));
    else if (call.kind == SW_COLL_ALL_REDUCE || rank->rank == call.root)
        need(got == whole);
}

static void do_tiny_ones(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    flag_raise(rank->shared, READY);
    for (uint32_t number = 1; number <= operations; number++)
        do_tiny(rank, number, &error);
    flag_raise(rank->shared, ENDED);
    flag_await(rank->shared, ENDED, rank->size); // one that has ended is not stopped
}

static void stop__at_any_instant_of_tiny_operations(void **state)
{
    struct ranks ranks;
    (void)state;
    srandom(42);
    ranks_start(&ranks, 3, do_tiny_ones, NULL);
    flag_await(ranks.shared, READY, 3);
    while (!__atomic_load_n(&ranks.shared->flags[ENDED], __ATOMIC_SEQ_CST)) {
        const pid_t pid = ranks.pids[random() % 3];
        kill(pid, SIGSTOP);
        usleep((useconds_t)(random() % 3000));
        kill(pid, SIGCONT);
        usleep((useconds_t)(random() % 5000));
    }
    ranks_end(&ranks, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop__is_no_death),
        cmocka_unit_test(stop__at_any_instant_of_tiny_operations),
        cmocka_unit_test(death__beside_a_rank_that_is_stopped),
        cmocka_unit_test(shrink__waits_for_a_rank_that_is_stopped),
    };
    if (argc > 1)
        stop_ms = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        operations = (uint32_t)strtoul(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
