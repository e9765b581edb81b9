/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Collective operations over RDMA: sums, gathers, broadcasts of buffers of several processes, the
 * ranks. docs/collectives.md has a start in five minutes, and the order of a sum.
 *
 *     struct sw_coll_options options;
 *     sw_coll_options_init(&options);
 *     options.rank = rank, options.size = size, options.meet = "192.0.2.1:4450";
 *     sw_coll_open(&options, &error, &coll);
 *     sw_coll_all_reduce(coll, mine, sum, 1000, SW_COLL_F32, SW_COLL_SUM, 0, &error);
 *
 * All ranks make the same calls of a communicator in the same order, with the same count, type,
 * operator and root; where one differs, each rank gets SW_COLL_MISMATCH and a text that says which.
 * No rank completes an operation before all have begun it: each of them is a barrier, too.
 *
 * The bits of a result depend on the contributions alone: not on the algorithm, the link, the
 * hosts, or on how many contributions (leaves) each rank gives; unless `order` asks for less.
 *
 * One thread may use a communicator at a time; sw_coll_wake() alone may be called beside it. There
 * are no hidden threads: operations go on only while somebody calls a wait or sw_coll_poll().
 * Counts are numbers of elements. Deadlines are CLOCK_MONOTONIC in nanoseconds; 0: that of the
 * options.
 */
#ifndef SIDEWIRE_COLL_H
#define SIDEWIRE_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_COLL_PUBLIC __attribute__((visibility("default")))

enum sw_coll_type {
    SW_COLL_I8,
    SW_COLL_U8,
    SW_COLL_I16,
    SW_COLL_U16,
    SW_COLL_I32,
    SW_COLL_U32,
    SW_COLL_I64,
    SW_COLL_U64,
    SW_COLL_F16,
    SW_COLL_BF16,
    SW_COLL_F32,
    SW_COLL_F64,
    SW_COLL_TYPES,
};

enum sw_coll_op { SW_COLL_SUM, SW_COLL_PROD, SW_COLL_MIN, SW_COLL_MAX, SW_COLL_AVG, SW_COLL_OPS };

enum sw_coll_kind {
    SW_COLL_BARRIER,
    SW_COLL_ALL_REDUCE,
    SW_COLL_REDUCE_SCATTER,
    SW_COLL_ALL_GATHER,
    SW_COLL_ALL_TO_ALL,
    SW_COLL_BROADCAST,
    SW_COLL_REDUCE,
    SW_COLL_GATHER,
    SW_COLL_SCATTER,
    SW_COLL_KINDS,
};

enum sw_coll_status {
    SW_COLL_OK = 0,
    SW_COLL_AGAIN,     /* not done yet */
    SW_COLL_TIMEOUT,   /* the deadline has passed; the text names the ranks that are absent */
    SW_COLL_INVALID,   /* an argument is wrong */
    SW_COLL_MISMATCH,  /* a rank made another call; the text has rank, field and both values */
    SW_COLL_RANK_GONE, /* ranks have died or ended; the text names them, all ranks the same */
    SW_COLL_BROKEN,    /* an operation before has failed: close the communicator, or shrink it */
    SW_COLL_NO_MEMORY, /* memory, or room in the RDMA device */
    SW_COLL_NOT_SUPPORTED, /* this host, device or build cannot do it */
    SW_COLL_ADDRESS,       /* no such address, or no RDMA device leads there */
    SW_COLL_VERSION,       /* another rank speaks another version of the protocol */
    SW_COLL_PROTOCOL,      /* another rank broke the protocol */
    SW_COLL_FORKED,        /* the communicator belongs to the parent of this process */
    SW_COLL_SYSTEM,        /* the operating system or the RDMA device failed */
    SW_COLL_REVOKED,       /* a rank has called sw_coll_revoke() */
};

/* A sentence without its full stop; never NULL. */
SW_COLL_PUBLIC const char *sw_coll_status_text(enum sw_coll_status status);
/* "f32", "sum", "all_reduce"; NULL: there is none of that number. */
SW_COLL_PUBLIC const char *sw_coll_type_name(enum sw_coll_type type);
SW_COLL_PUBLIC const char *sw_coll_op_name(enum sw_coll_op op);
SW_COLL_PUBLIC const char *sw_coll_kind_name(enum sw_coll_kind kind);
SW_COLL_PUBLIC size_t sw_coll_type_bytes(enum sw_coll_type type);

