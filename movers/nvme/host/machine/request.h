/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests: their checks and their commands. Source: NVM 1.0, section 3. */
#ifndef SW_MOVERS_NVME_HOST_REQUEST_H
#define SW_MOVERS_NVME_HOST_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/host/machine/queue.h"
#include "sidewire/nvme.h"

enum { NVH_CID_INDEX_BITS = 10 }; /* the rest of a CID counts how often its slot was used */

enum nvh_slot_state {
    NVH_FREE,
    NVH_PENDING, /* waits for room or for the connection */
    NVH_SENT,
    NVH_DONE, /* the result waits for sw_nvme_queue_take() */
};

struct nvh_slot {
    uint8_t state;
    bool answered;     /* waits for the completion of its SEND only */
    bool send_pending; /* the device may still read what it sends */
    bool replays;      /* may be sent again on a new connection */
    bool is_call;      /* of the library itself: dropped with the connection */
    bool was_sent;     /* at least once */
    bool is_endless;   /* has no timeout: an asynchronous event request */
    uint8_t generation;
    uint32_t capsule_bytes; /* that go in the capsule */
    uint32_t lkey;
    uint32_t send; /* the number of its SEND */
    const void *data;
    sw_nvme_done *done;
    uint64_t sent_ns; /* by the clock of the last tend */
    uint64_t number;  /* the order of submission */
    struct sw_nvme_result result;
};

static inline uint32_t nvh_cid(const struct sw_nvme_queue *queue, uint32_t index)
{
    return index | (uint32_t)(queue->slots[index].generation & 63) << NVH_CID_INDEX_BITS;
}

int nvh_slot_take(struct sw_nvme_queue *queue, bool is_call);

#endif
