// SPDX-License-Identifier: BSD-2-Clause
// A rank that is late: all others name it, and not one that waits for it, and go on without it.
//
// usage: test_coll_late [RANKS]
#include "survivors.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/comm/comm.h"
#include "common/time/clock.h"

enum { READY, CALLED, MOVED, GO, TOLD, ENDED, LATE = 2, COUNT = 200000, ROUNDS = 8, NAPS = 100 };

static const char *algorithm;
static uint32_t ranks_more;
static bool ends_then;

static void ask_for_algorithm(struct rank *rank)
{
    rank->options.algorithm = algorithm;
    rank->options.order = SW_COLL_ORDER_ANY;
    rank->options.spin_us = 50;
}

// All have the same words, and sums of those that are left.
static void go_on_without(struct rank *rank, const char *words, uint32_t gone)
{
    bool is_gone[RANKS];
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    keep_words(rank, words);
    rank->result->gone = sw_coll_gone(rank->coll, is_gone);
    shrink_now(rank, rank->coll, &shrunk);
    need(!gone || sw_coll_size(shrunk) == rank->size - gone);
    sw_coll_close(rank->coll);
    rank->coll = shrunk;
    if (algorithm && !strcmp(algorithm, "ring")) // which has another order
        need_ok(rank, sw_coll_barrier(shrunk, 0, &error), &error);
    else
        sum_both_ways(rank, shrunk);
}

// Its deadline passes when no rank goes on any more.
static void await_standstill(struct rank *rank, struct sw_coll_request *request)
{
    const struct coll_machine *machine = &rank->coll->machine;
    uint64_t step = 0, chunk = UINT64_MAX;
    while (!__atomic_load_n(&rank->shared->flags[GO], __ATOMIC_SEQ_CST)) {
        need(sw_coll_test(request, NULL) == SW_COLL_AGAIN);
        if (machine->step == step && machine->chunk == chunk) {
            nap_ms(1);
            __atomic_fetch_add(&rank->result->naps, 1, __ATOMIC_SEQ_CST);
            continue;
        }
        step = machine->step, chunk = machine->chunk;
        flag_raise(rank->shared, MOVED);
    }
    request->deadline_ns = mover_now_ns();
}

// Time alone does not tell: on a busy machine one may have no processor for a second.
static void await_naps(const struct ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->size; i++) {
        const uint32_t *naps = &ranks->shared->results[i].naps;
        const uint32_t until = __atomic_load_n(naps, __ATOMIC_SEQ_CST) + NAPS;
        while (i != LATE && __atomic_load_n(naps, __ATOMIC_SEQ_CST) < until)
            nap_ms(1);
    }
}

static void let_deadline_pass(const struct ranks *ranks)
{
    uint32_t moved = 0, before;
    flag_await(ranks->shared, READY, 1);
    do {
        before = moved;
        nap_ms(300);
        await_naps(ranks);
        moved = __atomic_load_n(&ranks->shared->flags[MOVED], __ATOMIC_SEQ_CST);
    } while (moved != before || moved < ranks->size - 1);
    flag_raise(ranks->shared, GO);
}

// The late one stops amid its rounds, when it has done some chunks of them.
static void sum_in_rounds(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    float *data = calloc(COUNT, sizeof(*data));
    const struct sw_coll_call call = {.kind = SW_COLL_ALL_REDUCE,
                                      .type = SW_COLL_F32,
                                      .send = data,
                                      .recv = data,
                                      .count = COUNT};
    struct sw_coll_request *request;
    need_ok(rank, sw_coll_run(rank->coll, &call, 0, &error), &error);
    if (rank->rank == LATE) {
        need_ok(rank, sw_coll_post(rank->coll, &call, 0, &error, &request), &error);
        while (rank->coll->machine.chunk < 1)
            need(sw_coll_test(request, &error) == SW_COLL_AGAIN);
        flag_raise(rank->shared, READY);
        raise(SIGSTOP);
    }
    need_ok(rank, sw_coll_post(rank->coll, &call, 0, &error, &request), &error);
    await_standstill(rank, request);
    rank->result->status = sw_coll_wait(request, &error);
    flag_raise(rank->shared, TOLD);
    flag_await(rank->shared, ENDED, 1);
    go_on_without(rank, error.text, 1);
    free(data);
}

