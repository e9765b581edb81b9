/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/wire/sgl.h"

#include <stddef.h>
#include <string.h>

#include "common/base/bytes.h"

enum { KEYED_MAX = 0xffffff };

static uint16_t sgl_final_status(uint16_t status)
{
    return status | NVME_SC_DNR;
}

static uint16_t add_keyed(const uint8_t *descriptor, struct nvf_sgl *out)
{
    const uint8_t kind = descriptor[15];
    if (kind != NVF_KEYED && kind != NVF_KEYED_INVALIDATE)
        return sgl_final_status(NVME_SC_SGL_INVALID_TYPE);
    const uint64_t addr = get_le64(descriptor);
    const uint32_t len = get_le32(descriptor + 8) & KEYED_MAX, key = get_le32(descriptor + 11);
    if (len && addr + len < addr)
        return sgl_final_status(NVME_SC_SGL_INVALID_DATA);
    if (kind == NVF_KEYED_INVALIDATE && len) {
        if (out->invalidates && out->invalidate_key != key)
            return sgl_final_status(NVME_SC_SGL_INVALID_TYPE); /* a response invalidates one key */
        out->invalidates = true;
        out->invalidate_key = key;
    }
    if (!len)
        return 0;
    out->segments[out->count++] = (struct nvf_segment){addr, len, key};
    out->len_bytes += len;
    return 0;
}

static uint16_t parse_in_capsule(const uint8_t *descriptor, uint32_t data_bytes,
                                 uint32_t in_capsule_max, struct nvf_sgl *out)
{
    const uint64_t offset = get_le64(descriptor);
    const uint32_t len = get_le32(descriptor + 8);
    if (offset > in_capsule_max)
        return sgl_final_status(NVME_SC_SGL_INVALID_OFFSET);
    if (len > in_capsule_max - offset || offset + len > data_bytes)
        return sgl_final_status(NVME_SC_SGL_INVALID_DATA);
    out->is_in_capsule = len > 0;
    out->offset = (uint32_t)offset;
    out->len_bytes = len;
    return 0;
}

static uint16_t sgl_parse_list(const uint8_t *descriptor, const uint8_t *data, uint32_t data_bytes,
                               struct nvf_sgl *out)
{
    const uint64_t offset = get_le64(descriptor);
    const uint32_t len = get_le32(descriptor + 8);
    if (offset > data_bytes || len > data_bytes - offset)
        return sgl_final_status(NVME_SC_SGL_INVALID_OFFSET);
    if (!len || len % NVF_DESCRIPTOR_BYTES)
        return sgl_final_status(NVME_SC_SGL_INVALID_LAST);
    if (len / NVF_DESCRIPTOR_BYTES > NVF_SGL_MAX)
        return sgl_final_status(NVME_SC_SGL_INVALID_COUNT);
    for (uint32_t at = 0; at < len; at += NVF_DESCRIPTOR_BYTES) {
        const uint16_t status = add_keyed(data + offset + at, out);
        if (status)
            return status;
    }
    return 0;
}

uint16_t nvf_sgl_parse(const struct nvf_sqe *sqe, const uint8_t *data, uint32_t data_bytes,
                       uint32_t in_capsule_max, struct nvf_sgl *out)
{
    memset(out, 0, offsetof(struct nvf_sgl, segments)); /* [count] of which there are none yet */
    if (sqe->flags & NVF_FUSED || (sqe->flags & NVF_PSDT) != NVF_PSDT_SGL)
        return sgl_final_status(NVME_SC_INVALID_FIELD);
    switch (sqe->sgl[15]) {
    case NVF_DATA_OFFSET:
        return parse_in_capsule(sqe->sgl, data_bytes, in_capsule_max, out);
    case NVF_LAST_OFFSET:
        return sgl_parse_list(sqe->sgl, data, data_bytes, out);
    default:
        return add_keyed(sqe->sgl, out);
    }
}

void nvf_sgl_set_none(struct nvf_sqe *sqe)
{
    nvf_sgl_set_keyed(sqe, 0, 0, 0, false);
}

void nvf_sgl_set_keyed(struct nvf_sqe *sqe, uint64_t addr, uint32_t len_bytes, uint32_t key,
                       bool invalidate)
{
    const __le64 le_addr = htole64(addr);
    const __le32 le_len = htole32(len_bytes), le_key = htole32(key);
    sqe->flags = NVF_PSDT_SGL;
    memcpy(sqe->sgl, &le_addr, 8);
    memcpy(sqe->sgl + 8, &le_len, 3);
    memcpy(sqe->sgl + 11, &le_key, 4);
    sqe->sgl[15] = invalidate ? NVF_KEYED_INVALIDATE : NVF_KEYED;
}

void nvf_sgl_set_in_capsule(struct nvf_sqe *sqe, uint32_t len_bytes)
{
    const __le32 le_len = htole32(len_bytes);
    sqe->flags = NVF_PSDT_SGL;
    memset(sqe->sgl, 0, sizeof(sqe->sgl));
    memcpy(sqe->sgl + 8, &le_len, 4);
    sqe->sgl[15] = NVF_DATA_OFFSET;
}
