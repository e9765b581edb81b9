/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine of a process group: operations of a communicator that any thread begins, and that go
 * on while nobody waits. It knows nothing of torch.
 *
 * A communicator (sidewire/coll.h) may be used by one thread at a time. The engine hands it from
 * thread to thread: whoever waits for an operation drives it. A thread of the engine's own drives
 * while operations are under way and nobody waits. So a small operation that its caller waits for
 * costs no change of thread.
 *
 * All ranks submit the same collective operations in the same order. Messages have no order but
 * that of their tag. A send is over as sw_coll_send_post() says: a short one at once, unless
 * several before it are unreceived, a longer one when it is received. Deadlines are CLOCK_MONOTONIC
 * in nanoseconds; 0: the timeout of the options.
 *
 * Every function may be called from any thread, unless it says otherwise. In a child of fork() each
 * one returns SW_COLL_FORKED at once, or does nothing.
 */
#ifndef SW_BINDINGS_TORCH_ENGINE_H
#define SW_BINDINGS_TORCH_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pge_engine;

/* ---- operations ---- */

enum pge_kind {
    PGE_COLLECTIVE, /* `call` */
    PGE_SEND,       /* `call.send` and `call.count` bytes, to `peer` */
    PGE_RECV,       /* `call.recv` and `call.count` bytes, from `peer` */
    PGE_RECV_ANY,   /* the same, from whoever sends first */
};

/* Memory of the caller, who sets all of it to zero and fills in the first part. The engine uses it
 * until it has called `release`. */
struct pge_operation {
    enum pge_kind kind;
    /* Buffers, and the arrays of counts, stay as they are until `done`. A message has a buffer and
     * a `count` in bytes; nothing else of its call matters. */
    struct sw_coll_call call;
    uint32_t peer; /* of SEND and RECV */
    uint64_t tag;  /* of messages: a message is received by the first receive that has its tag */
    uint64_t deadline_ns;
    /* It has ended, with `error.status` and a text; buffers are the caller's again. It may copy
     * results. It is called once, in the thread that drives, which may be that of
     * pge_submit(), with no lock of the engine. It may submit. It may not wait for another
     * operation, nor for a lock whose holder waits for one: see pge_later(). NULL: nothing. */
    void (*done)(struct pge_operation *operation);
    /* After `done` and after pge_is_over() says so: the engine does not look at the operation any
     * more, which may be freed here, unless another thread is in pge_wait() for it. NULL:
     * nothing. */
    void (*release)(struct pge_operation *operation);
    void *context; /* the caller's */

    /* Results. */
    struct sw_coll_error error; /* `text` is empty where it went well */
    uint32_t source;            /* of RECV and RECV_ANY: the rank */

    /* The engine's. */
    struct pge_operation *next;
    uint32_t is_over;
    uint32_t holders; /* threads that wait for it: pge_hold() */
};

struct pge_options {
    struct sw_coll_options coll;
    /* An operation of no more bytes is begun in the thread that submits it. A larger one wakes the
     * engine's thread. */
    uint64_t inline_bytes;
    /* Bytes of messages that came before their receive, and that a later message of the same rank
     * made the engine take. Where there are more, such messages wait at their sender. */
    uint64_t parked_bytes;
};

/* ---- from open to close ---- */

/* As sw_coll_options_init(); 128 KiB and 64 MiB. */
void pge_options_init(struct pge_options *options);
/* As sw_coll_open(): waits until all ranks are there. */
enum sw_coll_status pge_open(const struct pge_options *options, struct sw_coll_error *error,
                             struct pge_engine **engine);
/* Ends all operations that are under way, by SW_COLL_REVOKED, calls their `done` and `release`,
 * waits for the functions of pge_later(), and frees it. Other threads may be in a call of this
 * engine: they return first. It may be called from a function of pge_later(), too. From `done` and
 * `release` it returns at once, and another thread does it. Other ranks that wait for this one get
 * SW_COLL_RANK_GONE. In a child of fork() it does nothing. NULL: nothing.
 *
 * A process that exits without it: the engines end as the C library's exit functions run. No `done`
 * is called then. */
