/* SPDX-License-Identifier: BSD-2-Clause */
/* What ranks contribute and what has to come out. All of it follows from a seed, so each rank knows
 * what all others have, and asks no MPI. */
#ifndef TESTS_MPI_DRAWS_H
#define TESTS_MPI_DRAWS_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct draw_type {
    const char *name;
    MPI_Datatype handle;
    size_t bytes;
    enum { DRAW_SIGNED, DRAW_UNSIGNED, DRAW_FLOAT } kind;
};

enum draw_op { DRAW_SUM, DRAW_PROD, DRAW_MIN, DRAW_MAX, DRAW_OPS };

extern const struct draw_type draw_types[];
extern const int draw_type_count;
MPI_Op draw_op_handle(enum draw_op op);

/* The next number of the program, below `below`; the same on all ranks. */
void draw_begin(uint64_t seed);
uint32_t draw_next(uint32_t below);

/* Element `index` of what rank `rank` gives in call `call`. */
void draw_element(const struct draw_type *type, uint64_t call, int rank, size_t index, void *to);
/* `count` of them, from `first` on. */
void draw_fill(const struct draw_type *type, uint64_t call, int rank, size_t first, size_t count,
               void *to);
/* The sum over `ranks` ranks, by the tree of docs/collectives.md. */
void draw_sum(const struct draw_type *type, enum draw_op op, uint64_t call, int ranks, size_t first,
              size_t count, void *to);

#endif
