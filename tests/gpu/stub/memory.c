/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/stub/memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { PIECES_MAX = 2048 };

static struct stub_piece pieces[PIECES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct stub_piece *find_piece(gpu_pointer pointer)
{
    for (size_t i = 0; i < PIECES_MAX; i++)
        if (pieces[i].len_bytes && pointer - pieces[i].pointer < pieces[i].len_bytes)
            return &pieces[i];
    return NULL;
}

const struct stub_piece *stub_piece_at(gpu_pointer pointer)
{
    pthread_mutex_lock(&lock);
    const struct stub_piece *found = find_piece(pointer);
    pthread_mutex_unlock(&lock);
    return found;
}

size_t stub_used_bytes(void)
{
    size_t used = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < PIECES_MAX; i++)
        used += pieces[i].len_bytes;
    pthread_mutex_unlock(&lock);
    return used;
}

int stub_know(gpu_pointer pointer, size_t bytes, int fd)
{
    int code = GPU_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < PIECES_MAX && code; i++) {
        if (pieces[i].len_bytes)
            continue;
        pieces[i] = (struct stub_piece){pointer, bytes, fd};
        code = GPU_OK;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

void stub_forget(gpu_pointer pointer)
{
    pthread_mutex_lock(&lock);
    struct stub_piece *piece = find_piece(pointer);
    if (piece)
        *piece = (struct stub_piece){.fd = -1};
    pthread_mutex_unlock(&lock);
}

int stub_file(size_t bytes)
{
    const int fd = memfd_create("stub", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int map_piece(gpu_pointer *pointer, size_t bytes, int fd)
{
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        close(fd);
        return GPU_OUT_OF_MEMORY;
    }
    *pointer = (gpu_pointer)mapped;
    return stub_know(*pointer, bytes, fd);
}

int stub_alloc(gpu_pointer *pointer, size_t bytes)
{
    if (bytes > STUB_TOTAL_BYTES - stub_used_bytes())
        return GPU_OUT_OF_MEMORY;
    const int fd = stub_file(bytes);
    return fd < 0 ? GPU_OUT_OF_MEMORY : map_piece(pointer, bytes, fd);
}

int stub_free(gpu_pointer pointer)
{
    const struct stub_piece *found = stub_piece_at(pointer);
    if (!found || found->pointer != pointer)
        return GPU_INVALID_VALUE;
    const struct stub_piece piece = *found;
    stub_forget(pointer);
    munmap((void *)piece.pointer, piece.len_bytes);
    if (piece.fd >= 0)
        close(piece.fd);
    return GPU_OK;
}

struct stub_named {
    pid_t pid;
    int fd;
    size_t len_bytes;
};

int stub_name(struct gpu_handle *handle, const struct stub_piece *piece)
{
    const struct stub_named named = {getpid(), piece->fd, piece->len_bytes};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &named, sizeof(named));
    return GPU_OK;
}

int stub_open(gpu_pointer *pointer, const struct gpu_handle *handle)
{
    struct stub_named named;
    char path[64];
    memcpy(&named, handle, sizeof(named));
    if (named.pid == getpid())
        return GPU_INVALID_CONTEXT;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)named.pid, named.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? GPU_INVALID_HANDLE : map_piece(pointer, named.len_bytes, fd);
}
