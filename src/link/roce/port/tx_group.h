/* SPDX-License-Identifier: BSD-2-Clause */
/* What tx.c gathers and tx_send.c sends. */
#ifndef SW_LINK_ROCE_PORT_TX_GROUP_H
#define SW_LINK_ROCE_PORT_TX_GROUP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/lock.h"
#include "link/roce/port/path.h"
#include "wire/icrc.h"

#define SW_TX_GROUPS 8u /* of as many flows as there are senders */
/* With all headers, Ethernet's too, less than 64 KiB: not cut up early. */
#define SW_TX_GROUP_BYTES 65472u
#define SW_TX_HEADROOM_BYTES 64u /* before a message: the head of a joint packet that begins it */
#define SW_TX_LONG_BYTES 32768u  /* a message that is long */

struct sw_tx_group { /* packets that leave in one message */
    struct sw_roce_path path;
    struct sw_connected_sender *sender; /* by which it leaves; NULL: by one of the port's senders */
    uint8_t *bytes;                     /* in the arena, or in a room of the sender's ring */
    bool has_room;                      /* which is this */
    uint16_t ip_id;                     /* of the first packet */
    uint32_t count, len_bytes;
    uint32_t segment_bytes;  /* of each, but the last */
    uint32_t unsealed_bytes; /* the length of the last one while its ICRC is missing, or 0 */
    uint32_t joint_left;     /* what the last one still takes, if it is a joint one */
    uint32_t damage;         /* as in struct sw_outgoing; it has no other in its group */
    bool is_closed;          /* nothing may follow */
    bool is_pair;            /* a joint packet that is longer than the path MTU asks for */
    struct sw_icrc_prefix prefix;
    struct iovec iov;
    _Alignas(8) uint8_t control[CMSG_SPACE(sizeof(struct in6_pktinfo)) + 3 * CMSG_SPACE(4)];
};

struct sw_batch {
    struct sw_lock lock;
    struct sw_port *port;
    uint32_t count; /* of groups; the last one of each flow may grow */
    bool dropped, hurries;
    uint32_t unconnected;               /* short messages that left by one of the port's senders */
    struct sw_connected_sender *sender; /* claimed until it is flushed */
    struct sw_tx_group groups[SW_TX_GROUPS];
    struct mmsghdr messages[SW_TX_GROUPS];
    struct sockaddr_in6 to[SW_TX_GROUPS];
    _Alignas(64) uint8_t arena[SW_TX_GROUPS][SW_TX_HEADROOM_BYTES + SW_TX_GROUP_BYTES];
};

/* Sends all groups, which are sealed, in their order. Messages that a socket does not take are
 * counted. */
void sw_tx_send_groups(struct sw_batch *batch);

#endif
