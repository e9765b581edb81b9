/* SPDX-License-Identifier: BSD-2-Clause */
/* What mends a connection that failed, for plugins whose options are words of nvme-cli. */
#ifndef SW_MOVERS_NVME_MEND_H
#define SW_MOVERS_NVME_MEND_H

#include "sidewire/nvme.h"

/* NULL: the error says it, or nobody knows. */
static inline const char *nvh_mend_of(const struct sw_nvme_error *error)
{
    switch ((int)error->status) {
    case SW_NVME_REFUSED:
        return "is the target running, and is the port right (trsvcid=, 4420 by default)?";
    case SW_NVME_UNREACHABLE:
    case SW_NVME_TIMEOUT:
        return "is the target running, and does the network lead there?";
    case SW_NVME_AUTHENTICATION:
        return "both secrets are those that the target has for this host's name (hostnqn=)";
    case SW_NVME_FAILED:
        return "'sidewire nvme discover' shows the names that are there; the target may not allow "
               "this host's name (hostnqn=)";
    default:
        return NULL;
    }
}

#endif
