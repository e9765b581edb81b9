/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the command of a server stands on: a loop, the signals that end it, and the control socket
 * by which `status` and `metrics` reach it (control.h).
 *
 *     static struct mover_server server;
 *     int code = mover_server_open(&server);
 *     if (!code)
 *         code = mover_server_control(&server, &setup);
 *     if (!code) {
 *         printf("ready. %s ends it.\n", mover_background_end());
 *         mover_background_ready();
 *         mover_loop_run(&server.loop);
 *     }
 *     mover_server_close(&server);
 */
#ifndef SW_MOVERS_SERVER_H
#define SW_MOVERS_SERVER_H

#include "common/command/background.h"
#include "common/command/operator.h"
#include "common/serve/control.h"
#include "common/serve/loop.h"
#include "common/serve/signals.h"

/* All zero to begin with, but for what the options say. */
struct mover_server {
    struct mover_operator wish; /* as the options say (operator.h) */
    struct mover_loop loop;
    struct mover_signals signals;
    struct mover_control control;
    struct mover_exporter exporter;
    bool has_loop, has_signals, has_control;
};

/* A loop that SIGINT and SIGTERM stop, in a child where the server goes on in the background: that
 * ends what waits for it by mover_background_ready(). Before devices are opened and other threads
 * start. Returns the exit status: 0, or 1 after it has said why not. */
int mover_server_open(struct mover_server *server);
/* The control socket, by `setup` and the path above, and metrics where they are wanted. A server
 * that can have no socket says so and serves all the same, unless --control asked for it: then this
 * returns 1. */
int mover_server_control(struct mover_server *server, const struct mover_control_setup *setup);
/* Tells that --size did not make `what`, whose size is another one. 0: there was no --size. */
void mover_server_tell_size(const char *what, uint64_t bytes, uint64_t size);
/* Closes what is open. What the loop watches besides is unwatched before. */
void mover_server_close(struct mover_server *server);

#endif
