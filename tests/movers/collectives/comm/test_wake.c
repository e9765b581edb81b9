// SPDX-License-Identifier: BSD-2-Clause
// Waits for any of several requests, and how another thread, or a message that nobody receives yet,
// ends them. With an argument the races take longer.
#include "ranks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 100000, READY = 0, DONE = 1 };

static uint32_t wakes = 3000;

static void await_all(const struct rank *rank, uint32_t flag)
{
    flag_raise(rank->shared, flag);
    flag_await(rank->shared, flag, rank->size);
}

// ---- any of several ----

// Requests that end last were posted first: each is told by its own place.
static void wait_for_each(struct rank *rank)
{
    enum { EACH = 3 };
    struct sw_coll_request *requests[1 + EACH];
    struct sw_coll_error error = {.text = ""};
    static uint32_t data[EACH][LONG];
    uint32_t sum = 0, which = 99, seen = 0;
    const struct sw_coll_call call = {.kind = SW_COLL_ALL_REDUCE,
                                      .type = SW_COLL_U32,
                                      .send = &rank->rank,
                                      .recv = &sum,
                                      .count = 1};
    if (rank->rank == 0) {
        for (uint32_t i = 0; i < EACH; i++) {
            data[i][0] = 7 + i;
            need_ok(rank,
                    sw_coll_send(rank->coll, 1, data[i], i == 1 ? LONG : 1, SW_COLL_U32, 0, &error),
                    &error);
        }
        nap_ms(20);
        need_ok(rank, sw_coll_run(rank->coll, &call, 0, &error), &error);
        return;
    }
    need_ok(rank, sw_coll_post(rank->coll, &call, 0, &error, &requests[0]), &error);
    for (uint32_t i = 0; i < EACH; i++)
        need_ok(rank,
                sw_coll_recv_post(rank->coll, 0, data[i], i == 1 ? LONG : 1, SW_COLL_U32, 0, &error,
                                  &requests[1 + i]),
                &error);
    for (uint32_t left = 1 + EACH; left-- > 0; requests[which] = requests[left]) {
        need_ok(rank, sw_coll_wait_any(rank->coll, requests, left + 1, 0, &which, &error), &error);
        need(which <= left);
        need_ok(rank, sw_coll_test(requests[which], &error), &error);
        seen++;
    }
    need(seen == 1 + EACH && sum == 1);
    for (uint32_t i = 0; i < EACH; i++)
        need(data[i][0] == 7 + i);
}

static void wait_any__gives_each_that_ends(void **state)
{
    (void)state;
    ranks_run(2, wait_for_each);
}

// A deadline of the wait is not that of the request.
static void wait_too_shortly(struct rank *rank)
{
    struct sw_coll_request *request;
    struct sw_coll_error error = {.text = ""};
    uint32_t which = 99;
    const struct sw_coll_call call = {.kind = SW_COLL_BARRIER};
    if (rank->rank == 0) {
        flag_await(rank->shared, DONE, 1);
        need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
        return;
    }
    need_ok(rank, sw_coll_post(rank->coll, &call, 0, &error, &request), &error);
    for (int i = 0; i < 3; i++) {
        need(sw_coll_wait_any(rank->coll, &request, 1, sw_coll_deadline_ms(5), &which, &error) ==
             SW_COLL_TIMEOUT);
        need(which == 99 && sw_coll_test(request, &error) == SW_COLL_AGAIN);
    }
    flag_raise(rank->shared, DONE);
    need_ok(rank, sw_coll_wait_any(rank->coll, &request, 1, 0, &which, &error), &error);
    need(which == 0 && sw_coll_test(request, &error) == SW_COLL_OK);
}

static void wait_any__a_deadline_changes_nothing(void **state)
{
    (void)state;
    ranks_run(2, wait_too_shortly);
}

