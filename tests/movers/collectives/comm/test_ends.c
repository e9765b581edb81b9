// SPDX-License-Identifier: BSD-2-Clause
// How operations end that cannot be done: each rank is told the same, and nobody waits for ever.
#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/comm/comm.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/send.h"
#include "collectives/comm/wait.h"
#include "collectives/comm/watchdog.h"
#include "common/rdma/dial.h"
#include "common/time/clock.h"

enum { READY, GO };

static const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};

static enum sw_coll_status sum_up(struct rank *rank, uint64_t count, uint32_t timeout_ms,
                                  struct sw_coll_error *error)
{
    uint32_t *data = calloc(count, sizeof(*data));
    const enum sw_coll_status status =
        sw_coll_all_reduce(rank->coll, data, data, count, SW_COLL_U32, SW_COLL_SUM,
                           timeout_ms ? sw_coll_deadline_ms(timeout_ms) : 0, error);
    free(data);
    return status;
}

static void keep_result(struct rank *rank, enum sw_coll_status status,
                        const struct sw_coll_error *error)
{
    bool is_gone[RANKS];
    rank->result->status = status;
    if (status)
        memcpy(rank->result->text, error->text, sizeof(error->text));
    rank->result->gone = sw_coll_gone(rank->coll, is_gone);
}

// All but those of the mask have this status and the same text, which has that in it.
static void expect_same(const struct ranks *ranks, uint32_t but, enum sw_coll_status status,
                        const char *part)
{
    const struct rank_result *first = NULL;
    for (uint32_t i = 0; i < ranks->size; i++) {
        const struct rank_result *result = &ranks->shared->results[i];
        if (but & 1u << i)
            continue;
        if (!first)
            first = result;
        if (result->status != status || !strstr(result->text, part))
            fail_msg("rank %u: %s: %s", i, sw_coll_status_text(result->status), result->text);
        assert_string_equal(result->text, first->text);
    }
}

static void await_others(const struct ranks *ranks, uint32_t but)
{
    for (uint32_t i = 0; i < ranks->size; i++)
        while (!(but & 1u << i) &&
               waitid(P_PID, (id_t)ranks->pids[i], &(siginfo_t){0}, WEXITED | WNOWAIT))
            continue;
}

// ---- calls that differ ----

static uint64_t unlike_counts[2];

static void call_unlike(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    keep_result(rank, sum_up(rank, unlike_counts[rank->rank == 2], 0, &error), &error);
    const enum sw_coll_status status = sw_coll_run(rank->coll, &barrier, 0, &error);
    need(status == SW_COLL_BROKEN && strstr(error.text, rank->result->text));
}

static void run__calls_that_differ(void **state)
{
    static const uint64_t counts[][2] = {{2, 3}, {3, 100000}, {100000, 100001}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct ranks ranks;
        memcpy(unlike_counts, counts[i], sizeof(unlike_counts));
        ranks_start(&ranks, 3, call_unlike, NULL);
        await_others(&ranks, 0);
        expect_same(&ranks, 0, SW_COLL_MISMATCH, "rank 2");
        ranks_end(&ranks, 0);
    }
}

// ---- deaths ----

static uint64_t busy_count;

static void sum_until_failure(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    enum sw_coll_status status;
    need_ok(rank, sum_up(rank, busy_count, 0, &error), &error);
    flag_raise(rank->shared, READY);
    while (!(status = sum_up(rank, busy_count, 0, &error)))
        continue;
    keep_result(rank, status, &error);
}

// Rank 1 has begun something else than what the others wait for.
static void wait_for_absent(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
    flag_raise(rank->shared, READY);
    if (rank->rank == 1)
        pause();
    keep_result(rank, sw_coll_run(rank->coll, &barrier, 0, &error), &error);
}

static void kill_one(uint32_t size, rank_main *run)
{
    struct ranks ranks;
    ranks_start(&ranks, size, run, NULL);
    flag_await(ranks.shared, READY, size);
    nap_ms(60);
    kill(ranks.pids[1], SIGKILL);
    await_others(&ranks, 1u << 1);
    expect_same(&ranks, 1u << 1, SW_COLL_RANK_GONE, "rank 1 ");
    for (uint32_t i = 0; i < size; i++)
        assert_int_equal(ranks.shared->results[i].gone, i != 1);
    ranks_end(&ranks, 1u << 1);
}

static void end__killed_while_busy(void **state)
{
    (void)state;
    busy_count = 2;
    kill_one(3, sum_until_failure);
    busy_count = 50000;
    kill_one(3, sum_until_failure);
}

static void end__killed_while_others_sleep(void **state)
{
    (void)state;
    kill_one(4, wait_for_absent);
}

