// SPDX-License-Identifier: BSD-2-Clause
// Ranks die at any instant: those that are left name the same ones, and go on without them. With an
// argument: so many times the deaths.
#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY, GO, CALLED, FEW = 3, MANY = 40000, CHAOS_RANKS = 5 };

static const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};

static uint64_t random_state = 1;
static unsigned long rounds = 5;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

// ---- sums ----

// Each rank gives its number in that communicator + 1 + the place; sources stay as they are.
static enum sw_coll_status sum_and_look(struct sw_coll *coll, uint32_t count,
                                        struct sw_coll_error *error)
{
    const uint32_t size = sw_coll_size(coll), rank = sw_coll_rank(coll);
    uint32_t *mine = malloc(count * sizeof(*mine)), *sum = calloc(count, sizeof(*sum));
    for (uint32_t i = 0; i < count; i++)
        mine[i] = rank + 1 + i;
    const enum sw_coll_status status =
        sw_coll_all_reduce(coll, mine, sum, count, SW_COLL_U32, SW_COLL_SUM, 0, error);
    for (uint32_t i = 0; i < count; i++) {
        need(mine[i] == rank + 1 + i);
        need(status || sum[i] == size * (size + 1) / 2 + size * i);
    }
    free(mine);
    free(sum);
    return status;
}

static void sum_both_ways(struct rank *rank, struct sw_coll *coll)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_and_look(coll, FEW, &error), &error);
    need_ok(rank, sum_and_look(coll, MANY, &error), &error);
}

// The sums, and all ranks know that all have them.
static void sum_and_meet(struct rank *rank)
{
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, rank->size);
}

static void keep_words(struct rank *rank, const char *words)
{
    char *text = rank->result->text;
    const size_t used = strlen(text);
    snprintf(text + used, sizeof(rank->result->text) - used, "%s; ", words);
}

static void shrink_now(struct rank *rank, struct sw_coll *coll, struct sw_coll **shrunk)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sw_coll_shrink(coll, 0, &error, shrunk), &error);
}

static void await_others(const struct ranks *ranks, uint32_t but)
{
    for (uint32_t i = 0; i < ranks->size; i++)
        while (!(but & 1u << i) &&
               waitid(P_PID, (id_t)ranks->pids[i], &(siginfo_t){0}, WEXITED | WNOWAIT))
            continue;
}

// All but those of the mask have the same words, which have that part, and the same status.
static void expect_same(const struct ranks *ranks, uint32_t but, const char *part)
{
    const struct rank_result *first = NULL;
    for (uint32_t i = 0; i < ranks->size; i++) {
        const struct rank_result *result = &ranks->shared->results[i];
        if (but & 1u << i)
            continue;
        first = first ? first : result;
        if (!strstr(result->text, part) || strcmp(result->text, first->text) != 0 ||
            result->status != first->status || result->gone != first->gone)
            fail_msg("rank %u: %d, %s; another one: %d, %s", i, (int)result->status, result->text,
                     (int)first->status, first->text);
    }
}

// ---- one death ----

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

// Rank 2 is stopped while the others want its word.
static void death__beside_a_rank_that_is_stopped(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 4, shrink_after_death, NULL);
    flag_await(ranks.shared, READY, 4);
    kill(ranks.pids[2], SIGSTOP);
    kill(ranks.pids[1], SIGKILL);
    nap_ms(1500);
    kill(ranks.pids[2], SIGCONT);
    await_others(&ranks, 1u << 1);
    expect_same(&ranks, 1u << 1, "rank 1 died");
    ranks_end(&ranks, 1u << 1);
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

// None of them has failed before: it revokes. Rank 1 is stopped for a while amid it.
static void shrink_when_called(struct rank *rank)
{
    struct sw_coll *shrunk = NULL;
    sum_and_meet(rank);
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
    nap_ms(1500);
    kill(ranks.pids[1], SIGCONT);
    ranks_end(&ranks, 0);
}

// Rank 2 does not.
static void shrink_without_one(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    sum_and_meet(rank);
    if (rank->rank == 2) {
        flag_await(rank->shared, CALLED, 2);
        return;
    }
    const enum sw_coll_status status =
        sw_coll_shrink(rank->coll, sw_coll_deadline_ms(700), &error, &shrunk);
    need((status == SW_COLL_TIMEOUT || status == SW_COLL_BROKEN) && strstr(error.text, "rank 2"));
    need(sw_coll_shrink(rank->coll, 0, &error, &shrunk) == SW_COLL_BROKEN && !shrunk);
    flag_raise(rank->shared, CALLED);
}

static void shrink__ends_at_the_deadline(void **state)
{
    (void)state;
    ranks_run(3, shrink_without_one);
}

