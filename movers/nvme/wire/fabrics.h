/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What NVMe over RDMA sends, where libnvme has no structure for it: queue entries, fabrics
 * commands, scatter-gather descriptors and the private data of rdma_cm. All is little-endian.
 * Source: NVM Express Base 2.0 and RDMA Transport 1.0.
 */
#ifndef SW_MOVERS_NVME_FABRICS_H
#define SW_MOVERS_NVME_FABRICS_H

#include <assert.h>
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nvme/types.h>

enum {
    NVF_SQE_BYTES = 64,
    NVF_CQE_BYTES = 16,
    NVF_DESCRIPTOR_BYTES = 16,
    NVF_CONNECT_BYTES = 1024, /* the data of Connect */
    NVF_PORT = 4420,          /* of I/O controllers and, by habit, of discovery */
    NVF_ADMIN_DEPTH_MIN = 32, /* of an admin queue */
    NVF_NQN_MAX = 223,        /* characters */
    NVF_IN_CAPSULE_MAX = 16384,
};

#define NVF_DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"

/* Flags of a command: how its data is described. Over fabrics always by SGL. */
enum { NVF_FUSED = 0x03, NVF_PSDT = 0xc0, NVF_PSDT_SGL = 0x40 };

struct nvf_sqe {
    uint8_t opcode, flags;
    __le16 cid; /* any bits: the host's own */
    __le32 nsid;
    __le32 cdw2, cdw3;
    __le64 metadata;
    uint8_t sgl[NVF_DESCRIPTOR_BYTES];
    __le32 cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
static_assert(sizeof(struct nvf_sqe) == NVF_SQE_BYTES, "a submission queue entry");

struct nvf_cqe {
    __le64 result;
    __le16 sq_head, sq_id; /* sq_id is reserved over fabrics */
    __le16 cid;
    __le16 status; /* the code from bit 1 on */
};
static_assert(sizeof(struct nvf_cqe) == NVF_CQE_BYTES, "a completion queue entry");

/* Fabrics commands: opcode 0x7f, and the type where nsid begins. */
enum { NVF_OPCODE = 0x7f };
enum nvf_type {
    NVF_PROPERTY_SET = 0x00,
    NVF_CONNECT = 0x01,
    NVF_PROPERTY_GET = 0x04,
    NVF_AUTH_SEND = 0x05,
    NVF_AUTH_RECEIVE = 0x06,
    NVF_DISCONNECT = 0x08,
};

/* In the result of Connect: the host has to authenticate, and to go on to TLS by that. */
enum { NVF_CONNECT_ATR = 1 << 17, NVF_CONNECT_ASCR = 1 << 18 };

static inline enum nvf_type nvf_type_of(const struct nvf_sqe *sqe)
{
    return (enum nvf_type)(le32toh(sqe->nsid) & 0xff);
}

/* Status codes whose type is not "generic": libnvme's names have the code alone. */
#define NVF_SPECIFIC(code) ((uint16_t)(NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | (code)))
#define NVF_MEDIA(code) ((uint16_t)(NVME_SCT_MEDIA << NVME_SCT_SHIFT | (code)))
#define NVF_PATH(code) ((uint16_t)(NVME_SCT_PATH << NVME_SCT_SHIFT | (code)))

/* Bits of the registers CC and CSTS. */
enum {
    NVF_CC_ENABLE = 1,
    NVF_CC_SHUTDOWN = 3 << 14,
    NVF_CSTS_READY = 1,
    NVF_CSTS_FATAL = 2,
    NVF_CSTS_SHUTDOWN = 3 << 2,
    NVF_CSTS_SHUTDOWN_DONE = 2 << 2,
};

/* Descriptors: the type is the upper half of the last byte, the subtype the lower. */
enum nvf_descriptor {
    NVF_DATA_OFFSET = 0x01,      /* data block, at an offset in the capsule */
    NVF_LAST_OFFSET = 0x31,      /* last segment, its descriptors at an offset in the capsule */
    NVF_KEYED = 0x40,            /* keyed data block */
    NVF_KEYED_INVALIDATE = 0x4f, /* the same, whose key the response invalidates */
};

/* Private data. A REQ has 32 bytes of it, an acceptance 32, a refusal 4. */
struct nvf_cm_req {
    __le16 format; /* 0 */
    __le16 qid;
    __le16 host_receives; /* entries of the host's receive queue */
    __le16 host_sends;    /* of its send queue, less one (0's based) */
    __le16 cntlid;        /* of a controller that is there already: 0xffff where none is named */
    uint8_t reserved[22];
};
static_assert(sizeof(struct nvf_cm_req) == 32, "private data of a REQ");

struct nvf_cm_rep {
    __le16 format; /* 0 */
    __le16 controller_receives;
    uint8_t reserved[28];
};
static_assert(sizeof(struct nvf_cm_rep) == 32, "private data of a REP");

struct nvf_cm_rej {
    __le16 format; /* 0 */
    __le16 status; /* enum nvf_cm_status */
};

enum nvf_cm_status {
    NVF_CM_LENGTH = 1, /* of the private data */
    NVF_CM_FORMAT = 2,
    NVF_CM_QID = 3,
    NVF_CM_HSQSIZE = 4,
    NVF_CM_HRQSIZE = 5,
    NVF_CM_RESOURCES = 6,
    NVF_CM_IRD = 7,
    NVF_CM_ORD = 8,
    NVF_CM_CNTLID = 9,
};

/* "invalid private data length" and the like; never NULL. */
/* An NQN, without its NUL: UTF-8 (NVM Express Base 2.0 s4.5) without control characters, so that it
 * can be shown. */
bool nvf_is_shown(const char *text, size_t len);
const char *nvf_cm_status_text(unsigned status);

/* Which part of the data of Connect a fault is in: dword 0 of the response. */
static inline uint32_t nvf_connect_fault(uint32_t offset, int in_data)
{
    return offset | (uint32_t)(in_data != 0) << 16;
}

#endif
