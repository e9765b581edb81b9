/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writers of a state, each of a region of its own, by stores, by read(), by io_uring or as a peer
 * by RDMA WRITE; and what an image of their regions says about the instant it shows.
 *
 * The n-th write of a writer fills one slot of its region with the number n, slot after slot in an
 * order that jumps from unit to unit. So what a region was after n writes is known, and an image of
 * it tells n, or that it is of no instant. Before and after each write a clock counts up that all
 * writers share: an image of several regions is of an instant if their spans have one in common.
 */
#ifndef SW_TESTS_SNAPSHOT_WRITERS_H
#define SW_TESTS_SNAPSHOT_WRITERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    WRITERS_MAX = 5,
    WRITER_REGION = 2 << 20,
    WRITER_LOG = 1 << 16, /* so many writes back are known */
    WRITER_BURST = 32,
};

enum writer_kind { WRITER_STORES, WRITER_READ, WRITER_URING, WRITER_PEER };

/* In memory that a peer shares. */
struct writer {
    enum writer_kind kind;
    uint32_t slots, slot_bytes, stride;
    uint8_t *region;           /* of the process that takes the snapshot */
    _Atomic uint32_t pause_us; /* between two bursts, at most */
    _Atomic uint64_t count;
    _Atomic bool is_paused, has_started;
    uint64_t before[WRITER_LOG], after[WRITER_LOG];
    /* Its own. */
    uint64_t seed;
    int pipe[2];
};

struct writers {
    _Atomic uint64_t clock;
    _Atomic bool should_pause, should_end;
    uint32_t count;
    struct writer writers[WRITERS_MAX];
};

/* In memory that is shared with children. */
struct writers *writers_make(void);
/* Its region, filled as after the first `slots` writes. */
struct writer *writers_add(struct writers *all, enum writer_kind kind, uint8_t *region);
/* Writes until the end. `write_slot` puts slot_bytes of the number n at an offset of the region. */
void writer_run(struct writers *all, struct writer *writer,
                void (*write_slot)(void *context, uint32_t offset, uint64_t number), void *context);
/* The thread of one that writes by stores, read() or io_uring. */
struct writer_thread {
    struct writers *all;
    struct writer *writer;
};
void *writer_thread(void *arg);
/* Returns once no writer writes; and lets them go on. */
void writers_pause(struct writers *all);
void writers_resume(struct writers *all);

/* When an image of a region was right: its clock lies in [first, last]. */
struct image_span {
    bool is_instant;
    bool is_partial; /* amid a write */
    uint64_t number, first, last;
};
struct image_span writer_span(const struct writer *writer, const uint8_t *image);

#endif
