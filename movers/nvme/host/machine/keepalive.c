/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/keepalive.h"

#include "common/time/units.h"
#include "nvme/host/machine/call.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/queue.h"
#include "nvme/wire/sgl.h"

static void keep_alive_answered(void *arg, const struct sw_nvme_result *result)
{
    struct sw_nvme_controller *c = arg;
    c->keep_alive.sent_ns = 0;
    if (result->status)
        nvh_queue_break(c->admin, SW_NVME_FAILED, "%s fails at Keep Alive: %s", c->where,
                        sw_nvme_code_text(result->nvme_status));
}

void nvh_keep_alive(struct sw_nvme_controller *controller, uint64_t now_ns)
{
    struct sw_nvme_controller *c = controller;
    const uint64_t period_ns = c->info.keep_alive_ms * NS_PER_MS;
    if (!period_ns)
        return;
    if (c->keep_alive.sent_ns) {
        if (now_ns - c->keep_alive.sent_ns > period_ns)
            nvh_queue_break(c->admin, SW_NVME_UNREACHABLE, "%s did not answer Keep Alive for %u ms",
                            c->where, c->info.keep_alive_ms);
        return;
    }
    if (now_ns < c->keep_alive.next_ns)
        return;
    c->keep_alive.next_ns = now_ns + period_ns / (c->info.traffic_keeps_alive ? 4 : 2);
    if (atomic_exchange(&c->activity, 0) && c->info.traffic_keeps_alive)
        return;
    c->keep_alive.sent_ns = now_ns;
    struct nvf_sqe sqe = {.opcode = nvme_admin_keep_alive};
    nvf_sgl_set_none(&sqe);
    nvh_call(c, &sqe, false, keep_alive_answered);
}

static void event_came(void *arg, const struct sw_nvme_result *result)
{
    struct sw_nvme_controller *c = arg;
    struct nvh_event_ring *ring = &c->events;
    if (result->status) /* it takes none, or no more */
        return;
    if (ring->tail - ring->head < NVH_EVENTS_MAX)
        ring->events[ring->tail++ % NVH_EVENTS_MAX] = (uint32_t)result->value;
    nvh_events_ask(c);
}

void nvh_events_ask(struct sw_nvme_controller *controller)
{
    struct nvf_sqe sqe = {.opcode = nvme_admin_async_event};
    nvf_sgl_set_none(&sqe);
    nvh_call(controller, &sqe, true, event_came);
}

bool nvh_event_take(struct nvh_event_ring *ring, uint32_t *event)
{
    if (ring->head == ring->tail)
        return false;
    *event = ring->events[ring->head++ % NVH_EVENTS_MAX];
    return true;
}
