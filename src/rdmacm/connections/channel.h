/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels: the pipes that programs hold one end of, and the events that wait in them. A channel
 * ends when the last descriptor of its read end does, in whichever process; our write end then
 * shows POLLERR, and the engine destroys the IDs on it, as the kernel does on close.
 *
 * All with sw_rdmacm_lock held, unless stated otherwise.
 */
#ifndef SW_RDMACM_CONNECTIONS_CHANNEL_H
#define SW_RDMACM_CONNECTIONS_CHANNEL_H

#include <rdma/rdma_user_cm.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_ucm_group;
struct sw_ucm_id;

/* What a program fetches by GET_EVENT. */
struct sw_ucm_event {
    struct sw_ucm_event *next;
    struct sw_ucm_id *id;       /* whose it is: counted there as reported */
    struct sw_ucm_group *group; /* and there, or NULL */
    struct sw_ucm_id *request;  /* CONNECT_REQUEST: the ID that it brings */
    struct rdma_ucm_event_resp response;
};

struct sw_ucm_channel {
    _Atomic uint64_t inode;             /* of its pipe; 0: free to be used */
    struct sw_ucm_channel *bucket_next; /* for good: a free one is used again in its bucket */
    int write_fd;
    uint32_t bytes; /* in the pipe, or in the hands of those who have read one */
    uint32_t owed;  /* bytes that the engine has yet to write */
    uint32_t event_count;
    bool is_owing; /* is in the list of those */
    struct sw_ucm_channel *owing_next;
    struct sw_ucm_event *first, **end; /* events, the oldest first */
    struct sw_ucm_id *ids;             /* the newest first */
    atomic_int getter_tid;             /* who handles an event of it; 0: nobody (getter.h) */
};

/* Makes a pipe and its channel; the read end goes to the program. 0 or a negative errno. */
int sw_ucm_channel_create(int flags, int *fd);
/* The channel of a descriptor, or NULL; needs no lock, as channels stay where they are. */
struct sw_ucm_channel *sw_ucm_channel_of_fd(int fd);
struct sw_ucm_channel *sw_ucm_channel_find(uint64_t inode);
/* The inode of a descriptor that is a channel, else 0. Needs no lock. */
uint64_t sw_ucm_channel_inode(int fd);

/* Takes the event over. The engine wakes no thread meanwhile, which would wait for the lock: it
 * calls sw_ucm_channel_flush() when it has done all it had to. */
void sw_ucm_channel_push(struct sw_ucm_channel *channel, struct sw_ucm_event *event);
/* A byte has been read. The oldest event, still in its place; NULL: it was taken back. */
struct sw_ucm_event *sw_ucm_channel_peek(struct sw_ucm_channel *channel);
/* Removes the oldest event; the caller frees it. */
void sw_ucm_channel_pop(struct sw_ucm_channel *channel);
/* Gives the byte back that was read. */
void sw_ucm_channel_unread(struct sw_ucm_channel *channel);

/* Takes out all events for which match() holds, in their order, as a list. */
typedef int (*sw_ucm_event_match)(const struct sw_ucm_event *event, const void *of);
struct sw_ucm_event *sw_ucm_channel_take(struct sw_ucm_channel *channel, sw_ucm_event_match match,
                                         const void *of);

/* Wakes those for whom the engine has events. Takes the lock; called without it, by the engine. */
void sw_ucm_channel_flush(void);

/* The engine has seen the end of a channel. Takes the lock. */
void sw_ucm_channel_closed(uint64_t what);

/* Closes all channels without a word, in a forked child. */
void sw_ucm_channel_fork_child(void);

#endif
