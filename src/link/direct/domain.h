/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC domains and queue pairs that several processes share: the link's operations. */
#ifndef SW_LINK_DIRECT_DOMAIN_H
#define SW_LINK_DIRECT_DOMAIN_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "device/rules/pub.h"

/* Tells the processes of this host of a domain that is opened here, until the descriptor that it
 * returns is closed. `oflags` as open() has them: -EINVAL for O_EXCL where the domain exists,
 * -EAGAIN without O_CREAT where it does not. */
int sw_domain_announce(const struct sw_pub_domain *domain, int oflags);
/* Opens the target QP of another process. A descriptor to talk to it by, or a negative errno. */
int sw_hold_open(const struct sw_pub_domain *domain, uint32_t qpn);
/* Has that process change it, or (mask 0) tell its attributes. 0 or a negative errno. */
int sw_hold_call(int fd, int mask, struct ibv_qp_attr *attr);

#endif