// All that have ended are given, and then it says why there will be no other.
static void wait_after_failure(struct rank *rank)
{
    struct sw_coll_request *requests[2];
    struct sw_coll_error error = {.text = ""};
    uint32_t which = 99;
    const struct sw_coll_call call = {.kind = SW_COLL_BARRIER};
    await_all(rank, READY);
    if (rank->rank == 0) {
        sw_coll_revoke(rank->coll);
        while (sw_coll_error(rank->coll, NULL) == SW_COLL_AGAIN)
            nap_ms(1);
        return;
    }
    for (uint32_t i = 0; i < 2; i++)
        if (sw_coll_post(rank->coll, &call, 0, &error, &requests[i]))
            return; /* it has heard of the end before */
    for (uint32_t left = 2; left-- > 0; requests[which] = requests[left]) {
        need_ok(rank, sw_coll_wait_any(rank->coll, requests, left + 1, 0, &which, &error), &error);
        need(sw_coll_test(requests[which], &error) == SW_COLL_REVOKED);
    }
    need(sw_coll_wait_any(rank->coll, NULL, 0, 0, &which, &error) == SW_COLL_BROKEN);
    need(strstr(error.text, "revoke"));
}

static void wait_any__of_a_failed_communicator(void **state)
{
    (void)state;
    ranks_run(2, wait_after_failure);
}

// ---- another thread ----

struct waker {
    struct sw_coll *coll;
    uint32_t sent, taken; // wakes
};

static enum sw_coll_status sleep_for_wake(struct sw_coll *coll)
{
    struct sw_coll_error error = {.text = ""};
    uint32_t which;
    return sw_coll_wait_any(coll, NULL, 0, sw_coll_deadline_ms(PATIENCE_MS), &which, &error);
}

// One was there before the wait, and several are one.
static void wake_before(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint32_t which;
    for (int i = 0; i < 3; i++)
        sw_coll_wake(rank->coll);
    need(sleep_for_wake(rank->coll) == SW_COLL_AGAIN);
    need(sw_coll_wait_any(rank->coll, NULL, 0, sw_coll_deadline_ms(20), &which, &error) ==
         SW_COLL_TIMEOUT);
    sw_coll_wake(rank->coll); /* other waits leave it alone */
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    need(sleep_for_wake(rank->coll) == SW_COLL_AGAIN);
}

static void wake__before_a_wait_holds(void **state)
{
    (void)state;
    ranks_run(1, wake_before);
    ranks_run(2, wake_before);
}

static void *wake_again_and_again(void *arg)
{
    struct waker *waker = arg;
    unsigned seed = 1;
    for (uint32_t i = 1; i <= wakes; i++) {
        // At any point of the way to sleep, and in it.
        for (int turns = rand_r(&seed) % 2000; turns > 0; turns--)
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (rand_r(&seed) % 64 == 0)
            nap_ms(1);
        __atomic_store_n(&waker->sent, i, __ATOMIC_SEQ_CST);
        sw_coll_wake(waker->coll);
        while (__atomic_load_n(&waker->taken, __ATOMIC_SEQ_CST) != i)
            sched_yield();
    }
    return NULL;
}

// Each is awaited before the next is sent: one that is missed is slept for until the deadline.
static void sleep_again_and_again(struct rank *rank)
{
    struct waker waker = {.coll = rank->coll};
    struct sw_coll_error error = {.text = ""};
    pthread_t thread;
    need(!pthread_create(&thread, NULL, wake_again_and_again, &waker));
    for (uint32_t i = 1; i <= wakes; i++) {
        need(sleep_for_wake(rank->coll) == SW_COLL_AGAIN);
        need(__atomic_load_n(&waker.sent, __ATOMIC_SEQ_CST) == i);
        __atomic_store_n(&waker.taken, i, __ATOMIC_SEQ_CST);
    }
    pthread_join(thread, NULL);
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
}

static void spin_little(struct rank *rank)
{
    rank->options.spin_us = 0;
}

static void wake__none_is_missed(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 1, sleep_again_and_again, spin_little);
    ranks_end(&ranks, 0);
    ranks_start(&ranks, 2, sleep_again_and_again, spin_little);
    ranks_end(&ranks, 0);
}

