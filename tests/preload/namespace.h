/* SPDX-License-Identifier: BSD-2-Clause */
/* Namespaces of our own, as root or as an ordinary user. */
#ifndef TESTS_PRELOAD_NAMESPACE_H
#define TESTS_PRELOAD_NAMESPACE_H

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void namespace_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, text, strlen(text));
    (void)ignored;
    close(fd);
}

/* 0, or -1 if the machine refuses. `flags`: CLONE_NEW*. */
static inline int namespace_enter(int flags)
{
    char uid_map[64], gid_map[64];
    snprintf(uid_map, sizeof(uid_map), "0 %d 1", (int)getuid());
    snprintf(gid_map, sizeof(gid_map), "0 %d 1", (int)getgid());
    if (!unshare(flags))
        return 0;
    if (unshare(CLONE_NEWUSER | flags))
        return -1;
    namespace_write("/proc/self/setgroups", "deny");
    namespace_write("/proc/self/uid_map", uid_map);
    namespace_write("/proc/self/gid_map", gid_map);
    return 0;
}

/* A network with nothing but a loopback interface that is up. */
static inline bool namespace_own_network(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = namespace_enter(CLONE_NEWNET) ? -1 : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd >= 0)
        close(fd);
    return is_up;
}

#endif
