/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on purpose: what happens to which packet, by rules that a user writes (docs/faults.md). No
 * clock and no I/O: links say what passes and when, and do what they are told. Random choices
 * depend on the seed, the queue pair and the packet's number there, so they do not change with the
 * order in which threads run.
 */
#ifndef SW_LINK_FAULTS_FAULTS_H
#define SW_LINK_FAULTS_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sw_fault_kind {
    SW_FAULT_DROP,
    SW_FAULT_DUPLICATE,
    SW_FAULT_CORRUPT,
    SW_FAULT_DELAY,
    SW_FAULT_REORDER, /* delays, and lets later packets pass */
    SW_FAULT_RNR,     /* receives are not there */
    SW_FAULT_CUT,     /* nothing passes, either way */
    SW_FAULT_KINDS
};

/* What a packet carries, for rules that name it. */
enum sw_fault_packet_kind {
    SW_FAULT_SEND = 1 << 0,
    SW_FAULT_WRITE = 1 << 1,
    SW_FAULT_READ = 1 << 2,     /* the request */
    SW_FAULT_RESPONSE = 1 << 3, /* of a READ */
    SW_FAULT_ATOMIC = 1 << 4,   /* request or answer */
    SW_FAULT_ACK = 1 << 5,      /* or NAK */
    SW_FAULT_DATAGRAM = 1 << 6, /* UD */
    SW_FAULT_MAD = 1 << 7,      /* of connection management: UD to QP 1 */
    SW_FAULT_DREQ = 1 << 8,     /* the MAD that ends a connection; it is a MAD, too */
    SW_FAULT_OTHER = 1 << 9,
};

struct sw_fault_packet {
    uint32_t qpn;
    uint32_t ordinal; /* of the QP among those the process created, from 1; 0: QP 1, a group */
    uint32_t psn;     /* 24 bits; links without PSNs number their requests */
    uint32_t len_bytes;
    uint32_t kind; /* of enum sw_fault_packet_kind: all that it is */
    bool received; /* else it is being sent */
};

struct sw_fault_action {
    bool drop;
    bool duplicate;
    bool corrupt;
    uint32_t corrupt_bit; /* below 8 * len_bytes */
    uint64_t delay_ns;    /* keeps its place among packets delayed likewise */
    uint64_t reorder_ns;  /* others pass */
};

struct sw_fault_rule {
    enum sw_fault_kind kind;
    uint32_t packets;   /* enum sw_fault_packet_kind bits; 0: all */
    uint32_t qp;        /* 0: all; below SW_FAULT_ORDINALS an ordinal, else a QPN */
    int64_t psn;        /* -1: all */
    uint64_t nth;       /* only this one of those that match, from 1; 0: all */
    uint64_t times;     /* at most; 0: without end */
    uint64_t chance;    /* out of 2^64 - 1, which means always */
    uint64_t from_ns;   /* since the NIC was started */
    uint64_t until_ns;  /* UINT64_MAX: for ever */
    uint64_t amount_ns; /* of delays */
    bool received;      /* looks at what comes in instead of what is sent */
    uint32_t number;    /* of its line, or its place in the list */
    _Atomic uint64_t matched;
    _Atomic uint64_t done;
};

#define SW_FAULT_ORDINALS 8192u /* smaller numbers after "qp" are ordinals, no QPN is as small */
#define SW_FAULT_RULES 64

struct sw_faults {
    uint64_t seed;
    uint32_t count;
    struct sw_fault_rule rules[SW_FAULT_RULES];
    _Atomic uint64_t seen[2];                          /* packets, by `received` */
    _Atomic uint32_t passed[2][SW_FAULT_ORDINALS + 1]; /* packets of each QP */
};

/* From "loss=1%,delay=20us,seed=7" or "@FILE". 0; or a negative errno with *error (at most `room`
 * bytes) saying what is wrong where. */
int sw_faults_parse(const char *text, struct sw_faults *out, char *error, size_t room);
/* The rules of a script, one to a line. */
int sw_faults_parse_script(const char *script, struct sw_faults *out, char *error, size_t room);

/* What happens to a packet now; false: nothing. Callable from any thread. */
bool sw_faults_decide(struct sw_faults *faults, const struct sw_fault_packet *packet,
                      uint64_t now_ns, struct sw_fault_action *out);
/* Whether no rule is about packets that leave, or that come (`received`): then so many, of the QP
 * with that ordinal, have passed. */
bool sw_faults_spare(struct sw_faults *faults, bool received, uint32_t ordinal, uint32_t count);
/* Whether receives of a QP are to be taken for absent now. Counts as the rule's effect. */
bool sw_faults_withholds(struct sw_faults *faults, uint32_t qpn, uint32_t ordinal, uint64_t now_ns);
bool sw_faults_is_cut(const struct sw_faults *faults, uint64_t now_ns);
/* Whether any rule is of a kind. */
bool sw_faults_has(const struct sw_faults *faults, enum sw_fault_kind kind);

/* One line on what was done, without a newline: "1203 packets sent, 12 dropped, ...". Its length,
 * as snprintf(3). */
int sw_faults_summary(const struct sw_faults *faults, char *out, size_t room);

#endif
