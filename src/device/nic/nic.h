/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's one NIC: its public tables, its object tables, and the link that carries its queue
 * pairs. Created when the first device is opened, re-created in a forked child, never destroyed.
 *
 * Lock order: nic.lock < cq.poll_lock < qp.lock < rq.lock < cq.push_lock.
 */
#ifndef SW_DEVICE_NIC_NIC_H
#define SW_DEVICE_NIC_NIC_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/nic/draw.h"
#include "device/nic/qp_set.h"
#include "device/rules/pub.h"

struct sw_cq;
struct sw_qp;
struct sw_traffic;
struct sw_mr;
struct sw_context;
struct sw_netdev;

/* A peer that was inside an access when a connection ended, and was not waited for any longer: the
 * numbers are its link's. */
struct sw_inside {
    uint64_t inbox; /* 0: there is none */
    uint32_t block, count;
};

/* What a link does for one queue pair. All are called with the QP locked. */
struct sw_qp_ops {
    /* RTR: find the peer, publish the binding. */
    int (*connect)(struct sw_qp *qp);
    /* Leaves the connected states: afterwards no peer touches memory through this QP. One that is
     * stopped amid an access goes on with that later: qp->inside says so. */
    void (*disconnect)(struct sw_qp *qp);
    /* Whether the peer may still go on with an access of a connection that has ended. May be NULL.
     */
    bool (*is_inside)(struct sw_qp *qp);
    /* The QP has entered RTS or SQD, or attributes of it have changed there. May be NULL. */
    void (*changed)(struct sw_qp *qp);
    /* Executes what may skip the queue (sw_sq_may_skip()) at the front of a list, at most `most`;
     * returns how many. *sent: so many of them, the last, wait for an answer. In RTS, where nothing
     * in the send queue waits to be started. May be NULL. */
    uint32_t (*execute_now)(struct sw_qp *qp, const struct ibv_send_wr *wr, uint32_t most,
                            uint32_t *sent);
    /* Starts what was appended to the send queue, a bounded step. */
    void (*send)(struct sw_qp *qp);
    /* Drives sends and receives of a QP a bounded step. */
    void (*progress)(struct sw_qp *qp);
    /* Receives were posted that the peer sleeps for. Where `awaited` is set alone. */
    void (*wake_sender)(struct sw_qp *qp);
    /* What the QP has moved in this connection. */
    void (*traffic)(struct sw_qp *qp, struct sw_traffic *out);
    bool by_packets; /* so what the peer has said may not be here yet */
};

/* What the links do for the device. Upper layers register theirs with sw_nic_set_link() before a
 * device is opened. */
