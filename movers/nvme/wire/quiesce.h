/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Command quiesce time (TP4129) and cross-controller reset (TP8028), which libnvme of Debian 12
 * does not have yet. Source: NVMe Base 2.3, 5.1.13 (Identify Controller), 5.4.3, 5.1.12.1.35.
 *
 * And what a target of ours says in the bytes of its vendor, if it is a member of a group whose
 * medium fences: a member says that it is optimized only after no write of the former owner can
 * land any more. The change count of an ANA group is the epoch of its owner then.
 */
#ifndef SW_MOVERS_NVME_WIRE_QUIESCE_H
#define SW_MOVERS_NVME_WIRE_QUIESCE_H

#include <assert.h>
#include <endian.h>
#include <stdint.h>

enum {
    NVF_ADMIN_CROSS_CTRL_RESET = 0x38,
    NVF_LOG_CROSS_CTRL_RESET = 0x1e,
    NVF_NOTICE_CCR_COMPLETED = 0xf4,
    NVF_OAES_CCR_COMPLETED = 1 << 20,
    NVF_CCR_IMMEDIATE = 1, /* in dword 0 of the completion: it has been reset already */
    NVF_SC_CCR_IN_PROGRESS = 0x13f,
    NVF_SC_CCR_LOG_FULL = 0x140,
    NVF_SC_CCR_LIMIT = 0x141,

    /* Offsets in Identify Controller. */
    NVF_ID_CIU = 135,     /* controller instance uniquifier */
    NVF_ID_CIRN = 136,    /* controller instance random number, 8 bytes */
    NVF_ID_CQT = 386,     /* command quiesce time in milliseconds, 2 bytes; 0: it does not say */
    NVF_ID_CCRL = 1807,   /* resets of other controllers at a time; 0: it knows none */
    NVF_ID_FENCED = 3072, /* NVF_FENCED_WORD where the medium fences, and the member behind it */
    NVF_ID_MEMBER = 3080,
};

#define NVF_FENCED_WORD "SWFENCED" /* 8 bytes, without the 0 */

enum nvf_ccr_status { NVF_CCR_IN_PROGRESS, NVF_CCR_SUCCESS, NVF_CCR_FAILED };

struct nvf_ccr_entry {
    uint16_t icid; /* the controller that was to be reset */
    uint8_t ciu, rsvd3;
    uint16_t acid;
    uint8_t ccrs, ccrf; /* enum nvf_ccr_status, flags */
    uint64_t cirn;
    uint8_t rsvd16[16];
};
static_assert(sizeof(struct nvf_ccr_entry) == 32, "an entry of log page 1Eh");

struct nvf_ccr_log {
    uint16_t entries_count;
    uint8_t rsvd2[30];
    struct nvf_ccr_entry entries[];
};
static_assert(sizeof(struct nvf_ccr_log) == 32, "the header of log page 1Eh");

/* Dword 10 of the command. */
static inline uint32_t nvf_ccr_cdw10(uint16_t icid, uint8_t ciu)
{
    return icid | (uint32_t)ciu << 16;
}

#endif
