/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/minmax.h"
#include "base/shm.h"
#include "device/adopt/adopt_lock.h"
#include "device/adopt/page_copy.h"

#define TMPFS_MAGIC_NUMBER 0x01021994

#define FILES_MAX 4096
#define ARENA_BYTES (UINT64_C(1) << 40)
/* More than two are there only where places have run out, or descriptors were closed. */
#define ARENAS_MAX 64

struct sw_arena {
    int fd;
    dev_t dev;
    ino_t ino;
    enum sw_handed_out handed;
    uint64_t used; /* places before this had somebody */
    uint64_t len_bytes;
    uint32_t segments; /* 0: there is no such arena */
};

static struct sw_arena arenas[ARENAS_MAX];

/* A write behind it raises SIGXFSZ. */
static uint64_t file_max(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) ? UINT64_MAX : limit.rlim_cur;
}

static enum sw_adopt_reason file_open(uint64_t len_bytes, int *out, struct stat *st)
{
    struct statfs fs;
    int fd = sw_fd_own(sw_shm_create("sidewire-adopted", len_bytes));
    if (fd < 0)
        return fd == -EMFILE || fd == -ENFILE ? SW_ADOPT_FAILED : SW_ADOPT_NO_MEMFD;
    /* userfaultfd knows shared memory files only; and no file of a disk should get this traffic. */
    if (fstat(fd, st) || fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC_NUMBER) {
        close(fd);
        return SW_ADOPT_NO_MEMFD;
    }
    *out = fd;
    return SW_ADOPT_OK;
}

/* The first place from `used` on where the pages lie as they do in large pages of memory. */
static uint64_t place_from(const struct sw_segment *segment, uint64_t used)
{
    const uint64_t large = SW_LARGE_PAGE_BYTES;
    if (segment->len_bytes < large)
        return used;
    return (used + large - 1) / large * large + segment->va % large;
}

static bool arena_has_room(const struct sw_arena *arena, const struct sw_segment *segment)
{
    const uint64_t most = file_max(), end = sw_min_u64(arena->len_bytes, most);
    const uint64_t place = place_from(segment, arena->used);
    return place <= end && segment->len_bytes <= end - place;
}

/* Not one whose descriptor the program has closed. */
static bool arena_is_intact(const struct sw_arena *arena)
{
    struct stat st;
    return !fstat(arena->fd, &st) && st.st_dev == arena->dev && st.st_ino == arena->ino;
}

static struct sw_arena *arena_with_room(const struct sw_segment *segment, enum sw_handed_out handed)
{
    for (struct sw_arena *arena = arenas; arena < arenas + ARENAS_MAX; arena++) {
        if (arena->segments && arena->handed == handed && arena_has_room(arena, segment) &&
            arena_is_intact(arena))
            return arena;
    }
    return NULL;
}

static enum sw_adopt_reason arena_open(enum sw_handed_out handed, struct sw_arena **out)
{
    struct sw_arena *arena = arenas;
    struct stat st;
    while (arena < arenas + ARENAS_MAX && arena->segments)
        arena++;
    if (arena == arenas + ARENAS_MAX)
        return SW_ADOPT_TOO_LARGE;
    const uint64_t page_bytes = (uint64_t)getpagesize(), most = file_max();
    const uint64_t len_bytes = most < ARENA_BYTES ? most / page_bytes * page_bytes : ARENA_BYTES;
    int fd;
    enum sw_adopt_reason why = file_open(len_bytes, &fd, &st);
    if (why != SW_ADOPT_OK)
        return why;
    *arena = (struct sw_arena){fd, st.st_dev, st.st_ino, handed, 0, len_bytes, 0};
    *out = arena;
    return SW_ADOPT_OK;
}

static enum sw_adopt_reason enter_arena(struct sw_segment *segment, enum sw_handed_out handed)
{
    struct sw_arena *arena = arena_with_room(segment, handed);
    if (!arena && place_from(segment, 0) + segment->len_bytes > file_max())
        return SW_ADOPT_FAILED;
    enum sw_adopt_reason why = arena ? SW_ADOPT_OK : arena_open(handed, &arena);
    if (why != SW_ADOPT_OK)
        return why;
    segment->arena = arena;
    segment->fd = arena->fd;
    segment->dev = arena->dev;
    segment->ino = arena->ino;
    segment->offset = place_from(segment, arena->used);
    /* A hole behind it: a search for the end of its data finds it there. */
    arena->used = segment->offset + segment->len_bytes + (uint64_t)getpagesize();
    arena->segments++;
    return SW_ADOPT_OK;
}

static enum sw_adopt_reason enter_own(struct sw_segment *segment)
{
    struct stat st;
    segment->offset = place_from(segment, 0);
    const uint64_t len_bytes = segment->offset + segment->len_bytes;
    if (len_bytes > file_max())
        return SW_ADOPT_FAILED;
    enum sw_adopt_reason why = file_open(len_bytes, &segment->fd, &st);
    if (why != SW_ADOPT_OK)
        return why;
    segment->dev = st.st_dev;
    segment->ino = st.st_ino;
    return SW_ADOPT_OK;
}

int sw_arena_files_max(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 8 > FILES_MAX)
        return FILES_MAX;
    return (int)(limit.rlim_cur / 8);
}

static bool is_file_left(void)
{
    sw_segments_lock();
    const bool left = sw_segments_own_files() < sw_arena_files_max();
    sw_segments_unlock();
    return left;
}

bool sw_arena_admits(enum sw_handed_out handed)
{
    return handed != SW_HANDED_OUT_NOT || is_file_left();
}

enum sw_adopt_reason sw_arena_enter(struct sw_segment *segment, enum sw_handed_out handed)
{
    sw_adopt_assert_locked();
    /* Rights to write cannot grow. Others may, with the first receive: then the file goes along, as
     * long as there are descriptors for files of their own. */
    if (handed != SW_HANDED_OUT_WRITE && is_file_left())
        return enter_own(segment);
    return handed == SW_HANDED_OUT_NOT ? SW_ADOPT_TOO_LARGE : enter_arena(segment, handed);
}

void sw_arena_leave(struct sw_segment *segment)
{
    sw_adopt_assert_locked();
    struct sw_arena *arena = segment->arena;
    const bool intact = sw_segment_fd_valid(segment);
    segment->arena = NULL;
    if (arena && --arena->segments) {
        if (intact)
            fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)segment->offset, (off_t)segment->len_bytes);
        return;
    }
    if (intact)
        close(segment->fd);
}

enum sw_handed_out sw_arena_handed(const struct sw_segment *segment)
{
    return segment->arena ? segment->arena->handed : SW_HANDED_OUT_WRITE;
}

uint64_t sw_arenas_bytes(void)
{
    uint64_t sum = 0;
    for (struct sw_arena *arena = arenas; arena < arenas + ARENAS_MAX; arena++) {
        struct stat st;
        if (arena->segments && arena_is_intact(arena) && !fstat(arena->fd, &st))
            sum += (uint64_t)st.st_blocks * 512;
    }
    return sum;
}

void sw_arenas_forget(void)
{
    for (struct sw_arena *arena = arenas; arena < arenas + ARENAS_MAX; arena++) {
        if (arena->segments && arena_is_intact(arena))
            close(arena->fd);
        arena->segments = 0;
    }
}
