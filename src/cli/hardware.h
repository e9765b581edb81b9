/* SPDX-License-Identifier: BSD-2-Clause */
/* The RDMA devices that the kernel has, which stay visible beside ours. */
#ifndef SW_CLI_HARDWARE_H
#define SW_CLI_HARDWARE_H

enum { SW_HARDWARE_MAX = 32 };

struct sw_hardware {
    int count;
    struct sw_hardware_device {
        char name[64];
        char netdev[64]; /* "-" if it has none */
        char state[32];  /* of port 1, e.g. "active" */
    } devices[SW_HARDWARE_MAX];
};

/* Reads /sys/class/infiniband; ours, which show up there when this command itself runs under the
 * library, are left out. */
void sw_hardware_read(struct sw_hardware *out);

#endif
