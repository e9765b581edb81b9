/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets of a stranger to two hosts (VU_HOSTS, IPv4) whose queue pairs talk with each other: of
 * all opcodes and none, with any PSN, right ICRCs for the most part, and more or less of what only
 * a peer should know. Some leave by UDP sockets of another user on the peer's host, others with
 * forged addresses.
 */
#ifndef SW_TESTS_INTEGRITY_FORGE_H
#define SW_TESTS_INTEGRITY_FORGE_H

#include <stdint.h>

#include "verbs_util/check.h"
#include "wire/icrc.h"

enum { FORGE_QPS = 3, FORGE_SOCKETS = 4 };

/* What is known of a side. */
struct forge_side {
    uint8_t address[4];
    uint32_t qpns[FORGE_QPS];
    uint32_t rkey;
    uint64_t addr, len_bytes; /* of its region */
};

struct forge_way { /* a UDP socket on the other side's host */
    int fd;
    struct sw_icrc_flow flow;
    struct sw_icrc_prefix prefix;
};

struct forge {
    const struct forge_side *sides; /* two */
    struct vu_random random;
    struct forge_way ways[2][FORGE_SOCKETS]; /* to each side */
    int raw[2];
    uint64_t sent;
};

void forge_open(struct forge *forge, const struct forge_side sides[2], uint64_t seed);
void forge_close(struct forge *forge);
/* Sends so many. */
void forge_send(struct forge *forge, uint32_t count);

#endif
