/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the link of the admin queue to a live controller: Connect, properties, Identify, number of
 * queues. A machine of one command at a time. Source: NVMe Base 2.0, 3.5.2 and 6.3.
 */
#ifndef SW_MOVERS_NVME_HOST_SETUP_H
#define SW_MOVERS_NVME_HOST_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/wire/fabrics.h"
#include "sidewire/nvme.h"

enum nvh_setup_stage {
    NVH_SETUP_LINK,
    NVH_SETUP_CAP,
    NVH_SETUP_VERSION,
    NVH_SETUP_ENABLE,
    NVH_SETUP_READY,
    NVH_SETUP_IDENTIFY,
    NVH_SETUP_QUEUES,
    NVH_SETUP_DONE,
};

struct nvh_setup {
    enum nvh_setup_stage stage;
    bool waits;       /* for an answer */
    uint64_t next_ns; /* when to ask again */
    uint64_t ready_deadline_ns;
    uint64_t cap;
    uint32_t version;
    bool takes_events;
};

void nvh_setup_step(struct sw_nvme_controller *controller, uint64_t now_ns);
/* Sends Connect on a queue whose link is up. */
void nvh_connect_send(struct sw_nvme_queue *queue);
/* May carry commands of its program. */
void nvh_queue_up(struct sw_nvme_queue *queue);

#endif
