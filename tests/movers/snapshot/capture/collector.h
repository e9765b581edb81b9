/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a session does with a capture, in tests: a thread takes units as they come, compares their
 * sums, keeps the image, and gives the slots back.
 */
#ifndef SW_TESTS_SNAPSHOT_COLLECTOR_H
#define SW_TESTS_SNAPSHOT_COLLECTOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "snapshot/capture/capture.h"

enum { COLLECTOR_UNIT = 1 << 20, COLLECTOR_SEED = 77 };

struct collector {
    struct snap_capture *capture;
    pthread_t thread;
    _Atomic bool is_closing;
    _Atomic bool is_lazy;  /* takes nothing, as sinks that stand still, */
    _Atomic int allowance; /* but for so many units */
    uint8_t *image;        /* unit after unit */
    uint32_t units_max;
    _Atomic uint32_t taken, taken_again, other_sums;
};

/* Opens a capture with these options, and the thread. */
void collector_open(struct collector *c, const struct snap_capture_options *options,
                    uint32_t units_max);
void collector_close(struct collector *c);
/* 1 MiB units, 1 helper, sums, 2 looks, room for all. */
struct snap_capture_options collector_options(uint32_t ring_units);
/* Until the capture has ended, and all of its units are in the image. */
enum snap_capture_outcome collector_wait(struct collector *c);

#endif
