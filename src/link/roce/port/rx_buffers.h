/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one call of the kernel fills: messages, each in a room of its own. A reader that still needs
 * a message's bytes when the next call is due holds them (struct sw_hold): that room stays as it
 * is, and the message gets another one, as long as there are some.
 */
#ifndef SW_LINK_ROCE_PORT_RX_BUFFERS_H
#define SW_LINK_ROCE_PORT_RX_BUFFERS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "wire/packet.h"

enum {
    SW_RX_BUFFERS_MESSAGES = 32,     /* at most in one call */
    SW_RX_BUFFERS_SPARE = 64,        /* rooms besides theirs */
    SW_RX_BUFFERS_ROOM = 128u << 10, /* bytes; a UDP datagram, or run of them, is shorter */
    SW_RX_BUFFERS_WORTH = 16u << 10, /* bytes; of less a copy is made, rather than a room held */
};

struct sw_rx_buffers {
    struct mmsghdr messages[SW_RX_BUFFERS_MESSAGES];
    struct iovec iov[SW_RX_BUFFERS_MESSAGES];
    union sw_rx_buffers_from {
        struct sockaddr_in6 ip;
        struct sockaddr_un process;
    } from[SW_RX_BUFFERS_MESSAGES];
    uint8_t control[SW_RX_BUFFERS_MESSAGES][256];
    uint32_t control_bytes; /* of each, that are offered: with all of them, descriptors would fit */
    uint32_t ready;         /* messages that are as a call wants them, ... */
    uint32_t used;          /* ... but for the first ones, which the last call has filled */
    uint8_t *bytes;         /* of the rooms */
    uint8_t room[SW_RX_BUFFERS_MESSAGES];
    uint8_t spare[SW_RX_BUFFERS_SPARE]; /* the other rooms, some of them held */
    struct sw_hold holds[SW_RX_BUFFERS_MESSAGES + SW_RX_BUFFERS_SPARE]; /* of the rooms */
};

/* false: no memory. */
bool sw_rx_buffers_open(struct sw_rx_buffers *buffers);
/* Held rooms are gone, too. */
void sw_rx_buffers_close(struct sw_rx_buffers *buffers);

/* Reads from a socket, without waiting. Returns the number of messages that came, `want` or fewer;
 * or negative, with errno. `names`: tells in `from` whose each is. The kernel takes 28 ns for that.
 */
int sw_rx_buffers_fill(struct sw_rx_buffers *buffers, int fd, uint32_t want, bool names);

/* The same for the bytes of one message, and nothing that the kernel tells of it. */
int sw_rx_buffers_fill_bytes(struct sw_rx_buffers *buffers, int fd);

static inline const uint8_t *sw_rx_buffers_bytes(const struct sw_rx_buffers *buffers,
                                                 uint32_t message)
{
    return buffers->iov[message].iov_base;
}

static inline uint32_t sw_rx_buffers_len(const struct sw_rx_buffers *buffers, uint32_t message)
{
    return buffers->messages[message].msg_len;
}

/* What the message can be held by, until sw_rx_buffers_pass(). NULL: it cannot. */
struct sw_hold *sw_rx_buffers_hold(struct sw_rx_buffers *buffers, uint32_t message);
/* The message has been read; to be called before another one is offered. */
void sw_rx_buffers_pass(struct sw_rx_buffers *buffers, uint32_t message);

#endif
