/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: unnamed shared memory of this process, which peers reach like any other. It is
 * accessed by the program through copies only, in words of 4 bytes as on hardware.
 *
 * An imported handle stands for the same memory, which goes with the last handle and region.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shm.h"
#include "device/rules/device_limits.h"
#include "verbs/context.h"
#include "verbs/import.h"
#include "verbs/mr.h"

struct sw_dm_memory {
    uint8_t *bytes;
    size_t len_bytes;
    atomic_uint refs;    /* handles and regions */
    atomic_uint regions; /* of these the regions */
};

static _Atomic uint64_t used_bytes;

static void memory_put(struct sw_dm_memory *memory)
{
    if (atomic_fetch_sub(&memory->refs, 1) > 1)
        return;
    munmap(memory->bytes, memory->len_bytes);
    atomic_fetch_sub(&used_bytes, memory->len_bytes);
    free(memory);
}

static int memory_make(size_t len_bytes, struct sw_dm_memory **out)
{
    struct sw_dm_memory *memory = calloc(1, sizeof(*memory));
    int fd = memory ? sw_shm_create("sidewire-dm", len_bytes) : -ENOMEM;
    if (fd >= 0) {
        memory->bytes = sw_shm_map(fd, len_bytes, true);
        close(fd);
    }
    if (fd < 0 || !memory->bytes) {
        free(memory);
        return fd < 0 ? fd : -ENOMEM;
    }
    memory->len_bytes = len_bytes;
    atomic_init(&memory->refs, 1);
    *out = memory;
    return 0;
}

static bool is_inside(const struct sw_verbs_dm *dm, uint64_t offset, uint64_t len_bytes)
{
    uint64_t all = dm->memory->len_bytes;
    return offset <= all && len_bytes <= all - offset;
}

static bool is_copy(const struct sw_verbs_dm *dm, uint64_t offset, size_t len_bytes)
{
    return !((offset | len_bytes) & 3) && is_inside(dm, offset, len_bytes);
}

static int copy_to(struct ibv_dm *ibv, uint64_t offset, const void *from, size_t len_bytes)
{
    struct sw_verbs_dm *dm = (struct sw_verbs_dm *)ibv;
    if (!is_copy(dm, offset, len_bytes))
        return EFAULT;
    memcpy(dm->memory->bytes + offset, from, len_bytes);
    return 0;
}

static int copy_from(void *to, struct ibv_dm *ibv, uint64_t offset, size_t len_bytes)
{
    struct sw_verbs_dm *dm = (struct sw_verbs_dm *)ibv;
    if (!is_copy(dm, offset, len_bytes))
        return EFAULT;
    memcpy(to, dm->memory->bytes + offset, len_bytes);
    return 0;
}

static struct ibv_dm *wrap_memory(struct ibv_context *context, struct sw_dm_memory *memory,
                                  uint32_t handle)
{
    struct sw_verbs_dm *dm = sw_verbs_object_alloc(context, sizeof(*dm));
    if (!dm)
        return NULL;
    dm->memory = memory;
    dm->ibv = (struct ibv_dm){
        .context = context,
        .memcpy_to_dm = copy_to,
        .memcpy_from_dm = copy_from,
        .comp_mask = IBV_DM_MASK_HANDLE,
        .handle = handle,
    };
    return &dm->ibv;
}

struct ibv_dm *sw_verbs_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
    struct sw_dm_memory *memory = NULL;
    /* A page is aligned to 4 KiB. */
    if (attr->comp_mask || attr->log_align_req > 12 || attr->length == 0)
        return sw_verbs_fail(-EINVAL);
    if (attr->length > SW_MAX_DM_BYTES ||
        atomic_fetch_add(&used_bytes, attr->length) + attr->length > SW_MAX_DM_BYTES) {
        if (attr->length <= SW_MAX_DM_BYTES)
            atomic_fetch_sub(&used_bytes, attr->length);
        return sw_verbs_fail(-ENOMEM);
    }
    const int rc = memory_make(attr->length, &memory);
    if (rc) {
        atomic_fetch_sub(&used_bytes, attr->length);
        return sw_verbs_fail(rc);
    }
    struct ibv_dm *dm = wrap_memory(context, memory, sw_verbs_next_handle());
    if (!dm)
        memory_put(memory);
    else
        sw_import_add(SW_IMPORT_DM, dm->handle, dm);
    return dm;
}

static void dm_drop_memory(struct sw_verbs_dm *dm)
{
    memory_put(dm->memory);
    sw_verbs_object_free(dm->ibv.context, dm);
}

int sw_verbs_free_dm(struct ibv_dm *ibv)
{
    struct sw_verbs_dm *dm = (struct sw_verbs_dm *)ibv;
    if (atomic_load(&dm->memory->regions))
        return EBUSY;
    sw_import_remove(SW_IMPORT_DM, ibv->handle);
    dm_drop_memory(dm);
    return 0;
}

struct ibv_mr *sw_verbs_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibv, uint64_t offset,
                                  size_t len_bytes, unsigned int access)
{
    struct sw_verbs_dm *dm = (struct sw_verbs_dm *)ibv;
    if (!(access & IBV_ACCESS_ZERO_BASED) || access & IBV_ACCESS_ON_DEMAND ||
        !is_inside(dm, offset, len_bytes))
        return sw_verbs_fail(-EINVAL);
    struct ibv_mr *mr = sw_verbs_reg(pd, dm->memory->bytes + offset, len_bytes, 0, access);
    if (!mr)
        return NULL;
    mr->addr = NULL; /* it has none that the program could use */
    atomic_fetch_add(&dm->memory->refs, 1);
    atomic_fetch_add(&dm->memory->regions, 1);
    ((struct sw_verbs_mr *)mr)->dm = dm->memory;
    return mr;
}

void sw_dm_region_gone(struct sw_dm_memory *memory)
{
    atomic_fetch_sub(&memory->regions, 1);
    memory_put(memory);
}

struct ibv_dm *sw_dm_import(struct ibv_context *context, struct ibv_dm *known)
{
    struct sw_dm_memory *memory = ((struct sw_verbs_dm *)known)->memory;
    struct ibv_dm *dm = wrap_memory(context, memory, known->handle);
    if (dm)
        atomic_fetch_add(&memory->refs, 1);
    return dm;
}

void sw_dm_unimport(struct ibv_dm *dm)
{
    dm_drop_memory((struct sw_verbs_dm *)dm);
}
