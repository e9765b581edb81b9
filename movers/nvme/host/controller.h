/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a controller has of this system, around the machine's part of it: a lock, the device, where
 * it is, and its admin queue.
 */
#ifndef SW_MOVERS_NVME_HOST_CONTROLLER_H
#define SW_MOVERS_NVME_HOST_CONTROLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include "nvme/host/machine/controller.h"
#include "nvme/host/queue.h"
#include "sidewire/nvme.h"

enum { NVH_QUEUES_MAX = 64 };

struct nvh_secrets;

struct nvh_host {
    struct sw_nvme_controller controller; /* first: a handle is both */
    pthread_mutex_t lock;
    struct nvh_link admin;
    struct sockaddr_storage address, source;
    bool has_source;
    struct nvh_secrets *secrets;

    struct ibv_context *verbs;
    struct ibv_pd *pd;
    uint32_t reads_max; /* RDMA READs of the peer that the device bears */
    _Atomic uint32_t queues, mems;
    uint64_t queue_ids; /* those in use */

    pthread_mutex_t bounce_lock; /* taken before `lock` */
    void *bounce;
    struct ibv_mr *bounce_mr;

    pthread_t thread;
    bool has_thread;
    _Atomic bool thread_ends;
};

static inline struct nvh_host *nvh_host_of(struct sw_nvme_controller *controller)
{
    return (struct nvh_host *)controller;
}

/* A controller, or a path of one over several. */
enum sw_nvme_status nvh_start(const struct sw_nvme_options *options, bool is_path,
                              struct sw_nvme_error *error, struct sw_nvme_controller **controller);

/* The machine's port to this system. */
extern const struct nvh_port nvh_system_port;

enum sw_nvme_status nvh_error(struct sw_nvme_error *error, enum sw_nvme_status status,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
