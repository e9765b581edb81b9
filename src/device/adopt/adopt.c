/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/adopt.h"

#include <assert.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "device/adopt/adopt_config.h"
#include "device/adopt/adopt_lock.h"
#include "device/adopt/adopt_monitor.h"
#include "device/adopt/segment.h"
#include "device/adopt/segment_life.h"
#include "device/adopt/thread_memory.h"
#include "device/adopt/uffd.h"
#include "device/adopt/walk.h"

static pthread_mutex_t move_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool is_mover; /* this thread has the move lock */

__attribute__((constructor)) static void adopt_load(void)
{
    sw_adopt_fork_install();
}

/* Between these the thread cannot be cancelled: it would leave the lock held and others waiting. */
static int cancel_disable(void)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

static atomic_uint moves; /* odd while pages may be moving */

static void lock_still(void)
{
    pthread_mutex_lock(&move_lock);
    is_mover = true;
}

static void unlock_still(void)
{
    is_mover = false;
    pthread_mutex_unlock(&move_lock);
}

void sw_adopt_lock(void)
{
    lock_still();
    atomic_fetch_add(&moves, 1);
}

void sw_adopt_unlock(void)
{
    atomic_fetch_add(&moves, 1);
    unlock_still();
}

void sw_adopt_assert_locked(void)
{
    assert(is_mover);
}

unsigned int sw_adopt_moves(void)
{
    unsigned int now = atomic_load(&moves);
    if (now % 2 == 0 || is_mover)
        return now;
    int cancel_state = cancel_disable();
    lock_still();
    now = atomic_load(&moves);
    unlock_still();
    pthread_setcancelstate(cancel_state, NULL);
    return now;
}

/* What may allocate, done before the move lock is taken. */
static void prepare_once(void)
{
    if (sw_adopt_config()->enabled)
        sw_adopt_monitor_start();
    sw_thread_memory_prepare();
}

int sw_adopt_get(uint64_t va, uint64_t len_bytes, enum sw_handed_out handed,
                 struct sw_extent *extents, int max, enum sw_adopt_reason *why)
{
    struct sw_walk w = {
        .va = va, .end = va + len_bytes, .handed = handed, .extents = extents, .max = max};
    if (w.end >= va) {
        prepare_once();
        int cancel_state = cancel_disable();
        sw_adopt_lock();
        sw_walk_all(&w);
        sw_segment_retry_remainder();
        sw_adopt_unlock();
        pthread_setcancelstate(cancel_state, NULL);
    }
    if (why)
        *why = w.why;
    return w.count;
}

/* Gives up one of several references. False if it is the last. */
static bool unref_shared(struct sw_segment *segment)
{
    sw_segments_lock();
    bool others = segment->kind == SW_SEGMENT_LOST || segment->refs > 1;
    if (others)
        segment->refs--;
    sw_segments_unlock();
    return others;
}

void sw_adopt_put(struct sw_segment *segment)
{
    if (unref_shared(segment))
        return;
    int cancel_state = cancel_disable();
    sw_adopt_lock();
    if (!unref_shared(segment)) { /* it may have been found again meanwhile */
        sw_segments_lock();
        segment->refs = 0;
        sw_segments_unlock();
        sw_segment_finish(segment);
    }
    sw_adopt_unlock();
    pthread_setcancelstate(cancel_state, NULL);
}

/* A mover is not to ask the table: for a fork it has locked that, and calls madvise(). */
bool sw_adopt_may_overlap(uint64_t va, uint64_t len_bytes)
{
    return !is_mover && sw_segments_may_overlap(va, len_bytes);
}

bool sw_adopt_withdraw(uint64_t va, uint64_t len_bytes)
{
    int cancel_state = cancel_disable();
    sw_adopt_lock();
    bool all = sw_segments_withdraw(va, va + len_bytes, false);
    sw_adopt_unlock();
    pthread_setcancelstate(cancel_state, NULL);
    return all;
}

void sw_adopt_discard(uint64_t va, uint64_t len_bytes, bool locked_too)
{
    int cancel_state = cancel_disable();
    lock_still();
    sw_segments_discard(va, va + len_bytes, locked_too);
    unlock_still();
    pthread_setcancelstate(cancel_state, NULL);
}

void sw_adopt_advise(uint64_t va, uint64_t len_bytes, int advice)
{
    int cancel_state = cancel_disable();
    sw_adopt_lock();
    sw_segments_advise(va, va + len_bytes, advice);
    sw_adopt_unlock();
    pthread_setcancelstate(cancel_state, NULL);
}

/* Moves a page of our own there and back. */
static enum sw_adopt_reason probe_page(const struct sw_uffd *uffd)
{
    size_t page = (size_t)getpagesize();
    enum sw_adopt_reason why = SW_ADOPT_FAILED;
    uint64_t *words = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED)
        return why;
    uint64_t va = (uint64_t)(uintptr_t)words;
    words[1] = va;
    struct sw_segment *segment =
        sw_segment_adopt(uffd, va, va + page, PROT_READ | PROT_WRITE, SW_HANDED_OUT_WRITE, &why);
    if (segment) {
        uint64_t seen = 0;
        const off_t place = (off_t)(segment->offset + sizeof(seen));
        bool shared = pread(segment->fd, &seen, sizeof(seen), place) == sizeof(seen);
        why = shared && seen == va && words[1] == va ? SW_ADOPT_OK : SW_ADOPT_FAILED;
        if (!sw_segment_release(segment, uffd))
            sw_debug("the kernel cannot move shared pages back: they stay shared until unmapped");
    }
    munmap(words, page);
    return why;
}

static enum sw_adopt_reason probe_once(void)
{
    if (!sw_adopt_config()->enabled)
        return SW_ADOPT_DISABLED;
    struct sw_uffd uffd;
    int rc = sw_uffd_open(&uffd);
    if (rc)
        return sw_uffd_reason(rc);
    enum sw_adopt_reason why = probe_page(&uffd);
    sw_uffd_close(&uffd);
    return why;
}

enum sw_adopt_reason sw_adopt_probe(void)
{
    static bool probed; /* both under the move lock */
    static enum sw_adopt_reason result;
    prepare_once();
    int cancel_state = cancel_disable();
    sw_adopt_lock();
    if (!probed)
        result = probe_once();
    probed = true;
    enum sw_adopt_reason reason = result;
    sw_adopt_unlock();
    pthread_setcancelstate(cancel_state, NULL);
    return reason;
}

const char *sw_adopt_reason_str(enum sw_adopt_reason reason)
{
    switch (reason) {
    case SW_ADOPT_OK:
        return "adopted";
    case SW_ADOPT_DISABLED:
        return "switched off by SIDEWIRE_ADOPT=never";
    case SW_ADOPT_NO_UFFD:
        return "userfaultfd is refused, or cannot write-protect";
    case SW_ADOPT_NO_MEMFD:
        return "memfd_create is refused and there is no other shared memory file";
    case SW_ADOPT_PARTIAL_PAGE:
        return "part of a page at the edge";
    case SW_ADOPT_PINNED:
        return "memory may be pinned by an io_uring, VFIO, KVM, GPU or RDMA descriptor";
    case SW_ADOPT_TOO_LARGE:
        return "over a limit (SIDEWIRE_ADOPT_MAX, number of segments, extents or files)";
    case SW_ADOPT_KIND:
        return "not memory of a kind that can be shared (stack, private file mapping, device)";
    case SW_ADOPT_FAILED:
        return "a system call failed; everything was put back";
    }
    return "unknown";
}
