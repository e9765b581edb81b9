/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a file is by now, without waiting for its file system: that of a network or of a program
 * (NFS, FUSE) may hang, and a thread that asks would stand still with it. So the question goes to
 * io_uring, and until the answer comes the length is what it was.
 */
#ifndef SW_MOVERS_NVME_LENGTH_H
#define SW_MOVERS_NVME_LENGTH_H

#include <stdint.h>
#include <sys/types.h>

struct nvt_length;
struct nvt_uring;

/* The length of a file on `disk` that has `bytes` now; the thread of `uring` asks for it. NULL: no
 * memory. */
struct nvt_length *nvt_length_open(struct nvt_uring *uring, int fd, dev_t disk, uint64_t bytes);
/* May be called while a question has no answer yet. */
void nvt_length_close(struct nvt_length *length);
/* As the last answer says. Asks once more, unless that question is under way. */
uint64_t nvt_length_bytes(struct nvt_length *length);

#endif