struct sw_link_ops {
    /* Claims a slot (fills nic->slot) and starts the engine. Called under nic.lock. 0 or negative
     * errno. */
    int (*start)(void);
    /* The link that a QP uses from here on: asked when it is created, and with its address known
     * when it is about to be connected. */
    const struct sw_qp_ops *(*choose)(struct sw_qp *qp);
    /* Before that, without locks: finds out what is known only by asking the peer's process. The
     * engine asks, and it takes the locks of queue pairs. The result is given to part() when the QP
     * is connected. NULL: there was nothing to ask. */
    struct sw_peer *(*meet)(uint32_t dest_qpn, const union ibv_gid *dgid);
    void (*part)(struct sw_peer *peer);
    /* Datagrams. receive() delivers some that wait, until `cq` holds `want` completions; called
     * with its poll_lock. has_datagrams(): some wait, for whichever QP. */
    void (*receive)(struct sw_cq *cq, uint32_t want);
    bool (*has_datagrams)(void);
    /* Nothing is delivered to the QP from here on; called without locks. */
    void (*qp_forget)(struct sw_qp *qp);
    /* Receives from other hosts what waits, for whichever QP, and first lets another thread finish
     * that does so, if `waits`; called with a CQ's poll_lock. */
    void (*poll)(bool waits);
    /* The last of these polls found nothing for a CQ that is armed: the program is about to sleep,
     * and what other hosts send next has to wake it. The same lock. */
    void (*mind)(void);
    /* The same whoever polls; returns when what another thread has received is answered. Called
     * without locks of the device. */
    void (*catch_up)(void);
    /* This process has a first QP in a multicast group, or has none left. */
    int (*group_join)(const union ibv_gid *gid);
    void (*group_leave)(const union ibv_gid *gid);
    /* The same of its QPs on one device: what other hosts send to the group comes there. May be
     * NULL. */
    void (*group_hear)(struct sw_netdev *dev, const union ibv_gid *gid);
    void (*group_unhear)(struct sw_netdev *dev, const union ibv_gid *gid);
    /* This process opens an XRC domain that other processes may have open, too: O_CREAT and O_EXCL
     * count as for a file. A descriptor that announces it until it is closed, -EAGAIN (nobody has
     * it open, O_CREAT not given), -EINVAL (somebody has, O_EXCL given) or another negative errno.
     * May sleep; called without locks of the device but that of opening domains. */
    int (*domain_announce)(const struct sw_pub_domain *domain, int oflags);
    /* Opens an XRC target QP of another process: a descriptor that holds it until it is closed, or
     * -EINVAL (no such QP in the domain) or another negative errno. And queries it (mask 0) or
     * modifies it by that. May take seconds if that process is stopped; no lock of the device held.
     */
    int (*target_open)(const struct sw_pub_domain *domain, uint32_t qpn);
    int (*target_call)(int held, int mask, struct ibv_qp_attr *attr);
    /* Returns when every access begun by peers or local threads before the call has ended
     * (bounded). */
    void (*quiesce)(void);
    void (*segment_gone)(uint32_t segment_id);
    /* Before a fork: no thread is within a step of which the child could not let go. Then in the
     * parent, or else in the child: it lets go of all that is the parent's. The first two may be
     * NULL. */
    void (*fork_prepare)(void);
    void (*fork_parent)(void);
    void (*fork_child)(void);
    /* Wakes the engine. Callable with locks held. */
    void (*kick)(void);
};

struct sw_nic {
    pthread_mutex_t lock;
    bool started; /* tables allocated */
    bool linked;  /* slot claimed, engine runs; false again in a forked child */
    uint32_t slot;
    uint64_t nonce;
    struct sw_pub *pub; /* own tables, writable */
    uint64_t pub_bytes; /* of them, that have memory */
    int pub_fd;
    const struct sw_link_ops *link;
    struct sw_context *contexts; /* list, for port events */
    struct sw_qp **qps;          /* [SW_MAX_QP] */
    struct sw_mr **mrs;          /* [SW_MAX_MR] */
    struct sw_draw qp_draw, mr_draw, srq_draw;
    uint32_t cq_next;
    atomic_uint wired;       /* QPs that may receive from other hosts for any CQ */
    uint32_t qp_created;     /* ever */
    struct sw_qp_set qp_set; /* which of `qps` are there, ... */
    struct sw_qp_set awake;  /* ... and may have work: sw_qp_rest() */
    atomic_bool unminded;    /* nobody looks whether peers live: nothing was awaited of them */
    atomic_bool overran;     /* a CQ has overflowed */
    uint64_t *cq_used;       /* bitmap [SW_MAX_CQ] */
    struct sw_cq *moderated; /* list of the CQs with moderation */
};

extern struct sw_nic sw_nic;

void sw_nic_set_link(const struct sw_link_ops *ops);
int sw_nic_start(void); /* idempotent */

/* Index allocation; each returns a negative errno when the table is full. Indices are not handed
 * out again at once. */
int sw_nic_claim_qp(struct sw_qp *qp);
void sw_nic_release_qp(uint32_t index);
int sw_nic_claim_cq(void);
void sw_nic_release_cq(uint32_t index);

/* Space for receive rings inside the public tables; offset from the tables' start, or 0 when full.
 */
uint64_t sw_nic_rq_alloc(uint64_t len_bytes);
void sw_nic_rq_free(uint64_t offset, uint64_t len_bytes);

/* Sends an asynchronous event to a context (and its program). */
void sw_context_event(struct sw_context *ctx, enum ibv_event_type type, void *element);

/* Walks the QPs that there are, by index, with the NIC locked; SW_MAX_QP ends it. */
static inline uint32_t sw_nic_first_qp(void)
{
    return sw_qp_set_next(&sw_nic.qp_set, 0);
}
static inline uint32_t sw_nic_next_qp(uint32_t index)
{
    return sw_qp_set_next(&sw_nic.qp_set, index + 1);
}

#endif
