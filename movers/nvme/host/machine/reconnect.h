/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loss and return. The thread that sees a loss gives the controller a new epoch; each queue then
 * destroys its queue pair before it does anything to its requests. The admin queue connects again
 * by whichever thread polls; an I/O queue follows by its own thread once the controller is live.
 */
#ifndef SW_MOVERS_NVME_HOST_RECONNECT_H
#define SW_MOVERS_NVME_HOST_RECONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/nvme.h"

enum {
    NVH_TEND_NS = 5 * 1000 * 1000, /* between two looks at timers and at rdma_cm */
    NVH_NAP_NS = 50 * 1000 * 1000, /* the longest sleep without a look at timers */
};

void nvh_tend(struct sw_nvme_queue *queue, uint64_t now_ns);
/* Ends the connection: nothing touches the memory of the queue's requests any more. */
void nvh_link_end(struct sw_nvme_queue *queue);
void nvh_queue_down(struct sw_nvme_queue *queue, bool replays);
/* `since_ns`: since when a queue of it tries in vain to come back; 0: it is lost now. */
void nvh_lose(struct sw_nvme_controller *controller, uint32_t epoch,
              const struct sw_nvme_error *error, uint64_t since_ns);
/* With the lock held. */
void nvh_admin_tend(struct sw_nvme_controller *controller, uint64_t now_ns);

#endif
