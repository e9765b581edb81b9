/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of XRC domains, for device/ and links. */
#ifndef SW_DEVICE_QUEUE_XRC_IMPL_H
#define SW_DEVICE_QUEUE_XRC_IMPL_H

#include <stdbool.h>

#include "device/queue/xrc.h"
#include "device/rules/pub.h"

/* Guarded by nic.lock. */
struct sw_xrcd {
    struct sw_xrcd *next;
    struct sw_pub_domain name; /* published in QP and SRQ entries */
    uint32_t opens;
    uint32_t pins; /* users besides: a close waits for them */
    /* Descriptors of a domain with an inode, or -1: `inode` keeps that number from being given to
     * another file; `announcement` tells other processes that the domain is open. */
    int inode, announcement;
    struct sw_context *ctx; /* its own: it may be older and younger than those that opened it */
    /* Target QPs complete nothing of their own, but a QP has CQs. */
    struct sw_cq *no_cq;
    struct sw_srq *srqs; /* by domain_next */
    struct sw_qp *qps;   /* by domain_next */
};

bool sw_domain_is(const struct sw_pub_domain *one, const struct sw_pub_domain *other);

extern struct sw_xrcd *sw_xrcds; /* all of the process; under nic.lock */
/* The domain of an SRQ of this number, or NULL; under nic.lock. */
struct sw_xrcd *sw_xrcd_of_srq(uint32_t srq_num);

/* A target QP enters the domain: it is driven by pollers of all CQs of the domain's SRQs. */
int sw_xrcd_add_qp(struct sw_xrcd *xrcd, struct sw_qp *qp);
void sw_xrcd_remove_qp(struct sw_qp *qp);
/* Afterwards no target QP uses the SRQ. */
void sw_xrcd_remove_srq(struct sw_srq *srq);
/* Another process opens a target QP of this one, and lets go of it: by then the QP may have no
 * handle here, nor the domain. -EINVAL: there is none. */
int sw_xrcd_hold_qp(const struct sw_pub_domain *domain, uint32_t qpn, struct sw_qp **out);
void sw_xrcd_release_qp(struct sw_qp *qp);

/* A target QP was reset: removes its queued completions. Neither it nor a CQ is locked. */
void sw_xrcd_purge_qp(struct sw_qp *qp);

/* Whether a CQ that completions of the target QP go to has overflowed; `tell`: tells the programs.
 */
bool sw_xrcd_is_overrun(const struct sw_qp *qp, bool tell);

/* The SRQ that a request to this target QP names, or NULL. With the QP locked; good as long as it
 * is. */
struct sw_srq *sw_xrcd_srq_of(const struct sw_qp *qp, uint32_t srq_num);

/* In a forked child: the domains are its parent's. */
void sw_xrcd_fork_child(void);

#endif
