/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Folds contributions (leaves) element by element, in the one order that docs/collectives.md
 * defines: a binary tree over the leaves, neighbours first, split at the largest power of two below
 * their number. The bits of a result depend on nothing else: not on the processor, the length, the
 * alignment, or the caller's rounding mode and flush-to-zero. Buffers may lie at any address.
 *
 * Results that are NaN are the type's positive quiet NaN without a payload.
 *
 * Algorithms of several steps send partials: folds of a part of the leaves. Those of 16-bit floats
 * are f32, so that a result is rounded once; all others have the type of the leaves. A tree over
 * partials gives the same bits where each partial is a subtree of the whole.
 */
#ifndef SW_COLLECTIVES_FOLD_H
#define SW_COLLECTIVES_FOLD_H

#include <stddef.h>

#include "sidewire/coll.h"

size_t coll_type_bytes(enum sw_coll_type type);
size_t coll_partial_bytes(enum sw_coll_type type);

/* `leaves` is at least 1. `result` may be one of the sources, and may not overlap them in another
 * way. */
void coll_fold(enum sw_coll_type type, enum sw_coll_op op, void *result, const void *const *sources,
               unsigned leaves, size_t count);

/* The same, but gives a partial: not divided, not rounded. It may be one of the sources where
 * leaves are as long as partials. */
void coll_fold_leaves(enum sw_coll_type type, enum sw_coll_op op, void *partial,
                      const void *const *sources, unsigned leaves, size_t count);
/* A tree over partials. `partial` may be one of them. */
void coll_fold_partials(enum sw_coll_type type, enum sw_coll_op op, void *partial,
                        const void *const *partials, unsigned partials_count, size_t count);
/* Divides by `leaves`, those of all ranks, for AVG, and rounds. `result` may be `partial` where
 * leaves are as long. */
void coll_fold_finish(enum sw_coll_type type, enum sw_coll_op op, unsigned leaves, void *result,
                      const void *partial, size_t count);

/* "generic", "avx2" or "avx512": the instructions that this process folds by. */
const char *coll_fold_instructions(void);
/* What SIDEWIRE_COLL_FOLD asks for, if it is none of these. NULL: all is well. */
const char *coll_fold_unknown(void);

#endif