static void close_early(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
    flag_raise(rank->shared, READY); // else one may be told of it in its first operation
    flag_await(rank->shared, READY, 3);
    if (rank->rank == 1)
        return;
    keep_result(rank, sw_coll_run(rank->coll, &barrier, 0, &error), &error);
}

static void end__closed_while_others_wait(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, close_early, NULL);
    await_others(&ranks, 0);
    expect_same(&ranks, 1u << 1, SW_COLL_RANK_GONE, "rank 1 ");
    ranks_end(&ranks, 0);
}

static void leave_at_once(struct rank *rank)
{
    (void)rank; // it was opened, and is closed
}

static void end__closed_while_others_open(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        ranks_run(4, leave_at_once);
}

// The word that a rank has closed is enough; its connection may end later.
static void quit_without_end(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
    if (rank->rank == 1) {
        coll_send_word(&rank->coll->peers[0], COLL_AT_LEFT, rank->coll->ended + 1);
        flag_await(rank->shared, READY, 1);
        return;
    }
    need(sw_coll_run(rank->coll, &barrier, 0, &error) == SW_COLL_RANK_GONE);
    need(strstr(error.text, "rank 1 "));
    flag_raise(rank->shared, READY);
}

static void end__closed_with_its_connection_there(void **state)
{
    (void)state;
    ranks_run(2, quit_without_end);
}

// The device of a rank that has closed confirms nothing any more.
static void leave_unconfirmed(struct rank *rank)
{
    struct sw_coll *coll = rank->coll;
    struct coll_peer *peer = &coll->peers[1];
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
    if (rank->rank == 1)
        return;
    const uint32_t move = (uint32_t)(coll->moves_posted++ % COLL_MOVES);
    coll->moves[move] = false;
    peer->signals[peer->signals_posted++ % COLL_SENDS] =
        (struct coll_sent){.kind = COLL_SENT_MOVE, .move = move, .posted = ++peer->posted};
    const uint64_t until_ns = sw_coll_deadline_ms(PATIENCE_MS);
    while (coll->moves_settled != coll->moves_posted) {
        need(mover_now_ns() < until_ns);
        coll_go_on(coll);
        coll_take_events(coll, 1);
        coll_failure_look(coll);
    }
    // It will not sleep before operations have seen that.
    need(coll->completions != coll->completions_seen);
}

static void end__closed_and_unconfirmed(void **state)
{
    (void)state;
    ranks_run(2, leave_unconfirmed);
}

// ---- what comes first ----

static bool is_revoked;

// Rank 0 has ended the first operation well. The other one has all that it wants of it when it
// hears of what follows: that may be later, as packets are under way for a while.
static void end_the_second(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *first = NULL;
    if (rank->rank == 0)
        flag_await(rank->shared, READY, 1);
    need_ok(rank, sw_coll_post(rank->coll, &barrier, 0, &error, &first), &error);
    if (rank->rank == 0) {
        need_ok(rank, sw_coll_wait(first, &error), &error);
        if (is_revoked)
            sw_coll_revoke(rank->coll);
        else
            need(sw_coll_run(rank->coll, &barrier, 1, &error) == SW_COLL_TIMEOUT);
        flag_raise(rank->shared, GO);
    } else {
        flag_raise(rank->shared, READY);
        flag_await(rank->shared, GO, 1);
        while (!coll_failure_is_near(rank->coll))
            coll_take_events(rank->coll, 1);
        need_ok(rank, sw_coll_test(first, &error), &error);
    }
    keep_result(rank, sw_coll_run(rank->coll, &barrier, 0, &error), &error);
}

static void end__that_comes_after_what_was_wanted(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        is_revoked = i;
        ranks_run(2, end_the_second);
    }
}

// ---- patience ----

static void sum_fifty(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    for (int i = 0; i < 50; i++) {
        need_ok(rank, sum_up(rank, i % 2 ? 30000 : 2, 0, &error), &error);
        if (i == 10)
            flag_raise(rank->shared, READY);
        if (i > 10)
            nap_ms(2);
    }
}

static uint64_t own_time_ms(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static void wait_for_late_rank(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
    if (rank->rank == 2)
        nap_ms(1500);
    const uint64_t before_ms = own_time_ms();
    need_ok(rank, sw_coll_run(rank->coll, &barrier, 0, &error), &error);
    need(own_time_ms() - before_ms < 700);
}

static void wait__costs_no_processor_time(void **state)
{
    (void)state;
    ranks_run(3, wait_for_late_rank);
}

// Rank 2 comes when all is over, and is told the same. By TCP the words of the others may be on
// their way then, behind the data of its sum: that ends well, and the next one is told.
static void miss_deadline(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    const bool is_late = rank->rank == 2;
    enum sw_coll_status status;
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
    if (!is_late)
        flag_raise(rank->shared, GO);
    flag_await(rank->shared, is_late ? READY : GO, 2);
    while (!(status = sum_up(rank, 2, is_late ? 0 : 1500, &error)) && is_late)
        continue;
    keep_result(rank, status, &error);
    flag_raise(rank->shared, READY);
}

static void deadline__names_the_absent(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, miss_deadline, NULL);
    await_others(&ranks, 0);
    expect_same(&ranks, 0, SW_COLL_TIMEOUT, "rank 2");
    ranks_end(&ranks, 0);
}

