/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int refuse_signals(const char *call, char *error, size_t error_bytes)
{
    const int why = errno;
    snprintf(error, error_bytes, "SIGINT and SIGTERM cannot be received: %s: %s", call,
             strerror(why));
    return -why;
}

int mover_signals_open(bool reloads, char *error, size_t error_bytes)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (reloads)
        sigaddset(&set, SIGHUP);
    const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return refuse_signals("signalfd", error, error_bytes);
    if (sigprocmask(SIG_BLOCK, &set, NULL)) {
        const int why = refuse_signals("sigprocmask", error, error_bytes);
        close(fd);
        return why;
    }
    return fd;
}

int mover_signals_take(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof(info)) == sizeof(info) ? (int)info.ssi_signo : 0;
}