/* C++ says `struct` in front: there is a function of this name, too. */
struct sw_coll_error {
    enum sw_coll_status status;
    char text[256]; /* what happened, and why */
};

SW_COLL_PUBLIC uint64_t sw_coll_deadline_ms(uint32_t from_now_ms);

/* ---- communicators ---- */

enum { SW_COLL_RANKS_MAX = 1024, SW_COLL_LEAVES_MAX = 64, SW_COLL_CARD_MAX = 256 };

struct sw_coll;         /* a communicator: this rank's part of it */
struct sw_coll_request; /* an operation that is under way */

/* Gives each rank the cards of all: `cards` has room for `size` of `bytes` each, in the order of
 * the ranks. 0, or a negative errno. */
typedef int sw_coll_exchange(void *context, const void *card, size_t bytes, void *cards,
                             uint64_t deadline_ns);

enum sw_coll_order {
    SW_COLL_ORDER_TREE, /* of a sum: as docs/collectives.md defines it */
    SW_COLL_ORDER_ANY,  /* bits may depend on the number of ranks, the count and the algorithm */
};

/* Where ranks are in the tree of a sum. */
enum sw_coll_placement {
    SW_COLL_PLACE_HOSTS, /* those of one host are neighbours, whatever their numbers */
    SW_COLL_PLACE_RANKS, /* in the order of their numbers, on whatever hosts */
};

struct sw_coll_options {
    uint32_t rank, size;
    /* How ranks find each other: by `exchange`, or, where that is NULL, at `meet`: "HOST:PORT" of
     * rank 0, whose process listens there while the communicator opens. With SIDEWIRE_COLL_TOKEN in
     * the environment only those may join that have the same there. */
    sw_coll_exchange *exchange;
    void *exchange_context;
    const char *meet;
    /* An RDMA device here has it, and other ranks connect to it. NULL: that by which `meet` is
     * reached, or 127.0.0.1. */
    const char *address;
    /* Operations and opening may take so long where no deadline is said. 0: it has passed at
     * once. */
    uint32_t timeout_ms;
    uint32_t spin_us; /* waits poll for so long before they sleep */
    /* What one rank has for another travels with the first message if it has no more bytes. */
    uint32_t eager_bytes;
    /* NULL: the fastest; else as `sidewire coll trace` names them: "eager" up to eager_bytes. */
    const char *algorithm;
    /* "ring" wants ANY. All ranks have the same bits in any case, and in each run. */
    enum sw_coll_order order;
    /* A line for the log, without its newline: a rank that does not come, for one. NULL: to
     * standard error. */
    void (*log)(void *context, const char *line);
    void *log_context;
    /* Where each rank writes its last operations when the communicator fails (docs/coll-dump.md).
     * NULL: SIDEWIRE_COLL_DUMP of the environment; "", and where that is not set: nowhere. */
    const char *dump_folder;
    /* And when this signal comes: 0, that of SIDEWIRE_COLL_DUMP_SIGNAL; without it, or -1: none. It
     * is written by whoever uses the communicator next, or waits in it. */
    int dump_signal;
    /* The secret of those that meet at `meet`; NULL: SIDEWIRE_COLL_TOKEN of the environment. */
    const char *token;
    /* Alike on all ranks. SIDEWIRE_COLL_PLACEMENT=ranks in the environment is RANKS, too. */
    enum sw_coll_placement placement;
};

/* 60 s, 50 us of polling, 4096 bytes. */
SW_COLL_PUBLIC void sw_coll_options_init(struct sw_coll_options *options);
/* Waits until all ranks are there. `error` may be NULL, here and below. `coll` is NULL where it
 * fails, as are the communicators of sw_coll_shrink() and sw_coll_split(). */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_open(const struct sw_coll_options *options,
                                                struct sw_coll_error *error, struct sw_coll **coll);
/* Ends the connections and frees it all, requests too; other ranks that wait for this one get
 * SW_COLL_RANK_GONE. In a child of fork() it leaves the parent's alone. NULL: it does nothing. */
