/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCE devices whose connected queue pairs reach other hosts over TCP (docs/tcp.md). Two connected
 * queue pairs have one TCP connection, to one fixed port. The machines of iWARP carry it.
 *
 *   paired.c   a queue pair's life: when it calls, how long it waits for its peer
 *   call.c     the connection that it makes
 *   trial.c    queue pairs of RoCE whose packets find no answer: they become these
 *   datagrams.c  datagrams, which have connections of their own
 *   waiting.c  those that wait for a call, or for room in TCP
 *   hosts.c    what was found of other hosts
 *   callers.c  the connections that come, and which queue pair or process each is for
 *   socket.c   TCP
 */
#ifndef SW_LINK_PAIRED_PAIRED_H
#define SW_LINK_PAIRED_PAIRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <netinet/in.h>

#include "device/queue/qp_impl.h"
#include "link/iwarp/iwarp.h"
#include "transport/iwarp/start.h"
#include "wire/iwarp/pairing.h"

/* For RC only: connect() of other types is -EOPNOTSUPP. */
extern const struct sw_qp_ops sw_paired_qp_ops;

void sw_paired_start(void);
void sw_paired_fork_child(void);

/* What an event of SW_WATCH_PAIRED is about: one of these, and a number. */
enum sw_paired_tag {
    SW_PAIRED_CONNECTION, /* index of the queue pair */
    SW_PAIRED_CALL,       /* index of the queue pair */
    SW_PAIRED_CALLER,     /* index of the caller */
    SW_PAIRED_LISTENER,   /* 0: listener; 1: handed on by another process */
    SW_PAIRED_DATAGRAMS,  /* which connection for datagrams */
};

static inline void *sw_paired_tag(enum sw_paired_tag tag, uint32_t number)
{
    return (void *)(((uintptr_t)number << SW_IWARP_TAG_SHIFT | tag) << 4);
}

/* What a queue pair has from RTR on, besides its connection, which is link_state. With the queue
 * pair locked. */
struct sw_paired {
    struct sw_qp *qp;
    struct in6_addr own, peer;
    uint32_t scope;
    int fd; /* of a call under way; -1 */
    bool is_asked;
    bool is_inquiry; /* that call, or the next one, connects nothing (call.c) */
    bool is_trial;   /* the queue pair is RoCE's still */
    bool has_moved;  /* it was */
    /* Has begun, and there is no connection: the peer has let go. */
    struct sw_iwarp_outcome outcome;
    bool was_met;         /* there was a connection, perhaps too short for a message */
    uint64_t died_ns;     /* when the peer was found dead */
    bool is_told;         /* its program, by rdma_cm: the queue pair ends later */
    uint32_t claimed_psn; /* that the peer expects first; SW_PAIRING_PSN_OPEN: it has not said */
    uint64_t nonce;
    uint64_t again_ns, gap_ns; /* when to call next */
    uint64_t called_ns;        /* when the call under way began */
    uint64_t patience_ns;      /* with its reply, of the last call */
    uint64_t waits_ns;         /* since when a request waits for a peer; 0: none does */
    uint8_t private_data[SW_PAIRING_BYTES];
    struct sw_iwarp_start start;
};

struct sw_connection;

/* What it waits for; with the QP locked. */
void sw_paired_describe(const struct sw_qp *qp, struct sw_connection *out);
/* The pairing of a queue pair; NULL: it has none. */
struct sw_paired *sw_paired_of(const struct sw_qp *qp);
struct sw_iwarp_start_config sw_paired_config(const uint8_t private_data[SW_PAIRING_BYTES]);
/* Whether this end's call is the one that counts, if both call. */
bool sw_paired_is_lower(const struct sw_paired *p);
/* A queue pair that is its own peer has no connection: the direct link is for that. */
bool sw_paired_is_own(const struct sw_paired *p);
/* The two have agreed: the queue pair takes the socket over. Negative errno. */
int sw_paired_begin(struct sw_paired *p, int fd, const struct sw_iwarp_start *start,
                    bool is_initiator, const uint8_t *bytes, size_t len);
/* Gives the queue pair a pairing, and takes it away. NULL: no memory, or no such address. */
struct sw_paired *sw_paired_add(struct sw_qp *qp);
void sw_paired_remove(struct sw_paired *p);
/* The engine looks at those that have no connection. */
void sw_paired_look(void);

#endif