// ---- deaths at any instant ----

// A part of every other rank, used or not. What happens to it happens to the whole.
static enum sw_coll_status split_and_sum(struct sw_coll *coll, struct sw_coll_error *error)
{
    struct sw_coll *part = NULL;
    struct sw_coll_error own = {.text = ""};
    const enum sw_coll_status status =
        sw_coll_split(coll, (int32_t)sw_coll_rank(coll) % 2, 0, 0, error, &part);
    if (!status) {
        sum_and_look(part, FEW, &own);
        sw_coll_close(part);
    }
    return status;
}

// True: all ranks have seen that the test has done its worst.
static bool is_time_to_end(struct sw_coll *coll, const struct ranks_shared *shared,
                           enum sw_coll_status *status, struct sw_coll_error *error)
{
    uint32_t ready = __atomic_load_n(&shared->flags[GO], __ATOMIC_SEQ_CST), all = 0;
    *status = sw_coll_all_reduce(coll, &ready, &all, 1, SW_COLL_U32, SW_COLL_SUM, 0, error);
    return !*status && all == sw_coll_size(coll);
}

static void live_through_it(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    enum sw_coll_status status = SW_COLL_OK;
    flag_raise(rank->shared, READY);
    for (uint32_t i = 0; !is_time_to_end(rank->coll, rank->shared, &status, &error); i++) {
        struct sw_coll *shrunk = NULL;
        if (!status)
            status = sum_and_look(rank->coll, i % 2 ? FEW : MANY, &error);
        if (!status && i % 4 == 3)
            status = split_and_sum(rank->coll, &error);
        if (!status)
            continue;
        need(status == SW_COLL_RANK_GONE);
        keep_words(rank, error.text);
        shrink_now(rank, rank->coll, &shrunk);
        sw_coll_close(rank->coll);
        rank->coll = shrunk;
    }
    rank->result->gone = sw_coll_size(rank->coll);
}

// Two at the same time, or nearly so.
static uint32_t kill_two(const struct ranks *ranks, uint32_t between_us)
{
    const uint32_t one = draw(ranks->size), other = (one + 1 + draw(ranks->size - 1)) % ranks->size;
    kill(ranks->pids[one], SIGKILL);
    usleep(between_us);
    kill(ranks->pids[other], SIGKILL);
    return 1u << one | 1u << other;
}

static void shrink__two_deaths_at_any_instant(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < rounds; i++) {
        struct ranks ranks;
        ranks_start(&ranks, CHAOS_RANKS, live_through_it, NULL);
        flag_await(ranks.shared, READY, CHAOS_RANKS);
        usleep(draw(30000));
        const uint32_t killed = kill_two(&ranks, i % 2 ? draw(3000) : 1000);
        nap_ms(10);
        flag_raise(ranks.shared, GO);
        await_others(&ranks, killed);
        expect_same(&ranks, killed, "died");
        for (uint32_t rank = 0; rank < CHAOS_RANKS; rank++)
            assert_true(killed & 1u << rank || ranks.shared->results[rank].gone == CHAOS_RANKS - 2);
        ranks_end(&ranks, killed);
    }
}

// The error is that of opening, or of the first call after it.
static void open_or_not(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    enum sw_coll_status status = sw_coll_open(&rank->options, &error, &rank->coll);
    flag_raise(rank->shared, READY);
    const bool is_open = !status;
    while (!status)
        status = sw_coll_run(rank->coll, &barrier, 0, &error);
    rank->result->status = status;
    keep_words(rank, error.text);
    if (is_open)
        sw_coll_close(rank->coll);
    exit(0);
}

static void open__two_deaths_at_any_instant(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < rounds; i++) {
        struct ranks ranks;
        ranks_start(&ranks, CHAOS_RANKS, live_through_it, open_or_not);
        while (__atomic_load_n(&ranks.shared->arrived, __ATOMIC_SEQ_CST) < CHAOS_RANKS)
            continue;
        usleep(draw(10000));
        const uint32_t killed = kill_two(&ranks, draw(2000));
        await_others(&ranks, killed);
        expect_same(&ranks, killed, "died");
        ranks_end(&ranks, killed);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrink__goes_on_with_those_that_are_left),
        cmocka_unit_test(death__beside_a_rank_that_is_stopped),
        cmocka_unit_test(error__comes_without_a_call),
        cmocka_unit_test(revoke__reaches_all_that_wait),
        cmocka_unit_test(shrink__waits_for_a_rank_that_is_stopped),
        cmocka_unit_test(shrink__ends_at_the_deadline),
        cmocka_unit_test(shrink__two_deaths_at_any_instant),
        cmocka_unit_test(open__two_deaths_at_any_instant),
    };
    if (argc > 1)
        rounds *= strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
