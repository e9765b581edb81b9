/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The SENDs of commands. Commands that callbacks of one poll submit leave in one list at its end:
 * one call of the device for all of them, and one completion.
 */
#ifndef SW_MOVERS_NVME_HOST_SEND_H
#define SW_MOVERS_NVME_HOST_SEND_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "sidewire/nvme.h"

enum {
    NVH_BATCH = 16, /* completions a poll takes at once; so many receives come on top */
    NVH_SENDS_MASK = 0x7fffffff, /* of the count of sends, in an ID of a work request */
};

/* SENDs that leave together. */
struct nvh_send_list {
    uint32_t count;
    bool is_inline; /* all of them */
    struct ibv_send_wr wrs[NVH_BATCH];
    struct ibv_sge sges[2 * NVH_BATCH];
};

/* The SQE of the slot is filled in but for its CID. */
void nvh_slot_submit(struct sw_nvme_queue *queue, uint32_t index);
void nvh_pending_send(struct sw_nvme_queue *queue);
/* Posts what the list has. */
void nvh_sends_post(struct sw_nvme_queue *queue);
/* The SEND of that number is done, and all before it. Gives a slot whose SEND this is; false: there
 * is no more of them. */
bool nvh_send_retire(struct sw_nvme_queue *queue, uint32_t send, uint32_t *index);

#endif
