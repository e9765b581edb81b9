/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loops of folds, over arrays at any address. loops.c is built once for each set of
 * instructions; all give the same bits. They want the default floating-point environment
 * (float_env.h).
 */
#ifndef SW_COLLECTIVES_LOOPS_H
#define SW_COLLECTIVES_LOOPS_H

#include <stddef.h>

#include "sidewire/coll.h"

/* `to` may be one of the others. */
typedef void coll_pair_loop(void *to, const void *left, const void *right, size_t count);
typedef void coll_loop(void *to, const void *from, size_t count, unsigned leaves);

/* AVG has no loop of pairs of its own: it is a SUM, divided at the end. */
enum { COLL_PAIR_OPS = SW_COLL_AVG };

/* 16-bit floats by way of f32. */
struct coll_wide {
    coll_pair_loop *pairs[COLL_PAIR_OPS]; /* two leaves; NULL: widen both, and fold them as f32 */
    coll_loop *widen;                     /* a leaf */
    coll_loop *narrow;                    /* into a result */
    coll_loop *average;                   /* the same, divided by `leaves` */
};

struct coll_loops {
    const char *name;
    /* Into the type of the leaves; 16-bit floats are rounded. */
    coll_pair_loop *pairs[SW_COLL_TYPES][COLL_PAIR_OPS];
    coll_loop *average[SW_COLL_TYPES]; /* divided by `leaves`; not of 16-bit floats */
    /* f32 of 16-bit floats lie in their order, or in blocks in whichever order is the fastest. */
    struct coll_wide in_order[SW_COLL_TYPES], in_blocks[SW_COLL_TYPES];
};

extern const struct coll_loops coll_loops_generic;
#if defined(__x86_64__)
extern const struct coll_loops coll_loops_avx2, coll_loops_avx512;
#endif

#endif
