/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Persistent memory of another host, reached by one-sided RDMA. A server (`sidewire pmem serve`)
 * registers a region and hands out keys; after that its processor has no part in what is done here.
 * docs/pmem.md has the protocol, docs/persistence.md what a flush promises.
 *
 * A handle is one region opened through one queue pair. One thread may use a handle at a time;
 * several threads open a handle each. There are no hidden threads: the connection goes on only
 * while somebody calls poll or wait. Nothing on the path of data allocates memory.
 *
 * Requests are posted as chains, which are executed in the order in which they were posted.
 * Each chain that was taken gets exactly one result. A connection that is lost comes back by
 * itself until `loss_timeout_ms` has passed. Chains that wait for their turn are then posted.
 * Chains that had left are posted again if they only read or have SW_PMEM_REPEAT; the others end
 * with SW_PMEM_MAYBE_DONE.
 *
 * A child of fork() has no part in its parent's handles: all that it calls with one says
 * SW_PMEM_FORKED, or does nothing. It may close the handle, which the parent does not notice.
 *
 * Units are in the names. Deadlines are CLOCK_MONOTONIC in nanoseconds: sw_pmem_deadline_ms().
 */
#ifndef SIDEWIRE_PMEM_H
#define SIDEWIRE_PMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_PMEM_PUBLIC __attribute__((visibility("default")))

struct sw_pmem;     /* a region of a server */
struct sw_pmem_mem; /* local memory that requests may use */

enum sw_pmem_status {
    SW_PMEM_OK = 0,
    SW_PMEM_AGAIN,          /* the queue is full, or nothing is under way */
    SW_PMEM_INVALID,        /* an argument is wrong */
    SW_PMEM_NOT_REGISTERED, /* data that its sw_pmem_mem does not cover */
    SW_PMEM_NO_MEMORY,
    SW_PMEM_TIMEOUT,      /* the deadline has passed */
    SW_PMEM_ADDRESS,      /* no such address, or no RDMA device leads there */
    SW_PMEM_REFUSED,      /* the server refused the connection, or this client */
    SW_PMEM_UNREACHABLE,  /* nobody answers, or the server is away for too long */
    SW_PMEM_NO_REGION,    /* the server has no region of that name */
    SW_PMEM_OTHER_REGION, /* the region of that name is another one than before */
    SW_PMEM_DENIED,       /* this client has not that right on these bytes, or their file has a
                             hole there, and its disk is full */
    SW_PMEM_NOT_DONE,     /* the connection was lost before the chain left: nothing happened */
    SW_PMEM_MAYBE_DONE,   /* it was lost after the chain left: any part may have happened */
    SW_PMEM_NEW_SESSION,  /* the chain was meant for an earlier session: nothing happened */
    SW_PMEM_PROTOCOL,     /* the server broke the protocol */
    SW_PMEM_UNSUPPORTED,  /* this memory or device cannot promise what is asked for */
    SW_PMEM_CLOSED,       /* closed by this side */
    SW_PMEM_SYSTEM,       /* the operating system or the RDMA device failed */
    SW_PMEM_DISK_FAILED,  /* the server's disk failed: what was not flushed before may be lost */
    SW_PMEM_FORKED,       /* the handle belongs to the parent of this process */
    SW_PMEM_BUSY,         /* to be alone: a writer before is stopped amid a store, and may still
                             finish it */
};

/* A sentence without its full stop; never NULL. */
SW_PMEM_PUBLIC const char *sw_pmem_status_text(enum sw_pmem_status status);

struct sw_pmem_error {
    enum sw_pmem_status status;
    char text[256]; /* what happened, and why */
};

/* ---- regions ---- */

enum { SW_PMEM_NAME_MAX = 47, SW_PMEM_RANGES_MAX = 64, SW_PMEM_PORT = 4430 };

