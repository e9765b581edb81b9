/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a target is made of: subsystems with namespaces, ports, and the controllers that hosts have
 * there. Nothing in this folder knows the network: a transport (server/, or that of a test) carries
 * requests in and answers out.
 *
 * Each queue belongs to one thread. Several threads may serve the I/O commands of
 * nvt_request_is_shared() at the same time: these read what all threads share, and write what is of
 * their queue and thread alone. All else here is called by one thread while the others stand still
 * (gate.h), or where there is one thread only.
 */
#ifndef SW_MOVERS_NVME_MODEL_TARGET_H
#define SW_MOVERS_NVME_MODEL_TARGET_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/pool/pool.h"
#include "nvme/target/backend/parts.h"
#include "nvme/target/backend/slices.h"
#include "nvme/target/model/share.h"

enum {
    NVT_THREADS_MAX = 16, /* that serve a target */
    NVT_CTRLS_MAX = 1024, /* of the target */
};

struct nvt_ctrl;
struct nvt_queue;
struct nvt_referral;
struct nvt_request;
struct nvt_uring;
struct nvt_worker;

/* What the model asks of its transport. */
struct nvt_transport {
    /* Moves the data of the request's list to request->data. Then nvt_request_fetched(). */
    void (*fetch)(struct nvt_request *request);
    /* Moves request->data to the host (NVT_TO_HOST without an error), and says the response. When
     * the data may be used again: nvt_request_end(). */
    void (*answer)(struct nvt_request *request);
    /* Ends the connection. nvt_queue_gone() follows, not at once. */
    void (*cut)(struct nvt_queue *queue);
    /* The same at once: nobody waits for its answers. */
    void (*drop)(struct nvt_queue *queue);
    /* Nothing uses the memory any more: forgets the region's registrations. */
    void (*forget)(struct mover_region *region);
};

/* What a thread has of its own. */
struct nvt_thread {
    uint32_t number; /* in the target's */
    struct mover_pool pool;
    struct nvt_shares shares;  /* of the pool: what each host has, and who waits for more */
    bool has_freed;            /* memory of the pool, since those that wait were fed */
    struct list to_feed;       /* queues whose requests wait for a place that is free again */
    bool is_fed_alone;         /* some that wait are for when the other threads stand still */
    struct nvt_uring *uring;   /* of backends; NULL where no backend needs it */
    struct nvt_slices slices;  /* operations that take long */
    struct nvt_parts compares; /* those for which the pool has no second piece */
    uint64_t now_ns;           /* as of its loop's last turn */
    uint64_t commands, errors; /* counted */
};

struct nvt_target {
    const struct nvt_transport *transport;
    struct nvt_worker *worker; /* NULL: what takes long is computed at once */
    uint32_t thread_count;
    struct nvt_thread threads[NVT_THREADS_MAX];
    uint32_t serial; /* not 0: threads serve one after the other, until something rare is over */
    pthread_mutex_t error_lock; /* of the error logs */
    struct list subsystems, ports;
    struct list leaving;       /* namespaces that are removed, whose backends are not done yet */
    struct list lingering;     /* queues that are gone, with commands that a backend still has */
    uint32_t resets_under_way; /* of all controllers (reset.h) */
    uint64_t genctr;           /* of discovery */
    /* Other targets of the group: where they serve the subsystem `subsysnqn`. */
    size_t peer_count;
    struct nvt_referral *peers;
    uint64_t now_ns;     /* for all but I/O commands */
    uint64_t refresh_ns; /* when to look at the sizes of backends again */
    uint32_t ctrl_count;
    uint64_t ctrl_serial; /* of the last controller that was made */
    uint64_t ana_changes, commit_serial;
    /* A queue that had ended has gone, and so has its last command; may be NULL. */
    void (*calmed)(void *context);
    void *calmed_context;
    /* A host could not prove itself; may be NULL. */
    void (*refused)(const struct nvt_queue *queue, const char *why);
    /* A connection is ended for what its host does not do; may be NULL. */
    void (*ended)(const struct nvt_queue *queue, const char *why);
    _Atomic uint64_t ended_count;
};

/* Events that a host has been told of, and not yet asked about. Bits. */
enum nvt_event {
    NVT_EVENT_NAMESPACES = 1,
    NVT_EVENT_ANA = 2,
    NVT_EVENT_DISCOVERY = 4,
    NVT_EVENT_RESERVATION = 8,
    NVT_EVENT_RESET = 16,
};

/* With one thread. Returns 0 or a negative errno. */
int nvt_target_init(struct nvt_target *target, const struct nvt_transport *transport,
                    size_t pool_bytes);
/* One thread more, while none serves. Returns 0 or a negative errno. */
int nvt_target_add_thread(struct nvt_target *target, size_t pool_bytes);
void nvt_target_free(struct nvt_target *target);
/* Requests of the thread that wait for their turn at a disk and that nobody wants any more end. By
 * any thread, while the others stand still. */
void nvt_thread_end_unwanted(struct nvt_thread *thread);
/* Time has passed: keep-alive, files that have grown. Returns when to call again at the latest. */
uint64_t nvt_target_tick(struct nvt_target *target, uint64_t now_ns);
/* Backends may have grown: tells hosts. `asks_far`: also where that may take long. */
void nvt_target_refresh(struct nvt_target *target, bool asks_far);
/* What one controller is told of: an event, for all to whom `concerns` says so. */
void nvt_target_notify(struct nvt_target *target, enum nvt_event event,
                       bool (*concerns)(const struct nvt_ctrl *ctrl, const void *what),
                       const void *what);
void nvt_target_each_ctrl(struct nvt_target *target,
                          void (*visit)(struct nvt_ctrl *ctrl, void *arg), void *arg);
/* The log page of discovery has changed. */
void nvt_discovery_changed(struct nvt_target *target);

#endif
