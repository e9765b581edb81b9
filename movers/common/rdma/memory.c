/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void *mover_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (bytes + page - 1) / page * page;
    void *data = aligned_alloc(page, whole);
    return data ? memset(data, 0, whole) : NULL;
}

/* ---- kinds ---- */

struct mover_memory mover_memory_host(void *data, uint64_t bytes)
{
    return (struct mover_memory){.kind = MOVER_HOST,
                                 .data = data,
                                 .address = (uintptr_t)data,
                                 .bytes = bytes,
                                 .fd = -1,
                                 .is_writable = true};
}

int mover_memory_file(struct mover_memory *memory, int fd, uint64_t offset, uint64_t bytes,
                      bool is_writable)
{
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    const uint64_t size = (uint64_t)st.st_size;
    if (offset >= size || bytes > size - offset || offset % (uint64_t)sysconf(_SC_PAGESIZE))
        return -EINVAL;
    *memory = (struct mover_memory){.kind = MOVER_FILE,
                                    .bytes = bytes ? bytes : size - offset,
                                    .fd = is_writable ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0),
                                    .fd_offset = offset,
                                    .is_writable = is_writable};
    if (memory->fd < 0 && !is_writable)
        return -errno;
    memory->data = mmap(NULL, memory->bytes, PROT_READ | (is_writable ? PROT_WRITE : 0), MAP_SHARED,
                        fd, (off_t)offset);
    memory->address = (uintptr_t)memory->data;
    if (memory->data != MAP_FAILED)
        return 0;
    const int why = -errno;
    memory->data = NULL;
    mover_memory_close(memory);
    return why;
}

int mover_memory_dmabuf(struct mover_memory *memory, int fd, uint64_t offset, uint64_t bytes)
{
    *memory = (struct mover_memory){.kind = MOVER_DMABUF,
                                    .address = offset,
                                    .bytes = bytes,
                                    .fd = bytes ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1,
                                    .fd_offset = offset,
                                    .is_writable = true};
    if (!bytes)
        return -EINVAL;
    return memory->fd < 0 ? -errno : 0;
}

/* Nothing of CUDA is needed to build this. Source: CUDA Driver API,
 * cuMemGetHandleForAddressRange. */
enum { CUDA_PAGE = 65536, HANDLE_IS_DMABUF = 1 };

typedef int get_handle(void *handle, uint64_t pointer, size_t bytes, int kind,
                       unsigned long long flags);

int mover_memory_cuda(struct mover_memory *memory, uint64_t device_pointer, uint64_t bytes)
{
    int fd = -1;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* stays: the program's */
    if (!driver)
        return -ENODEV;
    get_handle *handle_of = (get_handle *)dlsym(driver, "cuMemGetHandleForAddressRange");
    /* The driver hands out whole pages, so the buffer begins at or before the pointer. */
    const uint64_t begin = device_pointer / CUDA_PAGE * CUDA_PAGE;
    const uint64_t end = (device_pointer + bytes + CUDA_PAGE - 1) / CUDA_PAGE * CUDA_PAGE;
    if (!handle_of || handle_of(&fd, begin, end - begin, HANDLE_IS_DMABUF, 0))
        return -EOPNOTSUPP;
    const int code = mover_memory_dmabuf(memory, fd, device_pointer - begin, bytes);
    close(fd);
    return code;
}

void mover_memory_close(struct mover_memory *memory)
{
    if (memory->kind == MOVER_FILE && memory->data)
        munmap(memory->data, memory->bytes);
    if (memory->kind != MOVER_HOST && memory->fd >= 0)
        close(memory->fd);
    *memory = (struct mover_memory){.fd = -1};
}

/* ---- registrations ---- */

struct ibv_mr *mover_memory_register_part(const struct mover_memory *memory, struct ibv_pd *pd,
                                          uint64_t offset, uint64_t bytes, int access)
{
    if (memory->kind == MOVER_DMABUF)
        return ibv_reg_dmabuf_mr(pd, memory->fd_offset + offset, bytes, memory->address + offset,
                                 memory->fd, access);
    return ibv_reg_mr(pd, (char *)memory->data + offset, bytes, (unsigned)access);
}

/* Linux up to 6.1 takes pages to be written even where they are only read, and refuses those of a
 * shared mapping of a file that is open to be read. It makes copies of private ones. */
static bool map_privately(const struct mover_memory *memory)
{
    return memory->kind == MOVER_FILE && !memory->is_writable &&
           mmap(memory->data, memory->bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, memory->fd,
                (off_t)memory->fd_offset) != MAP_FAILED;
}

struct ibv_mr *mover_memory_register(struct mover_memory *memory, struct ibv_pd *pd, int wishes)
{
    const uint64_t bytes = memory->bytes;
    const int access = memory->is_writable ? IBV_ACCESS_LOCAL_WRITE : 0;
    struct ibv_mr *mr = mover_memory_register_part(memory, pd, 0, bytes, access | wishes);
    if (!mr && wishes)
        mr = mover_memory_register_part(memory, pd, 0, bytes, access);
    if (!mr && access && memory->kind == MOVER_HOST) {
        mr = mover_memory_register_part(memory, pd, 0, bytes, 0); /* it can only be read */
        memory->is_writable = !mr;
    }
    if (!mr && errno == EFAULT && map_privately(memory))
        mr = mover_memory_register_part(memory, pd, 0, bytes, access);
    return mr;
}
