/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The way of a request through the target, whatever it asks for:
 *
 *   nvt_request_begin -> [fetch: data from the host] -> the command -> answer -> nvt_request_end
 */
#ifndef SW_MOVERS_NVME_MODEL_REQUEST_H
#define SW_MOVERS_NVME_MODEL_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/list.h"
#include "nvme/target/backend/backend.h"
#include "nvme/wire/fabrics.h"
#include "nvme/wire/sgl.h"

enum { NVT_TRANSFER_SHIFT = 8 }; /* MDTS: 2^8 pages of 4 KiB, 1 MiB */

#define NVT_TRANSFER_MAX (4096u << NVT_TRANSFER_SHIFT)

struct nvt_command;
struct nvt_namespace;
struct nvt_queue;
struct mover_region;
struct nvt_share;

enum nvt_direction { NVT_NO_DATA, NVT_FROM_HOST, NVT_TO_HOST };

struct nvt_request {
    struct list_node node; /* of the queue */
    struct list_node wait; /* of those that wait: for memory, the host, an event, as preemptors */
    bool is_starved, is_parked, is_with_host; /* on the list for memory, events, the host */
    bool is_preempted; /* a preemption ends it: it changes nothing any more */
    struct nvt_queue *queue;
    struct nvf_sqe sqe;
    uint8_t *in_capsule; /* the data area that came with the SQE */
    uint32_t in_capsule_bytes;
    struct mover_region *in_capsule_region;
    const struct nvt_command *command;
    enum nvt_direction direction;
    uint8_t *data; /* [data_bytes], in `region` */
    uint32_t data_bytes, pool_bytes;
    bool has_own_place;      /* the data is in one of the queue's */
    struct nvt_share *share; /* whose piece of the pool it has */
    uint64_t since_ns;       /* is_with_host */
    struct mover_region *region;
    struct nvt_namespace *ns;
    uint64_t ns_entry; /* the namespace's preemptions when it came */
    struct nvt_io io;
    uint32_t steps_left;   /* of dataset management: ranges; of a preemption: whom it waits for; of
                            * a Compare in parts: bytes */
    uint64_t result;       /* dword 0 and 1 of the response */
    uint16_t status;       /* of the response, without the phase bit */
    uint16_t error_offset; /* where the command is wrong, for the error log */
    struct nvf_sgl sgl;    /* must be last: its segments need not be cleared */
};

/* Makes it all zeroes, but for segments that nobody looks at. */
static inline void nvt_request_clear(struct nvt_request *request)
{
    memset(request, 0, offsetof(struct nvt_request, sgl) + offsetof(struct nvf_sgl, segments));
}

/* Other threads may serve at the same time: a plain I/O command of a queue that is at work. */
bool nvt_request_is_shared(const struct nvt_queue *queue, const struct nvf_sqe *sqe);
/* A capsule has come: sqe, in_capsule and in_capsule_bytes are set, all else is clear. */
void nvt_request_begin(struct nvt_queue *queue, struct nvt_request *request);
void nvt_request_fetched(struct nvt_request *request, bool is_ok);
void nvt_request_finish(struct nvt_request *request, uint16_t status);
/* The answer has been said, or cannot be. */
void nvt_request_end(struct nvt_request *request);
/* The response as it goes over the wire. */
void nvt_request_response(struct nvt_request *request, struct nvf_cqe *out);
/* Copies to the data of an NVT_TO_HOST command, from byte `offset` of what the host would see
 * were there no offset; the rest of the data is zero. */
void nvt_request_put(struct nvt_request *request, const void *from, size_t len_bytes,
                     uint64_t offset);
/* It has its memory: goes on with its data, or the command. */
void nvt_request_go_on(struct nvt_request *request);
/* Is done with its namespace. */
void nvt_request_leave(struct nvt_request *request);

#endif
