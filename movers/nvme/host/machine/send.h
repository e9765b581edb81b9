/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The SENDs of commands. Commands that callbacks of one poll submit leave in one batch at its end:
 * one call of the device for all of them, and one completion.
 */
#ifndef SW_MOVERS_NVME_HOST_SEND_H
#define SW_MOVERS_NVME_HOST_SEND_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/host/machine/fifo.h"
#include "sidewire/nvme.h"

enum {
    NVH_BATCH = 16, /* completions a poll takes at once; so many receives come on top */
    NVH_SENDS_MASK = 0x7fffffff, /* of the count of SENDs */
};

/* The controller's ring of commands: `size` of the queue, and these modulo it. */
struct nvh_ring {
    uint32_t tail, head;
    uint32_t in_flight; /* slots that are SENT */
};

struct nvh_sends {
    uint16_t batch[NVH_BATCH]; /* slots whose SENDs leave together */
    uint32_t count;
    bool is_inline; /* all of the batch: the device has copied them when they are posted */
    bool gathers;   /* SENDs wait in the batch for the end of a poll */
    uint32_t posted, retired, max, unsignaled;
    uint32_t inline_bytes;   /* that the device copies at once: the port's */
    struct nvh_fifo pending; /* slots whose memory the device may still read */
};

/* For a new connection, whose device takes so many SENDs at once. */
void nvh_sends_init(struct sw_nvme_queue *queue, uint32_t inline_bytes);
uint32_t nvh_sends_max(const struct sw_nvme_queue *queue);
/* The SQE of the slot is filled in but for its CID. */
void nvh_slot_submit(struct sw_nvme_queue *queue, uint32_t index);
void nvh_pending_send(struct sw_nvme_queue *queue);
/* Posts what the batch has. */
void nvh_sends_post(struct sw_nvme_queue *queue);
/* The SEND of that number is done, and all before it. Gives a slot whose SEND this is; false: there
 * is no more of them. */
bool nvh_send_retire(struct sw_nvme_queue *queue, uint32_t send, uint32_t *index);

#endif
