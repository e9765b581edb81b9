/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/serve/notify.h"

static void take_signal(struct mover_watch *watch)
{
    struct mover_signals *signals = watch->context;
    struct signalfd_siginfo info;
    if (read(watch->fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGHUP) {
        mover_notify_reloading();
        signals->reload(signals->context);
        mover_notify_ready();
        return;
    }
    mover_notify_stopping();
    if (signals->stop)
        signals->stop(signals->context);
    else
        mover_loop_stop(signals->loop);
}

static int refuse_signals(struct mover_signals *signals, const char *call, int why, char *error,
                          size_t error_bytes)
{
    snprintf(error, error_bytes, "SIGINT and SIGTERM cannot be received: %s: %s", call,
             strerror(why));
    mover_signals_close(signals);
    return -why;
}

int mover_signals_open(struct mover_signals *signals, struct mover_loop *loop, char *error,
                       size_t error_bytes)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (signals->reload)
        sigaddset(&set, SIGHUP);
    signals->loop = loop;
    signals->watch = (struct mover_watch){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                                          .ready = take_signal,
                                          .context = signals};
    if (signals->watch.fd < 0)
        return refuse_signals(signals, "signalfd", errno, error, error_bytes);
    const int rc = mover_loop_watch(loop, &signals->watch);
    if (rc)
        return refuse_signals(signals, "epoll", -rc, error, error_bytes);
    if (sigprocmask(SIG_BLOCK, &set, NULL))
        return refuse_signals(signals, "sigprocmask", errno, error, error_bytes);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

void mover_signals_close(struct mover_signals *signals)
{
    if (signals->watch.fd < 0)
        return;
    mover_loop_unwatch(signals->loop, &signals->watch);
    close(signals->watch.fd);
    signals->watch.fd = -1;
}
