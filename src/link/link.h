/* SPDX-License-Identifier: BSD-2-Clause */
/* The links a queue pair may use. */
#ifndef SW_LINK_LINK_H
#define SW_LINK_LINK_H

/* Makes the links known to the device; before the first device is opened. Idempotent. */
void sw_link_init(void);

#endif
