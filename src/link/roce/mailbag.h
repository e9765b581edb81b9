/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one call of the kernel fills: messages, each in a room of its own. Who still needs a
 * message's bytes when the next call is due holds them (struct sw_hold): that room stays as it is,
 * and the message gets another one, as long as there are some.
 */
#ifndef SW_LINK_ROCE_MAILBAG_H
#define SW_LINK_ROCE_MAILBAG_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "wire/packet.h"

enum {
    SW_MAILBAG_MESSAGES = 32,     /* at most in one call */
    SW_MAILBAG_SPARE = 64,        /* rooms besides theirs */
    SW_MAILBAG_ROOM = 128u << 10, /* bytes; a UDP datagram, or run of them, is shorter */
    SW_MAILBAG_WORTH = 16u << 10, /* bytes; of less a copy is made, rather than a room held */
};

struct sw_mailbag {
    struct mmsghdr messages[SW_MAILBAG_MESSAGES];
    struct iovec iov[SW_MAILBAG_MESSAGES];
    union sw_mailbag_from {
        struct sockaddr_in6 ip;
        struct sockaddr_un process;
    } from[SW_MAILBAG_MESSAGES];
    uint8_t control[SW_MAILBAG_MESSAGES][256];
    uint32_t control_bytes; /* of each, that are offered: with all of them, descriptors would fit */
    uint32_t ready;         /* messages that are as a call wants them, ... */
    uint32_t used;          /* ... but for the first ones, which the last call has filled */
    uint8_t *bytes;         /* of the rooms */
    uint8_t room[SW_MAILBAG_MESSAGES];
    uint8_t spare[SW_MAILBAG_SPARE]; /* the other rooms, some of them held */
    struct sw_hold holds[SW_MAILBAG_MESSAGES + SW_MAILBAG_SPARE]; /* of the rooms */
};

/* false: no memory. */
bool sw_mailbag_open(struct sw_mailbag *bag);
/* What is held is gone, too. */
void sw_mailbag_close(struct sw_mailbag *bag);

/* Reads from a socket, without waiting. Returns the number of messages that came, `want` or fewer;
 * or negative. */
int sw_mailbag_fill(struct sw_mailbag *bag, int fd, uint32_t want);

static inline const uint8_t *sw_mailbag_bytes(const struct sw_mailbag *bag, uint32_t message)
{
    return bag->iov[message].iov_base;
}

static inline uint32_t sw_mailbag_len(const struct sw_mailbag *bag, uint32_t message)
{
    return bag->messages[message].msg_len;
}

/* What the message can be held by, until sw_mailbag_pass(). NULL: it cannot. */
struct sw_hold *sw_mailbag_hold(struct sw_mailbag *bag, uint32_t message);
/* The message has been read; to be called before another one is offered. */
void sw_mailbag_pass(struct sw_mailbag *bag, uint32_t message);

#endif
