/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/connections.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"
#include "link/direct/send/describe.h"
#include "link/iwarp/describe.h"
#include "link/iwarp/iwarp.h"
#include "link/paired/paired.h"
#include "link/roce/qp/describe.h"
#include "link/roce/qp/qp.h"

static _Atomic(sw_connections_starts) starts_of_user;

void sw_connections_set_starts(sw_connections_starts starts)
{
    atomic_store(&starts_of_user, starts);
}

static void describe_queues(const struct sw_qp *qp, struct sw_connection *out)
{
    out->qpn = qp->shown_qpn;
    out->qp_state = (uint8_t)qp->state;
    out->sends = qp->sq.tail - qp->sq.head;
    if (qp->srq)
        out->flags |= SW_CONNECTION_HAS_SRQ;
    else
        out->receives = atomic_load(&qp->rq.posted) - atomic_load(&qp->rq.consumed);
}

static enum sw_connection_link link_of(const struct sw_qp *qp)
{
    if (qp->link == &sw_roce_qp_ops)
        return SW_CONNECTION_ROCE;
    return qp->link == &sw_paired_qp_ops ? SW_CONNECTION_TCP : SW_CONNECTION_DIRECT;
}

static void describe_wait(const struct sw_qp *qp, struct sw_connection *out)
{
    switch ((enum sw_connection_link)out->link) {
    case SW_CONNECTION_DIRECT:
        sw_direct_describe(qp, out);
        break;
    case SW_CONNECTION_ROCE:
        sw_roce_describe(qp, out);
        break;
    case SW_CONNECTION_TCP:
        sw_paired_describe(qp, out);
        break;
    case SW_CONNECTION_IWARP:
        break;
    }
}

/* Whether it is connected. With the QP locked. */
static bool describe_qp(struct sw_qp *qp, struct sw_connection *out)
{
    memset(out, 0, sizeof(*out));
    if (qp->orphan || qp->rules->is_datagram || qp->stands_in)
        return false;
    describe_queues(qp, out);
    if (qp->link == &sw_iwarp_qp_ops) {
        out->link = SW_CONNECTION_IWARP;
        return sw_iwarp_describe(qp, out);
    }
    if (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
        return false;
    out->link = (uint8_t)link_of(qp);
    out->peer_qpn = qp->dest_qpn;
    out->peer.sin6_family = AF_INET6;
    memcpy(&out->peer.sin6_addr, qp->attr.ah_attr.grh.dgid.raw, sizeof(out->peer.sin6_addr));
    describe_wait(qp, out);
    return true;
}

static uint32_t read_qps(uint32_t *at, struct sw_connection out[SW_CONNECTIONS_MOST])
{
    uint32_t count = 0, i = *at;
    pthread_mutex_lock(&sw_nic.lock);
    for (i = i ? sw_nic_next_qp(i - 1) : sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (count == SW_CONNECTIONS_MOST)
            break;
        sw_lock_acquire(&qp->lock);
        count += describe_qp(qp, &out[count]);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    *at = i;
    return count;
}

uint32_t sw_connections_read(uint32_t from, struct sw_connection out[SW_CONNECTIONS_MOST],
                             uint32_t *next)
{
    const sw_connections_starts starts = atomic_load(&starts_of_user);
    uint32_t count = 0;
    *next = from;
    if (from < SW_MAX_QP)
        count = read_qps(next, out);
    if (*next < SW_MAX_QP || count == SW_CONNECTIONS_MOST)
        return count;
    uint32_t index = *next > SW_MAX_QP ? *next - SW_MAX_QP : 0;
    *next = SW_CONNECTIONS_END;
    if (!starts)
        return count;
    count += starts(index, out + count, SW_CONNECTIONS_MOST - count, &index);
    if (index != SW_CONNECTIONS_END)
        *next = SW_MAX_QP + index;
    return count;
}
