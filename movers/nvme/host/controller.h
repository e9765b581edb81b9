/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A controller: its life, as the program sees it. The machines are in setup.c and reconnect.c. The
 * admin queue and all fields of the controller belong to the thread that holds the controller's
 * lock, but for the atomic ones.
 *
 * A controller that is lost gets a new epoch. Each queue compares it with its own at each poll, and
 * takes itself down when they differ.
 */
#ifndef SW_MOVERS_NVME_HOST_CONTROLLER_H
#define SW_MOVERS_NVME_HOST_CONTROLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include "nvme/host/keepalive.h"
#include "nvme/host/queue.h"
#include "nvme/host/setup.h"
#include "nvme/wire/fabrics.h"
#include "sidewire/nvme.h"

enum { NVH_QUEUES_MAX = 64 };

struct nvh_secrets;

struct sw_nvme_controller {
    pthread_mutex_t lock;
    _Atomic uint32_t epoch, state, activity;
    _Atomic uint64_t lost_ns;
    _Atomic bool was_lost; /* and no I/O queue is up again */

    struct sockaddr_storage address, source;
    bool has_source;
    char subsysnqn[NVF_NQN_MAX + 1], hostnqn[NVF_NQN_MAX + 1];
    uint8_t hostid[16];
    struct sw_nvme_options options;
    struct nvh_secrets *secrets;
    char *where; /* "ADDR:PORT", for messages */

    struct ibv_context *verbs;
    struct ibv_pd *pd;
    uint32_t reads_max; /* RDMA READs of the peer that the device bears */
    struct sw_nvme_queue admin;
    _Atomic uint32_t queues, mems;
    uint64_t queue_ids; /* those in use */

    enum nvh_setup setup;
    bool setup_waits;       /* for an answer */
    uint64_t setup_next_ns; /* when to ask again */
    uint64_t setup_deadline_ns, ready_deadline_ns;
    uint64_t next_try_ns;
    bool was_live;
    bool gives_up; /* the refusal says that it is useless to try again */
    uint64_t cap;
    uint32_t version;
    bool takes_events;
    struct sw_nvme_info info; /* but for cntlid and reconnects it stays as it first was */

    uint64_t keep_alive_next_ns, keep_alive_sent_ns; /* sent: 0 when answered */
    struct nvh_event_ring events;
    struct sw_nvme_error error;

    pthread_mutex_t bounce_lock; /* taken before `lock` */
    void *bounce;
    struct ibv_mr *bounce_mr;

    pthread_t thread;
    bool has_thread;
    _Atomic bool thread_ends;
};

enum sw_nvme_status nvh_error(struct sw_nvme_error *error, enum sw_nvme_status status,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
