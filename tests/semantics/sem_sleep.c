/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: programs that sleep on a completion channel, in each way that there is. Messages that come
 * one after the other have the library look for packets instead of the kernel (docs/roce.md), which
 * must not show: not in timeouts, signals, jumps, cancelled threads or other threads. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "sem.h"

enum sleep_way { BY_POLL, BY_PPOLL, BY_EPOLL, BY_NESTED_EPOLL, BY_READ };
enum { SLEEP_RECVS = 16, FOREVER_MS = -1, SLEEP_LATE_MS = 20000 };

struct sleeper {
    struct rig rig;
    enum sleep_way way;
    int epoll, outer;
};

static void sleeper_open(struct sleeper *sleeper, int sock, enum sleep_way way)
{
    *sleeper = (struct sleeper){.way = way, .epoll = -1, .outer = -1};
    const struct rig_attr attr = {.ep = {.channel = true}};
    rig_open(&sleeper->rig, sock, &attr);
    for (unsigned int i = 0; i < SLEEP_RECVS; i++)
        rig_recv(&sleeper->rig, i, 64 * i, 64);
    if (way == BY_EPOLL || way == BY_NESTED_EPOLL) {
        struct epoll_event event = {.events = EPOLLIN};
        sleeper->epoll = epoll_create1(0);
        sleeper->outer = epoll_create1(0);
        VU_EQ(epoll_ctl(sleeper->epoll, EPOLL_CTL_ADD, sleeper->rig.ep.channel->fd, &event), 0);
        VU_EQ(epoll_ctl(sleeper->outer, EPOLL_CTL_ADD, sleeper->epoll, &event), 0);
    }
    vu_barrier(sock);
}

static void sleeper_close(struct sleeper *sleeper)
{
    vu_barrier(sleeper->rig.sock);
    if (sleeper->epoll >= 0) {
        close(sleeper->epoll);
        close(sleeper->outer);
    }
    rig_close(&sleeper->rig);
}

/* As poll(). BY_READ knows no timeout. */
static int wait_ready(struct sleeper *sleeper, int timeout_ms)
{
    struct pollfd ready = {.fd = sleeper->rig.ep.channel->fd, .events = POLLIN};
    struct epoll_event event;
    const struct timespec timeout = {.tv_sec = timeout_ms / 1000,
                                     .tv_nsec = timeout_ms % 1000 * 1000000L};
    switch (sleeper->way) {
    case BY_POLL:
        return poll(&ready, 1, timeout_ms);
    case BY_PPOLL:
        return ppoll(&ready, 1, timeout_ms < 0 ? NULL : &timeout, NULL);
    case BY_EPOLL:
        return epoll_wait(sleeper->epoll, &event, 1, timeout_ms);
    case BY_NESTED_EPOLL:
        return epoll_wait(sleeper->outer, &event, 1, timeout_ms);
    case BY_READ:
        return 1;
    }
    return 0;
}

