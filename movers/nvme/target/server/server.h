/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target on the network: connections by rdma_cm, one queue pair for each NVMe queue, and the
 * threads that serve them. Each queue belongs to one of them: it alone polls for the queue and
 * sends for it. Connections, admin commands, changes and the end of queues are for one thread while
 * the others stand still (gate.h).
 */
#ifndef SW_MOVERS_NVME_SERVER_SERVER_H
#define SW_MOVERS_NVME_SERVER_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>

#include "nvme/target/model/target.h"
#include "nvme/target/model/worker.h"
#include "nvme/target/server/gate.h"
#include "nvme/target/server/rdma_listener.h"
#include "nvme/target/server/thread.h"

enum {
    NVR_QUEUES_MAX = 4096, /* connections of the server */
    NVR_LISTENERS_MAX = 16,
};

struct nvr_queue;

struct nvr_settings {
    size_t pool_bytes; /* for data on its way */
    uint32_t spin_us;  /* how long an idle server polls before it sleeps */
    uint32_t queues_max;
    uint32_t shared_receives; /* of all I/O queues of a device; 0: each queue has its own */
    uint32_t threads;
};

struct nvr_server {
    struct nvt_target target;
    struct nvr_settings settings;
    struct nvt_worker worker;
    struct rdma_event_channel *events;
    int memory_fd;       /* -1 until memory is mapped from it */
    uint64_t memory_end; /* its length: what is given back is not used again */
    struct mover_watch cm_watch, listen_watch, worker_watch;
    uint32_t queue_count, listener_count;
    uint64_t stop_ns;  /* it ends by then; 0: it serves */
    uint64_t probe_ns; /* when to ask next whether idle hosts are there */
    uint32_t thread_count;
    struct nvr_thread *threads; /* [thread_count] */
    struct nvt_gate gate;
    bool is_alone;        /* who asks has all for itself, as always where there is one thread */
    bool is_running;      /* hosts may be served */
    _Atomic bool is_done; /* threads end */
    pthread_mutex_t register_lock; /* of memory that threads share */
    struct nvr_listener listeners[NVR_LISTENERS_MAX];
    /* What becomes of them, in a line; NULL: nobody wants to know. */
    void (*say_listener)(bool is_bad, const char *line);
    /* Some time has passed, and all other threads stand still; NULL: nobody wants to know. */
    void (*tick)(void *context);
    void *tick_context;
    struct nvr_queue *queues[NVR_QUEUES_MAX];
    uint16_t generation;
    uint64_t refused, connected; /* counted */
};

/* Returns 0 or a negative errno. */
int nvr_server_open(struct nvr_server *server, const struct nvr_settings *settings);
/* False: libraries still have I/O under way that does not end, so memory is left, and the process
 * has to end without more ado. */
bool nvr_server_close(struct nvr_server *server);
/* Watches by the loop of its first thread. */
int nvr_server_watch(struct nvr_server *server, struct mover_watch *watch);
/* Serves until a watch calls nvr_server_stop(), and drains what is under way. Returns 0, or a
 * negative errno where threads cannot be had. */
int nvr_server_run(struct nvr_server *server);
void nvr_server_stop(struct nvr_server *server);
/* Before the first I/O: until then the pool has no pages, and without files it needs none there. */
void nvr_pool_register(struct nvr_thread *thread);

#endif
