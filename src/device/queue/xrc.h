/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains: which target QPs may put messages into which shared receive queues (IBTA Vol1 annex
 * A14). Opened by inode, as the kernel does it: all that open the same file get the same domain, in
 * all processes of the host. 0 or negative errno.
 */
#ifndef SW_DEVICE_QUEUE_XRC_H
#define SW_DEVICE_QUEUE_XRC_H

#include <stdint.h>

struct sw_context;
struct sw_cq;
struct sw_qp;
struct sw_srq;
struct sw_xrcd;

/* `fd` -1: a domain of its own. `oflags`: O_CREAT, O_EXCL. -EBADF, -EAGAIN (no process has a domain
 * on this inode, and O_CREAT was not given), -EINVAL (one has, and O_EXCL was given), -ENOMEM. */
int sw_xrcd_open(struct sw_context *ctx, int fd, int oflags, struct sw_xrcd **out);
/* The last close of what was opened frees it. The caller sees to it that nothing it made uses it.
 */
void sw_xrcd_close(struct sw_xrcd *xrcd);

/* Puts an SRQ that nobody knows yet into the domain: completions of messages to it go to `cq`. */
int sw_xrcd_add_srq(struct sw_xrcd *xrcd, struct sw_srq *srq, struct sw_cq *cq);
uint32_t sw_srq_num(const struct sw_srq *srq); /* 0: not in a domain */

/* Opens a target QP of the domain once more, in whatever process it is; sw_qp_destroy() gives the
 * handle back. *owner is the user's object of the handle that gets the QP's events; NULL: no handle
 * does yet. -EINVAL: there is no QP of that number. One call at a time. */
int sw_xrcd_open_qp(struct sw_xrcd *xrcd, uint32_t qpn, struct sw_qp **out, void **owner);

#endif
