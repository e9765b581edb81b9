/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/standby.h"

#include <stdlib.h>

#include <nvme/types.h>

#include "nvme/wire/fabrics.h"

static void standby_refuse(struct nvt_backend *backend, struct nvt_io *io)
{
    (void)backend;
    io->done(io, NVF_PATH(NVME_SC_ANA_INACCESSIBLE));
}

static void standby_close(struct nvt_backend *backend)
{
    free(backend);
}

static const struct nvt_backend_ops ops = {
    .kind = "standby", .close = standby_close, .submit = standby_refuse};

struct nvt_backend *nvt_standby_open(uint64_t size_bytes, uint32_t block_bytes, bool is_read_only)
{
    struct nvt_backend *backend = calloc(1, sizeof(*backend));
    if (!backend)
        return NULL;
    *backend = (struct nvt_backend){.ops = &ops,
                                    .size_bytes = size_bytes,
                                    .block_bytes = block_bytes,
                                    .is_read_only = is_read_only,
                                    .is_volatile = true,
                                    .can_deallocate = true};
    return backend;
}
