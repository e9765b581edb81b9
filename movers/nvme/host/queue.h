/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue (the admin queue is one): its memory, opening and closing. It has one connection, slots
 * for its requests and a queue pair; the queue's thread owns it all. All that it needs is made when
 * it is opened, before any data.
 */
#ifndef SW_MOVERS_NVME_HOST_QUEUE_H
#define SW_MOVERS_NVME_HOST_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/rdma/connection.h"
#include "nvme/host/fifo.h"
#include "nvme/host/send.h"
#include "nvme/wire/fabrics.h"
#include "sidewire/nvme.h"

enum {
    NVH_QUEUE_MAX = 1024,
    NVH_RECEIVE_BYTES = 64, /* a line of cache for each response of 16 */
    NVH_SCRATCH_BYTES = 4096,
};

struct nvh_auth;
struct nvh_slot;

enum nvh_phase {
    NVH_DOWN,
    NVH_LINKING,
    NVH_CONNECTING, /* the Connect command is under way, or authentication */
    NVH_UP,
    NVH_ENDED, /* its controller is dead */
};

struct sw_nvme_queue {
    struct sw_nvme_controller *controller;
    uint16_t qid, cntlid;
    uint32_t size, slots_max; /* entries; slots: one less, and one more for Connect */
    enum nvh_phase phase;
    bool is_broken; /* to be taken down, at the next tend */
    bool was_live;
    bool is_armed;
    uint32_t epoch;
    uint32_t polls, spin_us;
    uint64_t next_tend_ns, tick_ns, next_scan_ns, link_deadline_ns;
    uint64_t number;
    uint32_t finished; /* requests, of all time */

    struct mover_connection connection;
    struct ibv_qp *qp;
    uint32_t inline_bytes; /* that the queue pair takes */
    struct nvh_slot *slots;
    uint16_t *free_slots;
    uint64_t *order; /* room to sort slots in */
    uint32_t free_count, used;
    struct nvh_fifo pending, done, sending; /* sending: of which send_pending is set */
    struct nvh_send_list list;
    bool gathers; /* SENDs wait in the list for the end of a poll */

    uint32_t sq_tail, sq_head; /* modulo size */
    uint32_t in_flight;        /* slots that are SENT */
    uint32_t sends_posted, sends_retired, sends_max, unsignaled;

    /* Only this side's device touches these; the scratch is the controller's to read and write. */
    struct nvf_sqe *sqes;
    uint8_t *receives;
    uint32_t receives_max, receives_missing;
    uint16_t *missing; /* receives that are to be posted again */
    void *memory, *scratch;
    size_t memory_bytes;
    struct ibv_mr *memory_mr, *scratch_mr;

    int epoll_fd, timer_fd;
    struct sw_nvme_error error; /* why it broke */
    struct nvh_auth *auth;      /* NULL but while the queue authenticates */
};

enum sw_nvme_status nvh_queue_init(struct sw_nvme_controller *controller,
                                   struct sw_nvme_queue *queue, uint16_t qid, uint32_t size);
void nvh_queue_free(struct sw_nvme_queue *queue);
bool nvh_queue_memory(struct sw_nvme_queue *queue);
void nvh_queue_break(struct sw_nvme_queue *queue, enum sw_nvme_status status, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

#endif
