/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the machine talks: to the clock, to the controller's lock, to the connection of a queue and
 * to the arithmetic of secrets. The host has one of verbs and rdma_cm; tests have a simulated one.
 *
 * What the machine is told of a connection: nvh_link_up(), nvh_link_ended() and nvh_queue_break();
 * and of what has come: nvh_batch_begin(), nvh_send_done() and nvh_answered(), nvh_batch_end().
 */
#ifndef SW_MOVERS_NVME_HOST_PORT_H
#define SW_MOVERS_NVME_HOST_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/nvme.h"

struct nvh_port {
    uint64_t (*now_ns)(void);
    void (*lock)(struct sw_nvme_controller *controller);
    bool (*try_lock)(struct sw_nvme_controller *controller);
    void (*unlock)(struct sw_nvme_controller *controller);

    /* Begins a connection. nvh_queue_break() may come of it at once; the rest comes of `look`. */
    void (*start)(struct sw_nvme_queue *queue);
    /* Looks for what the connection manager says. */
    void (*look)(struct sw_nvme_queue *queue);
    /* Nothing touches the memory of the queue's requests when this returns. */
    void (*end)(struct sw_nvme_queue *queue);
    /* Posts the SENDs of the queue's batch. `signals`: the last one reports that all up to it are
     * done; others report nothing. False: they could not be posted. */
    bool (*send)(struct sw_nvme_queue *queue, bool signals);
    /* Takes completions that are there, up to NVH_BATCH. */
    void (*drain)(struct sw_nvme_queue *queue);

    /* The host's side of an authentication. All but `auth_end` leave in `queue->auth` where it
     * stands. False: there is no memory for it. */
    bool (*auth_start)(struct sw_nvme_queue *queue);
    /* The next message, NVF_AUTH_MESSAGE_MAX bytes at most: its length. */
    size_t (*auth_send)(struct sw_nvme_queue *queue, uint8_t *message);
    void (*auth_receive)(struct sw_nvme_queue *queue, const uint8_t *message, size_t len);
    /* Forgets secrets; also where none has begun. */
    void (*auth_end)(struct sw_nvme_queue *queue);
};

#endif
