/* SPDX-License-Identifier: BSD-2-Clause */
/* The process that has a UDP port. */
#ifndef SW_LINK_ROCE_PORT_HOLDER_H
#define SW_LINK_ROCE_PORT_HOLDER_H

#include <stddef.h>
#include <stdint.h>

/* "user nobody (65534): PID 123 (prog)", as far as this process may know; "nobody that can be seen"
 * if no socket is found. */
void sw_holder_describe(uint16_t udp_port, char *text, size_t room);

#endif
