/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * "Copy this into the ring, and tell when": memory that processors do not read themselves, that of
 * a GPU. A copier is a stream of a device; tests have one that delays and mixes up its copies.
 */
#ifndef SW_SNAPSHOT_COPIER_H
#define SW_SNAPSHOT_COPIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { SNAP_COPY_UNDER_WAY = 1 };

struct snap_copy {
    void *into; /* in the ring */
    const void *from;
    uint32_t bytes;
    /* Tells when: SNAP_COPY_UNDER_WAY from start on, then 0 or a negative errno. */
    _Atomic int state;
    void *stream; /* the copier's */
};

struct snap_copier;

struct snap_copier_ops {
    /* Whether this memory is of its kind. */
    bool (*has)(struct snap_copier *copier, const void *data, uint64_t bytes);
    /* Begins a copy; never sleeps. 0, or a negative errno: then the copy has no part in it. Several
     * threads call at a time. */
    int (*start)(struct snap_copier *copier, struct snap_copy *copy);
    /* Looks which have ended, of any thread; in any order. Never sleeps. */
    void (*poll)(struct snap_copier *copier);
};

struct snap_copier {
    const struct snap_copier_ops *ops;
};

#endif
