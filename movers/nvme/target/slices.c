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

static struct nvt_io *slices_io_of(struct list_node *node)
{
    return LIST_MEMBER(node, struct nvt_io, slice.node);
}

/* Behind those of its host, or as its first. */
static void enqueue_io(struct nvt_slices *slices, struct nvt_io *io)
{
    for (struct list_node *node = list_first(&slices->waiting); node;
         node = list_after(&slices->waiting, node))
        if (slices_io_of(node)->host == io->host) {
            list_append(&slices_io_of(node)->slice.behind, &io->slice.node);
            return;
        }
    list_init(&io->slice.behind);
    list_append(&slices->waiting, &io->slice.node);
}

void nvt_slices_add(struct nvt_slices *slices, struct nvt_io *io, bool (*step)(struct nvt_io *io))
{
    io->slice.step = step;
    enqueue_io(slices, io);
}

/* The host's next one comes when all other hosts have had their turn. */
static struct nvt_io *dequeue_io(struct nvt_slices *slices)
{
    struct nvt_io *io = slices_io_of(list_first(&slices->waiting));
    struct list_node *node = list_first(&io->slice.behind);
    list_remove(&io->slice.node);
    if (node) {
        struct list *behind = &slices_io_of(node)->slice.behind;
        list_remove(node);
        list_init(behind);
        list_take_all(behind, &io->slice.behind);
        list_append(&slices->waiting, node);
    }
    return io;
}

static void run_slice(struct nvt_slices *slices)
{
    struct nvt_io *io = dequeue_io(slices);
    const uint16_t status = io->given_up ? io->given_up(io) : 0;
    if (status)
        io->done(io, status);
    else if (!io->slice.step(io)) /* else it may be gone */
        enqueue_io(slices, io);
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
