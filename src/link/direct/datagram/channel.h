/* SPDX-License-Identifier: BSD-2-Clause */
/* The way of datagrams to the other processes of this host: into the ring that each keeps for us
 * (receive.h), for as long as it lets us attach. */
#ifndef SW_LINK_DIRECT_DATAGRAM_CHANNEL_H
#define SW_LINK_DIRECT_DATAGRAM_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

struct sw_gather;
struct sw_path;
struct sw_qp;

/* A datagram that is posted. */
struct sw_datagram_out {
    const struct sw_gather *bytes;
    const struct sw_path *path;
    uint32_t len_bytes;
    uint32_t dest_qpn;
    uint32_t qkey; /* as given: the high bit asks for the sending QP's own */
    uint32_t imm;
    bool has_imm;
    bool is_solicited;
};

enum sw_channel_state {
    SW_CHANNEL_READY,
    SW_CHANNEL_WAIT,   /* until it lets us attach, or its ring has room */
    SW_CHANNEL_NOBODY, /* no such process */
    SW_CHANNEL_FAR,    /* it refuses us: by packets */
};

/* Whether the process in a slot can be given a message that takes so many units. */
enum sw_channel_state sw_channel_ready(uint32_t slot, uint32_t units);

enum sw_channel_put {
    SW_PUT_DONE,
    SW_PUT_DROPPED, /* and counted: the request is complete all the same */
    SW_PUT_WAIT,
    SW_PUT_BAD_KEY,
    SW_PUT_NOBODY, /* no such process */
    SW_PUT_FAR,    /* it refuses us: by packets */
};

/* Gives it to the process in a slot. */
enum sw_channel_put sw_channel_put(struct sw_qp *qp, uint32_t slot,
                                   const struct sw_datagram_out *out);
/* The same if nothing stands in its way. False: it is for sw_channel_put(), and nothing is done. */
bool sw_channel_put_now(struct sw_qp *qp, uint32_t slot, const struct sw_datagram_out *out);

/* Engine: lets go of processes that died. */
void sw_channel_forget_dead(void);
void sw_channel_fork_child(void);

#endif