SW_COLL_PUBLIC void sw_coll_close(struct sw_coll *coll);
SW_COLL_PUBLIC uint32_t sw_coll_rank(const struct sw_coll *coll);
SW_COLL_PUBLIC uint32_t sw_coll_size(const struct sw_coll *coll);
/* The ranks in the order in which sums take their contributions: `size` of them. */
SW_COLL_PUBLIC void sw_coll_order(const struct sw_coll *coll, uint32_t *ranks);
/* Which ranks are known to be gone, or were left out: one bool for each rank. How many. */
SW_COLL_PUBLIC uint32_t sw_coll_gone(const struct sw_coll *coll, bool *is_gone);

/* The last 1,024 operations and messages of this rank, as docs/coll-dump.md has them, into a new
 * file or a descriptor. Also after a failure. NOT_SUPPORTED with SIDEWIRE_COLL_STATUS=off. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_dump(struct sw_coll *coll, const char *path,
                                                struct sw_coll_error *error);
SW_COLL_PUBLIC enum sw_coll_status sw_coll_dump_fd(struct sw_coll *coll, int fd,
                                                   struct sw_coll_error *error);

/* ---- launchers ---- */

/* What has started this process says of it. */
struct sw_coll_launch {
    uint32_t rank, size;
    uint32_t local_rank, local_size; /* among those of this host; local_size 0: nobody says it */
    char launcher[48];               /* who says so: "PMIx of Open MPI" */
    char meet[112]; /* "HOST:PORT": where rank 0 may listen; its port is kept for this process */
    char token[40]; /* a secret that rank 0 has drawn and the launcher has handed on, or "" */
};

/* Asks the first that is there: SIDEWIRE_COLL_RANK, SIDEWIRE_COLL_SIZE and SIDEWIRE_COLL_MEET;
 * RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them; PMI-1 (mpiexec of MPICH);
 * PMIx (mpirun of Open MPI, srun --mpi=pmix); variables of Slurm. All ranks call it. It waits until
 * rank 0 has said where to meet. INVALID: there is no launcher, or what it says makes no sense. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_launch_find(struct sw_coll_launch *launch,
                                                       uint32_t timeout_ms,
                                                       struct sw_coll_error *error);
/* Sets rank, size, meet and token by that, and waits for `timeout_ms` of the options at most. Asks
 * once: later calls of this process get the same. The texts stay until it ends. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_options_from_launcher(struct sw_coll_options *options,
                                                                 struct sw_coll_error *error);

/* ---- after a failure, and out of one another ---- */

/* How the communicator has failed, as all its ranks are told it: OK, it has not; AGAIN, it has, and
 * the ranks still agree on who is gone. Goes on with all as sw_coll_poll() does. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_error(struct sw_coll *coll, struct sw_coll_error *error);
/* Ends all operations, on all ranks: they get SW_COLL_REVOKED, or SW_COLL_RANK_GONE. Waits for
 * nothing. */
SW_COLL_PUBLIC void sw_coll_revoke(struct sw_coll *coll);
/* A new communicator of the ranks that are left, in the order of their ranks, with the same
 * options. All of them call it, after SW_COLL_RANK_GONE, REVOKED, TIMEOUT or MISMATCH; it revokes
 * one that has not failed. Ranks that were late, or do not call it by the deadline, are left out.
 * It needs no exchange and no address to meet. The old one can only be closed then, or
 * shrunk again. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_shrink(struct sw_coll *coll, uint64_t deadline_ns,
                                                  struct sw_coll_error *error,
                                                  struct sw_coll **shrunk);
/* A new communicator for each color, of the ranks that call it with that color, in the order of
 * their keys, then of their ranks. All ranks call it; those with a negative color get NULL. It ends
 * well on all of them, or on none. Not in a group. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_split(struct sw_coll *coll, int32_t color, int32_t key,
                                                 uint64_t deadline_ns, struct sw_coll_error *error,
                                                 struct sw_coll **part);

/* ---- operations ---- */

/* What a rank calls. It may be done in place: `send` equals `recv` then, but for ALL_GATHER and
 * GATHER `send` points to this rank's block of `recv`, and for REDUCE_SCATTER and SCATTER `recv` to
 * that of `send`. They may not overlap in another way, and ALL_TO_ALL is not done in place. */
