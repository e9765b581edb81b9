/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The direct link: queue pairs between processes of one user on one host. This is what a process
 * has of it; the rest has headers of its own:
 *
 *     processes     registry.h  the slot          proof.h, attach.h  how two processes meet
 *                   peer.h      whose memory we use                  inbox.h  who writes ours
 *                   control.h   what they say to each other          survey.h what all have counted
 *     memory        block.h     what one client writes of one queue pair: rings of records
 *     queue pairs   connection.h, bind.h          lane.h, domain.h, hold.h   XRC among processes
 *     sending       requester.h, ahead.h, step.h; by kind: onesided.h, twosided.h, bounce.h,
 *                   pull.h, flush.h; by reach.h (memory), peer_receive.h and record.h (the ring)
 *     receiving     responder.h, answer.h; by kind: serve.h, serve_send.h, serve_key.h,
 *                   record_payload.h (short messages)
 *     datagrams     datagram_send.h, datagram_receive.h, multicast.h
 *     counters      account.h   what was moved
 */
#ifndef SW_LINK_DIRECT_DIRECT_H
#define SW_LINK_DIRECT_DIRECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/lock.h"

struct sw_direct_qp;
struct sw_inbox;
struct sw_peer;
struct sw_qp;
struct sw_qp_ops;

/* Which rungs SIDEWIRE_DIRECT leaves. */
struct sw_direct_modes {
    bool mapped, cma, ring;
};

struct sw_direct {
    pthread_mutex_t lock; /* peers, inboxes; leaf but for peer->lock and list_lock */
    /* The list of inboxes, for who waits for all clients: he may be inside an allocator, so nothing
     * is allocated under it. An inbox leaves the list under both locks, without users. */
    struct sw_lock list_lock;
    struct sw_direct_modes modes;
    bool off;
    bool has_packets; /* for those that refuse each other */
    struct sw_peer *peers;
    struct sw_inbox *inboxes;
    int listener;
    atomic_bool work;   /* peers or segments want the engine */
    atomic_uint turns;  /* of the engine */
    atomic_bool served; /* the engine has executed a peer's request since it last looked */
};
extern struct sw_direct sw_direct;

int sw_direct_start(void);
void sw_direct_fork_child(void);
extern const struct sw_qp_ops sw_direct_qp_ops;
extern const struct sw_qp_ops sw_direct_gated_ops; /* with faults: gate.h */
/* This link's part of a QP; NULL: it is not connected, or by another link. With the QP locked. */
struct sw_direct_qp *sw_direct_of(const struct sw_qp *qp);
/* Sends and receives of one QP, a bounded step; returns whether anything was received. */
bool sw_direct_drive(struct sw_qp *qp);

#endif
