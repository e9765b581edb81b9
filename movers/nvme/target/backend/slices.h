/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations that take long, a slice at a time, so that no command keeps others waiting. A backend
 * adds such an operation instead of serving it at once. The loop of the thread runs slices between
 * its other work: addresses take turns, so do the hosts at each, and so do the operations of each
 * host. One that nobody wants any more ends at its next turn.
 */
#ifndef SW_MOVERS_NVME_SLICES_H
#define SW_MOVERS_NVME_SLICES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

struct nvt_io;

/* What a loop spends on slices before it looks for other work again. */
#define NVT_SLICES_NS 200000ull

struct nvt_slices {
    struct list waiting; /* an operation of each address, in the order of turns */
};

void nvt_slices_init(struct nvt_slices *slices);
bool nvt_slices_any(const struct nvt_slices *slices);
/*
 * From now on step() is called until it returns true: then the operation is over, or others go on
 * with it. One call takes at most a tenth of a millisecond or so.
 */
void nvt_slices_add(struct nvt_slices *slices, struct nvt_io *io, bool (*step)(struct nvt_io *io));
/* Runs steps for so long, but one at least. False: there was none. */
bool nvt_slices_run(struct nvt_slices *slices, uint64_t budget_ns);
/* Operations that nobody wants any more end now, instead of at their turn. */
void nvt_slices_end_unwanted(struct nvt_slices *slices);
/* One that waits, and that nobody wants any more, ends now. The others are not looked at. */
void nvt_slices_end_io(struct nvt_io *io);

#endif
