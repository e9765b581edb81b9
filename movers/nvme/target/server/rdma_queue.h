/* SPDX-License-Identifier: BSD-2-Clause */
/* One NVMe queue on its queue pair: receives, data, responses. */
#ifndef SW_MOVERS_NVME_SERVER_RDMA_QUEUE_H
#define SW_MOVERS_NVME_SERVER_RDMA_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/base/list.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/target.h"
#include "nvme/target/server/rdma_capsule.h"
#include "nvme/wire/fabrics.h"

/* Beyond a queue's depth: answers whose SEND has not completed yet. */
enum { NVR_SPARE_SLOTS = 32 };

struct nvr_device;
struct nvr_receives;
struct nvr_server;
struct nvr_thread;

/* NVR_LATER: its command is for when the other threads stand still. NVR_FETCHED: the same, and its
 * data has come. */
enum nvr_slot_state { NVR_FREE, NVR_LATER, NVR_SERVED, NVR_FETCHING, NVR_FETCHED, NVR_ANSWERING };

/* A command under way. */
struct nvr_slot {
    struct nvt_request request;
    struct list_node node; /* of the queue's free, blocked or answering ones, or the thread's */
    enum nvr_slot_state state;
    struct nvr_capsule capsule;
    uint16_t number, sends; /* work requests made for it */
    uint32_t sent;          /* its place in the order of what the queue sends */
    struct nvf_cqe response;
};

struct nvr_queue {
    struct nvt_queue queue; /* the model's; must be first */
    struct list_node node;  /* of the thread's queues that end */
    struct nvr_server *server;
    struct nvr_thread *thread;
    struct nvr_device *device;
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    uint16_t number, generation;
    uint32_t depth, slot_count, sends_free, answers; /* answers under way */
    struct nvr_receives *receives;                   /* its own, or shared */
    uint32_t receives_given;                         /* of its own */
    struct nvr_queue *next_by_qpn;
    struct ibv_mr *response_mr;
    struct nvr_slot *slots;
    struct list free_slots, blocked, answering; /* blocked: those that wait for room to send */
    struct ibv_send_wr *first_send, *last_send; /* its list in the outbox; NULL: it has none */
    struct list_node sending;                   /* of the queues that have one */
    uint32_t sends_made, silent_bytes;          /* of its list, since a signaled one */
    bool is_inline;                             /* the device takes responses inline */
    uint32_t receives_taken;                    /* by its capsules */
    struct nvr_capsule *held;                   /* those that wait for a slot: a ring of [depth] */
    uint32_t held_first, held_count;
    bool has_copy; /* of a capsule, whatever others have */
    bool is_listed, is_established, is_closing, is_over;
    bool is_expected; /* when it came, its host had a controller that lacked it (crowd.h) */
    bool is_draining, is_drained;     /* shared receives: it takes no more; it has taken its last */
    uint64_t created_ns, close_by_ns; /* closing: no later than that */
    uint64_t drain_by_ns;
};

extern const struct nvt_transport nvr_transport;

/* What is wrong with it (enum nvf_cm_status), or 0. */
uint16_t nvr_queue_check(const struct nvf_cm_req *req);
/* The thread that has the next queue of that number. */
struct nvr_thread *nvr_thread_choose(const struct nvr_server *server, uint16_t qid);
/* Makes the queue of a request that is checked. NULL: no memory, or the device refuses. */
struct nvr_queue *nvr_queue_create(struct nvr_server *server, struct nvt_port *port,
                                   struct rdma_cm_id *id, const struct nvf_cm_req *req);
/* Ends it now: nothing is said to its host any more. Frees it as soon as nothing is under way. */
void nvr_queue_end(struct nvr_queue *queue);
/* Nothing more can come for it. With shared receives that takes a while, from the first time that
 * it is asked. */
bool nvr_queue_drain(struct nvr_queue *queue, uint64_t now_ns);
/* Frees what nvr_queue_end() has left. */
void nvr_queue_free(struct nvr_queue *queue);
/* It has broken: ends at the end of this turn of the loop. */
void nvr_queue_fail(struct nvr_queue *queue);
/* Now, or when the other threads stand still. */
bool nvr_slot_is_for_now(const struct nvr_slot *slot);
/* Serves the commands that wait for the other threads to stand still: they do. */
void nvr_queue_run_later(struct nvr_thread *thread);
/* Posts its own receives, so many. False: the device refuses. */
bool nvr_queue_give_receives(struct nvr_queue *queue, uint32_t count);
/* For the next command; perhaps one that waits for a slot. */
void nvr_slot_free(struct nvr_queue *queue, struct nvr_slot *slot);
/* Completions of a device; true: there were some. */
bool nvr_device_poll(struct nvr_server *server, struct nvr_device *device);

#endif
