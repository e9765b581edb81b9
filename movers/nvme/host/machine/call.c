/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/call.h"

#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/queue.h"
#include "nvme/host/machine/request.h"
#include "nvme/wire/sgl.h"

uint32_t nvh_cc(bool shuts_down)
{
    enum { ENABLE = 1, SQES = 6 << 16, CQES = 4 << 20, SHUTDOWN = 1 << 14 };
    return ENABLE | SQES | CQES | (shuts_down ? SHUTDOWN : 0);
}

struct nvf_sqe nvh_fabrics_command(enum nvf_type type)
{
    struct nvf_sqe sqe = {.opcode = NVF_OPCODE, .nsid = htole32(type)};
    nvf_sgl_set_none(&sqe);
    return sqe;
}

struct nvf_sqe nvh_property_get(uint32_t offset, bool is_wide)
{
    struct nvf_sqe sqe = nvh_fabrics_command(NVF_PROPERTY_GET);
    sqe.cdw10 = htole32(is_wide);
    sqe.cdw11 = htole32(offset);
    return sqe;
}

struct nvf_sqe nvh_property_set(uint32_t offset, uint64_t value)
{
    struct nvf_sqe sqe = nvh_fabrics_command(NVF_PROPERTY_SET);
    sqe.cdw11 = htole32(offset);
    sqe.cdw12 = htole32((uint32_t)value);
    sqe.cdw13 = htole32((uint32_t)(value >> 32));
    return sqe;
}

static void submit_command(struct sw_nvme_queue *queue, uint32_t index, const struct nvf_sqe *sqe,
                           sw_nvme_done *done, void *arg)
{
    queue->sqes[index] = *sqe;
    queue->slots[index].done = done;
    queue->slots[index].result.arg = arg;
    nvh_slot_submit(queue, index);
}

bool nvh_own_command(struct sw_nvme_queue *queue, const struct nvf_sqe *sqe, sw_nvme_done *done,
                     void *arg)
{
    const int taken = nvh_slot_take(queue, true);
    if (taken >= 0)
        submit_command(queue, (uint32_t)taken, sqe, done, arg);
    return taken >= 0;
}

void nvh_call(struct sw_nvme_controller *controller, const struct nvf_sqe *sqe, bool is_endless,
              sw_nvme_done *done)
{
    struct sw_nvme_queue *queue = controller->admin;
    const int taken = nvh_slot_take(queue, true);
    if (taken < 0)
        return nvh_queue_break(queue, SW_NVME_PROTOCOL, "the admin queue is full");
    queue->slots[taken].is_endless = is_endless;
    submit_command(queue, (uint32_t)taken, sqe, done, controller);
}

enum sw_nvme_status nvh_admin_submit(struct sw_nvme_controller *controller,
                                     const struct nvf_sqe *sqe, sw_nvme_done *done, void *arg)
{
    struct sw_nvme_queue *admin = controller->admin;
    if (atomic_load(&controller->state) != SW_NVME_LIVE || admin->phase != NVH_UP ||
        atomic_load(&controller->epoch) != admin->epoch || admin->is_broken)
        return SW_NVME_UNREACHABLE;
    const int taken = nvh_slot_take(admin, false);
    if (taken < 0)
        return SW_NVME_AGAIN;
    admin->tick_ns = admin->port->now_ns();
    submit_command(admin, (uint32_t)taken, sqe, done, arg);
    return SW_NVME_OK;
}
