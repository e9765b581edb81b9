/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop of each thread of the target. While there is work it polls; when there has been none for
 * a while, it asks to be woken and sleeps. In a turn it serves its own queues; for all else it
 * stops the others first (gate.h).
 */
#ifndef SW_MOVERS_NVME_SERVER_THREAD_H
#define SW_MOVERS_NVME_SERVER_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/pool/pool.h"
#include "common/serve/loop.h"
#include "nvme/target/backend/uring.h"
#include "nvme/target/server/pace.h"
#include "nvme/target/server/rdma_device.h"
#include "nvme/target/server/rdma_send.h"

struct nvr_server;
struct nvt_thread;

/* The first one is the program's: connections, signals, commands and admin queues are its own. */
struct nvr_thread {
    struct nvt_thread *base; /* the model's */
    struct nvr_server *server;
    pthread_t id;
    bool is_started; /* beside the program's */
    struct nvt_uring uring;
    struct mover_loop loop;
    struct mover_watch uring_watch, wake_watch;
    uint32_t device_count, io_queues;
    struct nvr_device devices[MOVER_REGION_DEVICES];
    struct list ending; /* queues */
    struct list later;  /* slots: NVR_LATER and NVR_FETCHED */
    bool wants_wake;    /* there is something new for it */
    bool has_stopped;   /* the others, for a turn */
    bool is_pool_known; /* to io_uring, or it was refused */
    uint64_t tick_ns;   /* the first one's: when to look at the time again */
    struct nvt_pace pace;
    struct nvr_outbox outbox;
};

/* Serves until the server ends. */
void nvr_thread_run(struct nvr_thread *thread);
/* A turn of one that is not run any more. */
void nvr_thread_drain(struct nvr_thread *thread);
/* A ready() for an eventfd that only wakes. */
void nvr_watch_drain(struct mover_watch *watch);

#endif