static uint64_t time_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// It uses no processor meanwhile, with messages that it listens for and without.
static void sleep_calmly(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint32_t which;
    await_all(rank, READY);
    for (int is_listening = 0; is_listening <= 1; is_listening++) {
        const uint64_t began_ns = time_ns(CLOCK_MONOTONIC);
        const uint64_t used_ns = time_ns(CLOCK_PROCESS_CPUTIME_ID);
        for (uint32_t peer = 0; peer < rank->size; peer++)
            sw_coll_listen(rank->coll, peer, is_listening);
        need(sw_coll_wait_any(rank->coll, NULL, 0, sw_coll_deadline_ms(300), &which, &error) ==
             SW_COLL_TIMEOUT);
        need(time_ns(CLOCK_PROCESS_CPUTIME_ID) - used_ns <
             (time_ns(CLOCK_MONOTONIC) - began_ns) / 2);
    }
    await_all(rank, DONE);
}

static void wait_any__sleeps(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, sleep_calmly, spin_little);
    ranks_end(&ranks, 0);
}

// ---- messages that no receive is for ----

static void need_next(struct rank *rank, uint32_t peer, uint64_t tag, uint64_t count)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_message message = {0};
    uint32_t which;
    sw_coll_listen(rank->coll, peer, true);
    while (sw_coll_probe(rank->coll, peer, &message, &error) == SW_COLL_AGAIN)
        need(sw_coll_wait_any(rank->coll, NULL, 0, sw_coll_deadline_ms(PATIENCE_MS), &which,
                              &error) == SW_COLL_AGAIN);
    sw_coll_listen(rank->coll, peer, false);
    need(message.tag == tag && message.count == count && message.type == SW_COLL_U32);
}

// Late ones, short and long: in their order, and each is shown before it is received.
static void show_messages(struct rank *rank)
{
    enum { MESSAGES = 24 };
    struct sw_coll_error error = {.text = ""};
    const uint32_t last = rank->size - 1;
    static uint32_t data[LONG];
    for (uint32_t i = 0; i < MESSAGES; i++) {
        const uint64_t count = i % 3 ? 1 + i : LONG, tag = i % 5 ? i * 0x100000001 : 0;
        struct sw_coll_request *request;
        if (rank->rank == last) {
            nap_ms(i % 4 == 3 ? 2 : 0);
            data[0] = i;
            need_ok(rank,
                    tag ? sw_coll_send_tag_post(rank->coll, 0, tag, data, count, SW_COLL_U32, 0,
                                                &error, &request)
                        : sw_coll_send_post(rank->coll, 0, data, count, SW_COLL_U32, 0, &error,
                                            &request),
                    &error);
            need_ok(rank, sw_coll_wait(request, &error), &error);
        }
        if (rank->rank == 0) {
            need_next(rank, last, tag, count);
            need_ok(rank, sw_coll_recv(rank->coll, last, data, count, SW_COLL_U32, 0, &error),
                    &error);
            need(data[0] == i);
        }
    }
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
}

// With 17 ranks the lower one dials, which is the one that listens.
static void probe__shows_what_is_received_next(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_run(2, show_messages);
    ranks_start(&ranks, 2, show_messages, spin_little);
    ranks_end(&ranks, 0);
    ranks_run(17, show_messages);
}

static void show_own(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_message message;
    struct sw_coll_request *request;
    uint32_t sent = 5, received = 0;
    need(sw_coll_probe(rank->coll, 0, &message, &error) == SW_COLL_AGAIN);
    need(sw_coll_probe(rank->coll, 1, &message, &error) == SW_COLL_INVALID);
    need_ok(rank,
            sw_coll_send_tag_post(rank->coll, 0, 9, &sent, 1, SW_COLL_U32, 0, &error, &request),
            &error);
    need_next(rank, 0, 9, 1);
    need_ok(rank, sw_coll_recv(rank->coll, 0, &received, 1, SW_COLL_U32, 0, &error), &error);
    need(received == 5 && sw_coll_wait(request, &error) == SW_COLL_OK);
    need(sw_coll_probe(rank->coll, 0, &message, &error) == SW_COLL_AGAIN);
}

