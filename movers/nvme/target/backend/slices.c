/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/slices.h"

#include "common/time/clock.h"
#include "nvme/target/backend/backend.h"

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

/* NULL: none of them is of that address, or host. */
static struct nvt_io *find_of_address(const struct list *firsts, const void *address)
{
    for (struct list_node *node = list_first(firsts); node; node = list_after(firsts, node))
        if (slices_io_of(node)->address == address)
            return slices_io_of(node);
    return NULL;
}

static struct nvt_io *find_of_host(const struct list *firsts, const void *host)
{
    for (struct list_node *node = list_first(firsts); node; node = list_after(firsts, node))
        if (slices_io_of(node)->host == host)
            return slices_io_of(node);
    return NULL;
}

/* Behind those of its host, or as its first; that one behind those of the other hosts of its
 * address, or as the address's first. */
static void enqueue_io(struct nvt_slices *slices, struct nvt_io *io)
{
    struct nvt_io *first = find_of_address(&slices->waiting, io->address);
    struct nvt_io *mine = first;
    io->slice.waits_in = slices;
    io->slice.rank = NVT_SLICE_BEHIND;
    if (first && first->host != io->host)
        mine = find_of_host(&first->slice.hosts, io->host);
    if (mine) {
        list_append(&mine->slice.behind, &io->slice.node);
        return;
    }
    io->slice.rank = first ? NVT_SLICE_OF_HOST : NVT_SLICE_OF_ADDRESS;
    list_init(&io->slice.behind);
    list_init(&io->slice.hosts);
    list_append(first ? &first->slice.hosts : &slices->waiting, &io->slice.node);
}

void nvt_slices_add(struct nvt_slices *slices, struct nvt_io *io, bool (*step)(struct nvt_io *io))
{
    io->slice.step = step;
    io->slice.is_held = false;
    io->slice.lines = NULL;
    enqueue_io(slices, io);
}

/* The host's next operation, its first now; NULL: there is none. */
static struct nvt_io *take_next_of_host(struct nvt_io *io)
{
    struct list_node *node = list_first(&io->slice.behind);
    if (!node)
        return NULL;
    struct nvt_io *next = slices_io_of(node);
    list_remove(node);
    list_init(&next->slice.behind);
    list_init(&next->slice.hosts);
    list_take_all(&next->slice.behind, &io->slice.behind);
    next->slice.rank = NVT_SLICE_OF_HOST;
    return next;
}

/* That of the address's next host, its first now; NULL: there is none. */
static struct nvt_io *take_next_of_address(struct nvt_io *io)
{
    struct list_node *node = list_first(&io->slice.hosts);
    if (!node)
        return NULL;
    struct nvt_io *next = slices_io_of(node);
    list_remove(node);
    list_take_all(&next->slice.hosts, &io->slice.hosts);
    next->slice.rank = NVT_SLICE_OF_ADDRESS;
    return next;
}

/* The host's next operation comes when the other hosts of its address have had their turn; the
 * address's next one when all other addresses have had theirs. */
static struct nvt_io *dequeue_io(struct nvt_slices *slices)
{
    struct nvt_io *io = slices_io_of(list_first(&slices->waiting));
    list_remove(&io->slice.node);
    io->slice.waits_in = NULL;
    struct nvt_io *next = take_next_of_host(io);
    if (next)
        list_append(&io->slice.hosts, &next->slice.node);
    next = take_next_of_address(io);
    if (next)
        list_append(&slices->waiting, &next->slice.node);
    return io;
}

/* The next one of its host has its turn, or else that of the next host there. */
static void leave_turns_to_next(struct nvt_io *io)
{
    const enum nvt_slice_rank rank = io->slice.rank;
    struct list_node *before = io->slice.node.previous;
    struct nvt_io *next = rank == NVT_SLICE_BEHIND ? NULL : take_next_of_host(io);
    list_remove(&io->slice.node);
    io->slice.waits_in = NULL;
    if (next && rank == NVT_SLICE_OF_ADDRESS) {
        list_take_all(&next->slice.hosts, &io->slice.hosts);
        next->slice.rank = rank;
    } else if (!next && rank == NVT_SLICE_OF_ADDRESS) {
        next = take_next_of_address(io);
    }
    if (next)
        list_insert_behind(before, &next->slice.node);
}

static void run_slice(struct nvt_slices *slices, struct nvt_io *io)
{
    const bool ends_here = io->given_up && !io->slice.is_held;
    const uint16_t status = ends_here ? io->given_up(io) : 0;
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
        run_slice(slices, dequeue_io(slices));
    } while (nvt_slices_any(slices) && mover_now_ns() < end_ns);
    return true;
}

void nvt_slices_end_unwanted(struct nvt_slices *slices)
{
    struct list all;
    struct list_node *node;
    list_init(&all);
    while (nvt_slices_any(slices))
        list_append(&all, &dequeue_io(slices)->slice.node);
    while ((node = list_first(&all))) {
        struct nvt_io *io = slices_io_of(node);
        list_remove(node);
        if (io->given_up && io->given_up(io))
            run_slice(slices, io);
        else
            enqueue_io(slices, io); /* in the order of turns, which stays so */
    }
}

void nvt_slices_end_io(struct nvt_io *io)
{
    struct nvt_slices *slices = io->slice.waits_in;
    leave_turns_to_next(io);
    run_slice(slices, io);
}
