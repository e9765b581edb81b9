/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/adopt.h"

#include "transfer/core/flow.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/source.h"

static bool register_all(struct xfe_device *device)
{
    struct sw_xfer_agent *agent = device->agent;
    for (struct list_node *at = list_first(&agent->memories); at;
         at = list_after(&agent->memories, at))
        if (!xfe_memory_register(LIST_MEMBER(at, struct sw_xfer_memory, node), device))
            return false;
    return true;
}

static void unregister_all(struct xfe_device *device)
{
    struct sw_xfer_agent *agent = device->agent;
    const uint32_t index = xfe_device_index(device);
    for (struct list_node *at = list_first(&agent->memories); at;
         at = list_after(&agent->memories, at)) {
        struct sw_xfer_memory *memory = LIST_MEMBER(at, struct sw_xfer_memory, node);
        if (memory->mrs[index])
            ibv_dereg_mr(memory->mrs[index]);
        memory->mrs[index] = NULL;
    }
}

struct xfe_device *xfe_device_adopt(struct sw_xfer_agent *agent, struct ibv_context *verbs)
{
    struct ibv_device_attr attr;
    struct xfe_device *device = xfe_device_find(agent, verbs);
    if (device)
        return device;
    if (agent->devices_count == XFE_DEVICES_MAX || ibv_query_device(verbs, &attr))
        return NULL;
    const uint32_t pieces =
        attr.max_sge < XFC_PIECES_MAX ? (uint32_t)attr.max_sge : (uint32_t)XFC_PIECES_MAX;
    if (agent->devices_count && pieces < agent->pieces_max)
        return NULL; /* plans are made already */
    device = &agent->devices[agent->devices_count];
    *device = (struct xfe_device){
        .source.kind = XFE_DEVICE,
        .agent = agent,
        .verbs = verbs,
        .pd = ibv_alloc_pd(verbs),
        .reads_max = (uint32_t)attr.max_qp_init_rd_atom,
        .has_windows =
            attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B),
    };
    if (!device->pd)
        return NULL;
    if (!register_all(device)) {
        unregister_all(device);
        ibv_dealloc_pd(device->pd);
        return NULL;
    }
    if (!agent->devices_count++)
        agent->pieces_max = pieces;
    return device;
}
