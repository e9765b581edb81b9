/* SPDX-License-Identifier: BSD-2-Clause */
/* Options and commands for a server of this host that runs: common/serve/control.h. */
#ifndef SW_MOVERS_COMMAND_CONTROL_H
#define SW_MOVERS_COMMAND_CONTROL_H

#include <jansson.h>
#include <stdbool.h>

#include "common/command/option.h"
#include "common/serve/ask.h"

/* clang-format off */
/* Where a server listens, and by which socket it is asked. */
#define MOVER_OPTION_CONTROL(at) \
    {"control", 0, "PATH", 0, "Socket by which a running server is told", 8, mover_take_text, at}
#define MOVER_OPTION_PID(at) \
    {"pid", 0, "PID", 0, "Which of several running servers", 8, mover_take_text, at}
/* clang-format on */

/* `status`: shows that of the server. `print` does so for people (NULL: its numbers, a line each);
 * with -o json it is as it came. argv[0] is what --help and messages have. Returns the exit status:
 * 0, or 1 after it has said why not. */
int mover_control_status(const struct mover_ask *of, void (*print)(const json_t *status), int argc,
                         char **argv);
/* The same for a command that has parsed its options. */
int mover_control_show(const struct mover_ask *ask, void (*print)(const json_t *status),
                       bool is_json);
/* For a command that has done something, and has nothing to show: prints `text`, lines of what was
 * done, maybe none; with `is_json` as an object that has them. Returns the exit status. */
int mover_control_done(const char *text, bool is_json);
/* `stop`: ends it, and returns when its process has ended. */
int mover_control_stop(const struct mover_ask *of, int argc, char **argv);
/* `metrics`: writes them, as Prometheus reads them. */
int mover_control_metrics(const struct mover_ask *of, int argc, char **argv);

#endif
