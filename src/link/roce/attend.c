/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/attend.h"

#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "device/queue/cq_impl.h"
#include "link/roce/qp/delayed_ack.h"
#include "link/roce/roce.h"

#define AWAY_NS (3 * SW_NS_PER_MS) /* between two waits of a program that is busy with what came */

static _Thread_local uint64_t attended_ns __attribute__((tls_model("initial-exec")));

bool sw_roce_attends(void)
{
    return attended_ns && sw_clock_ns() < attended_ns + AWAY_NS;
}

bool sw_roce_attend_begin(uint64_t now_ns)
{
    if (!sw_roce_is_open() || !sw_roce_expects_packets(now_ns))
        return false;
    attended_ns = now_ns;
    atomic_store_explicit(&sw_roce.signs.attended_until_ns, now_ns + SW_ROCE_ATTEND_NS,
                          memory_order_relaxed);
    atomic_store_explicit(&sw_roce.signs.cpu, sched_getcpu(), memory_order_relaxed);
    sw_roce_take_over();
    return true;
}

/* Like ibv_poll_cq(), it is none of the calls at which a thread may be cancelled. */
bool sw_roce_attend_look(bool is_woken, uint64_t now_ns, bool *has_received)
{
    int cancel_state;
    if (!sw_roce_is_open() || (!is_woken && !sw_lock_try(&sw_roce.port.rx_lock)))
        return false;
    if (is_woken)
        sw_lock_acquire(&sw_roce.port.rx_lock);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    sw_cq_hold_events();
    *has_received = sw_roce_take_in(is_woken, now_ns);
    sw_lock_release(&sw_roce.port.rx_lock);
    const bool fires = sw_cq_release_events();
    pthread_setcancelstate(cancel_state, NULL);
    return fires;
}

int sw_roce_attend_rest(uint64_t now_ns)
{
    atomic_store_explicit(&sw_roce.signs.attended_until_ns, now_ns + SW_ROCE_ATTEND_NS,
                          memory_order_relaxed);
    if (sw_delayed_ack_any_waits()) {
        sw_lock_acquire(&sw_roce.port.rx_lock);
        sw_delayed_ack_send(false);
        sw_lock_release(&sw_roce.port.rx_lock);
    }
    return sw_roce.port.epoll;
}

static void roce_attend_stop(uint64_t now_ns)
{
    atomic_store_explicit(&sw_roce.signs.polled_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&sw_roce.signs.attended_until_ns, 0, memory_order_relaxed);
}

void sw_roce_attend_end(uint64_t now_ns)
{
    attended_ns = now_ns;
    roce_attend_stop(now_ns);
}

void sw_roce_attend_leave(void)
{
    if (!attended_ns)
        return;
    attended_ns = 0;
    roce_attend_stop(sw_clock_ns());
    sw_roce_mind();
}
