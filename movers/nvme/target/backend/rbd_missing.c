/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the headers of librbd were not there: says so. */
#include <errno.h>
#include <stdio.h>

#include "nvme/target/backend/backends.h"

static int refuse_rbd(const struct nvt_backend_setup *setup, struct nvt_backend **out, char *error,
                      size_t error_size)
{
    (void)out;
    snprintf(error, error_size,
             "rbd:%s: this target was built without librbd: install librbd-dev and build it again",
             setup->path);
    return -EOPNOTSUPP;
}

const struct nvt_backend_ops nvt_rbd = {.kind = "rbd", .open = refuse_rbd};
