/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An engine from the inside. engine.c makes and ends it, submit.c has what programs do with
 * operations, drive.c the turns of the thread that drives and the engine's own thread, messages.c
 * the matching of tags, later.c the threads of pge_later(), process.c forks and exits, dump.c what
 * others are shown of it.
 *
 * The thread that has PGE_DRIVEN in `turn` drives: it alone uses the communicator, but for
 * sw_coll_wake(), and what is "the driver's" below. All else that changes needs the lock, or is an
 * atomic word.
 *
 * A turn of which nobody wants anything begins and ends without the lock. So a thread that does
 * want something sets PGE_WANTED, with the lock: no turn begins without the lock then, and that
 * which goes on ends with it.
 */
#ifndef SW_BINDINGS_TORCH_INSIDE_H
#define SW_BINDINGS_TORCH_INSIDE_H

#include <pthread.h>

#include "engine.h"
#include "later.h"
#include "process.h"

struct pge_queue { /* operations in their order, by `next` */
    struct pge_operation *first, **last;
};

/* A message that came before its receive, or whose receive has another length. */
struct pge_parked {
    struct pge_parked *next;
    uint32_t peer;
    uint64_t tag, bytes;
    bool has_come, is_unwanted;
    struct pge_operation *receive; /* that waits until it has come; NULL: none does yet */
    uint8_t data[];
};

/* What a request of the communicator is for: one of the two. */
struct pge_active {
    struct pge_operation *operation;
    struct pge_parked *parked;
    bool is_held;
};

enum {
    PGE_DRIVEN = 1,
    PGE_WANTED = 2, /* somebody sleeps until the turn ends, or has submitted amid it */
};

struct pge_engine {
    struct pge_options options;
    struct sw_coll *coll;
    uint32_t rank, size;
    struct pge_process process;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* an operation is over, or nobody drives any more */
    pthread_cond_t work;    /* for the engine's thread */
    struct pge_queue submitted;
    bool is_closing, is_urged;
    bool is_deep;   /* the engine's thread sleeps until it is called */
    uint32_t calls; /* threads that are in a function of this engine */
    char abort_text[256];
    bool is_aborted;
    struct sw_coll_error failure; /* as the driver has seen it */
    bool *gone;

    /* Atomic words. */
    uint32_t turn;      /* PGE_DRIVEN, PGE_WANTED */
    uint32_t exclusive; /* threads that want the communicator for themselves */
    uint64_t sequence;
    uint64_t turns; /* of drivers: whether something happens */
    uint32_t has_submitted, pending, waiters;
    uint32_t has_holds;   /* other operations are waited for than the communicator knows of */
    uint32_t is_agreeing; /* ranks agree on who is gone, which goes on only while somebody drives */

    /* The driver's. */
    struct pge_active *active;
    struct sw_coll_request **requests; /* of the active ones, in their order */
    uint32_t active_count, active_room;
    bool is_revoked, has_failed;
    struct pge_queue receives; /* that no message was found for */
    struct pge_parked *parked, **parked_last;
    uint64_t parked_bytes;
    bool *is_listened;
    int32_t listened_count;
    const struct pge_operation **awaited; /* of each rank: the receive that is waited for */
    uint32_t awaited_count;

    bool has_thread;
    pthread_t thread;
    struct pge_later *later;
};

uint64_t pge_now_ns(void);
/* Sleeps for it with the lock; 0: without a deadline. False: the deadline has passed. */
bool pge_sleep(struct pge_engine *engine, pthread_cond_t *condition, uint64_t deadline_ns);

/* ---- queues ---- */

