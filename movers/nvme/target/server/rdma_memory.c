/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/rdma_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nvme/target/server/server.h"

static int rdma_memory_open_file(struct nvr_server *server, uint64_t end_bytes)
{
    if (server->memory_fd < 0)
        server->memory_fd = memfd_create("sidewire-nvme", MFD_CLOEXEC);
    return server->memory_fd < 0 ? -errno : ftruncate(server->memory_fd, (off_t)end_bytes);
}

void *nvr_memory_map(struct nvr_server *server, size_t len_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint64_t at = server->memory_end;
    const uint64_t end = at + (len_bytes + page - 1) / page * page;
    const int prot = PROT_READ | PROT_WRITE;
    void *memory = MAP_FAILED;
    if (!rdma_memory_open_file(server, end))
        memory = mmap(NULL, len_bytes, prot, MAP_SHARED, server->memory_fd, (off_t)at);
    if (memory != MAP_FAILED)
        server->memory_end = end;
    else
        memory = mmap(NULL, len_bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void nvr_memory_unmap(void *memory, size_t len_bytes)
{
    /* The file gives the pages back, too; private memory refuses, and needs not. */
    (void)madvise(memory, len_bytes, MADV_REMOVE);
    munmap(memory, len_bytes);
}
