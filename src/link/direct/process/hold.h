/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds: a process that has opened an XRC target QP of another process (ibv_open_qp) has a
 * connection to that process's socket, which lasts as long as the hold does: a process that dies
 * lets go, too. Over it the QP is queried and modified; the owner's engine does it.
 */
#ifndef SW_LINK_DIRECT_PROCESS_HOLD_H
#define SW_LINK_DIRECT_PROCESS_HOLD_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_message;
struct sw_pub_domain;

/* Opens the target QP of another process. A descriptor to talk to it by, or a negative errno. */
int sw_hold_open(const struct sw_pub_domain *domain, uint32_t qpn);
/* Has that process change it, or (mask 0) tell its attributes. 0 or a negative errno. */
int sw_hold_call(int fd, int mask, struct ibv_qp_attr *attr);

/* The owner's part, engine's thread. true: the connection is in its care. */
bool sw_hold_begin(int fd, const struct sw_message *asked);
void sw_hold_ready(uint64_t what);

void sw_hold_fork_child(void);

#endif