struct sw_coll_call {
    enum sw_coll_kind kind;
    enum sw_coll_type type;
    enum sw_coll_op op; /* of ALL_REDUCE, REDUCE_SCATTER and REDUCE */
    uint32_t root;      /* of BROADCAST, REDUCE, GATHER and SCATTER */
    const void *send;   /* BROADCAST: of the root; NULL: `recv` */
    void *recv;
    /* ALL_REDUCE, REDUCE, BROADCAST: of the buffers. All others: of each rank's block. */
    uint64_t count;
    /* Unequal blocks, one count for each rank, alike on all ranks; NULL: `count` each. In
     * ALL_TO_ALL: how many go to each rank; blocks lie one behind the other. */
    const uint64_t *counts;
    const uint64_t *recv_counts; /* ALL_TO_ALL alone: how many come from each rank */
    /* How many contributions `send` has, one behind the other, of ALL_REDUCE, REDUCE and
     * REDUCE_SCATTER; 0 is 1. Those of all ranks in order are the leaves of the tree. */
    uint32_t leaves;
};

/* Begins an operation. Those of a communicator are done in the order of their posts. The buffers
 * are the operation's until it has ended. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_post(struct sw_coll *coll,
                                                const struct sw_coll_call *call,
                                                uint64_t deadline_ns, struct sw_coll_error *error,
                                                struct sw_coll_request **request);
/* Goes on with all, without sleeping. AGAIN: this one is not done; else it has ended and is freed,
 * and nothing reads or writes its buffers any more. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_test(struct sw_coll_request *request,
                                                struct sw_coll_error *error);
/* The same, but sleeps until it has ended. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_wait(struct sw_coll_request *request,
                                                struct sw_coll_error *error);
SW_COLL_PUBLIC void sw_coll_poll(struct sw_coll *coll);
/* Goes on with all, and sleeps, until one of these requests has ended: `which` is the place of the
 * first. Its result is there for sw_coll_test(), which frees it. The same request may not be in two
 * calls at a time, and none of them may be in a group.
 *
 * AGAIN: sw_coll_wake() was called, or there is a message for sw_coll_probe(). TIMEOUT: the
 * deadline has passed, which changes nothing (0: it has none). BROKEN: the communicator has failed,
 * and there is no request that has ended. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_wait_any(struct sw_coll *coll,
                                                    struct sw_coll_request *const *requests,
                                                    uint32_t count, uint64_t deadline_ns,
                                                    uint32_t *which, struct sw_coll_error *error);
/* Any thread may call it: the sw_coll_wait_any() of another thread returns
 * AGAIN, or the next one does where none is under way. Several before that are one. Where nobody
 * sleeps it makes no system call. Other waits do not notice it. */
SW_COLL_PUBLIC void sw_coll_wake(struct sw_coll *coll);

/* Post and wait. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_run(struct sw_coll *coll,
                                               const struct sw_coll_call *call,
                                               uint64_t deadline_ns, struct sw_coll_error *error);

/* ---- from rank to rank ---- */

/* The n-th message that a rank sends to another is the n-th that this one receives from it; there
 * are no tags. Count and type have to be alike on both sides, else SW_COLL_MISMATCH, and nothing
 * has changed. It may be this rank itself. These are no barriers, and go on beside operations: each
 * list has its own order. A short message, of up to a quarter of `eager_bytes`, is over once it was
 * sent, unless 5 or more before it are still unreceived; a longer one waits until it is received.
 * Requests are those of sw_coll_test() and sw_coll_wait(). */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_send_post(struct sw_coll *coll, uint32_t peer,
                                                     const void *data, uint64_t count,
                                                     enum sw_coll_type type, uint64_t deadline_ns,
                                                     struct sw_coll_error *error,
                                                     struct sw_coll_request **request);
SW_COLL_PUBLIC enum sw_coll_status sw_coll_recv_post(struct sw_coll *coll, uint32_t peer,
                                                     void *data, uint64_t count,
                                                     enum sw_coll_type type, uint64_t deadline_ns,
                                                     struct sw_coll_error *error,
                                                     struct sw_coll_request **request);
