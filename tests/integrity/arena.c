/* SPDX-License-Identifier: BSD-2-Clause */
#include "arena.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum kind { HEAP_SMALL, HEAP, ALIGNED, SHARED, MEMFD, HUGE, PRIVATE_FILE, HEAP_BIG };
static_assert(HEAP_BIG + 1 == ARENA_BUFS, "one buffer of each kind");

static const struct {
    const char *name;
    uint32_t block_bytes;
} kinds[ARENA_BUFS] = {
    [HEAP_SMALL] = {"small malloc", 3000},
    [HEAP] = {"malloc", 300 * 1024},
    [ALIGNED] = {"aligned_alloc", 64 * 1024},
    [SHARED] = {"shared anonymous", 256 * 1024},
    [MEMFD] = {"memfd", 512 * 1024},
    [HUGE] = {"transparent huge pages", 4 << 20},
    [PRIVATE_FILE] = {"private file mapping", 128 * 1024},
    [HEAP_BIG] = {"big malloc", 1200 * 1024},
};

uint32_t arena_block_bytes(int buf)
{
    return kinds[buf].block_bytes;
}

const char *arena_kind(int buf)
{
    return kinds[buf].name;
}

static void *map(int flags, int fd, size_t len_bytes)
{
    void *at = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    VU_CHECK(at != MAP_FAILED, "mmap: %s", strerror(errno));
    return at;
}

static uint8_t *file_block(int flags, size_t len_bytes)
{
    int fd = memfd_create("arena", MFD_CLOEXEC);
    VU_CHECK(fd >= 0 && ftruncate(fd, (off_t)len_bytes) == 0, "memfd: %s", strerror(errno));
    void *at = map(flags, fd, len_bytes);
    close(fd);
    return at;
}

static uint8_t *block(int buf)
{
    size_t len_bytes = kinds[buf].block_bytes;
    void *at = NULL;
    switch ((enum kind)buf) {
    case HEAP_SMALL:
    case HEAP:
    case HEAP_BIG:
        at = malloc(len_bytes);
        break;
    case ALIGNED:
        at = aligned_alloc(4096, len_bytes);
        break;
    case SHARED:
        return map(MAP_SHARED | MAP_ANONYMOUS, -1, len_bytes);
    case MEMFD:
        return file_block(MAP_SHARED, len_bytes);
    case PRIVATE_FILE:
        return file_block(MAP_PRIVATE, len_bytes);
    case HUGE:
        at = aligned_alloc(2 << 20, len_bytes);
        if (at)
            madvise(at, len_bytes, MADV_HUGEPAGE); /* a wish */
        break;
    }
    VU_CHECK(at, "out of memory");
    return at;
}

void arena_open(struct arena *arena)
{
    memset(arena, 0, sizeof(*arena));
    for (int i = 0; i < ARENA_BUFS; i++) {
        arena->blocks[i] = block(i);
        memset(arena->blocks[i], 0, kinds[i].block_bytes);
    }
}

void arena_close(struct arena *arena)
{
    for (int i = 0; i < ARENA_BUFS; i++) {
        if (i == SHARED || i == MEMFD || i == PRIVATE_FILE)
            munmap(arena->blocks[i], kinds[i].block_bytes);
        else
            free(arena->blocks[i]);
    }
}

void arena_register(struct arena *arena, struct vu_dev *dev, int buf, struct extent extent)
{
    uint8_t *start = arena->blocks[buf] + extent.start;
    arena->mrs[buf][0] = vu_reg(dev, start, extent.len_bytes, VU_ACCESS_ALL);
    arena->mrs[buf][1] = vu_reg(dev, start, extent.len_bytes - extent.len_bytes / 3, VU_ACCESS_ALL);
}

void arena_unregister(struct arena *arena, int buf)
{
    for (int i = 0; i < 2; i++)
        VU_EQ(ibv_dereg_mr(arena->mrs[buf][i]), 0);
}
