/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/capture/capture.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "snapshot/capture/faults.h"
#include "snapshot/capture/inside.h"

static bool has_fit_options(const struct snap_capture_options *options)
{
    const uint32_t unit = options->unit_bytes;
    return unit >= SNAP_UNIT_BYTES_MIN && unit <= SNAP_UNIT_BYTES_MAX && (unit & (unit - 1)) == 0 &&
           options->helpers >= 1 && options->helpers <= SNAP_HELPERS_MAX;
}

static void open_lock(struct snap_capture *capture)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&capture->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&capture->work, NULL);
    pthread_cond_init(&capture->progress, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static int open_parts(struct snap_capture *capture)
{
    const struct snap_capture_options *options = &capture->options;
    const uint32_t scratch = options->copier ? options->helpers + 1 : 0;
    if (!mover_fork_guard_open(&capture->guard))
        return -errno;
    capture->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (capture->event_fd < 0)
        return -errno;
    const int code =
        snap_ring_open(&capture->ring, options->ring_bytes, options->unit_bytes, scratch);
    if (code)
        return code;
    for (uint32_t i = 0; i < scratch; i++) {
        uint8_t *room = snap_ring_slot(&capture->ring, capture->ring.slots_count + i);
        if (i < options->helpers)
            capture->helpers[i].worker.scratch = room;
        else
            capture->caller.scratch = room;
    }
    return snap_helpers_start(capture);
}

int snap_capture_open(const struct snap_capture_options *options, struct snap_capture **capture)
{
    if (!has_fit_options(options))
        return -EINVAL;
    struct snap_capture *new = calloc(1, sizeof(*new));
    if (!new)
        return -ENOMEM;
    new->options = *options;
    new->event_fd = -1;
    new->pages = SNAP_PAGES_NONE;
    new->caller_processor = -1;
    new->reading = (struct snap_reading){.ops = snap_blocks_best(), .copier = options->copier};
    new->reading.ops->make_key(&new->reading.key, options->seed);
    open_lock(new);
    snap_faults_open();
    const int code = open_parts(new);
    if (code)
        snap_capture_close(new);
    else
        *capture = new;
    return code;
}

void snap_capture_close(struct snap_capture *capture)
{
    /* A child has no helpers, and one of the parent's may have held the lock. */
    const bool is_forked = mover_is_forked(&capture->guard);
    if (!is_forked) {
        snap_capture_abort(capture);
        snap_helpers_stop(capture);
        snap_faults_close();
        pthread_cond_destroy(&capture->progress);
        pthread_cond_destroy(&capture->work);
        pthread_mutex_destroy(&capture->lock);
    }
    snap_pages_close(&capture->pages);
    snap_state_free(capture);
    snap_ring_close(&capture->ring, is_forked);
    if (capture->event_fd >= 0)
        close(capture->event_fd);
    mover_fork_guard_close(&capture->guard);
    free(capture);
}

void *snap_capture_ring(const struct snap_capture *capture, size_t *bytes)
{
    *bytes = capture->ring.bytes;
    return capture->ring.base;
}

/* Jobs of a capture that has ended may still read. False: one is under way. */
static bool wait_for_readers(struct snap_capture *capture)
{
    if (capture->info.outcome == SNAP_CAPTURE_UNDER_WAY)
        return false;
    while (capture->busy > 0)
        pthread_cond_wait(&capture->progress, &capture->lock);
    return true;
}

int snap_capture_describe(struct snap_capture *capture, const struct snap_capture_range *ranges,
                          uint32_t ranges_count, uint32_t *bad)
{
    int code = -EBUSY;
    if (mover_is_forked(&capture->guard))
        return -ECHILD;
    pthread_mutex_lock(&capture->lock);
    if (wait_for_readers(capture)) {
        snap_ring_drop_queue(&capture->ring); /* units of another state */
        snap_state_free(capture);
        code = snap_state_make(capture, ranges, ranges_count, bad);
    }
    pthread_mutex_unlock(&capture->lock);
    return code;
}

static int test_parts(const struct snap_capture *capture, uint32_t *bad)
{
    for (uint32_t i = 0; i < capture->parts_count; i++) {
        const struct snap_part *part = &capture->parts[i];
        if (part->units_count && !capture->units[part->first_unit].is_remote &&
            !snap_is_mapped(part->data, part->bytes)) {
            *bad = i;
            return -EFAULT;
        }
    }
    return 0;
}

int snap_capture_begin(struct snap_capture *capture, uint32_t *bad)
{
    int code = -EBUSY;
    if (mover_is_forked(&capture->guard))
        return -ECHILD;
    pthread_mutex_lock(&capture->lock);
    if (capture->info.outcome != SNAP_CAPTURE_UNDER_WAY) {
        snap_ring_drop_queue(&capture->ring);
        code = test_parts(capture, bad);
        capture->caller_processor = sched_getcpu();
        if (code == 0)
            snap_phase_begin(capture);
    }
    pthread_mutex_unlock(&capture->lock);
    return code;
}

/* ---- the thread of I/O ---- */

bool snap_capture_take(struct snap_capture *capture, struct snap_captured *captured)
{
    eventfd_t count;
    if (mover_is_forked(&capture->guard))
        return false;
    pthread_mutex_lock(&capture->lock);
    const uint32_t number = snap_ring_take(&capture->ring);
    if (number != SNAP_NO_SLOT) {
        const struct snap_slot *slot = &capture->ring.slots[number];
        *captured = (struct snap_captured){.unit = slot->unit,
                                           .slot = number,
                                           .bytes = slot->bytes,
                                           .data = snap_ring_slot(&capture->ring, number),
                                           .sums = snap_ring_sums(&capture->ring, number),
                                           .is_again = slot->is_again};
    } else /* under the lock: what comes into the queue later is told again */
        (void)eventfd_read(capture->event_fd, &count);
    pthread_mutex_unlock(&capture->lock);
    return number != SNAP_NO_SLOT;
}

void snap_capture_release(struct snap_capture *capture, uint32_t slot)
{
    if (mover_is_forked(&capture->guard))
        return;
    pthread_mutex_lock(&capture->lock);
    assert(slot < capture->ring.slots_count && capture->ring.slots[slot].state == SNAP_SLOT_TAKEN);
    snap_ring_put(&capture->ring, slot);
    pthread_cond_signal(&capture->work);
    pthread_cond_broadcast(&capture->progress);
    pthread_mutex_unlock(&capture->lock);
}

void snap_capture_abort(struct snap_capture *capture)
{
    if (mover_is_forked(&capture->guard))
        return;
    pthread_mutex_lock(&capture->lock);
    snap_phase_give_up(capture, SNAP_CAPTURE_ABORTED);
    pthread_mutex_unlock(&capture->lock);
}

int snap_capture_fd(const struct snap_capture *capture)
{
    return capture->event_fd;
}

void snap_capture_info_of(struct snap_capture *capture, struct snap_capture_info *info)
{
    *info = (struct snap_capture_info){0};
    if (mover_is_forked(&capture->guard))
        return;
    pthread_mutex_lock(&capture->lock);
    *info = capture->info;
    info->units = capture->units_count;
    info->by_pages = capture->is_by_pages;
    info->slots = capture->ring.slots_count;
    info->slots_free = capture->ring.free_count;
    for (uint32_t i = 0; i < capture->parts_count; i++)
        info->torn += capture->parts[i].is_torn;
    pthread_mutex_unlock(&capture->lock);
}

uint32_t snap_capture_torn(struct snap_capture *capture, uint32_t *numbers, uint32_t numbers_max)
{
    uint32_t count = 0;
    if (mover_is_forked(&capture->guard))
        return 0;
    pthread_mutex_lock(&capture->lock);
    for (uint32_t i = 0; i < capture->parts_count; i++) {
        if (capture->parts[i].is_torn && count < numbers_max)
            numbers[count] = i;
        count += capture->parts[i].is_torn;
    }
    pthread_mutex_unlock(&capture->lock);
    return count;
}
