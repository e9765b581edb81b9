/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of programs that the controller may read and write. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "nvme/host/controller.h"
#include "nvme/host/group.h"
#include "nvme/host/machine/memory.h"

struct nvh_memory {
    struct sw_nvme_mem mem; /* first: a handle is both */
    struct ibv_mr *mr;
    bool is_ours;
};

static enum sw_nvme_status register_mem(struct sw_nvme_controller *controller, void *data,
                                        size_t bytes, bool is_ours, struct sw_nvme_mem **out)
{
    if (controller->group)
        return nvh_group_mem_register(controller, data, bytes, is_ours, out);
    struct nvh_host *host = nvh_host_of(controller);
    struct nvh_memory *memory = malloc(sizeof(*memory));
    if (!memory)
        return SW_NVME_NO_MEMORY;
    memory->is_ours = is_ours;
    memory->mr =
        ibv_reg_mr(host->pd, data, bytes,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (!memory->mr) {
        const enum sw_nvme_status status = errno == ENOMEM ? SW_NVME_NO_MEMORY : SW_NVME_SYSTEM;
        free(memory);
        return status;
    }
    memory->mem = (struct sw_nvme_mem){.controller = controller,
                                       .data = data,
                                       .bytes = bytes,
                                       .lkey = memory->mr->lkey,
                                       .rkey = memory->mr->rkey};
    atomic_fetch_add(&host->mems, 1);
    *out = &memory->mem;
    return SW_NVME_OK;
}

/* It was live once. */
static bool memory_has_device(struct sw_nvme_controller *controller)
{
    return controller->group ? controller->group->has_info : nvh_host_of(controller)->pd != NULL;
}

enum sw_nvme_status sw_nvme_mem_register(struct sw_nvme_controller *controller, void *data,
                                         size_t bytes, struct sw_nvme_mem **mem)
{
    if (!data || !bytes || !memory_has_device(controller))
        return SW_NVME_INVALID;
    if (nvh_is_forked(controller))
        return SW_NVME_FORKED;
    return register_mem(controller, data, bytes, false, mem);
}

enum sw_nvme_status sw_nvme_mem_alloc(struct sw_nvme_controller *controller, size_t bytes,
                                      struct sw_nvme_mem **mem)
{
    if (!bytes || !memory_has_device(controller))
        return SW_NVME_INVALID;
    if (nvh_is_forked(controller))
        return SW_NVME_FORKED;
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (data == MAP_FAILED)
        return SW_NVME_NO_MEMORY;
    const enum sw_nvme_status status = register_mem(controller, data, bytes, true, mem);
    if (status)
        munmap(data, bytes);
    return status;
}

void *sw_nvme_mem_data(const struct sw_nvme_mem *mem)
{
    return mem->data;
}

size_t sw_nvme_mem_bytes(const struct sw_nvme_mem *mem)
{
    return mem->bytes;
}

void sw_nvme_mem_release(struct sw_nvme_mem *mem)
{
    if (!mem)
        return;
    if (mem->controller->group)
        return nvh_group_mem_release(mem);
    struct nvh_memory *memory = (struct nvh_memory *)mem;
    if (!nvh_is_forked(mem->controller)) {
        ibv_dereg_mr(memory->mr);
        if (memory->is_ours)
            munmap(mem->data, mem->bytes);
    }
    atomic_fetch_sub(&nvh_host_of(mem->controller)->mems, 1);
    free(memory);
}
