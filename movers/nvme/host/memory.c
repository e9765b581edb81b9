/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "nvme/host/controller.h"

static enum sw_nvme_status register_mem(struct sw_nvme_controller *controller, void *data,
                                        size_t bytes, bool is_ours, struct sw_nvme_mem **out)
{
    struct sw_nvme_mem *mem = malloc(sizeof(*mem));
    if (!mem)
        return SW_NVME_NO_MEMORY;
    *mem = (struct sw_nvme_mem){
        .controller = controller, .data = data, .bytes = bytes, .is_ours = is_ours};
    mem->mr = ibv_reg_mr(controller->pd, data, bytes,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (!mem->mr) {
        const enum sw_nvme_status status = errno == ENOMEM ? SW_NVME_NO_MEMORY : SW_NVME_SYSTEM;
        free(mem);
        return status;
    }
    atomic_fetch_add(&controller->mems, 1);
    *out = mem;
    return SW_NVME_OK;
}

enum sw_nvme_status sw_nvme_mem_register(struct sw_nvme_controller *controller, void *data,
                                         size_t bytes, struct sw_nvme_mem **mem)
{
    if (!data || !bytes || !controller->pd)
        return SW_NVME_INVALID;
    return register_mem(controller, data, bytes, false, mem);
}

enum sw_nvme_status sw_nvme_mem_alloc(struct sw_nvme_controller *controller, size_t bytes,
                                      struct sw_nvme_mem **mem)
{
    if (!bytes || !controller->pd)
        return SW_NVME_INVALID;
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
    ibv_dereg_mr(mem->mr);
    if (mem->is_ours)
        munmap(mem->data, mem->bytes);
    atomic_fetch_sub(&mem->controller->mems, 1);
    free(mem);
}
