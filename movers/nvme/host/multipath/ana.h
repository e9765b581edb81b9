/* SPDX-License-Identifier: BSD-2-Clause */
/* The log page of asymmetric namespace access (0Ch), read from bytes that a target sent. */
#ifndef SW_MOVERS_NVME_HOST_ANA_H
#define SW_MOVERS_NVME_HOST_ANA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a log says of a namespace. */
struct nvh_ana_entry {
    uint32_t nsid;
    uint8_t state;    /* enum sw_nvme_ana, or whatever the target says */
    uint64_t changes; /* of its group: the epoch of its owner, where the medium fences */
};

struct nvh_ana_cursor {
    const uint8_t *page;
    size_t bytes, at;
    uint32_t groups_left, nsids_left;
    struct nvh_ana_entry entry;
};

void nvh_ana_begin(struct nvh_ana_cursor *cursor, const void *page, size_t bytes);
/* The next namespace; false: there is none, or the page ends in the middle. */
bool nvh_ana_next(struct nvh_ana_cursor *cursor, struct nvh_ana_entry *entry);

#endif
