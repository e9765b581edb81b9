/* SPDX-License-Identifier: BSD-2-Clause */
/* The link of iWARP devices: RDMA over TCP (docs/iwarp.md). */
#ifndef SW_LINK_IWARP_IWARP_H
#define SW_LINK_IWARP_IWARP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/nic/nic.h"
#include "link/iwarp/notes.h"
#include "transport/iwarp/start.h"

/* Queue pairs of iWARP devices have these from the beginning. */
extern const struct sw_qp_ops sw_iwarp_qp_ops;

void sw_iwarp_start(void);
void sw_iwarp_fork_child(void);

/* Who connects is told what becomes of connections: by the engine, without locks. */
void sw_iwarp_set_user(void (*told)(uint64_t cookie, enum sw_iwarp_news news, int status));

/* A connection that is past its start. */
struct sw_iwarp_begin {
    int fd;
    struct sw_iwarp_terms terms;
    bool is_initiator;
    bool awaits_first;    /* responder: FIRST_CAME is wanted */
    uint64_t cookie;      /* for news */
    const uint8_t *bytes; /* that came behind the start */
    size_t len;
};
/* Gives it to a queue pair of this process, which is in RTS then. -EINVAL: there is no such queue
 * pair, or not in INIT or RTR; -ENOMEM. The socket is taken over if it is 0. */
int sw_iwarp_begin(uint32_t qpn, const struct sw_iwarp_begin *begin);
/* Whether sw_iwarp_begin() would find the queue pair as it wants it. */
bool sw_iwarp_can_begin(uint32_t qpn);
/* Ends the connection with this cookie, if the queue pair still has it. */
void sw_iwarp_hang_up(uint32_t qpn, uint64_t cookie);

#endif
