/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue: whether its host takes what it has asked for, and its end. */
#ifndef SW_MOVERS_NVME_MODEL_QUEUE_H
#define SW_MOVERS_NVME_MODEL_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/pool/pool.h"
#include "nvme/target/model/reset.h"
#include "nvme/target/model/share.h"

enum {
    NVT_DEPTH_MAX = 1024,   /* entries of a queue, as CAP.MQES says */
    NVT_PLACE_BYTES = 4096, /* of a queue's own places for data */
    NVT_PLACES_ADMIN = 4,   /* that an admin queue has */
    NVT_PLACES_IO = 2,      /* that others have */
};

struct nvt_ctrl;
struct nvt_port;
struct nvt_queue_auth;
struct nvt_target;
struct nvt_thread;

/* One connection. The transport has it, and makes it all zeroes but these: target, thread, port,
 * depth, qid (as the private data of the REQ says), host_address, own; and the lists it inits. */
struct nvt_queue {
    struct nvt_target *target;
    struct nvt_thread *thread;
    struct nvt_port *port;
    struct nvt_ctrl *ctrl;        /* NULL before Connect, and when it is gone */
    struct nvt_instance instance; /* of the controller, also when that is gone */
    uint64_t ctrl_serial;         /* and its serial */
    struct nvt_host_id host_id;   /* and its host */
    char host_nqn[NVF_NQN_MAX + 1];
    char local_address[64];             /* where the host has connected to */
    char host_address[NVT_ADDRESS_MAX]; /* and from where: of IPv6 the /64 */
    uint16_t qid, depth;                /* entries */
    uint16_t head;
    bool has_no_flow; /* the host has asked for no SQ head */
    bool is_pending;  /* of its controller's */
    bool has_proven;  /* itself, by Connect and what is asked for; also when it has ended */
    struct list_node pending;
    bool is_gone;      /* the connection has ended */
    bool is_cut;       /* its end was asked for */
    bool is_lingering; /* it is on the target's list of these */
    struct list_node linger;
    uint32_t under_way; /* requests */
    uint64_t heard_ns;  /* the last command */
    struct list requests;
    struct list with_host; /* requests whose data or answer the host has to take, the first first */
    uint64_t took_ns;      /* when it has taken something */
    struct mover_region own;    /* its places for data: [nvt_places_bytes(qid)] */
    uint32_t taken_places;      /* bits */
    struct list waiting_places; /* requests */
    bool is_to_feed;            /* on the thread's list */
    struct list_node feed;
    struct nvt_share *share;     /* of the pool; NULL before Connect */
    struct nvt_queue_auth *auth; /* NULL where the host need not prove itself */
};

static inline size_t nvt_places_bytes(uint16_t qid)
{
    return (size_t)(qid ? NVT_PLACES_IO : NVT_PLACES_ADMIN) * NVT_PLACE_BYTES;
}

/* The queue's lists, of one that is all zeroes else. */
void nvt_queue_init(struct nvt_queue *queue);
/* The connection has ended: its requests are given up. True: none are under way, it may be freed;
 * else nvt_request_end() of the last one says so by queue->under_way == 0. */
bool nvt_queue_gone(struct nvt_queue *queue);
/* It is gone, none of its requests is under way any more, and its memory goes. */
void nvt_queue_forget(struct nvt_queue *queue);
/* The host takes its data and answers too late. */
bool nvt_queue_is_stuck(const struct nvt_queue *queue, uint64_t now_ns);

#endif
