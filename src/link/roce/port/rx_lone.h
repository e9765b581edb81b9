/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that come alone, as those of requests and answers, one at a time.
 *
 * Their socket is asked for their bytes and nothing else: by recv(), which takes 200 ns where
 * recvmsg() with the traffic class takes 290. The kernel then joins no packets, as it could not
 * tell their lengths. So that ends with the first packets that come together. And since
 * congestion marks lie in the class, all is asked for again every two milliseconds, for some
 * packets.
 *
 * No clock, no system call: times are given.
 */
#ifndef SW_LINK_ROCE_PORT_RX_LONE_H
#define SW_LINK_ROCE_PORT_RX_LONE_H

#include <stdbool.h>
#include <stdint.h>

struct sw_rx_lone {
    bool is_on;        /* bytes are all that the socket is asked for */
    uint32_t streak;   /* packets in a row that came alone; not while it is on */
    uint64_t since_ns; /* when the first of these came */
    uint64_t until_ns; /* while it is on: so long */
};

/* All has been asked for, and a message has come. `is_alone`: one packet, without a mark, and no
 * other one directly before it. */
void sw_rx_lone_note(struct sw_rx_lone *lone, bool is_alone, uint64_t now_ns);
/* All has been asked for, and nothing has come. Returns whether it may begin. */
bool sw_rx_lone_may_begin(const struct sw_rx_lone *lone, uint64_t now_ns);
/* The socket is set up for it; or it could not be, as a packet was there. */
void sw_rx_lone_begin(struct sw_rx_lone *lone, bool can_begin, uint64_t now_ns);
/* It is on, and a packet has come. Returns whether it ends. */
bool sw_rx_lone_ends(struct sw_rx_lone *lone, bool is_alone, uint64_t now_ns);

#endif
