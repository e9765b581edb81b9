/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stand-ins. A target QP of an XRC domain serves the SRQs of all processes that have the domain
 * open. In each of the others a QP that the program does not see stands in for it: one for each
 * initiator that has named an SRQ there. Its completions bear the target's number.
 */
#ifndef SW_DEVICE_QUEUE_STAND_IN_H
#define SW_DEVICE_QUEUE_STAND_IN_H

#include <stdbool.h>
#include <stdint.h>

struct sw_qp;
struct sw_xrcd;

struct sw_stand_in {
    uint32_t srq_num; /* names the domain */
    uint32_t target_qpn, initiator_qpn;
    uint8_t min_rnr_timer;
};

/* Creates one in RTS. `connect` is called with it locked. -ENOENT: no such SRQ; -ENOSPC: a CQ of
 * the domain has overflowed; -ENOMEM. */
int sw_stand_in_create(const struct sw_stand_in *init, int (*connect)(struct sw_qp *qp, void *arg),
                       void *arg, uint32_t *qpn);
bool sw_stand_in_is(const struct sw_qp *qp);

/* Destroys those that `gone` says so of (it is called with each locked). One caller at a time. */
void sw_stand_in_reap(bool (*gone)(struct sw_qp *qp));
/* The domain is being closed: destroys all of its stand-ins. */
void sw_stand_in_remove_all(struct sw_xrcd *xrcd);

#endif
