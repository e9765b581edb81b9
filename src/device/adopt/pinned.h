/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors through which a device or the kernel may hold on to pages of this process, not to its
 * addresses. */
#ifndef SW_DEVICE_ADOPT_PINNED_H
#define SW_DEVICE_ADOPT_PINNED_H

#include <stdbool.h>

/* True if this process has an io_uring, a VFIO or KVM descriptor, or one of a GPU or an RDMA
 * device; also when that cannot be found out. */
bool sw_pinned_possible(void);

/* Whether /proc/self/fd showing `target` means pinned pages. */
bool sw_pinned_target(const char *target);

#endif
