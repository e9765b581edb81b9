/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A record of a group's log: one change of what the group has decided. docs/shared-storage-group.md
 * has the formats. Members also send records to each other.
 */
#ifndef SW_MOVERS_NVME_GROUP_RECORD_H
#define SW_MOVERS_NVME_GROUP_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/target/group/group.h"

enum { NVG_RECORD_MAX = 2048, NVG_RECORD_VERSION = 1, NVG_ERRNO_END = 4096 };

enum nvg_record_kind {
    NVG_GROUP = 1,   /* the group is made */
    NVG_LEAD,        /* a member leads */
    NVG_JOIN,        /* a member is there, in place of one that had its name */
    NVG_LEAVE,       /* a member has left */
    NVG_NAMESPACE,   /* what a namespace is */
    NVG_TAKING_IT,   /* a member is to own it: it fences the formers first */
    NVG_OWN,         /* it has */
    NVG_RELEASED_IT, /* it has nothing of it open any more */
    NVG_RESERVATION, /* the reservation of a namespace */
    NVG_BEGIN,       /* a checkpoint: the whole state follows */
    NVG_HOLD,        /* of a checkpoint: who has a namespace */
    NVG_END,         /* of a checkpoint: it counts from here on, in place of all before it */
    NVG_ABANDON,     /* the checkpoint that was begun has no end: its writer was replaced */
    NVG_CALM,        /* a member ends its hosts' controllers before it owns anything again */
    NVG_CALMED,      /* it has ended those that it had when it heard of that */
    NVG_GROUP_ALL,   /* the group is made, and all its members are active */
    NVG_HOST,        /* a host that has connected to a member of such a group */
    NVG_RESERVE,     /* a host's command that changes a reservation in such a group */
    NVG_DISK,        /* the disk of a namespace has failed a flush, or counts as sound again */
};

/* A member of the group. */
struct nvg_join {
    struct nvg_former who; /* its epoch is 0 */
    bool is_here;          /* false: it has left, and its slot is kept for its name */
    char group_address[NVG_ADDRESS_BYTES];
    uint32_t address_count;
    char addresses[NVG_ADDRESSES_MAX][NVG_ADDRESS_BYTES];
};

/* The owner of a namespace, or of a host. */
struct nvg_hold {
    uint32_t nsid;
    enum nvg_phase phase;
    uint64_t epoch;          /* of the newest owner; 0: there was none */
    uint64_t reservation_id; /* of its newest change */
    struct nvg_former owner; /* that takes or owns it; kept when it is free */
    uint32_t former_count;
    struct nvg_former formers[NVG_FORMERS_MAX]; /* that `owner` has to fence */
};

struct nvg_record {
    enum nvg_record_kind kind;
    uint32_t nsid;
    uint64_t epoch;
    uint8_t slot;               /* of LEAD, LEAVE, CALM and CALMED; of END who leads */
    uint64_t incarnation;       /* of RESERVE of the member that has asked */
    uint64_t id;                /* of RESERVATION, RESERVE and DISK: the change's number; of CALM */
    uint32_t error;             /* of DISK: an errno; 0: sound */
    uint64_t size_bytes;        /* of OWN */
    struct nvg_former owner;    /* of TAKING_IT */
    uint8_t identity[16];       /* of GROUP and GROUP_ALL */
    char nqn[NVG_NQN_BYTES];    /* of these */
    struct nvg_host host;       /* of HOST */
    struct nvg_join join;       /* of JOIN */
    struct nvg_namespace about; /* of NAMESPACE */
    struct nvg_hold hold;       /* of HOLD */
    struct nvt_reservation reservation;
    struct nvt_reservation_change change; /* of RESERVE */
};

/* The bytes; 0: it has values that no record may have. */
size_t nvg_record_put(const struct nvg_record *record, uint8_t out[NVG_RECORD_MAX]);
/* False: that is no record. All texts end, and hold what can be printed. */
bool nvg_record_get(const uint8_t *in, size_t bytes, struct nvg_record *out);
/* A name of a member: letters, digits, ".", "_", "-". */
bool nvg_name_is_valid(const char *name);

/* ---- for the messages of members, which have the same parts ---- */

/* Puts, or gets: the same function names the parts of a format for both. */
struct nvg_coder {
    bool is_put, is_bad;
    uint8_t *out;
    const uint8_t *in;
    size_t at, end;
};

void nvg_code_bytes(struct nvg_coder *coder, void *value, size_t bytes);
void nvg_code_u8(struct nvg_coder *coder, uint8_t *value);
void nvg_code_u32(struct nvg_coder *coder, uint32_t *value);
void nvg_code_u64(struct nvg_coder *coder, uint64_t *value);
/* A text that can be printed, in an array of that size, which it leaves zeroes in. */
void nvg_code_text(struct nvg_coder *coder, char *text, size_t size);
/* Its NQN may have any characters of UTF-8. */
void nvg_code_host(struct nvg_coder *coder, struct nvt_host_id *id, char nqn[NVG_NQN_BYTES]);
void nvg_code_join(struct nvg_coder *coder, struct nvg_join *join);

#endif
