/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process tells of its connections when it is asked (link/direct/process/survey.h): which
 * link each uses, who the peer is, and what it waits for. Crosses a socket between processes.
 */
#ifndef SW_LINK_CONNECTIONS_H
#define SW_LINK_CONNECTIONS_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/types.h>

enum sw_connection_link {
    SW_CONNECTION_DIRECT,
    SW_CONNECTION_ROCE,
    SW_CONNECTION_IWARP,
    SW_CONNECTION_TCP, /* RoCE's queue pairs over TCP */
};

enum sw_connection_stage {
    SW_CONNECTION_RUNS,
    SW_CONNECTION_CALLS,  /* iWARP: its request is not answered yet */
    SW_CONNECTION_CALLED, /* iWARP: somebody has connected and not asked, or its program has not
                             answered */
};

enum sw_connection_flags {
    SW_CONNECTION_HAS_CRC = 1 << 0,
    SW_CONNECTION_IS_BLOCKED = 1 << 1, /* TCP has no room for what is to be sent */
    SW_CONNECTION_IS_HELD = 1 << 2,    /* the initiator has to speak first */
    SW_CONNECTION_IS_WATCHED = 1 << 3, /* by the engine; else the program polls */
    SW_CONNECTION_HAS_SRQ = 1 << 4,
    SW_CONNECTION_HAS_ASKED = 1 << 5, /* CALLED: its program has to answer */
    SW_CONNECTION_HAS_MOVED = 1 << 6, /* TCP: as nothing had come by UDP */
};

/* What its oldest requests wait for. */
enum sw_connection_wait {
    SW_CONNECTION_WAITS_NOT,
    SW_CONNECTION_WAITS_RECEIVE, /* the peer has none posted */
    SW_CONNECTION_WAITS_PEER,    /* nothing comes from it */
    SW_CONNECTION_WAITS_PROCESS, /* its process lives and does not run, or does not look */
    SW_CONNECTION_WAITS_MEETING, /* its queue pair is not found */
    SW_CONNECTION_WAITS_WINDOW,  /* congestion control lets nothing more leave */
    SW_CONNECTION_WAITS_FENCE,   /* behind READs or atomics */
    SW_CONNECTION_WAITS_DEPTH,   /* no more READs or atomics may be under way */
    SW_CONNECTION_WAITS_RATE,    /* the queue pair's own limit */
    SW_CONNECTION_WAITS
};

struct sw_connection_tcp {       /* where TCP carries it; the kernel's numbers */
    uint32_t queued, unsent;     /* bytes that the peer has not acknowledged; not sent */
    uint32_t unread;             /* bytes that came */
    uint32_t window;             /* bytes that the peer takes */
    uint32_t retransmits, tries; /* segments in all; of the one that waits now, in a row */
    uint32_t rtt_us;
};

struct sw_connection {
    uint32_t qpn, peer_qpn; /* 0: none, not known */
    uint8_t link, stage, qp_state, flags;
    uint32_t sends, receives, reads; /* requests that are not complete; posted; READs under way */
    struct sockaddr_in6 own, peer;   /* or in them a struct sockaddr_in; family 0: not known */
    struct sw_connection_tcp tcp;
    uint8_t wait;               /* enum sw_connection_wait; iWARP: not told */
    uint8_t tries, tries_most;  /* RECEIVE: refusals, and how many there may be; 7: for ever */
    uint32_t waited_ms, end_ms; /* and after how long it is given up; 0: not known, or never */
};

#define SW_CONNECTIONS_MOST 32u       /* in one answer */
#define SW_CONNECTIONS_END UINT32_MAX /* nothing more */

/* Reads those of this process from a place on (0: the first). Returns their number; *next: where to
 * go on. Engine's thread. */
uint32_t sw_connections_read(uint32_t from, struct sw_connection out[SW_CONNECTIONS_MOST],
                             uint32_t *next);

/* What connection management adds: those that begin, from an index on. Returns how many; *next: the
 * index to go on with, or END. */
typedef uint32_t (*sw_connections_starts)(uint32_t from, struct sw_connection *out, uint32_t most,
                                          uint32_t *next);
void sw_connections_set_starts(sw_connections_starts starts);

/* Asks all processes of this user on this host. */
void sw_connections_each(void (*fn)(void *arg, pid_t pid, const struct sw_connection *connection),
                         void *arg);

#endif
