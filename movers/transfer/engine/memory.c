/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/status.h"

bool xfe_memory_register(struct sw_xfer_memory *memory, struct xfe_device *device)
{
    struct ibv_mr **mr = &memory->mrs[xfe_device_index(device)];
    const int bind = device->has_windows ? IBV_ACCESS_MW_BIND : 0;
    *mr = mover_memory_register(&memory->at, device->pd, bind);
    return *mr;
}

/* With none of the devices where one has failed. */
static bool register_everywhere(struct sw_xfer_memory *memory)
{
    struct sw_xfer_agent *agent = memory->agent;
    for (uint32_t i = 0; i < agent->devices_count; i++) {
        if (xfe_memory_register(memory, &agent->devices[i]))
            continue;
        const int why = errno;
        while (i--) {
            ibv_dereg_mr(memory->mrs[i]);
            memory->mrs[i] = NULL;
        }
        errno = why;
        return false;
    }
    return true;
}

/* Takes `at`, also where it fails. */
static enum sw_xfer_status engine_add_memory(struct sw_xfer_agent *agent,
                                             enum sw_xfer_memory_kind kind, struct mover_memory *at,
                                             struct sw_xfer_error *error,
                                             struct sw_xfer_memory **out)
{
    struct sw_xfer_memory *memory = malloc(sizeof(*memory));
    if (!memory) {
        mover_memory_close(at);
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    }
    *memory = (struct sw_xfer_memory){.agent = agent, .kind = kind, .at = *at};
    if (!register_everywhere(memory)) {
        const int why = errno;
        mover_memory_close(&memory->at);
        free(memory);
        const bool cannot = why == EOPNOTSUPP || why == ENOSYS || why == EPROTONOSUPPORT;
        return xfe_fail(error,
                        cannot          ? SW_XFER_NOT_SUPPORTED
                        : why == ENOMEM ? SW_XFER_NO_MEMORY
                                        : SW_XFER_SYSTEM,
                        "the RDMA device does not register this memory: %s", strerror(why));
    }
    list_append(&agent->memories, &memory->node);
    *out = memory;
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_memory_host(struct sw_xfer_agent *agent, void *data, size_t bytes,
                                        struct sw_xfer_error *error, struct sw_xfer_memory **memory)
{
    struct mover_memory at = mover_memory_host(data, bytes);
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    if (!data || !bytes)
        return xfe_fail(error, SW_XFER_INVALID, "memory has at least one byte");
    return engine_add_memory(agent, SW_XFER_HOST, &at, error, memory);
}

enum sw_xfer_status sw_xfer_memory_file(struct sw_xfer_agent *agent, int fd, uint64_t offset,
                                        uint64_t bytes, bool is_writable,
                                        struct sw_xfer_error *error, struct sw_xfer_memory **memory)
{
    struct mover_memory at;
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    const int code = mover_memory_file(&at, fd, offset, bytes, is_writable);
    if (code == -EINVAL)
        return xfe_fail(error, SW_XFER_INVALID,
                        "the part does not lie within the file, or not at the start of a page");
    if (code)
        return xfe_fail(error, SW_XFER_SYSTEM, "the file cannot be mapped: %s", strerror(-code));
    return engine_add_memory(agent, SW_XFER_FILE, &at, error, memory);
}

enum sw_xfer_status sw_xfer_memory_dmabuf(struct sw_xfer_agent *agent, int fd, uint64_t offset,
                                          uint64_t bytes, struct sw_xfer_error *error,
                                          struct sw_xfer_memory **memory)
{
    struct mover_memory at;
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    if (mover_memory_dmabuf(&at, fd, offset, bytes))
        return xfe_fail(error, SW_XFER_INVALID, "no descriptor of a DMA buffer, or no bytes");
    return engine_add_memory(agent, SW_XFER_DMABUF, &at, error, memory);
}

enum sw_xfer_status sw_xfer_memory_cuda(struct sw_xfer_agent *agent, uint64_t device_pointer,
                                        uint64_t bytes, struct sw_xfer_error *error,
                                        struct sw_xfer_memory **memory)
{
    struct mover_memory at;
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    const int code = mover_memory_cuda(&at, device_pointer, bytes);
    if (code == -ENODEV)
        return xfe_fail(error, SW_XFER_NOT_SUPPORTED, "there is no CUDA driver on this host");
    if (code)
        return xfe_fail(error, SW_XFER_NOT_SUPPORTED,
                        "the CUDA driver hands out no DMA buffer for this address");
    return engine_add_memory(agent, SW_XFER_CUDA, &at, error, memory);
}

enum sw_xfer_memory_kind sw_xfer_memory_kind_of(const struct sw_xfer_memory *memory)
{
    return memory->kind;
}

void *sw_xfer_memory_data(const struct sw_xfer_memory *memory)
{
    return memory->at.data;
}

uint64_t sw_xfer_memory_bytes(const struct sw_xfer_memory *memory)
{
    return memory->at.bytes;
}

/* A peer that was stopped amid a store to registered pages finds others there, and these are
 * nobody's. A file's pages stay the same. */
bool xfe_memory_renew(struct sw_xfer_memory *memory)
{
    if (memory->kind != SW_XFER_HOST)
        return false;
    for (uint32_t i = 0; i < memory->agent->devices_count; i++) {
        if (memory->mrs[i] && ibv_dereg_mr(memory->mrs[i]))
            return false;
        memory->mrs[i] = NULL;
    }
    return register_everywhere(memory);
}

void xfe_memory_free(struct sw_xfer_memory *memory)
{
    list_remove(&memory->node);
    for (uint32_t i = 0; i < memory->agent->devices_count; i++)
        if (memory->mrs[i] && !xfe_is_forked(memory->agent))
            ibv_dereg_mr(memory->mrs[i]);
    mover_memory_close(&memory->at);
    free(memory);
}

enum sw_xfer_status sw_xfer_memory_release(struct sw_xfer_memory *memory)
{
    if (memory->uses)
        return SW_XFER_BUSY;
    xfe_memory_free(memory);
    return SW_XFER_OK;
}