void pge_close(struct pge_engine *engine);
/* Ends all operations on all ranks, and later ones, too. They get SW_COLL_REVOKED and `text`, or
 * SW_COLL_RANK_GONE. Other ranks are told without the text. Returns at once. */
void pge_abort(struct pge_engine *engine, const char *text);
/* A new engine of the ranks that are left, after SW_COLL_RANK_GONE, SW_COLL_REVOKED or pge_abort();
 * all of them call it. The old one can only be closed then, or shrunk again. It has the same
 * options. Waits. */
enum sw_coll_status pge_shrink(struct pge_engine *engine, uint64_t deadline_ns,
                               struct sw_coll_error *error, struct pge_engine **shrunk);

/* As sw_coll_dump(), also while operations are under way, and after a failure. */
enum sw_coll_status pge_dump(struct pge_engine *engine, const char *path,
                             struct sw_coll_error *error);

/* As sw_coll_await_ranks(). */
void pge_await_ranks(struct pge_engine *engine, const bool *is_awaited, uint64_t since_ns);

uint32_t pge_rank(const struct pge_engine *engine);
uint32_t pge_size(const struct pge_engine *engine);
/* Which ranks are known to be gone: one bool for each rank. How many. */
uint32_t pge_gone(struct pge_engine *engine, bool *is_gone);
/* How the engine has failed: OK, it has not; AGAIN, ranks still agree on who is gone. */
enum sw_coll_status pge_error(struct pge_engine *engine, struct sw_coll_error *error);
/* The number of collective operations that were submitted; a number to begin at may be set. */
uint64_t pge_sequence(struct pge_engine *engine);
void pge_sequence_set(struct pge_engine *engine, uint64_t number);

/* ---- operations, from begin to end ---- */

/* Begins them, in this order, with nothing of other threads in between. It does not wait for other
 * ranks. A failure, of the arguments too, is the operation's: `done` is called for each of them
 * once, perhaps before this returns. */
void pge_submit(struct pge_engine *engine, struct pge_operation **operations, uint32_t count);
/* Drives until it is over, or until the deadline (0: without one): then AGAIN, and it goes on.
 * Else its status and text. Not with a lock that a `done` takes, nor with Python's. */
enum sw_coll_status pge_wait(struct pge_engine *engine, struct pge_operation *operation,
                             uint64_t deadline_ns, struct sw_coll_error *error);
/* A thread of the program waits for it from here on, by pge_wait()s, until it says false: status
 * and dumps tell so. Other operations may go on while the program computes. Each true wants a
 * false, before the operation is freed. */
void pge_hold(struct pge_engine *engine, struct pge_operation *operation, bool is_held);
/* Whether it is over: `done` has returned. Does not drive. Also in a child of fork(). */
static inline bool pge_is_over(const struct pge_operation *operation)
{
    return __atomic_load_n(&operation->is_over, __ATOMIC_ACQUIRE);
}
/* The same, but drives a little first, if nobody does: for a caller that asks again and again. */
bool pge_test(struct pge_engine *engine, struct pge_operation *operation);
/* The caller is not going to wait by pge_wait(), but by other means, as by a future: the engine's
 * thread begins at once to drive what is under way. Without it that may take it some milliseconds,
 * if the operation is a small one. */
void pge_urge(struct pge_engine *engine);
/* Calls a function in a thread that may wait as long as it likes, for operations of this engine,
 * too: what a program has asked for at the end of an operation (callbacks of futures). There are as
 * many threads as functions that are under way, so these have no order. False: no memory, closed,
 * or in a child of fork(); it is not called then. */
bool pge_later(struct pge_engine *engine, void (*run)(void *context), void *context);

#ifdef __cplusplus
}
#endif

#endif
