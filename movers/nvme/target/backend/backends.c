/* SPDX-License-Identifier: BSD-2-Clause */
/* The kinds of backends: a new one adds a line here. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/backends.h"
#include "nvme/target/config/spec.h"
#include "nvme/wire/fabrics.h"

static const struct nvt_backend_ops *const kinds[] = {
    &nvt_ram, &nvt_null, &nvt_file, &nvt_block, &nvt_nvram, &nvt_nvme, &nvt_rbd, &nvt_tiered};

const struct nvt_backend_ops *nvt_backend_find(const char *kind)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (!strcmp(kinds[i]->kind, kind))
            return kinds[i];
    return NULL;
}

/* "ram, null, file, ..." */
static void list_backend_kinds(char *out, size_t size)
{
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", kinds[i]->kind);
}

struct nvt_backend_setup nvt_backend_setup_of(const struct nvt_backend_spec *spec,
                                              struct nvt_uring *uring)
{
    return (struct nvt_backend_setup){.path = spec->path,
                                      .size_bytes = spec->size_bytes,
                                      .block_bytes = spec->block_bytes,
                                      .is_read_only = spec->read_only,
                                      .is_shared = spec->shared || spec->unfenced ||
                                                   (spec->shares_as && !nvt_spec_is_device(spec)),
                                      .shares_as = spec->shares_as,
                                      .spec = spec,
                                      .fences = spec->fence,
                                      .conf = *spec->conf ? spec->conf : NULL,
                                      .id = *spec->id ? spec->id : NULL,
                                      .wait_ms = spec->wait_ms,
                                      .short_ppm = spec->short_ppm,
                                      .uring = uring};
}

bool nvt_backends_settle(uint32_t wait_ms)
{
    bool are_settled = true;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        are_settled = (!kinds[i]->settle || kinds[i]->settle(wait_ms)) && are_settled;
    return are_settled;
}

bool nvt_backend_is_ready(struct nvt_backend *backend)
{
    return !backend->ops->is_ready || backend->ops->is_ready(backend);
}

int nvt_backend_lost(const struct nvt_backend *backend)
{
    return backend->lost ? atomic_load(backend->lost) : 0;
}

int nvt_backend_open(const struct nvt_backend_spec *spec, struct nvt_uring *uring,
                     struct nvt_backend **out, char *error, size_t error_size)
{
    const char *kind = nvt_backend_kind_name(spec->kind);
    const struct nvt_backend_ops *ops = nvt_backend_find(kind);
    const bool is_file = ops == &nvt_file || ops == &nvt_block;
    if (!ops) {
        char known[64];
        list_backend_kinds(known, sizeof(known));
        snprintf(error, error_size, "%s: is not served here, only %s are", kind, known);
        return -EINVAL;
    }
    if (spec->short_ppm && !is_file) {
        snprintf(error, error_size, "%s: nothing is short there: short= is for file and block",
                 kind);
        return -EINVAL;
    }
    if (spec->shared && !*spec->path) {
        snprintf(error, error_size, "%s: is memory of this target alone: leave shared away", kind);
        return -EINVAL;
    }
    const struct nvt_backend_setup setup = nvt_backend_setup_of(spec, uring);
    struct nvt_backend *inner;
    *error = 0;
    int rc = ops->open(&setup, &inner, error, error_size);
    if (!rc && (spec->error_ppm || spec->delay_ns)) {
        rc = nvt_faulty_wrap(inner, spec->error_ppm, spec->delay_ns, out);
        if (rc)
            inner->ops->close(inner);
    } else if (!rc) {
        *out = inner;
    }
    if (rc && !*error)
        snprintf(error, error_size, "%s: %s", kind, strerror(-rc));
    return rc;
}

uint16_t nvt_backend_status(int error, bool is_write)
{
    switch (error) {
    case 0:
        return NVME_SC_SUCCESS;
    case ENOSPC:
    case EDQUOT:
        return NVME_SC_CAP_EXCEEDED | NVME_SC_DNR;
    case EOPNOTSUPP:
        return NVME_SC_INVALID_OPCODE | NVME_SC_DNR;
    case EBADE:
        return NVME_SC_RESERVATION_CONFLICT | NVME_SC_DNR;
    case EROFS:
    case EPERM:
    case EACCES:
        return NVME_SC_NS_WRITE_PROTECTED | NVME_SC_DNR;
    case ENODEV:
    case ENXIO:
        return NVME_SC_NS_NOT_READY;
    case ENODATA:
    case EIO:
    case EILSEQ:
        return is_write ? NVF_MEDIA(NVME_SC_WRITE_FAULT) : NVF_MEDIA(NVME_SC_READ_ERROR);
    default:
        return NVME_SC_INTERNAL;
    }
}
