/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/length.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/uring.h"

struct nvt_length {
    struct mover_ring_op op; /* must be first */
    struct nvt_length *next; /* of those that are closed and wait for their answer */
    struct nvt_uring *uring;
    int fd;
    dev_t disk;
    uint64_t bytes;
    struct nvt_io turn; /* of the question */
    struct nvt_line *line;
    bool is_asked, is_closed;
    struct statx found; /* the kernel's while it is asked */
};

/* The kernel may still write to them. Where no answer comes, they stay. */
static struct nvt_length *unanswered;

static void length_forget(struct nvt_length *length)
{
    struct nvt_length **at = &unanswered;
    while (*at != length)
        at = &(*at)->next;
    *at = length->next;
    free(length);
}

static void length_take_answer(struct mover_ring_op *op, int result)
{
    struct nvt_length *length = (struct nvt_length *)op;
    nvt_lines_give(&length->uring->chores, length->line);
    if (length->is_closed)
        return length_forget(length);
    length->is_asked = false;
    if (!result)
        length->bytes = length->found.stx_size;
}

struct nvt_length *nvt_length_open(struct nvt_uring *uring, int fd, dev_t disk, uint64_t bytes)
{
    struct nvt_length *length = malloc(sizeof(*length));
    if (length)
        *length = (struct nvt_length){.op.complete = length_take_answer,
                                      .uring = uring,
                                      .fd = fd,
                                      .disk = disk,
                                      .bytes = bytes,
                                      .turn = {.address = length, .host = length}};
    return length;
}

void nvt_length_close(struct nvt_length *length)
{
    if (!length)
        return;
    if (!length->is_asked) {
        free(length);
        return;
    }
    length->is_closed = true;
    length->next = unanswered;
    unanswered = length;
}

static bool length_ask(struct nvt_io *turn)
{
    struct nvt_length *length = LIST_MEMBER(turn, struct nvt_length, turn);
    if (length->is_closed) {
        length_forget(length);
        return true;
    }
    length->line = nvt_lines_take(&length->uring->chores);
    io_uring_prep_statx(nvt_uring_entry(length->uring, &length->op), length->fd, "", AT_EMPTY_PATH,
                        STATX_SIZE, &length->found);
    return true;
}

uint64_t nvt_length_bytes(struct nvt_length *length)
{
    if (length->is_asked)
        return length->bytes;
    length->is_asked = true;
    if (!nvt_lines_add(&length->uring->chores, length->disk, &length->turn, length_ask, true))
        length->is_asked = false;
    return length->bytes;
}
