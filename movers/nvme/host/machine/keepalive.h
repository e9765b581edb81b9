/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keep-alive and asynchronous events, on the admin queue. Where traffic keeps the controller alive
 * (TBKAS), a look comes four times per period and a command goes only if there was no answer since
 * the last look: so no silence is longer than half of the period.
 */
#ifndef SW_MOVERS_NVME_HOST_KEEPALIVE_H
#define SW_MOVERS_NVME_HOST_KEEPALIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/nvme.h"

enum { NVH_EVENTS_MAX = 8 };

struct nvh_event_ring {
    uint32_t events[NVH_EVENTS_MAX];
    uint32_t head, tail;
};

struct nvh_keep_alive {
    uint64_t next_ns, sent_ns; /* sent: 0 when answered */
};

void nvh_keep_alive(struct sw_nvme_controller *controller, uint64_t now_ns);
void nvh_events_ask(struct sw_nvme_controller *controller);
/* The oldest event: false where there is none. */
bool nvh_event_take(struct nvh_event_ring *ring, uint32_t *event);

#endif
