// SPDX-License-Identifier: BSD-2-Clause
// A rank dies: those that are left name the same one, and go on without it.
#include "survivors.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/comm/comm.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/send.h"
#include "collectives/comm/vote.h"
#include "collectives/comm/wait.h"

enum { READY, CALLED };

static const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};

// ---- one death ----

// The sums, and all ranks know that all have them.
static void sum_and_meet(struct rank *rank)
{
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, rank->size);
}

static void shrink_after_death(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    enum sw_coll_status status;
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    while (!(status = sum_and_look(rank->coll, FEW, &error)))
        continue;
    need(status == SW_COLL_RANK_GONE);
    need(sw_coll_error(rank->coll, NULL) == SW_COLL_RANK_GONE);
    keep_words(rank, error.text);
    shrink_now(rank, rank->coll, &shrunk);
    need(sw_coll_size(shrunk) == rank->size - 1);
    need(sw_coll_rank(shrunk) == rank->rank - (rank->rank > 1));
    sw_coll_close(rank->coll); // the new one does not need it
    rank->coll = shrunk;
    sum_both_ways(rank, shrunk);
    need_ok(rank, sw_coll_run(shrunk, &barrier, 0, &error), &error);
}

static void shrink__goes_on_with_those_that_are_left(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 4; size++) {
        struct ranks ranks;
        ranks_start(&ranks, size, shrink_after_death, NULL);
        flag_await(ranks.shared, READY, size);
        nap_ms(5);
        kill(ranks.pids[1], SIGKILL);
        await_others(&ranks, 1u << 1);
        expect_same(&ranks, 1u << 1, "rank 1 died");
        ranks_end(&ranks, 1u << 1);
    }
}

// Rank 0 has ended the last operation well, and asks only now and then.
static void look_at_times(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    enum sw_coll_status status;
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    if (rank->rank == 1)
        pause();
    if (rank->rank)
        status = sw_coll_run(rank->coll, &barrier, 0, &error);
    else
        while ((status = sw_coll_error(rank->coll, &error)) <= SW_COLL_AGAIN)
            nap_ms(3);
    need(status == SW_COLL_RANK_GONE);
    keep_words(rank, error.text);
    rank->result->gone = sw_coll_gone(rank->coll, (bool[RANKS]){false});
    need(rank->result->gone == 1);
}

static void error__comes_without_a_call(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, look_at_times, NULL);
    flag_await(ranks.shared, READY, 3);
    nap_ms(20);
    kill(ranks.pids[1], SIGKILL);
    await_others(&ranks, 1u << 1);
    expect_same(&ranks, 1u << 1, "rank 1 died");
    ranks_end(&ranks, 1u << 1);
}

// ---- no death ----

static void revoke_then_shrink(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    sum_and_meet(rank);
    if (rank->rank == 2)
        sw_coll_revoke(rank->coll);
    const enum sw_coll_status status = sw_coll_run(rank->coll, &barrier, 0, &error);
    need(status == SW_COLL_REVOKED && !sw_coll_gone(rank->coll, (bool[RANKS]){false}));
    keep_words(rank, error.text);
    shrink_now(rank, rank->coll, &shrunk);
    need(sw_coll_size(shrunk) == rank->size && sw_coll_rank(shrunk) == rank->rank);
    sum_both_ways(rank, shrunk);
    sw_coll_close(shrunk);
}

static void revoke__reaches_all_that_wait(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, revoke_then_shrink, NULL);
    await_others(&ranks, 0);
    expect_same(&ranks, 0, "revoked");
    ranks_end(&ranks, 0);
}

// Rank 2 does not call it, and learns that it was left out.
static void shrink_without_one(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    bool is_gone[RANKS];
    sum_and_meet(rank);
    if (rank->rank == 2) {
        flag_await(rank->shared, CALLED, 2);
        need(sw_coll_run(rank->coll, &barrier, 0, &error) == SW_COLL_TIMEOUT);
        need(sw_coll_shrink(rank->coll, 0, &error, &shrunk) == SW_COLL_BROKEN && !shrunk);
        return;
    }
    const enum sw_coll_status status =
        sw_coll_shrink(rank->coll, sw_coll_deadline_ms(700), &error, &shrunk);
    need_ok(rank, status, &error);
    need(sw_coll_gone(rank->coll, is_gone) == 1 && is_gone[2]);
    sum_both_ways(rank, shrunk);
    sw_coll_close(shrunk);
    flag_raise(rank->shared, CALLED);
}

static void shrink__leaves_out_who_does_not_call(void **state)
{
    (void)state;
    ranks_run(3, shrink_without_one);
}

// Rank 0 cannot take part, and says so. Rank 1 claims that all have decided otherwise.
static void claim_a_decision(struct rank *rank)
{
    struct sw_coll *coll = rank->coll;
    struct coll_vote *vote = &coll->agree.vote;
    uint32_t times = 0;
    flag_await(rank->shared, CALLED, 1);
    *vote = (struct coll_vote){.epoch = vote->epoch + 1};
    coll->agree.version++;
    while (!coll_failure_is_told_by(&coll->peers[0]) && times++ < 10000) {
        coll_vote_send(&coll->peers[0]);
        coll_take_events(coll, 1);
        coll_send_poll(coll);
    }
    need(coll_failure_is_told_by(&coll->peers[0]));
}

static void shrink_beside_a_liar(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    struct rlimit limit;
    enum sw_coll_status status;
    sum_and_meet(rank);
    sw_coll_revoke(rank->coll);
    while ((status = sw_coll_error(rank->coll, &error)) == SW_COLL_AGAIN)
        nap_ms(1);
    need(status == SW_COLL_REVOKED);
    if (rank->rank) {
        claim_a_decision(rank);
        return;
    }
    need(!getrlimit(RLIMIT_NOFILE, &limit));
    need(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, limit.rlim_max}));
    flag_raise(rank->shared, CALLED);
    status = sw_coll_shrink(rank->coll, sw_coll_deadline_ms(20000), &error, &shrunk);
    need(status == SW_COLL_PROTOCOL && !shrunk);
    need(!setrlimit(RLIMIT_NOFILE, &limit));
}

static void shrink__believes_no_decision_without_its_vote(void **state)
{
    (void)state;
    ranks_run(2, shrink_beside_a_liar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrink__goes_on_with_those_that_are_left),
        cmocka_unit_test(error__comes_without_a_call),
        cmocka_unit_test(revoke__reaches_all_that_wait),
        cmocka_unit_test(shrink__leaves_out_who_does_not_call),
        cmocka_unit_test(shrink__believes_no_decision_without_its_vote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
