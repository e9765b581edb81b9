/* SPDX-License-Identifier: BSD-2-Clause */
/* What members of a group say to each other: docs/shared-storage-group.md has the formats. */
#ifndef SW_MOVERS_NVME_GROUP_MESSAGE_H
#define SW_MOVERS_NVME_GROUP_MESSAGE_H

#include "nvme/target/group/record.h"

enum { NVG_MESSAGE_MAX = NVG_RECORD_MAX + 64, NVG_MESSAGE_VERSION = 1 };

enum nvg_message_kind {
    NVG_HELLO = 1, /* who calls: it knows the group's identity */
    NVG_ANSWER,    /* the called one does not lead: its role, and whom it follows */
    NVG_WELCOME,   /* it leads: the state follows as records */
    NVG_PUSH,      /* a record that is in the log */
    NVG_PROPOSE,   /* a record to be put there */
    NVG_REFUSE,    /* that proposal never will be there */
    NVG_PING,
    NVG_HALT,       /* the called one has no part in the group any more: why */
    NVG_BYE,        /* the leader ends: look for another one */
    NVG_CALL,       /* the caller leads: one that led before is to step down */
    NVG_ASK_QUIET,  /* a controller is to be ended: to the leader, and from it to whom has it */
    NVG_TELL_QUIET, /* what has become of it: the same way back */
    NVG_MOVE,       /* a namespace is to go to a member: to the leader, and from it to the owner */
    NVG_HOST_HERE,  /* a host is connected to the member that says so: to the leader */
    NVG_APPLIED,    /* a change of a reservation holds at the member that says so: to the leader */
    NVG_SETTLED,    /* it holds wherever a host is served: from the leader */
    NVG_PLACELESS,  /* the group has no place for a host: from the leader */
};

struct nvg_message {
    enum nvg_message_kind kind;
    uint8_t identity[16]; /* of HELLO and CALL */
    bool is_member;       /* of HELLO: it has been in the log */
    struct nvg_join join; /* of HELLO */
    uint8_t role;         /* of ANSWER: enum nvg_role */
    uint8_t slot;  /* of ANSWER: of who answers; of WELCOME: of who is welcome; of MOVE: to whom */
    uint32_t nsid; /* of MOVE, APPLIED and SETTLED */
    uint8_t leads_slot;               /* of ANSWER: whom it follows, where it does */
    uint64_t leads_incarnation;       /* of ANSWER: and which process that is */
    uint64_t number;                  /* of PROPOSE and REFUSE; of APPLIED and SETTLED the change */
    int status;                       /* of REFUSE */
    uint64_t epoch;                   /* of CALL: the caller's as the writer of the log */
    bool is_leaving;                  /* of PING: it takes no more namespaces */
    bool has_quorum;                  /* of PING */
    char text[NVG_TEXT_BYTES - 2];    /* of HALT */
    struct nvg_controller controller; /* of ASK_QUIET; of TELL_QUIET without its host */
    struct nvg_host host;             /* of HOST_HERE and PLACELESS */
    uint8_t origin[NVG_ORIGIN_BYTES]; /* of HOST_HERE: zeroes where it is not known */
    bool has_origin;                  /* of HOST_HERE */
    bool is_of_origin;                /* of PLACELESS: others may have places */
    uint8_t quiet;                    /* of TELL_QUIET: enum nvt_quiet, but LATER */
    uint16_t record_bytes;            /* of PUSH and PROPOSE */
    uint8_t record[NVG_RECORD_MAX];
};

/* The bytes; never 0. */
size_t nvg_message_put(const struct nvg_message *message, uint8_t out[NVG_MESSAGE_MAX]);
/* False: that is no message. */
bool nvg_message_get(const uint8_t *in, size_t bytes, struct nvg_message *out);

#endif
