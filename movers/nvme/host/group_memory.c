/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the controllers of all paths may read and write: registered with each. */
#include <stdlib.h>
#include <sys/mman.h>

#include "nvme/host/controller.h"
#include "nvme/host/group.h"

static void release_paths(struct nvh_group_mem *mem)
{
    for (uint32_t i = 0; i < NVH_PATHS_MAX; i++)
        sw_nvme_mem_release(mem->of_path[i]);
}

enum sw_nvme_status nvh_group_mem_register(struct sw_nvme_controller *controller, void *data,
                                           size_t bytes, bool is_ours, struct sw_nvme_mem **out)
{
    struct nvh_group *group = nvh_group_of(controller);
    struct nvh_group_mem *mem = calloc(1, sizeof(*mem));
    enum sw_nvme_status status = mem ? SW_NVME_OK : SW_NVME_NO_MEMORY;
    pthread_mutex_lock(&group->lock);
    for (uint32_t i = 0; i < group->count && !status; i++)
        if (group->paths[i].has_pd)
            status =
                sw_nvme_mem_register(group->paths[i].controller, data, bytes, &mem->of_path[i]);
    if (!status) {
        mem->mem = (struct sw_nvme_mem){.controller = controller, .data = data, .bytes = bytes};
        mem->is_ours = is_ours;
        mem->next = group->mems;
        group->mems = mem;
        *out = &mem->mem;
    }
    pthread_mutex_unlock(&group->lock);
    if (status && mem) {
        release_paths(mem);
        free(mem);
    }
    return status;
}

bool nvh_group_mems_add_path(struct nvh_group *group, uint32_t path)
{
    bool is_done = true;
    for (struct nvh_group_mem *mem = group->mems; mem && is_done; mem = mem->next)
        is_done = mem->of_path[path] ||
                  !sw_nvme_mem_register(group->paths[path].controller, mem->mem.data,
                                        mem->mem.bytes, &mem->of_path[path]);
    return is_done;
}

void nvh_group_mem_release(struct sw_nvme_mem *mem)
{
    struct nvh_group_mem *own = (struct nvh_group_mem *)mem;
    struct nvh_group *group = nvh_group_of(mem->controller);
    const bool is_forked = nvh_is_forked(mem->controller); /* then it has this thread alone */
    struct nvh_group_mem **at = &group->mems;
    if (!is_forked)
        pthread_mutex_lock(&group->lock);
    while (*at != own)
        at = &(*at)->next;
    *at = own->next;
    if (!is_forked)
        pthread_mutex_unlock(&group->lock);
    release_paths(own);
    if (own->is_ours && !is_forked)
        munmap(mem->data, mem->bytes);
    free(own);
}
