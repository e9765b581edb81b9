/* SPDX-License-Identifier: BSD-2-Clause */
/* The loopback device in the tree that the library shows. */
#ifndef TESTS_PRELOAD_LOOPBACK_H
#define TESTS_PRELOAD_LOOPBACK_H

#define LO "/sys/class/infiniband/sw_lo"
#define REAL_LO "/sys/devices/virtual/infiniband/sw_lo"
#define GID_0 "0000:0000:0000:0000:0000:ffff:7f00:0001\n"

#endif
