/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/status.h"
#include "transfer/engine/transfer.h"

void *xfe_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (bytes + page - 1) / page * page;
    void *data = aligned_alloc(page, whole);
    return data ? memset(data, 0, whole) : NULL;
}

static struct ibv_mr *register_part(const struct sw_xfer_memory *memory,
                                    const struct xfe_device *device, uint64_t offset,
                                    uint64_t bytes, int access)
{
    struct ibv_pd *pd = device->pd;
    if (memory->fd >= 0 && memory->kind != SW_XFER_FILE)
        return ibv_reg_dmabuf_mr(pd, memory->fd_offset + offset, bytes, memory->address + offset,
                                 memory->fd, access);
    return ibv_reg_mr(pd, (char *)memory->data + offset, bytes, (unsigned)access);
}

/* Linux up to 6.1 takes pages to be written even where they are only read, and refuses those of a
 * shared mapping of a file that is open to be read. It makes copies of private ones. */
static bool map_privately(const struct sw_xfer_memory *memory)
{
    return memory->kind == SW_XFER_FILE && !memory->is_writable &&
           mmap(memory->mapped, memory->mapped_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED,
                memory->fd, (off_t)memory->fd_offset) != MAP_FAILED;
}

bool xfe_memory_register(struct sw_xfer_memory *memory, struct xfe_device *device)
{
    struct ibv_mr **mr = &memory->mrs[xfe_device_index(device)];
    const int access = memory->is_writable ? IBV_ACCESS_LOCAL_WRITE : 0;
    const int bind = device->has_windows ? IBV_ACCESS_MW_BIND : 0;
    *mr = register_part(memory, device, 0, memory->bytes, access | bind);
    if (!*mr && bind)
        *mr = register_part(memory, device, 0, memory->bytes, access);
    if (!*mr && access && memory->kind == SW_XFER_HOST) {
        *mr = register_part(memory, device, 0, memory->bytes, 0); /* it can only be read */
        memory->is_writable = !*mr;
    }
    if (!*mr && errno == EFAULT && map_privately(memory))
        *mr = register_part(memory, device, 0, memory->bytes, access);
    return *mr;
}

struct ibv_mr *xfe_memory_share(const struct sw_xfer_memory *memory,
                                const struct xfe_device *device, uint64_t offset, uint64_t bytes,
                                int access)
{
    return register_part(memory, device, offset, bytes, access);
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

static enum sw_xfer_status engine_add_memory(struct sw_xfer_agent *agent,
                                             const struct sw_xfer_memory *as,
                                             struct sw_xfer_error *error,
                                             struct sw_xfer_memory **out)
{
    struct sw_xfer_memory *memory = malloc(sizeof(*memory));
    if (!memory)
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    *memory = *as;
    memory->agent = agent;
    if (!register_everywhere(memory)) {
        const int why = errno;
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
    const struct sw_xfer_memory as = {.kind = SW_XFER_HOST,
                                      .data = data,
                                      .address = (uintptr_t)data,
                                      .bytes = bytes,
                                      .fd = -1,
                                      .is_writable = true};
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    if (!data || !bytes)
        return xfe_fail(error, SW_XFER_INVALID, "memory has at least one byte");
    return engine_add_memory(agent, &as, error, memory);
}

enum sw_xfer_status sw_xfer_memory_file(struct sw_xfer_agent *agent, int fd, uint64_t offset,
                                        uint64_t bytes, bool is_writable,
                                        struct sw_xfer_error *error, struct sw_xfer_memory **memory)
{
    struct stat st;
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    if (fstat(fd, &st))
        return xfe_fail(error, SW_XFER_SYSTEM, "the file: %s", strerror(errno));
    const uint64_t size = (uint64_t)st.st_size;
    if (offset >= size || bytes > size - offset || offset % (uint64_t)sysconf(_SC_PAGESIZE))
        return xfe_fail(error, SW_XFER_INVALID,
                        "the part does not lie within the file, or not at the start of a page");
    struct sw_xfer_memory as = {.kind = SW_XFER_FILE,
                                .bytes = bytes ? bytes : size - offset,
                                .fd = is_writable ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0),
                                .fd_offset = offset,
                                .is_writable = is_writable};
    if (as.fd < 0 && !is_writable)
        return xfe_fail(error, SW_XFER_SYSTEM, "the file: %s", strerror(errno));
    as.mapped_bytes = as.bytes;
    as.mapped = mmap(NULL, as.bytes, PROT_READ | (is_writable ? PROT_WRITE : 0), MAP_SHARED, fd,
                     (off_t)offset);
    as.data = as.mapped;
    as.address = (uintptr_t)as.data;
    const enum sw_xfer_status status =
        as.mapped == MAP_FAILED
            ? xfe_fail(error, SW_XFER_SYSTEM, "the file cannot be mapped: %s", strerror(errno))
            : engine_add_memory(agent, &as, error, memory);
    if (status && as.mapped != MAP_FAILED)
        munmap(as.mapped, as.mapped_bytes);
    if (status && as.fd >= 0)
        close(as.fd);
    return status;
}

enum sw_xfer_status sw_xfer_memory_dmabuf(struct sw_xfer_agent *agent, int fd, uint64_t offset,
                                          uint64_t bytes, struct sw_xfer_error *error,
                                          struct sw_xfer_memory **memory)
{
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    struct sw_xfer_memory as = {.kind = SW_XFER_DMABUF,
                                .address = offset,
                                .bytes = bytes,
                                .fd_offset = offset,
                                .fd = dup(fd),
                                .is_writable = true};
    if (as.fd < 0 || !bytes) {
        if (as.fd >= 0)
            close(as.fd);
        return xfe_fail(error, SW_XFER_INVALID, "no descriptor of a DMA buffer, or no bytes");
    }
    const enum sw_xfer_status status = engine_add_memory(agent, &as, error, memory);
    if (status)
        close(as.fd);
    return status;
}

enum sw_xfer_memory_kind sw_xfer_memory_kind_of(const struct sw_xfer_memory *memory)
{
    return memory->kind;
}

void *sw_xfer_memory_data(const struct sw_xfer_memory *memory)
{
    return memory->data;
}

uint64_t sw_xfer_memory_bytes(const struct sw_xfer_memory *memory)
{
    return memory->bytes;
}

/* A peer that was stopped amid a store to registered pages finds others there, and these are
 * nobody's. A file's pages stay the same. */
bool xfe_memory_renew(struct sw_xfer_memory *memory)
{
    if (memory->kind != SW_XFER_HOST || !xfe_transfers_let_go(memory->agent, memory))
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
    if (memory->mapped)
        munmap(memory->mapped, memory->mapped_bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    free(memory);
}

enum sw_xfer_status sw_xfer_memory_release(struct sw_xfer_memory *memory)
{
    if (memory->uses)
        return SW_XFER_BUSY;
    xfe_memory_free(memory);
    return SW_XFER_OK;
}