struct sw_pmem_options {
    const char *address; /* of the server: IPv4, IPv6 or a name */
    const char *port;    /* NULL: 4430 */
    const char *region;  /* its name; NULL: the only one that the server has */
    const char *label;   /* how the server's log calls this client; no proof of anything */
    uint32_t chains;     /* that may be under way, 1-1024 */
    uint32_t connect_timeout_ms;
    uint32_t loss_timeout_ms;    /* reconnection is given up after so long; 0: at once */
    uint32_t request_timeout_ms; /* a chain without result for so long loses the connection */
    uint32_t spin_us;            /* waits poll for so long before they sleep */
    bool alone; /* each session ends those of all others that may write; needs that right itself */
    bool keeps_trying;    /* also where the first connection fails: for loss_timeout_ms */
    bool no_flush;        /* READs take the place of FLUSHes, as on devices that lack them */
    bool no_atomic_write; /* WRITEs take the place of ATOMIC WRITEs */
};

/* 64 chains, 5 s to connect, 30 s of loss, 10 s for a chain, 50 us of polling. */
SW_PMEM_PUBLIC void sw_pmem_options_init(struct sw_pmem_options *options);
SW_PMEM_PUBLIC uint64_t sw_pmem_deadline_ms(uint32_t from_now_ms);

enum sw_pmem_state {
    SW_PMEM_CONNECTING,
    SW_PMEM_LIVE,
    SW_PMEM_LOST, /* until it is back, or given up */
    SW_PMEM_DEAD, /* for good: requests end at once */
};

enum sw_pmem_kind {
    SW_PMEM_VOLATILE = 1, /* tmpfs, memfd: gone with the server's power */
    SW_PMEM_FILE,         /* a file in the page cache */
    SW_PMEM_DAX_FILE,     /* a file whose mapping is the persistent memory itself */
    SW_PMEM_DAX_DEVICE,
    SW_PMEM_PCI, /* a BAR of a PCI device */
};

enum sw_pmem_rights {
    SW_PMEM_READ = 1,
    SW_PMEM_WRITE = 2, /* and flush, and publish */
};

/* How a flush is made. */
enum sw_pmem_method {
    SW_PMEM_BY_FLUSH = 1,
    SW_PMEM_BY_READ, /* the device has no FLUSH: a READ behind the WRITE takes its place */
};

struct sw_pmem_range {
    uint64_t offset, bytes;
    uint32_t rights; /* enum sw_pmem_rights */
};

struct sw_pmem_info {
    char name[SW_PMEM_NAME_MAX + 1];
    uint64_t bytes;       /* its size */
    uint8_t identity[16]; /* of the region: stays when the server starts anew */
    uint8_t instance[16]; /* of the server: another one each time it starts */
    uint64_t session;     /* counts connections of this handle, from 1 */
    enum sw_pmem_kind kind;
    bool visible;    /* a visible flush can be asked for */
    bool persistent; /* a persistent flush can be asked for */
    enum sw_pmem_method flush;
    bool atomic_publish; /* else publish is a WRITE: docs/pmem.md says what that promises */
    uint32_t ranges_count;
    struct sw_pmem_range ranges[SW_PMEM_RANGES_MAX]; /* of this client */
};

/* Starts to connect and returns at once. Poll or wait for what comes of it. `error` may be NULL
 * here and below. */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_start(const struct sw_pmem_options *options,
                                                 struct sw_pmem_error *error,
                                                 struct sw_pmem **pmem);
/* Starts, and waits until the region is open or `connect_timeout_ms` has passed. */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_open(const struct sw_pmem_options *options,
                                                struct sw_pmem_error *error, struct sw_pmem **pmem);
/* Ends what is under way (NOT_DONE or MAYBE_DONE, by callbacks), releases the memory that is still
 * registered with it, and frees the handle. That memory is the caller's alone from then on. */
