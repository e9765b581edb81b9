/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel's rdma_cm as the layer above sees it: a device that is opened and written to. Each
 * open is a channel; what a program gets is the read end of a pipe that holds one byte for each
 * event it has not fetched, so that poll, epoll, SIGIO, O_NONBLOCK, dup and fork work on it as they
 * do on any descriptor. Commands are written (rdma/rdma_user_cm.h): no pipe can be written to by
 * its read end, so the kernel refuses them with EBADF, and then they come here.
 */
#ifndef SW_RDMACM_RDMACM_H
#define SW_RDMACM_RDMACM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Channels of this process; while there are none, no descriptor can be one. */
extern atomic_uint sw_ucm_channel_count;

/* Opens a channel: a descriptor, or a negative errno. O_CLOEXEC and O_NONBLOCK of `flags` count.
 * Starts the NIC of the process. */
int sw_ucm_open(int flags);

/* Whether that file (its device and inode) is a channel. Safe in signal handlers. */
bool sw_ucm_is_channel(dev_t device, ino_t inode);

/* write() to a descriptor: `len`, or a negative errno; -EBADF: it is no channel. May block in
 * GET_EVENT. */
ssize_t sw_ucm_write(int fd, const void *bytes, size_t len);

#endif
