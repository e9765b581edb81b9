/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/segment_life.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/shm.h"
#include "device/adopt.h"
#include "device/page_copy.h"
#include "device/page_move.h"
#include "device/pinned.h"
#include "device/segment.h"
#include "device/shared_file.h"
#include "device/thread_memory.h"

#define TMPFS_MAGIC_NUMBER 0x01021994

static void nothing_before(uint64_t va, uint64_t len_bytes)
{
    (void)va;
    (void)len_bytes;
}

static void nothing_after(void)
{
}

static const struct sw_adopt_guard no_guard = {nothing_before, nothing_after};
static const struct sw_adopt_guard *guard = &no_guard;

void sw_adopt_set_guard(const struct sw_adopt_guard *set)
{
    __atomic_store_n(&guard, set, __ATOMIC_RELEASE);
}

/* Frees a segment that is in no table and whose pages are mapped nowhere any more. */
void sw_segment_free(struct sw_segment *segment)
{
    if (sw_segment_fd_valid(segment))
        close(segment->fd);
    if (segment->park)
        sw_park_release(segment);
    free(segment);
}

/* A file for the segment's pages, in which they lie as they do in large pages of memory.
 * SW_ADOPT_OK or why not. */
static enum sw_adopt_reason segment_back(struct sw_segment *segment)
{
    segment->offset =
        segment->len_bytes >= SW_LARGE_PAGE_BYTES ? segment->va % SW_LARGE_PAGE_BYTES : 0;
    uint64_t len = segment->offset + segment->len_bytes;
    struct rlimit limit;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && len > limit.rlim_cur)
        return SW_ADOPT_FAILED; /* it would raise SIGXFSZ */

    struct stat st;
    struct statfs fs;
    segment->fd = sw_shm_create("sidewire-adopted", len);
    if (segment->fd < 0)
        return segment->fd == -EMFILE || segment->fd == -ENFILE ? SW_ADOPT_FAILED
                                                                : SW_ADOPT_NO_MEMFD;
    /* userfaultfd knows shared memory files only; and no file of a disk should get this traffic. */
    if (fstat(segment->fd, &st) || fstatfs(segment->fd, &fs) || fs.f_type != TMPFS_MAGIC_NUMBER) {
        close(segment->fd);
        return SW_ADOPT_NO_MEMFD;
    }
    segment->dev = st.st_dev;
    segment->ino = st.st_ino;
    return SW_ADOPT_OK;
}

/* Moves back each part of the segment that still is mapped where it was adopted, and on which no
 * thread has made its stack since. True if nothing of it is left. */
static bool segment_return(struct sw_segment *segment, const struct sw_uffd *uffd)
{
    struct sw_vma_reader reader;
    struct sw_vma vma;
    uint64_t from, to, end = segment->va + segment->len_bytes;
    if (sw_vma_open(&reader, false))
        return false;
    bool all = true;
    int found = 1;
    guard->before(segment->va, segment->len_bytes);
    for (uint64_t at = segment->va; at < end; at = vma.end) {
        found = sw_vma_next(&reader, at, &vma);
        if (found != 1)
            break;
        uint64_t stack, stack_end;
        if (sw_segment_overlap(segment, &vma, &from, &to) &&
            (!uffd || sw_thread_memory_next(&vma, from, to, &stack, &stack_end) ||
             sw_pages_return(segment, uffd, from, to - from, vma.prot)))
            all = false;
    }
    guard->after();
    sw_vma_close(&reader);
    return all && found >= 0;
}

/* Takes apart a segment without references: true if it is freed, false if pages are still shared
 * and it stays a remainder. */
bool sw_segment_release(struct sw_segment *segment, const struct sw_uffd *uffd)
{
    if (segment->kind == SW_SEGMENT_ADOPTED && !segment_return(segment, uffd))
        return false;
    sw_segments_lock();
    sw_segments_remove(segment);
    sw_segments_unlock();
    sw_segment_free(segment);
    return true;
}

/* Adopts whole pages of private memory. NULL, with the reason, if that did not work. */
struct sw_segment *sw_segment_adopt(const struct sw_uffd *uffd, uint64_t start, uint64_t end,
                                    int prot, enum sw_adopt_reason *why)
{
    struct sw_segment *segment = calloc(1, sizeof(*segment));
    *why = SW_ADOPT_FAILED;
    if (!segment)
        return NULL;
    segment->kind = SW_SEGMENT_ADOPTED;
    segment->va = start;
    segment->len_bytes = end - start;
    enum sw_adopt_reason reason = segment_back(segment);
    if (reason != SW_ADOPT_OK) {
        *why = reason;
        free(segment);
        return NULL;
    }
    if (sw_park_reserve(segment)) {
        sw_segment_free(segment);
        return NULL;
    }
    uint64_t done = 0;
    guard->before(start, end - start);
    int rc = sw_pages_take(segment, uffd, prot, &done);
    guard->after();
    sw_segments_lock();
    sw_segments_add(segment);
    sw_segments_unlock();
    if (rc) {
        sw_info("adoption of %llu bytes stopped after %llu: %s",
                (unsigned long long)segment->len_bytes, (unsigned long long)done, strerror(-rc));
        if (!sw_segment_release(segment, uffd))
            sw_warn("memory that was partly adopted stays shared");
        return NULL;
    }
    return segment;
}

/* A segment for the whole of a mapping that already is shared. */
struct sw_segment *sw_segment_share(const struct sw_vma *vma)
{
    int fd = sw_shared_file_open(vma);
    if (fd < 0)
        return NULL;
    struct stat st;
    uint64_t page = (uint64_t)getpagesize();
    struct sw_segment *segment = calloc(1, sizeof(*segment));
    if (!segment || fstat(fd, &st) || (uint64_t)st.st_size <= vma->offset) {
        free(segment);
        close(fd);
        return NULL;
    }
    /* Behind the end of the file there is nothing to share. */
    uint64_t held = ((uint64_t)st.st_size - vma->offset + page - 1) / page * page;
    uint64_t len = vma->end - vma->start;
    segment->kind = SW_SEGMENT_FOREIGN;
    segment->fd = fd;
    segment->dev = st.st_dev;
    segment->ino = st.st_ino;
    segment->va = vma->start;
    segment->len_bytes = len < held ? len : held;
    segment->offset = vma->offset;
    return segment;
}

/* Moves back what nobody refers to any more, unless its pages may be pinned. */
void sw_segment_finish(struct sw_segment *segment)
{
    struct sw_uffd uffd;
    bool movable =
        segment->kind == SW_SEGMENT_ADOPTED && !sw_pinned_possible() && !sw_uffd_open(&uffd);
    if (!sw_segment_release(segment, movable ? &uffd : NULL))
        sw_debug("segment %u stays shared for now", segment->id);
    if (movable)
        sw_uffd_close(&uffd);
}

/* Tries again with one remainder, each time another one. */
void sw_segment_retry_remainder(void)
{
    static uint32_t last_id; /* under the move lock */
    struct sw_segment *next = NULL, *lowest = NULL;
    sw_segments_lock();
    for (struct sw_segment *s = sw_segments_first(); s; s = s->next) {
        if (s->refs)
            continue;
        if (!lowest || s->id < lowest->id)
            lowest = s;
        if (s->id > last_id && (!next || s->id < next->id))
            next = s;
    }
    sw_segments_unlock();
    next = next ? next : lowest;
    if (next) {
        last_id = next->id;
        sw_segment_finish(next);
    }
}