static void probe__of_this_rank(void **state)
{
    (void)state;
    ranks_run(1, show_own);
}

// A rank closes, and another one is killed: what each has sent is there, and then it is said that
// nothing follows. A close alone is no failure: the others go on with messages.
static void outlive_sender(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_message message;
    uint32_t value = rank->rank, which;
    await_all(rank, READY);
    if (rank->rank) {
        need_ok(rank, sw_coll_send(rank->coll, 0, &value, 1, SW_COLL_U32, 0, &error), &error);
        flag_await(rank->shared, DONE, rank->rank == 1 ? 1 : 2);
        if (rank->rank == 1)
            return;
        need_ok(rank, sw_coll_send(rank->coll, 0, &value, 1, SW_COLL_U32, 0, &error), &error);
        flag_await(rank->shared, DONE, 3);
        kill(getpid(), SIGKILL);
    }
    for (uint32_t peer = 1; peer <= 2; peer++) {
        need_next(rank, peer, 0, 1);
        flag_raise(rank->shared, DONE);
        need_ok(rank, sw_coll_recv(rank->coll, peer, &value, 1, SW_COLL_U32, 0, &error), &error);
        need(value == peer);
        if (peer == 2) { /* it sends another one, though rank 1 has closed */
            need_ok(rank, sw_coll_recv(rank->coll, 2, &value, 1, SW_COLL_U32, 0, &error), &error);
            flag_raise(rank->shared, DONE);
        }
        sw_coll_listen(rank->coll, peer, true);
        while (sw_coll_probe(rank->coll, peer, &message, &error) != SW_COLL_RANK_GONE)
            need(sw_coll_wait_any(rank->coll, NULL, 0, sw_coll_deadline_ms(PATIENCE_MS), &which,
                                  &error) != SW_COLL_TIMEOUT);
        need(strstr(error.text, peer == 1 ? "rank 1" : "2")); /* or "ranks 1 and 2" */
        sw_coll_listen(rank->coll, peer, false);
        need(sw_coll_error(rank->coll, &error) == (peer == 1 ? SW_COLL_OK : SW_COLL_RANK_GONE));
    }
}

static void probe__of_a_rank_that_has_gone(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, outlive_sender, NULL);
    ranks_end(&ranks, 1u << 2);
}

// ---- fork ----

static void fork_and_wait(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_message message;
    uint32_t which;
    int how = -1;
    const pid_t child = fork();
    need(child >= 0);
    if (!child) {
        sw_coll_wake(rank->coll); /* not the parent's sleep */
        sw_coll_listen(rank->coll, 0, true);
        need(sw_coll_wait_any(rank->coll, NULL, 0, 0, &which, &error) == SW_COLL_FORKED);
        need(sw_coll_probe(rank->coll, 0, &message, &error) == SW_COLL_FORKED);
        _exit(0);
    }
    need(waitpid(child, &how, 0) == child && !how);
    need(sw_coll_wait_any(rank->coll, NULL, 0, sw_coll_deadline_ms(20), &which, &error) ==
         SW_COLL_TIMEOUT);
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
}

static void fork__a_child_wakes_nobody(void **state)
{
    (void)state;
    ranks_run(2, fork_and_wait);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_any__gives_each_that_ends),
        cmocka_unit_test(wait_any__a_deadline_changes_nothing),
        cmocka_unit_test(wait_any__of_a_failed_communicator),
        cmocka_unit_test(wake__before_a_wait_holds),
        cmocka_unit_test(wake__none_is_missed),
        cmocka_unit_test(wait_any__sleeps),
        cmocka_unit_test(probe__shows_what_is_received_next),
        cmocka_unit_test(probe__of_this_rank),
        cmocka_unit_test(probe__of_a_rank_that_has_gone),
        cmocka_unit_test(fork__a_child_wakes_nobody),
    };
    if (argc > 1)
        wakes *= (uint32_t)atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