static void stop_one_amid_rounds(uint32_t size)
{
    struct ranks ranks;
    ranks_start(&ranks, size, sum_in_rounds, ask_for_algorithm);
    let_deadline_pass(&ranks);
    flag_await(ranks.shared, TOLD, size - 1);
    kill(ranks.pids[LATE], SIGKILL); // it may have taken packets that are for others
    flag_raise(ranks.shared, ENDED);
    await_others(&ranks, 1u << LATE);
    expect_same(&ranks, 1u << LATE, "rank 2 has begun operation 2 (all_reduce), and");
    assert_int_equal(ranks.shared->results[0].status, SW_COLL_TIMEOUT);
    if (strncmp(ranks.shared->results[0].text, "rank 2 ", 7))
        fail_msg("%s: %s", algorithm, ranks.shared->results[0].text);
    ranks_end(&ranks, 1u << LATE);
}

static void late__is_named_amid_rounds(void **state)
{
    (void)state;
    algorithm = "ring";
    stop_one_amid_rounds(ranks_more ? ranks_more : 6);
    algorithm = "halving";
    stop_one_amid_rounds(ranks_more ? ranks_more : 7);
}

// Its deadline passes when so many ranks have begun the barrier. The late one is none of them.
static enum sw_coll_status meet_but_one(struct rank *rank, uint32_t count,
                                        struct sw_coll_error *error)
{
    static const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};
    struct sw_coll_request *request;
    need_ok(rank, sw_coll_post(rank->coll, &barrier, 0, error, &request), error);
    flag_raise(rank->shared, CALLED);
    flag_await(rank->shared, CALLED, count);
    bool is_absent[RANKS];
    enum sw_coll_status status;
    do /* their messages may be under way */
        status = sw_coll_test(request, error);
    while (status == SW_COLL_AGAIN &&
           coll_machine_absent(&rank->coll->machine, is_absent) != rank->size - count);
    if (status != SW_COLL_AGAIN)
        return status;
    request->deadline_ns = sw_coll_deadline_ms(4);
    return sw_coll_wait(request, error);
}

// One does not come. When it does, it is told the same, and has no part in what follows.
static void come_late(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, rank->size);
    if (rank->rank != LATE) {
        rank->result->status = meet_but_one(rank, rank->size - 1, &error);
        go_on_without(rank, error.text, 1);
        flag_raise(rank->shared, GO);
        return;
    }
    flag_await(rank->shared, GO, rank->size - 1);
    rank->result->status = sw_coll_barrier(rank->coll, 0, &error);
    keep_words(rank, error.text);
    rank->result->gone = 1;
    need(sw_coll_shrink(rank->coll, 0, &error, &shrunk) == SW_COLL_BROKEN && !shrunk);
}

static void late__is_left_out(void **state)
{
    struct ranks ranks;
    (void)state;
    algorithm = NULL;
    ranks_start(&ranks, 4, come_late, ask_for_algorithm);
    await_others(&ranks, 0);
    expect_same(&ranks, 0, "rank 2 has not begun operation 3 (barrier), and the deadline");
    ranks_end(&ranks, 0);
}

// Sums of those that are left, once no more of them die.
static void outlive_all(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    enum sw_coll_status status;
    do {
        struct sw_coll *shrunk = NULL;
        shrink_now(rank, rank->coll, &shrunk);
        sw_coll_close(rank->coll);
        rank->coll = shrunk;
        for (int i = 0; !(status = sum_and_look(shrunk, FEW, &error)) && i < 20; i++)
            nap_ms(1);
        need(!status || status == SW_COLL_RANK_GONE);
    } while (status);
}

// Another one dies about that time: all name the same, be it one or both. The late one looks
// whether there is a failure, and begins nothing.
static void outlive_both(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    bool is_gone[RANKS];
    sum_both_ways(rank, rank->coll);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, rank->size);
    if (rank->rank != LATE)
        rank->result->status = meet_but_one(rank, rank->size - 1, &error);
    while (rank->rank == LATE && (!(rank->result->status = sw_coll_error(rank->coll, &error)) ||
                                  rank->result->status == SW_COLL_AGAIN))
        nap_ms(1);
    keep_words(rank, error.text);
    rank->result->gone = sw_coll_gone(rank->coll, is_gone);
    if (rank->rank != LATE || rank->result->status == SW_COLL_RANK_GONE)
        outlive_all(rank);
}

