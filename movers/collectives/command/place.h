/* SPDX-License-Identifier: BSD-2-Clause */
/* Which rank this process is, and of how many: as its options say, or its launcher. */
#ifndef SW_COLLECTIVES_PLACE_H
#define SW_COLLECTIVES_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_place {
    uint32_t rank, size;
    const char *meet;     /* "HOST:PORT" of rank 0; NULL: nobody has said it */
    const char *launcher; /* whose variables say so; NULL: none */
};

/* What SIDEWIRE_COLL_RANK and SIDEWIRE_COLL_SIZE say, or those of Open MPI, of PMI (MPICH and
 * others), of Slurm: the first of them that is there. `size` is 0 where none is. False, with
 * `error`: a value makes no sense. */
bool co_place_of_launcher(struct co_place *place, char *error, size_t error_bytes);

#endif
