/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/attend.h"

#include "base/clock.h"
#include "base/fds.h"
#include "link/roce/attend.h"
#include "link/roce/roce.h"
#include "link/spin.h"

#define SHORT_NS (2 * SW_NS_PER_MS) /* a wait after which the next one is expected to be short */
/* Sent and received in a wait. More is a stream, of which engine and program together move more. */
#define PACKETS_MAX 128u
#define STREAM_WAITS 8u               /* that are left to the engine then */
#define REST_NS (4 * SW_NS_PER_MS)    /* then the engine takes over */
#define OTHERS_NS (10 * SW_NS_PER_MS) /* how long another thread's wait counts */
#define ASK_ROUNDS 8u                 /* an event of another thread's is seen so late */

atomic_uint sw_attend_marks;
static atomic_bool marks[SW_FDS_MAX];

/* The last waiter: the address of its thread's state. */
static _Atomic(const void *) waiter;
static _Atomic uint64_t waited_ns;

static _Thread_local struct {
    struct sw_spin spin;
    bool is_short;    /* the last wait was */
    uint32_t streams; /* waits that are left to the engine: one of late was part of a stream */
} thread __attribute__((tls_model("initial-exec")));

void sw_attend_mark(int fd)
{
    if (fd >= 0 && fd < SW_FDS_MAX && !atomic_exchange(&marks[fd], true))
        atomic_fetch_add(&sw_attend_marks, 1);
}

void sw_attend_unmark(int fd)
{
    if (sw_attend_is_marked(fd) && atomic_exchange(&marks[fd], false))
        atomic_fetch_sub(&sw_attend_marks, 1);
}

bool sw_attend_is_marked(int fd)
{
    return fd >= 0 && fd < SW_FDS_MAX && atomic_load_explicit(&marks[fd], memory_order_relaxed);
}

/* Whether no other thread has waited of late; from here on it is this one. */
static bool is_only_waiter(uint64_t now_ns)
{
    const void *other = atomic_exchange_explicit(&waiter, &thread, memory_order_relaxed);
    const uint64_t other_ns = atomic_exchange_explicit(&waited_ns, now_ns, memory_order_relaxed);
    return other == &thread || now_ns >= other_ns + OTHERS_NS;
}

bool sw_attend_is_possible(void)
{
    return sw_roce_is_open();
}

bool sw_attend_begin(struct sw_attend *attend)
{
    const uint64_t now_ns = sw_clock_ns();
    const bool attends = is_only_waiter(now_ns) && thread.is_short && !thread.streams &&
                         sw_roce_attend_begin(now_ns);
    *attend =
        (struct sw_attend){.moved_ns = now_ns, .packets = sw_roce_packets(), .attends = attends};
    if (attends)
        sw_spin_begin(&thread.spin, now_ns);
    else
        sw_roce_attend_leave();
    return attends;
}

/* Whether it has been about few packets so far, whoever moved them. */
static bool has_few(const struct sw_attend *attend)
{
    return sw_roce_packets() - attend->packets <= PACKETS_MAX;
}

/* Whether the program is to be asked for what it waits for. */
static bool attend_round(struct sw_attend *attend, bool is_woken, uint32_t round)
{
    const uint64_t now_ns = sw_clock_ns();
    bool has_received = false;
    const bool has_event = sw_roce_attend_look(is_woken, now_ns, &has_received);
    if (has_received)
        attend->moved_ns = now_ns;
    sw_spin_round(&thread.spin, has_received, now_ns);
    return has_event || round % ASK_ROUNDS == 0;
}

int sw_attend_look(struct sw_attend *attend, int (*look)(void *arg), void *arg)
{
    for (uint32_t round = 1; thread.spin.since_ns && has_few(attend); round++) {
        const int found = attend_round(attend, false, round) ? look(arg) : 0;
        if (found) {
            sw_spin_await(&thread.spin, true, attend->moved_ns);
            return found;
        }
    }
    return look(arg);
}

void sw_attend_leave(struct sw_attend *attend)
{
    attend->attends = false;
    sw_roce_attend_leave();
}

int sw_attend_rest(struct sw_attend *attend, uint64_t *most_ns)
{
    const uint64_t now_ns = sw_clock_ns(), until_ns = attend->moved_ns + REST_NS;
    if (now_ns >= until_ns || !has_few(attend)) {
        sw_attend_leave(attend);
        return -1;
    }
    *most_ns = until_ns - now_ns;
    return sw_roce_attend_rest(now_ns);
}

void sw_attend_wake(struct sw_attend *attend)
{
    attend_round(attend, true, 0);
}

void sw_attend_end(struct sw_attend *attend, bool has_come)
{
    const uint64_t now_ns = sw_clock_ns();
    thread.is_short = has_come && now_ns < attend->moved_ns + SHORT_NS;
    if (!has_few(attend))
        thread.streams = STREAM_WAITS;
    else if (thread.streams)
        thread.streams--;
    if (attend->attends && thread.is_short && !thread.streams)
        sw_roce_attend_end(now_ns);
    else
        sw_roce_attend_leave();
}
