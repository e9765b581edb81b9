/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The TCP sockets of connection management: those that listen, and connections until they are past
 * MPA's start. Then the queue pair has the socket (link/iwarp/), and what is here is the name by
 * which its end is told. Everything with sw_rdmacm_lock held.
 */
#ifndef SW_RDMACM_IWARP_STREAM_H
#define SW_RDMACM_IWARP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "link/callers.h"
#include "transport/iwarp/start.h"

struct sw_ucm_id;

enum sw_ucm_stream_role {
    SW_UCM_STREAM_LISTENS,
    SW_UCM_STREAM_CALLS,
    SW_UCM_STREAM_IS_CALLED,
    SW_UCM_STREAM_RUNS, /* the queue pair has the socket */
};

struct sw_ucm_stream {
    uint32_t index;  /* in the table */
    uint64_t cookie; /* its name, which no other one ever has */
    enum sw_ucm_stream_role role;
    int fd;   /* -1: it is somebody else's, or closed */
    int lent; /* RUNS: the queue pair's socket, or what has its number since: only to be asked */
    bool is_watched;
    bool is_heard;           /* ESTABLISHED has been told */
    struct sw_ucm_id *id;    /* NULL: none yet, or it has been destroyed */
    struct sw_ucm_id *owner; /* IS_CALLED: of the listener */
    struct sockaddr_storage own, peer;
    struct sw_callers *crowd; /* IS_CALLED: that it stands in, or NULL (callers.h) */
    struct sw_caller caller;
    struct sw_iwarp_start start;
};

/* Takes over the descriptor, which is closed on failure. NULL: no room. */
struct sw_ucm_stream *sw_ucm_stream_new(enum sw_ucm_stream_role role, int fd);
/* Closes its socket, if that is still its own. NULL does nothing. */
void sw_ucm_stream_free(struct sw_ucm_stream *stream);
struct sw_ucm_stream *sw_ucm_stream_at(uint32_t index);
struct sw_ucm_stream *sw_ucm_stream_find(uint64_t cookie);
/* The next one from an index on, or NULL. */
struct sw_ucm_stream *sw_ucm_stream_next(uint32_t index);

/* What the engine tells of it with SW_WATCH_IWARP_CM. */
void *sw_ucm_stream_tag(const struct sw_ucm_stream *stream);
/* Its peer's address, IPv4 mapped into IPv6. */
void sw_ucm_stream_peer(const struct sw_ucm_stream *stream, struct in6_addr *out);
void sw_ucm_stream_leave_crowd(struct sw_ucm_stream *stream);
/* Gives the start what has come: so many bytes, of which it has used some. */
void sw_ucm_stream_read_start(struct sw_ucm_stream *stream, uint8_t *bytes, size_t room,
                              size_t *used, size_t *len);

/* The engine tells of what comes, and of room to send. */
void sw_ucm_stream_watch(struct sw_ucm_stream *stream, bool for_room);
void sw_ucm_stream_unwatch(struct sw_ucm_stream *stream);
/* The socket becomes somebody else's. */
int sw_ucm_stream_take_fd(struct sw_ucm_stream *stream);

void sw_ucm_stream_fork_child(void);

#endif
