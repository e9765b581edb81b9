/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rules of the target side: whether an operation is allowed on a region, and what a refusal
 * means to both ends. Every link decides through this file, so a program cannot tell links apart.
 * Pure; nothing here touches memory but the entries it is given. IBTA Vol1 9.7.5.2 (NAK
 * codes), 10.6.7 (completion status), C9-156 ff (responder behaviour).
 */
#ifndef SW_DEVICE_RULES_TARGET_H
#define SW_DEVICE_RULES_TARGET_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/rules/pub.h"
#include "transport/demand.h"

/* What the target decides of one request. */
enum sw_verdict {
    SW_ACK,
    SW_RNR,             /* no receive posted */
    SW_NAK_ACCESS,      /* bad key, bounds, rights, PD */
    SW_NAK_INVALID,     /* malformed or not supported: misaligned atomic, receive too small */
    SW_NAK_OPERATIONAL, /* the target's own receive buffer is not usable */
    SW_UNREACHABLE,     /* no answer: peer gone, QP not there or not ready */
    SW_RNR_EXHAUSTED,
    SW_VERDICT_COUNT
};

struct sw_verdict_rule {
    const char *name;
    uint8_t aeth_syndrome;        /* 0x1f: ACK without credits */
    enum ibv_wc_status requester; /* of the request's completion */
    bool requester_fatal;         /* requester's QP goes to ERR */
    enum ibv_wc_status responder; /* of the receive it would have used; IBV_WC_SUCCESS: none */
    bool responder_fatal;         /* responder's QP goes to ERR */
    int responder_event;          /* enum ibv_event_type, or -1 */
    bool lost; /* the message vanishes: no receive is used, neither side is told */
};
extern const struct sw_verdict_rule sw_verdict_rules[SW_VERDICT_COUNT];
/* An unreliable connection has no acknowledgements, so nothing is ever refused: IBTA Vol1 9.8.2. */
extern const struct sw_verdict_rule sw_verdict_rules_uc[SW_VERDICT_COUNT];

static inline const struct sw_verdict_rule *sw_verdict_rules_of(enum ibv_qp_type type)
{
    return type == IBV_QPT_UC ? sw_verdict_rules_uc : sw_verdict_rules;
}

/* Whether all of these bytes lie in the region. */
static inline bool sw_mr_covers(const struct sw_pub_mr *mr, uint64_t addr, uint64_t len_bytes)
{
    uint64_t offset = addr - mr->iova;
    return addr >= mr->iova && offset <= mr->len_bytes && len_bytes <= mr->len_bytes - offset;
}

/* The target's QP, as far as memory is concerned. */
struct sw_target_qp {
    uint32_t qpn; /* 0 for local accesses, which no window serves */
    uint32_t pd;
    uint32_t access; /* what it admits (remote accesses), or ~0u for local ones */
};

/* Checks one access by key against a table. `need`: IBV_ACCESS_* bits that must all be set (0: any
 * valid region, local read). On SW_ACK *out is the entry and *word its key word. */
enum sw_verdict sw_target_check(const struct sw_pub *pub, uint32_t key, uint64_t addr,
                                uint64_t len_bytes, uint32_t need, struct sw_target_qp qp,
                                const struct sw_pub_mr **out, uint64_t *word);

/* Why sw_target_check() refuses this, for links that tell their peer. NONE: it does not, by now. */
enum sw_access_fault sw_target_fault(const struct sw_pub *pub, uint32_t key, uint64_t addr,
                                     uint64_t len_bytes, uint32_t need, struct sw_target_qp qp);

/* What a FLUSH asks of the target. */
struct sw_target_flush {
    uint64_t addr, len_bytes;
    uint32_t key;
    uint8_t type;      /* IBV_FLUSH_GLOBAL, IBV_FLUSH_PERSISTENT: one or both */
    bool whole_region; /* address and length mean nothing */
};
/* `how`: the type in bits 0 to 7, the level above, as requests and records carry them. */
struct sw_target_flush sw_target_flush_of(uint32_t key, uint64_t addr, uint64_t len_bytes,
                                          uint64_t how);
/* The same for a FLUSH; on SW_ACK its address and length are what is to be flushed. Unlike an
 * access to nothing it names a key even where it is empty. */
enum sw_verdict sw_target_check_flush(const struct sw_pub *pub, struct sw_target_flush *flush,
                                      struct sw_target_qp qp, const struct sw_pub_mr **out);

/* An access to nothing: its key is not looked at (C9-88), but the QP must admit the operation. */
static inline enum sw_verdict sw_target_check_empty(uint32_t need, uint32_t qp_access)
{
    return (qp_access & need) == need ? SW_ACK : SW_NAK_INVALID;
}

/* Whether bytes [at, at + len) of a message fit into its receive. */
static inline enum sw_verdict sw_target_check_room(uint64_t room_bytes, uint64_t at,
                                                   uint64_t len_bytes)
{
    return at <= room_bytes && len_bytes <= room_bytes - at ? SW_ACK : SW_NAK_INVALID;
}

/* Whether a SEND may invalidate a key: only that of a window bound to the QP it comes to (IBTA Vol1
 * 10.6.7.2.6; plain regions are their owner's). */
enum sw_verdict sw_target_check_invalidate(const struct sw_pub *pub, uint32_t key,
                                           struct sw_target_qp qp);

/* What an atomic request does to its word; returns the word before. */
uint64_t sw_target_atomic(uint64_t *word, uint8_t opcode, uint64_t compare_add, uint64_t swap);

/* The right an opcode needs at the target. */
uint32_t sw_target_need(enum ibv_wr_opcode opcode);

#endif
