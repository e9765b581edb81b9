/* SPDX-License-Identifier: BSD-2-Clause */
/* The multicast groups that QPs of this process are attached to. */
#ifndef SW_DEVICE_SERVE_MCAST_H
#define SW_DEVICE_SERVE_MCAST_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct sw_datagram;
struct sw_netdev;
struct sw_qp;

/* -EINVAL: not a UD QP, not a multicast GID. -ENOMEM: too many groups, or QPs in one. Attaching
 * again changes nothing: a message arrives once, and one call detaches. */
int sw_mcast_attach(struct sw_qp *qp, const union ibv_gid *gid);
/* -EINVAL also where it is not attached. */
int sw_mcast_detach(struct sw_qp *qp, const union ibv_gid *gid);

/* Whether any QP is attached to the group. */
bool sw_mcast_is_group(const union ibv_gid *gid);

/* To every attached QP (`dev` NULL: on whichever device; else it counts), each by its own rules;
 * also to the one it came from, if that has not asked to be left out. */
void sw_mcast_deliver(const union ibv_gid *gid, struct sw_netdev *dev,
                      const struct sw_datagram *datagram);

/* In a forked child: the attachments are its parent's. */
void sw_mcast_fork_child(void);

#endif
