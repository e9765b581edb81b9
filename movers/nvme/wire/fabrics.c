/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/wire/fabrics.h"

#include <stddef.h>

const char *nvf_cm_status_text(unsigned status)
{
    static const char *const texts[] = {
        [NVF_CM_LENGTH] = "the private data has a wrong length",
        [NVF_CM_FORMAT] = "the private data has a format that is not known",
        [NVF_CM_QID] = "the queue ID is not valid",
        [NVF_CM_HSQSIZE] = "the size of the host's send queue is not valid",
        [NVF_CM_HRQSIZE] = "the size of the host's receive queue is not valid",
        [NVF_CM_RESOURCES] = "there are no resources for another queue",
        [NVF_CM_IRD] = "the number of inbound RDMA READs is not valid",
        [NVF_CM_ORD] = "the number of outbound RDMA READs is not valid",
        [NVF_CM_CNTLID] = "there is no such controller",
    };
    if (status < sizeof(texts) / sizeof(*texts) && texts[status])
        return texts[status];
    return "for a reason that NVMe has no name for";
}
