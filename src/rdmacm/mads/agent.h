/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the MADs of connection management travel. To an address of this network namespace they go the
 * direct way, over a socket to the process meant (unless SIDEWIRE_LINK=roce); to any other, and
 * from there, as datagrams of QP 1 over the RoCE port.
 *  - a MAD with a remote communication ID goes to the process whose slot is in the ID's top 11
 * bits;
 *  - a REQ or SIDR_REQ goes to the process that listens to its service ID at its destination
 *    (ports.h), also when the packet came to another process that shares the UDP port. Where nobody
 *    listens the agent answers: REJ with reason 8 (invalid service ID), SIDR_REP with status 1.
 * A MAD may be lost, doubled or late, as on a wire: the machine's timers see to that.
 *
 * In a path (struct sw_cm_path, cm/cm.h) the agent reads and sets: source and destination GID as
 * seen from here (IPv4 addresses are mapped into IPv6), the interface's index, the P_Key, and
 * `slot`: the process of this host that the other end is; 0: it is reached by packets, or not known
 * yet. A path to connect by has slot 0; one that came with a MAD leads back to its sender.
 *
 * Lock order: sw_rdmacm_lock < all locks of the layers below but those of an engine's step; so it
 * is never taken with a queue pair's or a completion queue's lock held.
 */
#ifndef SW_RDMACM_MADS_AGENT_H
#define SW_RDMACM_MADS_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "rdmacm/lock.h"

struct sw_cm_path;
struct sw_netdev;

#define SW_AGENT_MAD_BYTES 256u

/* What the agent calls: in the engine's thread, with sw_rdmacm_lock held, never from inside a call
 * of the agent. Each may be NULL. */
struct sw_agent_user {
    void (*receive)(const struct sw_cm_path *path, const uint8_t mad[SW_AGENT_MAD_BYTES]);
    /* The process of this host that had the slot is gone: nothing comes from there any more, and
     * its connections are to be told. */
    void (*gone)(uint32_t slot);
    /* The same of another host's, at this GID. */
    void (*gone_far)(const uint8_t gid[16], uint32_t slot);
    /* The peer of the queue pair of this index has died, on whatever host. */
    void (*lost_peer)(uint32_t qp_index);
    /* A process of this host that had the slot has ended; `fd` is what it had handed over to us,
     * and the callee's to close. */
    void (*inherit)(uint32_t slot, int fd);
    /* The interface of a device does not exist any more. */
    void (*removed)(struct sw_netdev *dev);
    /* It has another hardware address. */
    void (*readdressed)(struct sw_netdev *dev);
    /* There may be other devices than before. */
    void (*changed)(void);
    /* Time has come; returns when next (sw_clock_ns(); UINT64_MAX: when asked, sw_agent_plan()). */
    uint64_t (*tick)(uint64_t now_ns);
    /* After any of these, without the lock. */
    void (*flush)(void);
};

/* Starts the NIC where it is not, and the agent. Idempotent; to be called again in a forked child,
 * where all that the agent has is forgotten. sw_rdmacm_lock held. 0 or a negative errno. */
int sw_agent_open(const struct sw_agent_user *user);
/* This process's number, the top 11 bits of its communication IDs. */
uint32_t sw_agent_slot(void);

/* Sends a MAD, or loses it. sw_rdmacm_lock held; does not block. */
void sw_agent_send(const struct sw_cm_path *path, const uint8_t mad[SW_AGENT_MAD_BYTES]);
/* Whether MADs go there by packets, to another host. */
bool sw_agent_is_far(const struct sw_cm_path *path);
/* As if a host without a listener had answered this request of ours, soon. sw_rdmacm_lock held. */
void sw_agent_refuse(const struct sw_cm_path *path, const uint8_t mad[SW_AGENT_MAD_BYTES]);
/* tick() is wanted by then. sw_rdmacm_lock held. */
void sw_agent_plan(uint64_t due_ns);
/* The same, at once, by any thread and without the lock. May come to nothing, and is to be said
 * again. */
void sw_agent_call_tick(void);

/* Gives a descriptor to another process of the same user, if there is one, which gets it as
 * inherit() when this one ends. There is one in a process, to be given again whenever it has
 * something new to tell. sw_rdmacm_lock held. */
void sw_agent_hand_over(int fd);

/* Whether there is a way to the destination: 0; -ENETUNREACH: another host, and
 * SIDEWIRE_LINK=direct keeps from it; -EADDRINUSE and others: the UDP port cannot be had. */
int sw_agent_reaches(const struct sw_cm_path *path);

/* Requests and messages that were dropped as too much waited, for the device they came to. */
void sw_agent_count_crowded(const struct sw_cm_path *path, uint64_t count);

#endif
