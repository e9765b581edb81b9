/* SPDX-License-Identifier: BSD-2-Clause */
/* What target.c in the guest and machines.c here say to each other. */
#ifndef SW_TESTS_KERNEL_TARGET_H
#define SW_TESTS_KERNEL_TARGET_H

#include <stdint.h>

enum { TARGET_PORT = 18600, TARGET_MEMORY = 1 << 20, TARGET_MESSAGE_MAX = 1 << 16 };

/* Over TCP, before anything else: from us, then from the target. Both are little-endian machines.
 */
struct target_hello {
    uint32_t qpn, psn, mtu_bytes, is_uc;
    uint64_t addr; /* of TARGET_MEMORY bytes for all remote accesses */
    uint32_t rkey, pad;
    uint8_t gid[16];
};

/* The beginning of each message to the target. */
enum target_op {
    TARGET_ECHO = 'E', /* send the message back */
    TARGET_COPY =
        'C',          /* read [from, from+len) of our memory, write it to `to`, then send 8 bytes */
    TARGET_ADD = 'A', /* fetch and add `from` at `to` of our memory, then send what was there */
};

struct target_command {
    uint32_t op, rkey;
    uint64_t from, to;
    uint64_t len_bytes;
};

#endif
