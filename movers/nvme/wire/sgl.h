/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The scatter-gather list of a command: parsed once, then trusted. Nothing here touches memory
 * but the capsule.
 */
#ifndef SW_MOVERS_NVME_SGL_H
#define SW_MOVERS_NVME_SGL_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/wire/fabrics.h"

/* Descriptors of one command: as many as a capsule may carry (MSDBD of the controller). */
enum { NVF_SGL_MAX = 16 };

struct nvf_segment {
    uint64_t addr; /* the host's */
    uint32_t len_bytes, key;
};

struct nvf_sgl {
    uint64_t len_bytes; /* of all data */
    bool is_in_capsule; /* then `offset` says where in the capsule's data area */
    bool invalidates;   /* `invalidate_key` goes with the response */
    uint32_t invalidate_key;
    uint32_t offset;
    uint32_t count;
    struct nvf_segment segments[NVF_SGL_MAX]; /* [count] */
};

/* `data` are the bytes that came behind the SQE, of which the controller takes up to
 * `in_capsule_max`. Returns 0, or the NVMe status that the command gets (all with DNR). */
uint16_t nvf_sgl_parse(const struct nvf_sqe *sqe, const uint8_t *data, uint32_t data_bytes,
                       uint32_t in_capsule_max, struct nvf_sgl *out);

/* For the host: writes the one descriptor of a command. */
void nvf_sgl_set_none(struct nvf_sqe *sqe);
void nvf_sgl_set_keyed(struct nvf_sqe *sqe, uint64_t addr, uint32_t len_bytes, uint32_t key,
                       bool invalidate);
void nvf_sgl_set_in_capsule(struct nvf_sqe *sqe, uint32_t len_bytes);

#endif
