/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machine does with memory. */
#ifndef SW_COLLECTIVES_MOVES_H
#define SW_COLLECTIVES_MOVES_H

#include "collectives/core/machine.h"

/* The index-th rank from `first` on, a rank or a place. */
static inline uint32_t coll_peer_of(const struct coll_machine *machine, uint32_t first,
                                    uint32_t index)
{
    const uint32_t peer = first + index;
    const uint32_t wrapped = peer < machine->site.size ? peer : peer - machine->site.size;
    return machine->table.has_places ? coll_rank_at(&machine->site, wrapped) : wrapped;
}

/* Where that is in memory of this rank. */
uint8_t *coll_local_at(const struct coll_machine *machine, const struct coll_span *span,
                       uint32_t rank, uint32_t leaf, uint64_t chunk);
uint64_t coll_offset_in(const struct coll_span *span, uint32_t rank, uint32_t leaf, uint64_t chunk);
/* PULL and PUSH. False: it waits, or has failed. */
bool coll_post_step(struct coll_machine *machine, const struct coll_step *step);
bool coll_has_settled(struct coll_machine *machine, uint64_t number);
void coll_fold_step(struct coll_machine *machine, const struct coll_step *step);
void coll_copy_step(struct coll_machine *machine, const struct coll_step *step);
/* FOLD_LEAVES and FOLD_PARTIALS. */
void coll_fold_pair_step(struct coll_machine *machine, const struct coll_step *step);
void coll_finish_step(struct coll_machine *machine, const struct coll_step *step);
/* False: it waits, or has failed. */
bool coll_deliver_step(struct coll_machine *machine, const struct coll_step *step);

#endif
