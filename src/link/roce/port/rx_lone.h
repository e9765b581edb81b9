/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that come alone: a request, its answer, the next request.
 *
 * The socket of such a flow is asked for bytes and nothing else. recv() takes 200 ns; recvmsg(),
 * which tells the traffic class and the lengths of packets that the kernel has joined, takes 290.
 *
 * Two things are given up meanwhile. The kernel joins no packets, so a run of them costs a call for
 * each: with the first three that come together all is asked for again. And a congestion mark lies
 * in the class: all is asked for again each two milliseconds, for eight packets.
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
/* It was tried to set the socket up for it; `begins`: there was no packet in the way. */
void sw_rx_lone_tried(struct sw_rx_lone *lone, bool begins, uint64_t now_ns);
/* It is on, and a packet has come. Returns whether it ends. */
bool sw_rx_lone_ends(struct sw_rx_lone *lone, bool is_alone, uint64_t now_ns);

#endif
