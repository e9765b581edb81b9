/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the middle asks of an MPI library. The middle has no types of any MPI, whose handles differ:
 * it decides which calls are ours, and carries them out.
 */
#ifndef SW_BINDINGS_MPI_BINDING_H
#define SW_BINDINGS_MPI_BINDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/coll.h"

struct mpm_description {
    size_t element_bytes;
    ptrdiff_t extent_bytes; /* from one element to the next */
    bool is_plain;          /* the bytes of an element lie in order, and there are no gaps */
};

/* Types and operators are pointers to handles here. */
struct mpm_binding {
    const void *in_place; /* MPI_IN_PLACE */
    /* False: the library has none like it. */
    bool (*find_type)(const void *type, enum sw_coll_type *found);
    bool (*find_op)(const void *op, enum sw_coll_op *found);
    /* Any type. False: it is none. */
    bool (*describe)(const void *type, struct mpm_description *description);
    /* Gives each rank of the communicator the cards of all, by the MPI's own collective. */
    bool (*exchange)(void *communicator, const void *card, size_t bytes, void *cards);
    /* Copies `count` elements into `bytes` that lie one behind the other, and back. Both stay below
     * 2 GiB. */
    bool (*pack)(const void *from, int count, const void *type, void *to, int bytes);
    bool (*unpack)(const void *from, int bytes, void *to, int count, const void *type);
    /* A handle of the same type that stays when the program frees its own; NULL: no memory. */
    const void *(*keep_type)(const void *type);
    void (*drop_type)(const void *kept);
    /* Lets the MPI go on with what it has under way: a message that a rank has begun to send before
     * its collective call must arrive, though it waits in ours. */
    void (*progress)(void);
};

#endif
