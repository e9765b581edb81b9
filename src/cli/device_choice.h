/* SPDX-License-Identifier: BSD-2-Clause */
/* Which RDMA device of the kernel an address belongs to: movers run there by themselves. */
#ifndef SW_CLI_DEVICE_CHOICE_H
#define SW_CLI_DEVICE_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

enum { SW_DEVICE_NAME_MAX = 64 };

struct sw_address_option {
    const char *shortest, *longest; /* "-a", "--traddr" */
    bool is_local;                  /* else the peer's: the address that leads there counts */
};

/*
 * The device of the first address that the options in words[0..count) name, as "--traddr ADDR",
 * "--traddr=ADDR", "-a ADDR" or "-aADDR", with or without ":PORT". An option that is local goes
 * before one that is not. `sysfs`: where the kernel lists devices, "/sys/class/infiniband".
 * False: it belongs to none, and `name` is empty.
 */
bool sw_device_choose(const char *sysfs, char *const *words, int count,
                      const struct sw_address_option *options, char name[SW_DEVICE_NAME_MAX]);

/* The device of a network interface, if its port is active. */
bool sw_device_of_netdev(const char *sysfs, const char *netdev, char name[SW_DEVICE_NAME_MAX]);

#endif
