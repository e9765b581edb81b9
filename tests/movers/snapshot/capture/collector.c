/* SPDX-License-Identifier: BSD-2-Clause */
#include "collector.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "snapshot/core/medium.h"
#include "snapshot/core/sum.h"

static void keep_unit(struct collector *c, const struct snap_captured *unit)
{
    assert(unit->unit < c->units_max && unit->bytes <= COLLECTOR_UNIT);
    assert(unit->bytes % SNAP_BLOCK_BYTES == 0 && (uintptr_t)unit->data % SNAP_BLOCK_BYTES == 0);
    uint8_t *into = c->image + (size_t)unit->unit * COLLECTOR_UNIT;
    memcpy(into, unit->data, unit->bytes);
    for (uint32_t i = 0; i < unit->bytes / SNAP_BLOCK_BYTES; i++)
        c->other_sums += !snap_sum_equal(
            unit->sums[i], snap_sum_block(into + (size_t)i * SNAP_BLOCK_BYTES, COLLECTOR_SEED));
    c->taken_again += unit->is_again;
    snap_capture_release(c->capture, unit->slot);
    c->taken++;
}

static bool may_take(struct collector *c)
{
    if (!c->is_lazy)
        return true;
    if (c->allowance == 0)
        return false;
    c->allowance--;
    return true;
}

static void *collect_units(void *arg)
{
    struct collector *c = arg;
    while (!c->is_closing) {
        struct pollfd told = {.fd = snap_capture_fd(c->capture), .events = POLLIN};
        struct snap_captured unit;
        if (c->is_lazy)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        else
            poll(&told, 1, 10);
        while (may_take(c) && snap_capture_take(c->capture, &unit))
            keep_unit(c, &unit);
    }
    return NULL;
}

struct snap_capture_options collector_options(uint32_t ring_units)
{
    return (struct snap_capture_options){.ring_bytes = (uint64_t)ring_units * COLLECTOR_UNIT,
                                         .unit_bytes = COLLECTOR_UNIT,
                                         .helpers = 1,
                                         .looks_max = 2,
                                         .look = SW_SNAP_LOOK_SUMS,
                                         .seed = COLLECTOR_SEED};
}

void collector_open(struct collector *c, const struct snap_capture_options *options,
                    uint32_t units_max)
{
    memset(c, 0, sizeof(*c));
    c->units_max = units_max;
    c->image = calloc(units_max, COLLECTOR_UNIT);
    const int opened = snap_capture_open(options, &c->capture);
    const int started = opened ? 0 : pthread_create(&c->thread, NULL, collect_units, c);
    assert(c->image && opened == 0 && started == 0);
}

void collector_close(struct collector *c)
{
    c->is_closing = true;
    pthread_join(c->thread, NULL);
    snap_capture_close(c->capture);
    free(c->image);
}

enum snap_capture_outcome collector_wait(struct collector *c)
{
    struct snap_capture_info info;
    do {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        snap_capture_info_of(c->capture, &info);
    } while (info.outcome == SNAP_CAPTURE_UNDER_WAY ||
             (info.outcome == SNAP_CAPTURE_CLEAN && info.slots_free < info.slots));
    return info.outcome;
}
