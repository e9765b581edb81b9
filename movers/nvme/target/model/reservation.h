/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reservation of one namespace: who is registered, who holds it, who may do what, and who has
 * to be told (NVM Express Base 2.0 s8.19). Its owner calls it from one thread and sends the
 * notices. Registrations last until the namespace goes: a host that disconnects keeps its own.
 */
#ifndef SW_MOVERS_NVME_RESERVATION_H
#define SW_MOVERS_NVME_RESERVATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nvme/types.h>

enum {
    NVT_HOST_ID_BYTES = 16,
    NVT_REGISTRANTS_MAX = 64,
    NVT_REGISTER_BYTES = 16, /* the data of Reservation Register: the current and the new key */
    NVT_ACQUIRE_BYTES = 16,  /* of Acquire: the current key and the one to preempt */
    NVT_RELEASE_BYTES = 8,   /* of Release: the current key */
    NVT_REPORT_BYTES = sizeof(struct nvme_resv_status) +
                       NVT_REGISTRANTS_MAX * sizeof(struct nvme_registered_ctrl_ext), /* at most */
    NVT_RESERVATION_LOG_MAX = 64,
    /* RESCAP of a namespace: all six types, and IEKEY as Base 1.3 and later have it. */
    NVT_RESERVATION_CAPABILITIES = 0xfe,
    NVT_RESERVATION_PERSISTS = 0x01, /* of RESCAP, where it does */
};

struct nvt_host_id {
    uint8_t bytes[NVT_HOST_ID_BYTES];
};

struct nvt_registrant {
    struct nvt_host_id host;
    uint64_t key;
};

/* All zeroes is one that nobody has registered with. */
struct nvt_reservation {
    uint32_t generation;
    bool persists; /* through power loss, always: a group of targets keeps it in its log */
    uint8_t rtype; /* enum nvme_resv_rtype, or 0 where nobody holds it */
    /* With an all-registrants type every registrant holds it, and this means nothing. */
    struct nvt_host_id holder;
    size_t count;
    struct nvt_registrant registrants[NVT_REGISTRANTS_MAX]; /* in the order they came */
};

struct nvt_notice {
    struct nvt_host_id host; /* all its controllers are to know */
    enum nvme_resv_notify_rnlpt type;
};

/* A command that changes one. */
struct nvt_reservation_change {
    struct nvt_host_id host;
    uint8_t opcode;
    uint32_t cdw10;
    uint8_t data[NVT_REGISTER_BYTES];
};

/* A change that the group has committed, for a target that shares the namespace. */
struct nvt_applied {
    uint64_t number; /* of the change, in the order of the group */
    uint64_t id;     /* as it was given to ask(); 0: of another target, or of an earlier time */
    bool is_next;    /* this target has applied all before it; else `change` is not known */
    struct nvt_reservation_change change;
    struct nvt_reservation after;
};

/* What a command did beside its status. */
struct nvt_reservation_effect {
    size_t notice_count, abort_count;
    struct nvt_notice notices[2 * NVT_REGISTRANTS_MAX];
    /* Hosts whose commands to the namespace are ended before this one completes; a host that
     * preempts its own key is among them, with all its commands but this one. */
    struct nvt_host_id aborts[NVT_REGISTRANTS_MAX];
};

/*
 * Each carries out one command of `host`, whose Command Dword 10 and data it is given, and returns
 * the command's status. One that fails changes nothing and has no effect.
 */
uint16_t nvt_reservation_register(struct nvt_reservation *r, const struct nvt_host_id *host,
                                  uint32_t cdw10, const uint8_t data[NVT_REGISTER_BYTES],
                                  struct nvt_reservation_effect *effect);
uint16_t nvt_reservation_acquire(struct nvt_reservation *r, const struct nvt_host_id *host,
                                 uint32_t cdw10, const uint8_t data[NVT_ACQUIRE_BYTES],
                                 struct nvt_reservation_effect *effect);
uint16_t nvt_reservation_release(struct nvt_reservation *r, const struct nvt_host_id *host,
                                 uint32_t cdw10, const uint8_t data[NVT_RELEASE_BYTES],
                                 struct nvt_reservation_effect *effect);
/* Carries out Register, Acquire or Release, whichever it is. */
uint16_t nvt_reservation_change(struct nvt_reservation *r,
                                const struct nvt_reservation_change *change,
                                struct nvt_reservation_effect *effect);
/* What several changes did that nobody has seen one by one: hosts that are registered no more are
 * taken for preempted, and their commands are to be ended. */
void nvt_reservation_compare(const struct nvt_reservation *before,
                             const struct nvt_reservation *after,
                             struct nvt_reservation_effect *effect);
/* Sets `*len_bytes`, of which the host gets as much as it asked for, and zeroes behind. Refused is
 * the structure that has no room for a host ID of 128 bits. */
uint16_t nvt_reservation_report(const struct nvt_reservation *r, uint32_t cdw11,
                                uint8_t out[NVT_REPORT_BYTES], size_t *len_bytes);

/* What a command does to a namespace that somebody may have reserved. */
enum nvt_access { NVT_ACCESS_READ, NVT_ACCESS_WRITE, NVT_ACCESS_OTHER };
enum nvt_access nvt_access_of_io(uint8_t opcode);

bool nvt_reservation_is_registrant(const struct nvt_reservation *r, const struct nvt_host_id *host);
bool nvt_reservation_is_holder(const struct nvt_reservation *r, const struct nvt_host_id *host);
/* 0, or the conflict that the command gets. */
uint16_t nvt_reservation_allows(const struct nvt_reservation *r, const struct nvt_host_id *host,
                                enum nvt_access access);

/* Whether Set Features 0x82 of a namespace keeps a notice from its host. */
static inline bool nvt_notice_is_masked(uint32_t mask, enum nvme_resv_notify_rnlpt type)
{
    return mask & 1u << type;
}

/* Log page 0x80 of one controller: what it is to be told, the oldest first. All zeroes is empty. */
struct nvt_reservation_log {
    uint64_t made; /* of all pages, lost ones too */
    size_t first, count;
    struct nvme_resv_notification_log pages[NVT_RESERVATION_LOG_MAX];
};

/* The oldest is lost when there is no room: its number is then missing in the sequence. */
void nvt_reservation_log_add(struct nvt_reservation_log *log, uint32_t nsid,
                             enum nvme_resv_notify_rnlpt type);
/* An empty page when there is none. Reading takes it away, unless `retain`. */
void nvt_reservation_log_take(struct nvt_reservation_log *log, bool retain,
                              struct nvme_resv_notification_log *out);

#endif