static void take_ready(struct sleeper *sleeper)
{
    struct ibv_cq *cq;
    void *context;
    VU_EQ(ibv_get_cq_event(sleeper->rig.ep.channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
}

/* Sleeps until there is a message, and answers the receive. */
static void take_message(struct sleeper *sleeper, int round)
{
    struct rig *rig = &sleeper->rig;
    struct ibv_wc wc;
    VU_EQ(ibv_req_notify_cq(rig->ep.rcq, 0), 0);
    int count = ibv_poll_cq(rig->ep.rcq, 1, &wc);
    while (count == 0) {
        const int timeout_ms = sleeper->way == BY_PPOLL ? FOREVER_MS : SLEEP_LATE_MS;
        VU_CHECK(wait_ready(sleeper, timeout_ms) == 1, "lost wake-up in round %d", round);
        take_ready(sleeper);
        VU_EQ(ibv_req_notify_cq(rig->ep.rcq, 0), 0);
        count = ibv_poll_cq(rig->ep.rcq, 1, &wc);
    }
    VU_EQ(count, 1);
    VU_EQ(wc.status, IBV_WC_SUCCESS);
    rig_recv(rig, wc.wr_id, 64 * (uint32_t)wc.wr_id, 64);
}

static void send_message(struct sleeper *sleeper)
{
    struct vu_send send = rig_send(&sleeper->rig, IBV_WR_SEND, 99, 32768, 32);
    struct ibv_wc wc;
    rig_post(&sleeper->rig, &send);
    while (ibv_poll_cq(sleeper->rig.ep.scq, 1, &wc) > 0)
        VU_EQ(wc.status, IBV_WC_SUCCESS);
}

/* Messages there and back, one at a time, which both sleep for. */
static void exchange(struct sleeper *sleeper, int rounds, bool first)
{
    for (int i = 0; i < rounds; i++) {
        if (first)
            send_message(sleeper);
        take_message(sleeper, i);
        if (!first)
            send_message(sleeper);
    }
}

/* A completion that a poll found first has left its event; who fires that may still be about to. So
 * a wait that follows may be ended by one. */
static void drain_events(struct sleeper *sleeper)
{
    struct pollfd ready = {.fd = sleeper->rig.ep.channel->fd, .events = POLLIN};
    struct ibv_wc wc;
    VU_EQ(ibv_req_notify_cq(sleeper->rig.ep.rcq, 0), 0);
    VU_EQ(ibv_poll_cq(sleeper->rig.ep.rcq, 1, &wc), 0);
    while (poll(&ready, 1, 0) == 1)
        take_ready(sleeper);
}

enum { EXCHANGES = 400, FEW_EXCHANGES = 12 };

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Nothing comes, whatever was there before: not too early, and it ends. */
static void run_out(struct sleeper *sleeper, int timeout_ms)
{
    drain_events(sleeper);
    uint64_t start_us = now_us();
    while (wait_ready(sleeper, timeout_ms) == 1) {
        take_ready(sleeper);
        start_us = now_us();
    }
    VU_CHECK(now_us() - start_us >= (uint64_t)timeout_ms * 1000, "%d ms were over early",
             timeout_ms);
}

static void sleep_side(int sock, int param, bool first)
{
    struct sleeper sleeper;
    sleeper_open(&sleeper, sock, (enum sleep_way)param);
    exchange(&sleeper, EXCHANGES, first);
    for (int timeout_ms = 1; timeout_ms <= 64 && param != BY_READ; timeout_ms *= 4) {
        vu_barrier(sock);
        exchange(&sleeper, FEW_EXCHANGES, first);
        if (!first)
            run_out(&sleeper, timeout_ms);
    }
    sleeper_close(&sleeper);
}

static void sleep_a(int sock, int param)
{
    sleep_side(sock, param, true);
}

static void sleep_b(int sock, int param)
{
    sleep_side(sock, param, false);
}

/* Signals. */

static volatile sig_atomic_t alarms;
static sigjmp_buf before_sleep;

static void count_alarm(int number)
{
    (void)number;
    alarms++;
}

static void jump_out(int number)
{
    (void)number;
    alarms++;
    siglongjmp(before_sleep, 1);
}

static void handle_alarms(void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    VU_EQ(sigaction(SIGALRM, &action, NULL), 0);
}

static void set_alarm(unsigned int us, bool repeats)
{
    const struct itimerval timer = {.it_value.tv_usec = us,
                                    .it_interval.tv_usec = repeats ? us : 0};
    VU_EQ(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static void block_alarm(bool blocks, sigset_t *open)
{
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    VU_EQ(pthread_sigmask(blocks ? SIG_BLOCK : SIG_UNBLOCK, &alarm, open), 0);
}

enum { ALARM_ROUNDS = 40 };

/* An alarm that is let through only while the program sleeps: each ends its sleep. The times
 * between lie around that for which the library looks, and then sleeps. */
static void end_by_signal(struct sleeper *sleeper, unsigned int us)
{
    struct pollfd ready = {.fd = sleeper->rig.ep.channel->fd, .events = POLLIN};
    struct epoll_event event;
    sigset_t open;
    drain_events(sleeper);
    block_alarm(true, &open);
    const int before = alarms;
    set_alarm(us, false);
    int ready_count = 0;
    do {
        if (ready_count == 1)
            take_ready(sleeper);
        errno = 0;
        ready_count = sleeper->way == BY_EPOLL
                          ? epoll_pwait(sleeper->epoll, &event, 1, FOREVER_MS, &open)
                          : ppoll(&ready, 1, NULL, &open);
    } while (ready_count == 1 && alarms == before);
    VU_CHECK(ready_count == -1 && errno == EINTR, "%d, %d", ready_count, errno);
    VU_EQ(alarms, before + 1);
    sigset_t now;
    VU_EQ(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    VU_CHECK(sigismember(&now, SIGALRM) == 1, "the mask was not put back");
    VU_CHECK(sigismember(&now, SIGTERM) == 0, "other signals are blocked");
    block_alarm(false, NULL);
}

static void signals_side(int sock, int param, bool first)
{
    struct sleeper sleeper;
    handle_alarms(count_alarm, SA_RESTART); /* which is none of poll()'s */
    sleeper_open(&sleeper, sock, (enum sleep_way)param);
    for (unsigned int i = 0; i < ALARM_ROUNDS; i++) {
        exchange(&sleeper, FEW_EXCHANGES, first);
        vu_barrier(sock);
        if (!first)
            end_by_signal(&sleeper, i % 10 == 9 ? 9000 : 20 + 37 * i);
        vu_barrier(sock);
    }
    sleeper_close(&sleeper);
}

static void signals_a(int sock, int param)
{
    signals_side(sock, param, true);
}

static void signals_b(int sock, int param)
{
    signals_side(sock, param, false);
}

/* ibv_get_cq_event() is a read: it goes on after a handler with SA_RESTART, and ends by others. */
static void read_side(int sock, bool restarts, bool first)
{
    struct sleeper sleeper;
    handle_alarms(count_alarm, restarts ? SA_RESTART : 0);
    sleeper_open(&sleeper, sock, BY_READ);
    for (unsigned int i = 0; i < ALARM_ROUNDS; i++) {
        struct ibv_cq *cq;
        void *context;
        exchange(&sleeper, FEW_EXCHANGES, first);
        if (!first)
            drain_events(&sleeper);
        vu_barrier(sock);
        if (first && restarts) {
            vu_sleep_ms(i % 10 == 9 ? 40 : 2);
            send_message(&sleeper);
        } else if (!first) {
            const int before = alarms;
            set_alarm(50 + 40 * i, true);
            if (restarts) {
                take_message(&sleeper, (int)i);
            } else {
                while (!ibv_get_cq_event(sleeper.rig.ep.channel, &cq, &context))
                    ibv_ack_cq_events(cq, 1);
                VU_EQ(errno, EINTR);
                VU_TRUE(alarms > before);
            }
            set_alarm(0, false);
        }
        vu_barrier(sock);
    }
    VU_TRUE(first || alarms > 0);
    sleeper_close(&sleeper);
}

static void read_signals_a(int sock, int param)
{
    read_side(sock, param, true);
}

static void read_signals_b(int sock, int param)
{
    read_side(sock, param, false);
}

/* Out of the handler, past whatever the sleep has begun. */
static void jumps_side(int sock, int param, bool first)
{
    struct sleeper sleeper;
    handle_alarms(jump_out, 0);
    sleeper_open(&sleeper, sock, (enum sleep_way)param);
    for (volatile unsigned int i = 0; i < ALARM_ROUNDS; i++) {
        exchange(&sleeper, FEW_EXCHANGES, first);
        vu_barrier(sock);
        if (!first)
            drain_events(&sleeper);
        if (!first && !sigsetjmp(before_sleep, 1)) {
            set_alarm(20 + 37 * i, false);
            for (;;) /* an event that was left stays */
                wait_ready(&sleeper, FOREVER_MS);
        }
        vu_barrier(sock);
    }
    VU_EQ(alarms, first ? 0 : ALARM_ROUNDS);
    sleeper_close(&sleeper);
}

static void jumps_a(int sock, int param)
{
    jumps_side(sock, param, true);
}

static void jumps_b(int sock, int param)
{
    jumps_side(sock, param, false);
}

/* Threads. */

/* Not under AddressSanitizer: it does not see that the frames of a thread that is cancelled are
 * gone, and takes what its own end puts there for an overflow. */
#ifndef __SANITIZE_ADDRESS__
static atomic_bool has_exchanged;

static void *exchange_and_sleep(void *arg)
{
    struct sleeper *sleeper = arg;
    exchange(sleeper, FEW_EXCHANGES, false);
    drain_events(sleeper);
    atomic_store(&has_exchanged, true);
    for (;;) /* until it is cancelled */
        if (sleeper->way == BY_READ)
            take_ready(sleeper);
        else
            wait_ready(sleeper, FOREVER_MS);
    return NULL;
}

static void cancel_a(int sock, int param)
{
    struct sleeper sleeper;
    sleeper_open(&sleeper, sock, (enum sleep_way)param);
    for (unsigned int i = 0; i < ALARM_ROUNDS; i++) {
        exchange(&sleeper, FEW_EXCHANGES, true);
        vu_barrier(sock);
    }
    sleeper_close(&sleeper);
}

/* A thread that is cancelled in its sleep leaves nothing behind; the next one sleeps as well. */
static void cancel_b(int sock, int param)
{
    struct sleeper sleeper;
    sleeper_open(&sleeper, sock, (enum sleep_way)param);
    for (unsigned int i = 0; i < ALARM_ROUNDS; i++) {
        pthread_t thread;
        void *end = NULL;
        atomic_store(&has_exchanged, false);
        VU_EQ(pthread_create(&thread, NULL, exchange_and_sleep, &sleeper), 0);
        while (!atomic_load(&has_exchanged))
            vu_sleep_ms(1);
        usleep(i % 10 == 9 ? 9000 : 20 + 37 * i);
        VU_EQ(pthread_cancel(thread), 0);
        VU_EQ(pthread_join(thread, &end), 0);
        VU_TRUE(end == PTHREAD_CANCELED);
        vu_barrier(sock);
    }
    sleeper_close(&sleeper);
}
#endif

struct sleeping_thread {
    struct sleeper sleeper;
    bool first;
};

static void *exchange_alone(void *arg)
{
    struct sleeping_thread *self = arg;
    exchange(&self->sleeper, EXCHANGES, self->first);
    return NULL;
}

/* Several threads of a program, each with a channel of its own. */
static void threads_side(int sock, bool first)
{
    enum { THREADS = 3 };
    struct sleeping_thread *all = calloc(THREADS, sizeof(*all));
    pthread_t threads[THREADS];
    VU_TRUE(all);
    for (int i = 0; i < THREADS; i++) {
        all[i].first = first;
        sleeper_open(&all[i].sleeper, sock, (enum sleep_way)(i % 2 ? BY_EPOLL : BY_POLL));
    }
    for (int i = 0; i < THREADS; i++)
        VU_EQ(pthread_create(&threads[i], NULL, exchange_alone, &all[i]), 0);
    for (int i = 0; i < THREADS; i++)
        VU_EQ(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        sleeper_close(&all[i].sleeper);
    free(all);
}

static void threads_a(int sock, int param)
{
    (void)param;
    threads_side(sock, true);
}

static void threads_b(int sock, int param)
{
    (void)param;
    threads_side(sock, false);
}

const struct sem_case sem_sleep[] = {
    {"sleep__poll", sleep_a, sleep_b, BY_POLL},
    {"sleep__ppoll", sleep_a, sleep_b, BY_PPOLL},
    {"sleep__epoll", sleep_a, sleep_b, BY_EPOLL},
    {"sleep__nested_epoll", sleep_a, sleep_b, BY_NESTED_EPOLL},
    {"sleep__get_cq_event", sleep_a, sleep_b, BY_READ},
    {"sleep__signals_in_ppoll", signals_a, signals_b, BY_PPOLL | SEM_PROCESSES},
    {"sleep__signals_in_epoll", signals_a, signals_b, BY_EPOLL | SEM_PROCESSES},
    {"sleep__signals_in_get_cq_event", read_signals_a, read_signals_b, false | SEM_PROCESSES},
    {"sleep__restart_of_get_cq_event", read_signals_a, read_signals_b, true | SEM_PROCESSES},
    {"sleep__jump_out_of_poll", jumps_a, jumps_b, BY_POLL | SEM_PROCESSES},
    {"sleep__jump_out_of_epoll", jumps_a, jumps_b, BY_EPOLL | SEM_PROCESSES},
#ifndef __SANITIZE_ADDRESS__
    {"sleep__cancelled_in_poll", cancel_a, cancel_b, BY_POLL},
    {"sleep__cancelled_in_epoll", cancel_a, cancel_b, BY_EPOLL},
    {"sleep__cancelled_in_get_cq_event", cancel_a, cancel_b, BY_READ},
#endif
    {"sleep__threads", threads_a, threads_b, 0},
    {0},
};
