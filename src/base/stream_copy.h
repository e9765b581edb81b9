/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies past the caches. An ordinary store reads its line from memory first, so a copy that is
 * larger than the caches moves three bytes for each that it copies; this one moves two. It is
 * slower where the destination is in the caches, or is read from there soon.
 */
#ifndef SW_BASE_STREAM_COPY_H
#define SW_BASE_STREAM_COPY_H

#include <stdbool.h>
#include <stdint.h>

/* Shorter copies gain nothing. */
#define SW_STREAM_MIN_BYTES (16u << 10)

/* Returns when all is seen by other processors, before whatever is stored next. The two may
 * overlap. On processors other than x86-64 an ordinary copy. */
void sw_stream_copy(void *to, const void *from, uint64_t len_bytes);

#define SW_STREAM_PLACES 128

/*
 * Whether a stream of long copies comes back to the memory that it wrote 32 to 64 MiB ago. If it
 * does, that memory may be in a cache still. One page in 64 is looked at, always the same ones: a
 * table has those that were written last. All zero is a new watch.
 */
struct sw_stream_watch {
    uint32_t pages[SW_STREAM_PLACES]; /* written last, by hash */
    uint32_t looked, fresh;           /* pages of this window; those that the table did not have */
    bool was_fresh;                   /* the window before: most of its pages were fresh */
    bool passes_caches;               /* the last two windows were: copy past the caches */
};

/* A copy of at least SW_STREAM_MIN_BYTES goes to `to`; whether sw_stream_copy() is for it. */
bool sw_stream_watch_note(struct sw_stream_watch *watch, const void *to, uint64_t len_bytes);

#endif
