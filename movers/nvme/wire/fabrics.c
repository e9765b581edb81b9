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

/* Bytes of the character that begins there; 0: it is none (Unicode 15 table 3-7). */
static size_t character_bytes(const uint8_t *at, size_t left)
{
    const uint8_t first = at[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7f;
    const size_t len = first >= 0xc2 && first <= 0xdf   ? 2
                       : first >= 0xe0 && first <= 0xef ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
    if (!len || len > left)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    const bool is_short = (first == 0xe0 && at[1] < 0xa0) || (first == 0xf0 && at[1] < 0x90);
    const bool is_surrogate = first == 0xed && at[1] > 0x9f;
    const bool is_beyond = first == 0xf4 && at[1] > 0x8f;
    const bool is_control = first == 0xc2 && at[1] < 0xa0;
    return is_short || is_surrogate || is_beyond || is_control ? 0 : len;
}

bool nvf_is_shown(const char *text, size_t len)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + len;
    while (at < end) {
        const size_t bytes = character_bytes(at, (size_t)(end - at));
        if (!bytes)
            return false;
        at += bytes;
    }
    return true;
}
