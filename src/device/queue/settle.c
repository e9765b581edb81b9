/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/settle.h"

#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"

#define STEPS_MAX 1024 /* more than a full queue needs */
#define TURNS_MAX 64u  /* some MiB each */

static bool settle_is_connected(const struct sw_qp *qp)
{
    return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

/* Until it gets no further. */
static void drive_held(struct sw_qp *qp)
{
    for (int i = 0; i < STEPS_MAX && settle_is_connected(qp) && sw_qp_has_work(qp); i++) {
        const uint32_t head = qp->sq.head;
        const uint32_t expected = atomic_load(&qp->rx_expect);
        qp->link->progress(qp);
        if (qp->sq.head == head && atomic_load(&qp->rx_expect) == expected)
            return;
    }
}

/* Moves one turn's worth. False: there is none that could be had. */
static bool move_turn(struct sw_qp *qp)
{
    if (!atomic_load_explicit(&qp->tx_pending, memory_order_relaxed) || !sw_lock_try(&qp->lock))
        return false;
    const bool moves = settle_is_connected(qp) && qp->tx_goes_on;
    if (moves)
        qp->link->progress(qp);
    sw_lock_release(&qp->lock);
    return moves;
}

void sw_nic_finish_posts(bool (*has_event)(const void *arg), const void *arg)
{
    bool moves = true;
    for (uint32_t turns = 0; moves && turns < TURNS_MAX; turns++) {
        moves = false;
        pthread_mutex_lock(&sw_nic.lock);
        for (uint32_t i = sw_qp_set_next(&sw_nic.awake, 0); i < SW_MAX_QP && !has_event(arg);
             i = sw_qp_set_next(&sw_nic.awake, i + 1))
            moves |= move_turn(sw_nic.qps[i]);
        pthread_mutex_unlock(&sw_nic.lock);
    }
}

static bool settle_is_far(uint32_t qpn)
{
    pthread_mutex_lock(&sw_nic.lock);
    const struct sw_qp *qp = sw_qp_find(qpn);
    const bool far = qp && qp->link->by_packets;
    pthread_mutex_unlock(&sw_nic.lock);
    return far;
}

bool sw_qp_settle(uint32_t qpn)
{
    const bool far = settle_is_far(qpn);
    bool waits = false;
    if (far)
        sw_nic.link->catch_up();
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = sw_qp_find(qpn);
    if (qp) {
        sw_lock_acquire(&qp->lock);
        drive_held(qp);
        waits = far && settle_is_connected(qp) && qp->sq.head != qp->sq.tail;
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return waits;
}
