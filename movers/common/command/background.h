/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server with --background: the command that was typed ends when the server is ready, and the
 * server goes on as a process without a terminal. Scripts need not guess how long to wait.
 */
#ifndef SW_MOVERS_BACKGROUND_H
#define SW_MOVERS_BACKGROUND_H

#include <stdbool.h>

/* A row of options, for a bool. */
/* clang-format off */
#define MOVER_OPTION_BACKGROUND(at) \
    {"background", 0, NULL, 0, "Returns when it is ready, and goes on without the terminal", 8, \
     mover_take_flag, at}
/* clang-format on */

/* Before devices are opened and threads start. Goes on in a child; the process that was started
 * waits until that is ready, and ends with the status 0, or with that of the child if this ends
 * before. Returns 0, or 1 after it has said why not. Does nothing unless it `is_wanted`. */
int mover_background_begin(bool is_wanted);
/* What ends the server, for the line that says that it is ready: "Ctrl-C" or "kill PID". */
const char *mover_background_end(void);
/* The server is ready, which systemd is told, too (serve/notify.h). Its output from here on goes to
 * files, where it was sent to files, and to nobody else. */
void mover_background_ready(void);

#endif