/* Post and wait. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_send(struct sw_coll *coll, uint32_t peer,
                                                const void *data, uint64_t count,
                                                enum sw_coll_type type, uint64_t deadline_ns,
                                                struct sw_coll_error *error);
SW_COLL_PUBLIC enum sw_coll_status sw_coll_recv(struct sw_coll *coll, uint32_t peer, void *data,
                                                uint64_t count, enum sw_coll_type type,
                                                uint64_t deadline_ns, struct sw_coll_error *error);
/* The same as sw_coll_send_post(), and `tag` is shown to sw_coll_probe(). Tags choose nothing: the
 * order of messages is that of their posts. */
SW_COLL_PUBLIC enum sw_coll_status
sw_coll_send_tag_post(struct sw_coll *coll, uint32_t peer, uint64_t tag, const void *data,
                      uint64_t count, enum sw_coll_type type, uint64_t deadline_ns,
                      struct sw_coll_error *error, struct sw_coll_request **request);
struct sw_coll_message {
    uint64_t tag; /* 0: it was sent without one */
    uint64_t count;
    enum sw_coll_type type;
};
/* The next message of that rank that no posted receive is for: it has come, or has been offered.
 * AGAIN: there is none yet. RANK_GONE: nor will there be, as that rank has closed; the communicator
 * fails by that only if such a message is received. Does not go on with anything. */
SW_COLL_PUBLIC enum sw_coll_status sw_coll_probe(struct sw_coll *coll, uint32_t peer,
                                                 struct sw_coll_message *message,
                                                 struct sw_coll_error *error);
/* Whether sw_coll_wait_any() returns where sw_coll_probe() of that rank would not say AGAIN. So
 * listen no longer to one whose message is left where it is, or that is gone. */
SW_COLL_PUBLIC void sw_coll_listen(struct sw_coll *coll, uint32_t peer, bool is_listening);
/* The program waits for that request, and cannot go on without it. So ranks that wait for each
 * other are told from those that compute while something of theirs is under way
 * (docs/coll-dump.md). sw_coll_wait() says it by itself; a program that waits in another way may
 * say it here, by the thread that uses the communicator. */
SW_COLL_PUBLIC void sw_coll_hold(struct sw_coll_request *request, bool is_held);
/* The same of the next message of a rank that no receive is posted for yet, of that count and type:
 * it is shown as a receive. NULL: no longer. It may come from one of several ranks. */
SW_COLL_PUBLIC void sw_coll_await(struct sw_coll *coll, uint32_t peer,
                                  const struct sw_coll_message *message);
/* The program waits elsewhere for these ranks, as they open another communicator with this one: a
 * bool for each rank, or NULL: no longer. Status and dumps tell it. `since_ns`: CLOCK_MONOTONIC. */
SW_COLL_PUBLIC void sw_coll_await_ranks(struct sw_coll *coll, const bool *is_awaited,
                                        uint64_t since_ns);
/* In a group nothing begins, and calls that would wait return at once. Its end begins all of them
 * together and waits for those calls, so any exchange goes well. Errors of theirs come from the end
 * of the group. Groups may lie in each other: the outermost one counts. */
SW_COLL_PUBLIC void sw_coll_group_begin(struct sw_coll *coll);
SW_COLL_PUBLIC enum sw_coll_status sw_coll_group_end(struct sw_coll *coll,
                                                     struct sw_coll_error *error);

static inline enum sw_coll_status sw_coll_barrier(struct sw_coll *coll, uint64_t deadline_ns,
                                                  struct sw_coll_error *error)
{
    struct sw_coll_call call;
    memset(&call, 0, sizeof(call)); /* C++ before 2020 names no members */
    call.kind = SW_COLL_BARRIER;
    return sw_coll_run(coll, &call, deadline_ns, error);
}

static inline enum sw_coll_status sw_coll_all_reduce(struct sw_coll *coll, const void *send,
                                                     void *recv, uint64_t count,
                                                     enum sw_coll_type type, enum sw_coll_op op,
                                                     uint64_t deadline_ns,
                                                     struct sw_coll_error *error)
{
    struct sw_coll_call call;
    memset(&call, 0, sizeof(call));
    call.kind = SW_COLL_ALL_REDUCE;
    call.type = type;
    call.op = op;
    call.send = send;
    call.recv = recv;
    call.count = count;
    return sw_coll_run(coll, &call, deadline_ns, error);
}

#ifdef __cplusplus
}
#endif

#endif