static inline void pge_queue_init(struct pge_queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

static inline void pge_queue_append(struct pge_queue *queue, struct pge_operation *operation)
{
    operation->next = NULL;
    *queue->last = operation;
    queue->last = &operation->next;
}

/* `place` is what points to it. */
static inline struct pge_operation *pge_queue_take(struct pge_queue *queue,
                                                   struct pge_operation **place)
{
    struct pge_operation *operation = *place;
    *place = operation->next;
    if (queue->last == &operation->next)
        queue->last = place;
    return operation;
}

/* ---- engine.c ---- */

/* Takes the lock, for a call that a close waits for. False: it does not have it, as the engine is
 * closed, or belongs to the parent of this process, as the error says. */
bool pge_enter(struct pge_engine *engine, struct sw_coll_error *error);
/* Gives it back. */
void pge_leave(struct pge_engine *engine);
/* Sets it and returns the status; NULL: nobody wants it. */
enum sw_coll_status pge_say(struct sw_coll_error *error, enum sw_coll_status status,
                            const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The process exits: nothing of this engine goes on, and nobody is told. */
void pge_abandon(struct pge_engine *engine);

/* ---- drive.c ---- */

/* With the lock: whether this thread drives now, until pge_drive_end(). */
bool pge_drive_begin(struct pge_engine *engine);
/* The same, though another thread wants the communicator for itself. */
bool pge_drive_take(struct pge_engine *engine);
/* With the lock. */
void pge_drive_end(struct pge_engine *engine);
/* With the lock, where this thread does not drive: whether another one does, which says so in
 * `changed` when it ends. False: nobody does any more. */
bool pge_drive_watch(struct pge_engine *engine);
/* Without the lock, where nobody wants anything of the driver: the same as pge_drive_begin(). */
static inline bool pge_turn_begin(struct pge_engine *engine)
{
    uint32_t nobody = 0;
    return __atomic_compare_exchange_n(&engine->turn, &nobody, PGE_DRIVEN, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED);
}
/* Its end. The engine may be gone then, as far as this thread knows. False: somebody wants
 * something, and it goes on. */
bool pge_turn_end(struct pge_engine *engine);
/* Ends it in any case: what was submitted amid it has begun. Takes the lock, for pge_leave(). */
void pge_turn_leave(struct pge_engine *engine);
/* Drives until the operation is over, or, if that is NULL, as long as something is under way; until
 * the deadline, or until another thread wants the communicator. Without the lock. */
void pge_drive(struct pge_engine *engine, const struct pge_operation *until, uint64_t deadline_ns);
/* Begins what was submitted, then this operation, if it is not NULL, and waits for nothing. */
void pge_drive_shortly(struct pge_engine *engine, struct pge_operation *operation);
/* With the lock: drives, when the thread that does so has left. */
void pge_drive_await(struct pge_engine *engine);
/* The communicator has failed: all that is under way ends. */
void pge_drive_out(struct pge_engine *engine);
/* The operation has ended: its caller is told. Without the lock. */
void pge_finish(struct pge_engine *engine, struct pge_operation *operation,
                const struct sw_coll_error *error);
/* This thread is in a function of an operation, so it may not wait for its own turn to end. */
bool pge_is_telling(const struct pge_engine *engine);
/* A request was posted for it. False: no memory; then none may be. */
bool pge_has_room(struct pge_engine *engine);
void pge_add_active(struct pge_engine *engine, struct pge_active active,
                    struct sw_coll_request *request);
void *pge_thread_main(void *engine);
/* Whether the communicator has failed, as sw_coll_error() says it. The driver calls it. */
enum sw_coll_status pge_look_for_death(struct pge_engine *engine, struct sw_coll_error *error);

/* ---- submit.c, with the lock ---- */

/* The engine's thread drives as soon as nobody else does. */
void pge_call_thread(struct pge_engine *engine);
/* What was submitted is begun, here or by the thread that drives. Gives the lock back meanwhile. */
void pge_begin(struct pge_engine *engine);

/* ---- messages.c, all of the driver ---- */

void pge_message_begin(struct pge_engine *engine, struct pge_operation *operation);
/* Finds messages for receives. The first deadline of those that have none; 0: there is none. */
uint64_t pge_messages_go(struct pge_engine *engine);
void pge_message_come(struct pge_engine *engine, struct pge_parked *parked,
                      const struct sw_coll_error *error);
/* All receives that no message was found for end so. */
void pge_messages_fail(struct pge_engine *engine, const struct sw_coll_error *error);
void pge_messages_free(struct pge_engine *engine);

#endif
