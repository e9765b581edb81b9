/* SPDX-License-Identifier: BSD-2-Clause */
/* What users of the library tell programs that know errno alone. */
#ifndef SW_MOVERS_NVME_AS_ERRNO_H
#define SW_MOVERS_NVME_AS_ERRNO_H

#include <errno.h>

#include <nvme/types.h>

#include "sidewire/nvme.h"

static inline int nvh_errno_of(const struct sw_nvme_result *result)
{
    enum { CODE = 0x7ff };
    const uint16_t code = result->nvme_status & CODE;
    if (result->status == SW_NVME_FAILED &&
        (code == NVME_SC_LBA_RANGE || code == NVME_SC_CAP_EXCEEDED))
        return ENOSPC;
    if (result->status == SW_NVME_FAILED && code == NVME_SC_NS_WRITE_PROTECTED)
        return EROFS;
    return result->status == SW_NVME_UNREACHABLE ? ESHUTDOWN : EIO;
}

#endif