static bool is_waited_for(const struct sw_coll *coll, uint32_t rank)
{
    bool is_absent[SW_COLL_RANKS_MAX];
    coll_machine_absent(&coll->machine, is_absent);
    return is_absent[rank] || coll_send_is_awaited(&coll->peers[rank]);
}

// It has begun, and then its device may not even let others read. These do not wait for the
// deadline, nor until it has heard of that.
static void stop_in_the_midst(struct rank *rank)
{
    static uint8_t data[1 << 20];
    const struct sw_coll_call sum = {.kind = SW_COLL_ALL_REDUCE,
                                     .type = SW_COLL_U8,
                                     .send = data,
                                     .recv = data,
                                     .count = sizeof(data)};
    struct sw_coll *coll = rank->coll;
    struct sw_coll_request *request;
    struct sw_coll_error error = {.text = ""};
    while (rank->rank != 1 &&
           !coll_mail_is_there(&coll->layout, coll->peers[1].inbox, 1, COLL_OPEN))
        nap_ms(1);
    if (rank->rank != 1)
        flag_raise(rank->shared, READY);
    else
        need_ok(rank, sw_coll_post(coll, &sum, 0, &error, &request), &error);
    flag_await(rank->shared, READY, 2);
    if (rank->rank == 1)
        raise(SIGSTOP);
    nap_ms(50);
    need_ok(rank, sw_coll_post(coll, &sum, 0, &error, &request), &error);
    while (!coll->moves_posted || !is_waited_for(coll, 1))
        need(sw_coll_test(request, &error) == SW_COLL_AGAIN);
    coll_watchdog_look(coll, mover_now_ns()); // from now on the deadline counts
    coll_watchdog_look(coll, request->deadline_ns);
    const struct coll_cause *cause = &coll->agree.vote.cause;
    coll_say(&error, cause->status, "%s", cause->text);
    keep_result(rank, cause->status, &error);
    flag_raise(rank->shared, GO);
    flag_await(rank->shared, GO, 2);
    _exit(0);
}

static void deadline__names_who_stopped(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, stop_in_the_midst, NULL);
    await_others(&ranks, 1u << 1);
    for (uint32_t i = 0; i < 3; i += 2) {
        const struct rank_result *result = &ranks.shared->results[i];
        assert_int_equal(result->status, SW_COLL_TIMEOUT);
        if (!strstr(result->text, "rank 1 ") && !strstr(result->text, "ranks 0 and 1 ") &&
            !strstr(result->text, "ranks 1 and 2 "))
            fail_msg("rank %u: %s", i, result->text);
    }
    kill(ranks.pids[1], SIGKILL);
    ranks_end(&ranks, 1u << 1);
}

// ---- others ----

static bool make_queue(void *context, struct mover_connection *connection)
{
    const struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    (void)context;
    struct ibv_pd *pd = ibv_alloc_pd(connection->id->verbs); // ends with the process
    return pd && mover_connection_queue(connection, 4) &&
           mover_queue_make_qp(&connection->queue, connection->id, pd, &attr);
}

// What a stranger says: nothing, garbage, or all but the token.
static void call_as_stranger(const struct coll_card *card, int what)
{
    uint8_t said[COLL_HELLO_BYTES] = {0};
    char port[8], error[MOVER_CONNECTION_SAID];
    const struct coll_hello hello = {.instance = card->instance, .rank = 0};
    const struct sockaddr_in *at = (const struct sockaddr_in *)&card->address;
    snprintf(port, sizeof(port), "%u", (unsigned)ntohs(at->sin_port));
    if (what == 1)
        memset(said, 0xee, sizeof(said));
    if (what == 2)
        coll_hello_put(said, &hello);
    struct mover_dial dial = {.routed = make_queue,
                              .param = {.private_data = said,
                                        .private_data_len = what ? sizeof(said) : 0,
                                        .responder_resources = 1,
                                        .initiator_depth = 1,
                                        .retry_count = 7}};
    need(!mover_dial(&dial, "127.0.0.1", port, error));
}

static void be_called_by_strangers(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
    flag_raise(rank->shared, READY);
    while (__atomic_load_n(&rank->shared->flags[GO], __ATOMIC_SEQ_CST) < 1) {
        sw_coll_poll(rank->coll);
        nap_ms(1);
    }
    need(rank->coll->strangers == 3);
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
}

