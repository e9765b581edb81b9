/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/slices.h"

#include "common/clock.h"
#include "nvme/target/backend.h"

void nvt_slices_init(struct nvt_slices *slices)
{
    list_init(&slices->waiting);
}

bool nvt_slices_any(const struct nvt_slices *slices)
{
    return !list_is_empty(&slices->waiting);
}

void nvt_slices_add(struct nvt_slices *slices, struct nvt_io *io, bool (*step)(struct nvt_io *io))
{
    io->slice.step = step;
    list_append(&slices->waiting, &io->slice.node);
}

static void run_slice(struct nvt_slices *slices)
{
    struct nvt_io *io = LIST_MEMBER(list_first(&slices->waiting), struct nvt_io, slice.node);
    list_remove(&io->slice.node);
    const uint16_t status = io->given_up ? io->given_up(io) : 0;
    if (status)
        io->done(io, status);
    else if (!io->slice.step(io)) /* else it may be gone */
        list_append(&slices->waiting, &io->slice.node);
}

bool nvt_slices_run(struct nvt_slices *slices, uint64_t budget_ns)
{
    if (!nvt_slices_any(slices))
        return false;
    const uint64_t end_ns = mover_now_ns() + budget_ns;
    do {
        run_slice(slices);
    } while (nvt_slices_any(slices) && mover_now_ns() < end_ns);
    return true;
}
