/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The disk below a backend. Once it has failed a write that was to be flushed, what hosts wrote may
 * be lost: each later flush fails, of all hosts and threads, until the backend is opened again. In
 * a group of targets that holds for the next owner, too, until an operator says otherwise.
 */
#ifndef SW_MOVERS_NVME_DISK_H
#define SW_MOVERS_NVME_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/target/backend/backend.h"

struct nvt_disk;

/* `serves_cache`: hosts are served what the system's cache has. Returns 0 or a negative errno. */
int nvt_disk_open(int fd, bool serves_cache, struct nvt_disk **out);
void nvt_disk_close(struct nvt_disk *disk);
/* Names the namespace that has it, for what is said of it. */
void nvt_disk_name(struct nvt_disk *disk, const char *nqn, uint32_t nsid);
/* A flush (or a write that had to be durable) is over, with what the system said: 0 or more, or a
 * negative errno. Returns its NVMe status. */
uint16_t nvt_disk_end_flush(struct nvt_disk *disk, enum nvt_io_kind kind, int result);
/* What is known of it elsewhere: an errno that another target has met, which fails flushes from now
 * on; 0: it was looked at and counts as sound, and what it has failed before is forgotten. `disk`
 * may be NULL. */
void nvt_disk_hear(struct nvt_disk *disk, int error);
/* The first error, an errno; 0: none. */
int nvt_disk_error(const struct nvt_disk *disk);

#endif
