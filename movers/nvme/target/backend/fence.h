/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Before a target of a group serves a namespace, the medium refuses all that served it before: a
 * write that an earlier owner still holds would land over newer data else. Each kind of medium has
 * its fence:
 *
 * - file, nvram: the earlier owner is a process of this host. It is killed, by a descriptor of the
 *   process (pidfd), and what it had under way is waited for: the lock of the file, and the mark of
 *   the descriptor that io_uring writes by, which outlives the process (common/serve/served.h).
 * - block, nvme: the same, and the reservation of the device shuts out other hosts (device_key.h).
 * - tier: its FILE is one of this host, and fenced so, and the copies of its log that are files as
 *   well. Copies on servers are the next owner's as it opens them: by sessions and epochs.
 * - a kind with a fence of its own (struct nvt_backend_ops), as rbd, has that.
 *
 * Where all members of a group have a file open at once, its lock is shared. The descriptors of
 * each process have a mark of their own then, which is waited for. A device that all have open
 * knows each member's host by a key of its own, and the reservation is held by all of them.
 *
 * A medium without one is refused at the start. No clock decides here but how long is waited.
 */
#ifndef SW_MOVERS_NVME_FENCE_H
#define SW_MOVERS_NVME_FENCE_H

#include <stddef.h>
#include <stdint.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/config/spec.h"

/* A process that may have the medium open. */
struct nvt_former {
    const char *name;
    uint8_t boot_id[16]; /* of its kernel */
    int32_t pid;
    uint64_t start_ticks; /* of the process: field 22 of /proc/PID/stat */
    uint64_t key;         /* by which it has reserved the device */
    uint64_t process;     /* by which others know its descriptors (spec.h: shares_as) */
};

/* Whether it can be fenced, and what it is (`medium`): the same text for all that open it, and for
 * nothing else. Locks nothing. Returns 0, or a negative errno and why
 * no group can have it. */
int nvt_fence_look(const struct nvt_backend_spec *spec, struct nvt_backend_look *out, char *error,
                   size_t error_bytes);

/* The same for what lies in a file of this host's own. */
int nvt_fence_look_at_file(const struct nvt_backend_spec *spec, struct nvt_backend_look *out,
                           char *error, size_t error_bytes);

/* What a look has called `medium` is still there: a file may have been replaced by another one of
 * its name. Returns 0, or a negative errno and what is there. Other kinds are not asked. */
int nvt_fence_look_again(const struct nvt_backend_spec *spec, const char *medium, char *error,
                         size_t error_bytes);

/* Returns 0 when none of the formers can change the medium any more, or a negative errno and what
 * is in the way. Waits up to wait_ms: not on a thread that serves hosts. */
int nvt_fence(const struct nvt_backend_spec *spec, const struct nvt_former *formers, size_t count,
              uint32_t wait_ms, char *error, size_t error_bytes);
/* The same for files and devices that members of a group share: `own` is this process, which is let
 * be. Returns 0 when no other former has a descriptor of any of these files, or may write to any of
 * these devices; -EBADE where a device has shut out this member itself. */
int nvt_fence_shared(const struct nvt_backend_spec *const *specs, size_t spec_count, uint64_t own,
                     const struct nvt_former *formers, size_t count, uint32_t wait_ms, char *error,
                     size_t error_bytes);
/* Whether that medium can be shared so: 0, or a negative errno and why not. */
int nvt_fence_shares(const struct nvt_backend_spec *spec, char *error, size_t error_bytes);
/* What a fence has reserved is given up, since the medium could not be opened. */
void nvt_fence_undo(const struct nvt_backend_spec *spec);

#endif