static void late__beside_a_death(void **state)
{
    const uint32_t but = 1u << LATE | 1u << 1;
    uint32_t timeouts = 0;
    (void)state;
    algorithm = NULL;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct ranks ranks;
        ranks_start(&ranks, 5, outlive_both, ask_for_algorithm);
        flag_await(ranks.shared, CALLED, 4);
        nap_ms(round);
        kill(ranks.pids[1], SIGKILL);
        await_others(&ranks, 1u << 1);
        expect_same(&ranks, but, "rank");
        timeouts += ranks.shared->results[0].status == SW_COLL_TIMEOUT;
        ranks_end(&ranks, 1u << 1);
    }
    print_message("%u of %u by the deadline\n", timeouts, (unsigned)ROUNDS);
}

// Calls differ: all are there, and go on. One of them has ended instead by then.
static void call_unlike(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint32_t data[8] = {0};
    sum_both_ways(rank, rank->coll);
    rank->result->status = sw_coll_all_reduce(rank->coll, data, data, rank->rank == 1 ? 7 : 8,
                                              SW_COLL_U32, SW_COLL_SUM, 0, &error);
    need(rank->result->status == SW_COLL_MISMATCH);
    need(sw_coll_barrier(rank->coll, 0, &error) == SW_COLL_BROKEN);
    if (ends_then && rank->rank == 0)
        return;
    keep_words(rank, error.text);
    struct sw_coll *shrunk = NULL;
    shrink_now(rank, rank->coll, &shrunk);
    need(sw_coll_size(shrunk) == rank->size - ends_then);
    sum_both_ways(rank, shrunk);
    sw_coll_close(shrunk);
}

static void mismatch__is_gone_on_from(void **state)
{
    (void)state;
    algorithm = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        struct ranks ranks;
        ends_then = i % 2;
        ranks_start(&ranks, 3, call_unlike, ask_for_algorithm);
        await_others(&ranks, 0);
        expect_same(&ranks, ends_then, "rank 1 calls all_reduce with count 7, rank 0 with 8");
        ranks_end(&ranks, 0);
    }
}

// A message from rank to rank is unlike, and others are under way. All are told when these are not.
static void send_unlike(struct rank *rank)
{
    static uint32_t sent[COUNT], got[COUNT];
    struct sw_coll_error error = {.text = ""};
    const uint32_t next = (rank->rank + 1) % rank->size;
    const uint32_t before = (rank->rank + rank->size - 1) % rank->size;
    sum_both_ways(rank, rank->coll);
    sw_coll_group_begin(rank->coll);
    sw_coll_send(rank->coll, next, sent, COUNT - (rank->rank == 1), SW_COLL_U32, 0, &error);
    sw_coll_recv(rank->coll, before, got, COUNT, SW_COLL_U32, 0, &error);
    rank->result->status = sw_coll_group_end(rank->coll, &error);
    if (!rank->result->status)
        rank->result->status = sw_coll_barrier(rank->coll, 0, &error);
    need(rank->result->status == SW_COLL_MISMATCH);
    go_on_without(rank, error.text, 0);
    need(sw_coll_size(rank->coll) == rank->size);
}

static void mismatch__of_messages_is_gone_on_from(void **state)
{
    struct ranks ranks;
    (void)state;
    algorithm = NULL;
    ranks_start(&ranks, 4, send_unlike, ask_for_algorithm);
    await_others(&ranks, 0);
    expect_same(&ranks, 0, "rank 1 sends count 199999 of type u32, rank 2 awaits 200000");
    ranks_end(&ranks, 0);
}

// 0 is no time, and not all of it.
static void open_in_no_time(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    rank->options.timeout_ms = 0;
    need(sw_coll_open(&rank->options, &error, &rank->coll) == SW_COLL_TIMEOUT && !rank->coll);
    exit(0);
}

static void open__in_no_time_is_late(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, call_unlike, open_in_no_time);
    ranks_end(&ranks, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late__is_named_amid_rounds),
        cmocka_unit_test(late__is_left_out),
        cmocka_unit_test(late__beside_a_death),
        cmocka_unit_test(mismatch__is_gone_on_from),
        cmocka_unit_test(mismatch__of_messages_is_gone_on_from),
        cmocka_unit_test(open__in_no_time_is_late),
    };
    if (argc > 1)
        ranks_more = (uint32_t)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
