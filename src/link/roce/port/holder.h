/* SPDX-License-Identifier: BSD-2-Clause */
/* The process that has a UDP port, of IPv4 or IPv6: they are two ports to the kernel, and one
 * program may have the one alone. */
#ifndef SW_LINK_ROCE_PORT_HOLDER_H
#define SW_LINK_ROCE_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sw_holder {
    bool is_seen; /* what follows is known */
    unsigned int uid;
    long pid; /* 0: the kernel has it, or this process may not know who */
    char program[32];
};

void sw_holder_find(uint16_t udp_port, bool is_ipv4, struct sw_holder *out);
/* "process 123 (prog) of user nobody (65534)", as far as this process may know; "nobody that can
 * be seen" if no socket is found. */
void sw_holder_describe(const struct sw_holder *holder, char *text, size_t room);
/* Whether somebody has the port who does not share it with this user. Takes no packet from those
 * who do. */
bool sw_holder_keeps_out(uint16_t udp_port, bool is_ipv4);

#endif