static void door__strangers_are_refused(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, be_called_by_strangers, NULL);
    flag_await(ranks.shared, READY, 2);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    for (uint32_t i = 0; !pid && i < 2; i++) {
        struct coll_card card;
        need(!coll_card_get(ranks.shared->cards[i], &card));
        for (int what = 0; what < 3; what++)
            call_as_stranger(&card, what);
    }
    if (!pid)
        _exit(0);
    int how = -1;
    waitpid(pid, &how, 0);
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
    assert_int_equal(how, 0);
}

static void fork_child(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sum_up(rank, 1, 0, &error), &error);
    const pid_t pid = fork();
    if (!pid) {
        const bool is_told = sw_coll_run(rank->coll, &barrier, 0, &error) == SW_COLL_FORKED;
        sw_coll_close(rank->coll);
        _exit(!is_told);
    }
    int how = -1;
    need(waitpid(pid, &how, 0) == pid && !how);
    need_ok(rank, sum_up(rank, 50000, 0, &error), &error);
}

static void fork__the_child_is_told(void **state)
{
    (void)state;
    ranks_run(2, fork_child);
}

static void give_options(struct rank *rank)
{
    rank->options.eager_bytes = rank->rank == 1 ? 128 : 64;
    struct sw_coll_error error = {.text = ""};
    need(sw_coll_open(&rank->options, &error, &rank->coll) == SW_COLL_MISMATCH);
    need(strstr(error.text, "rank 1 has 128 eager bytes"));
    exit(0);
}

static void give_algorithms(struct rank *rank)
{
    rank->options.algorithm = rank->rank == 1 ? "owners" : NULL;
    struct sw_coll_error error = {.text = ""};
    need(sw_coll_open(&rank->options, &error, &rank->coll) == SW_COLL_MISMATCH);
    need(strstr(error.text, "rank 1 wants algorithm owners, and rank 0 wants any"));
    exit(0);
}

static void ask_for_sse2(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    setenv("SIDEWIRE_COLL_FOLD", "sse2", 1);
    need(sw_coll_open(&rank->options, &error, &rank->coll) == SW_COLL_INVALID);
    need(strstr(error.text, "'sse2', and may be generic, avx2 or avx512"));
    exit(0);
}

static void open__instructions_that_there_are_not(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 1, sum_fifty, ask_for_sse2);
    ranks_end(&ranks, 0);
}

static void open__options_that_differ(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, sum_fifty, give_options);
    ranks_end(&ranks, 0);
    ranks_start(&ranks, 2, sum_fifty, give_algorithms);
    ranks_end(&ranks, 0);
}

// The results of rank 1 belong where nothing can be written, or where nothing is.
static void sum_to_nowhere(struct rank *rank, int protection)
{
    enum { COUNT = 50000, BYTES = 4 * COUNT };
    static uint32_t sources[COUNT];
    struct sw_coll_error error = {.text = ""};
    void *results = mmap(NULL, BYTES, rank->rank == 1 ? protection : PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, rank->size); // all have opened
    keep_result(rank,
                sw_coll_all_reduce(rank->coll, sources, results, COUNT, SW_COLL_U32, SW_COLL_SUM, 0,
                                   &error),
                &error);
}

static void sum_to_what_is_read_only(struct rank *rank)
{
    sum_to_nowhere(rank, PROT_READ);
}

static void sum_to_what_is_not_there(struct rank *rank)
{
    sum_to_nowhere(rank, PROT_NONE);
}

static void buffers__that_cannot_be_used_are_told(void **state)
{
    rank_main *const mains[] = {sum_to_what_is_read_only, sum_to_what_is_not_there};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ranks ranks;
        ranks_start(&ranks, 3, mains[i], NULL);
        await_others(&ranks, 0);
        expect_same(&ranks, 0, SW_COLL_NO_MEMORY, "rank 1: its buffers cannot be registered");
        ranks_end(&ranks, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run__calls_that_differ),
        cmocka_unit_test(end__killed_while_busy),
        cmocka_unit_test(end__killed_while_others_sleep),
        cmocka_unit_test(end__closed_while_others_wait),
        cmocka_unit_test(end__closed_while_others_open),
        cmocka_unit_test(end__closed_with_its_connection_there),
        cmocka_unit_test(end__closed_and_unconfirmed),
        cmocka_unit_test(end__that_comes_after_what_was_wanted),
        cmocka_unit_test(wait__costs_no_processor_time),
        cmocka_unit_test(deadline__names_the_absent),
        cmocka_unit_test(deadline__names_who_stopped),
        cmocka_unit_test(door__strangers_are_refused),
        cmocka_unit_test(buffers__that_cannot_be_used_are_told),
        cmocka_unit_test(fork__the_child_is_told),
        cmocka_unit_test(open__options_that_differ),
        cmocka_unit_test(open__instructions_that_there_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
