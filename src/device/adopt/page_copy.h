/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies pages between memory and a segment's file: only those that exist, in long runs, in large
 * pages where the source is populated without gaps. All copying is done by system calls, which fail
 * where a load would crash or wait (vanished, poisoned or guard pages).
 */
#ifndef SW_DEVICE_ADOPT_PAGE_COPY_H
#define SW_DEVICE_ADOPT_PAGE_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "device/adopt/pagemap.h"
#include "device/adopt/segment.h"

/* Ranges are moved in pieces of this size, each waited for on its own: a bound for how long a
 * thread of the program is held up, and for the memory that exists twice. A multiple of the large
 * page. */
#define SW_MOVE_CHUNK_BYTES (UINT64_C(8) << 20)

/* Large pages are made ahead for so much at a time: each time the kernel waits for all CPUs once.
 */
#define SW_MOVE_WINDOW_BYTES (UINT64_C(64) << 20)

/* What goes with copying one segment to its file. */
struct sw_copy {
    const struct sw_segment *segment;
    int pagemap;      /* device/adopt/pagemap.h */
    uint8_t *scratch; /* a mapping of the segment's part of the file, to make large pages in; or
                         NULL */
    uint64_t scratch_from; /* of the file, at a large page's boundary */
    uint64_t scratch_bytes;
    uint64_t window; /* [window, prepared) of the file is the window that was looked at */
    uint64_t prepared;
    /* For each large page of the present window: all its pages that belong to the segment exist. */
    bool dense[SW_MOVE_WINDOW_BYTES / SW_LARGE_PAGE_BYTES];
};

/* 0 or a negative errno. */
int sw_copy_open(struct sw_copy *copy, const struct sw_segment *segment);
void sw_copy_close(struct sw_copy *copy);

/* Before a chunk is stopped: looks where it, and its window with it, is dense, and makes large
 * pages in the file there. */
void sw_copy_prepare(struct sw_copy *copy, uint64_t va);
/* Copies the pages that exist at `src` to `offset` of the file. 0 or a negative errno. */
int sw_copy_to_file(const struct sw_copy *copy, uint64_t offset, uint64_t src, uint64_t len_bytes);
/* After the chunk was mapped: fills the page table where the chunk was dense. */
void sw_copy_populate(const struct sw_copy *copy, uint64_t va, uint64_t len_bytes);

/* The way back. Makes large pages in empty private memory at `dst` where the file is dense. */
void sw_copy_prepare_private(const struct sw_segment *segment, uint64_t va, uint64_t dst,
                             uint64_t len_bytes);
/* Copies to `dst` what the file holds of [va, va + len), mapped with `prot`. 0 or a negative errno.
 */
int sw_copy_from_file(const struct sw_segment *segment, uint64_t va, uint64_t dst,
                      uint64_t len_bytes, int prot);

#endif
