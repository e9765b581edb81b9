/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC domains that several processes share. */
#ifndef SW_LINK_DIRECT_PROCESS_DOMAIN_H
#define SW_LINK_DIRECT_PROCESS_DOMAIN_H

#include "device/rules/pub.h"

/* Tells the processes of this host of a domain that is opened here, until the descriptor that it
 * returns is closed. `oflags` as open() has them: -EINVAL for O_EXCL where the domain exists,
 * -EAGAIN without O_CREAT where it does not. */
int sw_domain_announce(const struct sw_pub_domain *domain, int oflags);

#endif
