/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log of a tier as bytes: superblock, head slots and the heads of records. docs/nvme-tier.md
 * has the format. Nothing here is believed before its check fits.
 *
 * A position counts bytes of the log since it was made, and never wraps; it is the sequence of
 * records, too. A record lies at NVT_TIER_RING + position mod ring bytes.
 */
#ifndef SW_MOVERS_NVME_TIER_LOG_H
#define SW_MOVERS_NVME_TIER_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum {
    NVT_TIER_HEAD_BYTES = 64,     /* of a superblock, a slot, and the head of a record */
    NVT_TIER_PAYLOAD_MAX = 65536, /* of a record: longer writes are several */
    NVT_TIER_SLOTS = 4096,        /* where the first slot lies, and how far apart they are */
    NVT_TIER_RING = 16384,
    NVT_TIER_COPIES_MAX = 5,
    NVT_TIER_STAGE_MIN = 256 << 10,
    NVT_TIER_STAGE_MAX = 8 << 20,
};

enum nvt_tier_verdict {
    NVT_TIER_GOOD,
    NVT_TIER_BLANK,   /* zeroes: nobody has written there */
    NVT_TIER_FOREIGN, /* something else */
    NVT_TIER_UNKNOWN, /* a version that is not known */
    NVT_TIER_DAMAGED,
};

struct nvt_tier_super {
    uint8_t identity[16]; /* of the log, drawn at random; the same on all copies */
    uint16_t copies, copy;
    uint64_t ring_bytes;
    uint32_t stage_bytes; /* what may be there without being acknowledged; divides the ring */
};

/* What FILE was when the slot was written. */
struct nvt_tier_stamp {
    uint8_t identity[16];
    uint64_t size_bytes;
    int64_t mtime_ns; /* 0: changes cannot be told by it, as of block devices */
};

struct nvt_tier_slot {
    uint64_t count;             /* from 1; the greater one of two counts */
    uint64_t epoch;             /* of the writer; each time the log is opened a greater one */
    uint64_t head;              /* the position where reading starts */
    uint64_t check, head_epoch; /* of the record before the head */
    struct nvt_tier_stamp stamp;
    bool is_destaging; /* FILE may have changed since: the stamp's time says nothing */
};

enum nvt_tier_kind {
    NVT_TIER_WRITE = 1,
    NVT_TIER_ZEROES,
    NVT_TIER_DEALLOCATE,
    NVT_TIER_BEGIN, /* a writer has opened the log */
};

struct nvt_tier_record {
    enum nvt_tier_kind kind;
    uint32_t payload_bytes, payload_sum; /* CRC32C */
    uint64_t position, epoch;
    uint64_t offset, len_bytes; /* in FILE */
    uint64_t before;            /* the check of the record before it */
    uint64_t check;             /* of this head; set by encode and decode */
};

void nvt_tier_super_encode(const struct nvt_tier_super *super, uint8_t out[NVT_TIER_HEAD_BYTES]);
enum nvt_tier_verdict nvt_tier_super_decode(const uint8_t in[NVT_TIER_HEAD_BYTES],
                                            struct nvt_tier_super *super);

enum { NVT_TIER_SLOT_BYTES = 128 };
void nvt_tier_slot_encode(const struct nvt_tier_super *super, const struct nvt_tier_slot *slot,
                          uint8_t out[NVT_TIER_SLOT_BYTES]);
enum nvt_tier_verdict nvt_tier_slot_decode(const struct nvt_tier_super *super,
                                           const uint8_t in[NVT_TIER_SLOT_BYTES],
                                           struct nvt_tier_slot *slot);

void nvt_tier_record_encode(const struct nvt_tier_super *super, struct nvt_tier_record *record,
                            uint8_t out[NVT_TIER_HEAD_BYTES]);
/* False: no record of this log begins with it. Position, epoch and the record before are for the
 * caller to compare. */
bool nvt_tier_record_decode(const struct nvt_tier_super *super,
                            const uint8_t in[NVT_TIER_HEAD_BYTES], struct nvt_tier_record *record);

/* Head, payload, and zeroes up to a multiple of 64. */
static inline uint64_t nvt_tier_record_bytes(uint32_t payload_bytes)
{
    return NVT_TIER_HEAD_BYTES + (((uint64_t)payload_bytes + 63) & ~63ull);
}

/* CRC32C, which goes on from `sum`; the first one is 0. */
uint32_t nvt_tier_sum(uint32_t sum, const uint8_t *data, uint32_t bytes);
/* How a log of so many bytes is divided. False: it is too small. */
bool nvt_tier_divide(uint64_t medium_bytes, uint64_t *ring_bytes, uint32_t *stage_bytes);

#endif