SW_PMEM_PUBLIC void sw_pmem_close(struct sw_pmem *pmem);
SW_PMEM_PUBLIC enum sw_pmem_state sw_pmem_state_of(const struct sw_pmem *pmem);
/* Sleeps until the region is open (OK), given up (the reason) or the deadline passes. */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_wait_live(struct sw_pmem *pmem, uint64_t deadline_ns);
SW_PMEM_PUBLIC void sw_pmem_last_error(const struct sw_pmem *pmem, struct sw_pmem_error *error);
/* Describes the newest session. All zero before the first. */
SW_PMEM_PUBLIC void sw_pmem_info_of(const struct sw_pmem *pmem, struct sw_pmem_info *info);
/* What a flush promises there and what it does not, in plain sentences. */
SW_PMEM_PUBLIC const char *sw_pmem_promise(const struct sw_pmem_info *info);
/* Counts the sessions. It is another one as soon as a lost connection has come back; compare
 * `instance` to learn whether the server was started anew. 0 before the first. */
SW_PMEM_PUBLIC uint64_t sw_pmem_session(const struct sw_pmem *pmem);

struct sw_pmem_entry {
    char name[SW_PMEM_NAME_MAX + 1];
    uint64_t bytes;
    uint8_t identity[16];
    enum sw_pmem_kind kind;
    bool visible, persistent;
    uint32_t rights; /* those that this client has on any byte */
};

/* The regions of a server; waits up to `connect_timeout_ms`. */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_list(const struct sw_pmem_options *options,
                                                struct sw_pmem_entry *entries, uint32_t entries_max,
                                                uint32_t *count, struct sw_pmem_error *error);

enum { SW_PMEM_REGIONS_MAX = 16 };

struct sw_pmem_region_info {
    char name[SW_PMEM_NAME_MAX + 1];
    uint64_t opens;
    uint32_t clients, writers; /* that have it open now; the second with the right to write */
};

/* What a server has counted since it started. Data is not: it never passes through the server. */
struct sw_pmem_server_info {
    uint64_t uptime_ms;
    uint64_t connections; /* that were asked for; `refused` of them */
    uint64_t refused;
    uint64_t malformed;            /* messages */
    uint64_t ended;                /* connections, since another client wished to be alone */
    uint32_t clients, clients_max; /* connected now, this one included */
    uint32_t regions_count;        /* those that this client has any right on */
    struct sw_pmem_region_info regions[SW_PMEM_REGIONS_MAX];
};

/* Waits up to `connect_timeout_ms`. */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_server(const struct sw_pmem_options *options,
                                                  struct sw_pmem_server_info *info,
                                                  struct sw_pmem_error *error);

/* ---- local memory ---- */

/* [data, data + bytes) may be used by requests of this handle, also after it was reconnected. It
 * needs a handle that was live once. */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_mem_register(struct sw_pmem *pmem, void *data,
                                                        size_t bytes, struct sw_pmem_mem **mem);
/* No chain may be using it: sw_pmem_close() releases what one may use that never ends. */
SW_PMEM_PUBLIC void sw_pmem_mem_release(struct sw_pmem_mem *mem);

/* ---- chains ---- */

enum sw_pmem_opcode {
    SW_PMEM_OP_READ = 1,
    SW_PMEM_OP_WRITE,
    SW_PMEM_OP_FLUSH,
    SW_PMEM_OP_PUBLISH, /* 8 bytes at once, seen as a whole or not at all */
};

enum sw_pmem_flush {
    SW_PMEM_FLUSH_VISIBLE = 1, /* seen by every processor of the server's host */
    SW_PMEM_FLUSH_PERSISTENT,  /* outlives the power of the server's host: see sw_pmem_promise() */
};

struct sw_pmem_piece {
    void *data; /* inside `mem` */
    uint32_t bytes;
    struct sw_pmem_mem *mem;
};

enum { SW_PMEM_PIECES_MAX = 8, SW_PMEM_CHAIN_MAX = 8, SW_PMEM_OP_BYTES_MAX = 1 << 30 };

struct sw_pmem_op {
    enum sw_pmem_opcode opcode;
    enum sw_pmem_flush flush; /* of FLUSH */
    uint64_t offset;          /* in the region; of PUBLISH a multiple of 8 */
    uint64_t bytes;           /* of FLUSH: which bytes */
    uint64_t value;           /* of PUBLISH, as it lies in this host's memory */
    struct sw_pmem_piece pieces[SW_PMEM_PIECES_MAX]; /* of READ and WRITE, in their order */
    uint32_t pieces_count;                           /* 1-8 */
};

