/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the fuzz targets of the direct link share: a NIC without its engine thread, so that an input
 * is all that happens; registered memory between memory that nobody may touch; and the reading of
 * an input as a list of things to do.
 */
#ifndef SW_TESTS_FUZZ_LINK_HARNESS_H
#define SW_TESTS_FUZZ_LINK_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/memory/mr_impl.h"
#include "device/nic/context_impl.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/block.h"

/* Bytes of an input, in order; zeros when there are no more. */
struct feed {
    const uint8_t *at;
    size_t left;
};
uint8_t feed_u8(struct feed *feed);
uint32_t feed_u16(struct feed *feed);
uint32_t feed_u32(struct feed *feed);
uint64_t feed_u64(struct feed *feed);
void feed_bytes(struct feed *feed, void *out, size_t len);
/* One of the values that make sense, or one near it, or anything. */
uint64_t feed_value(struct feed *feed, const uint64_t *values, unsigned int count);

/* A condition that must hold whatever the peer does. */
#define harness_needs(condition) \
    do {                         \
        if (!(condition))        \
            __builtin_trap();    \
    } while (0)

/* Registered memory, and beside it memory that is not (and must stay as it is). */
#define HARNESS_OPEN_BYTES 40960u
#define HARNESS_LOCAL_BYTES 8192u
struct harness {
    struct sw_context *ctx;
    struct sw_pd *pd;
    struct sw_cq *cq;
    struct sw_srq *srq;
    uint8_t *open;  /* all rights */
    uint8_t *local; /* registered without remote rights */
    struct sw_mr *open_mr, *local_mr;
    struct sw_qp *qp; /* in RTS, not locked: there is nobody else */
    struct sw_direct_qp *d;
    struct sw_block *block; /* what the peer writes to us */
};
extern struct harness harness;

/* Once. */
void harness_start(void);
/* A QP towards `dest_qpn` (0: itself), with or without a shared receive queue. */
void harness_connect(uint32_t dest_qpn, bool shared);
void harness_post_recv(uint32_t offset, uint32_t len_bytes);
/* Polls everything and checks what the program is told. */
void harness_poll(void);
/* Runs a machine of the QP, which is locked meanwhile. */
#define harness_run(machine)                \
    do {                                    \
        sw_lock_acquire(&harness.qp->lock); \
        machine(harness.qp, harness.d);     \
        sw_lock_release(&harness.qp->lock); \
    } while (0)
/* Whether the QP is still the one the input began with. */
bool harness_alive(void);
/* Ends the QP; checks that nothing was touched that may not be. */
void harness_finish(void);

#endif
