/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An image of Ceph's block device that is open. Each one has a client of the cluster for itself, so
 * to fence one leaves the others alone. Threads of its own do what may hang with the cluster.
 */
#ifndef SW_MOVERS_NVME_RBD_IMAGE_H
#define SW_MOVERS_NVME_RBD_IMAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/rbd_api.h"

struct nvt_rbd_image {
    const struct nvt_rbd_api *api;
    rados_t cluster;
    rados_ioctx_t pool;
    rbd_image_t image;
    uint64_t watch;
    bool is_watched;
    bool has_lock; /* nobody else writes: whoever wants to has to break the lock */
    bool is_read_only;
    _Atomic uint64_t size_bytes; /* as the cluster said last */
    _Atomic int lost;            /* an errno: the cluster takes nothing from this client any more */
    char *name;                  /* POOL/[NAMESPACE/]IMAGE[@SNAP] */
    char medium[NVT_MEDIUM_BYTES];
};

/* Returns 0, or a negative errno with `error` saying what happened and what mends it. */
int nvt_rbd_image_open(const struct nvt_backend_setup *setup, struct nvt_rbd_image **out,
                       char *error, size_t error_size);
/* Returns at once; no operation may be under way. nvt_rbd_settle() waits for the end. */
void nvt_rbd_image_close(struct nvt_rbd_image *image);
/* False: some images are still being closed. */
bool nvt_rbd_settle(uint32_t wait_ms);
/* Takes the lock from whoever has it: the cluster refuses all that this client sends from now on,
 * also what is on its way. 0 also where nobody had it. */
int nvt_rbd_fence(const struct nvt_backend_setup *setup, char *error, size_t error_size);

#endif
