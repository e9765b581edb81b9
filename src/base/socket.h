/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets of the library's own, past whatever the program has put before the C library's calls. */
#ifndef SW_BASE_SOCKET_H
#define SW_BASE_SOCKET_H

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool sw_socket_set(int fd, int level, int name, int value)
{
    return syscall(SYS_setsockopt, fd, level, name, &value, sizeof(value)) == 0;
}

/* TCP keepalive: probe after `seconds` of silence and every `seconds` from then on; give up after
 * `tries`. */
static inline void sw_socket_keep_alive(int fd, int seconds, int tries)
{
    sw_socket_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    sw_socket_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    sw_socket_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
    sw_socket_set(fd, IPPROTO_TCP, TCP_KEEPCNT, tries);
}

/* Closes it after a call that failed. Returns the negative errno of that. */
static inline int sw_socket_fail(int fd)
{
    const int err = errno;
    close(fd);
    return -err;
}

#endif