struct sw_pmem_result {
    enum sw_pmem_status status; /* of the chain: OK where all of it was done */
    uint32_t failed;            /* which operation of it, where the server's device said no */
    uint64_t session;           /* in which it ended */
    void *arg;
};

/* Called by poll, wait or close. May post, must not poll or close. */
typedef void sw_pmem_done(void *arg, const struct sw_pmem_result *result);

enum sw_pmem_flags {
    /* Doing it twice is doing it once, also long after. Writes must be in the same chain as the
     * flush that is to keep them: a server that lost its power has lost them. */
    SW_PMEM_REPEAT = 1,
};

struct sw_pmem_chain {
    const struct sw_pmem_op *ops; /* read before the call returns */
    uint32_t count;               /* 1-8 */
    uint32_t flags;               /* enum sw_pmem_flags */
    uint64_t session;   /* ends with NEW_SESSION if this is no longer the session; 0: any */
    sw_pmem_done *done; /* NULL: sw_pmem_take() gives the result */
    void *arg;
};

/* OK where the chain is on its way, and then it gets exactly one result. A chain that this side
 * knows to be outside of its rights is DENIED here, and nothing has happened. The server's device
 * checks again; a chain that it denies ends with DENIED and loses the connection. */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_post(struct sw_pmem *pmem,
                                                const struct sw_pmem_chain *chain);
/* Chains that may be under way, and those that are (results not yet taken included). */
SW_PMEM_PUBLIC uint32_t sw_pmem_depth(const struct sw_pmem *pmem);
SW_PMEM_PUBLIC uint32_t sw_pmem_used(const struct sw_pmem *pmem);
/* Handles what has come; never sleeps. Returns the number of chains that ended. */
SW_PMEM_PUBLIC uint32_t sw_pmem_poll(struct sw_pmem *pmem);
/* Until at least one chain ended (OK), the deadline passed (TIMEOUT) or none is there (AGAIN). */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_wait(struct sw_pmem *pmem, uint64_t deadline_ns);
/* Results of chains without a callback, oldest first. Returns how many. */
SW_PMEM_PUBLIC uint32_t sw_pmem_take(struct sw_pmem *pmem, struct sw_pmem_result *results,
                                     uint32_t results_max);
/* For epoll: readable when poll has something to do, once sw_pmem_arm() returned true. False:
 * there is something already, poll first. Poll also each 100 ms while chains are under way or the
 * connection is lost: timers have no descriptor. */
SW_PMEM_PUBLIC int sw_pmem_fd(const struct sw_pmem *pmem);
SW_PMEM_PUBLIC bool sw_pmem_arm(struct sw_pmem *pmem);

/* ---- one at a time: post and wait until the deadline ----
 *
 * With a deadline that passes they return TIMEOUT, and the connection is dropped first, so that
 * nothing touches `data` any more; it comes back by itself. No other chain may be under way. */
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_read(struct sw_pmem *pmem, uint64_t offset, void *data,
                                                uint32_t bytes, struct sw_pmem_mem *mem,
                                                uint64_t deadline_ns);
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_write(struct sw_pmem *pmem, uint64_t offset,
                                                 const void *data, uint32_t bytes,
                                                 struct sw_pmem_mem *mem, uint64_t deadline_ns);
SW_PMEM_PUBLIC enum sw_pmem_status
sw_pmem_write_flush(struct sw_pmem *pmem, uint64_t offset, const void *data, uint32_t bytes,
                    struct sw_pmem_mem *mem, enum sw_pmem_flush flush, uint64_t deadline_ns);
SW_PMEM_PUBLIC enum sw_pmem_status sw_pmem_publish(struct sw_pmem *pmem, uint64_t offset,
                                                   uint64_t value, enum sw_pmem_flush flush,
                                                   uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
