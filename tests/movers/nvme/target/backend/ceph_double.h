/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A double of librados and librbd: one image in memory, and no cluster. A test tells it by this
 * what goes wrong. It is a library of its own, which is loaded in place of Debian's.
 */
#ifndef TESTS_CEPH_DOUBLE_H
#define TESTS_CEPH_DOUBLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { DOUBLE_BYTES = 1 << 20 };

struct ceph_double {
    uint8_t bytes[DOUBLE_BYTES];
    uint64_t features;
    const char *cache;           /* the image's own setting of rbd_cache */
    int pools[2];                /* threads of librados, of its messenger: what is set */
    _Atomic int connect, result; /* errors of rados_connect() and of I/O, negative */
    _Atomic bool is_stuck;       /* connecting does not return */
    _Atomic bool holds;          /* I/O does not end */
    _Atomic uint64_t size;
    _Atomic int open, calls, broken; /* images that are open; I/O so far; locks that were broken */
    char command[256];               /* to the monitor, the last one */
    char owner[64];                  /* who has the lock: an address; "": nobody */
    _Atomic int ending;              /* threads that end I/O */
    void (*_Atomic changed)(void *arg); /* tells whoever watches the image */
    void *changed_arg;
};

#endif
