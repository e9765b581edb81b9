/* SPDX-License-Identifier: BSD-2-Clause */
/* What operators want of each server, and the options by which they say so (docs/operators.md). */
#ifndef SW_MOVERS_OPERATOR_H
#define SW_MOVERS_OPERATOR_H

#include <stdbool.h>

#include "common/command/background.h"
#include "common/command/control.h"
#include "common/command/option.h"
#include "common/serve/exporter.h"

/* All zero to begin with, but for what the options say. */
struct mover_operator {
    const char *control_path;           /* NULL: in the user's folder */
    const char *metrics, *metrics_file; /* ADDR[:PORT], and a path; NULL: not wanted */
    bool is_background;
};

mover_take mover_take_log;     /* "info": opens the log, with the time; has no place */
mover_take mover_take_verbose; /* opens it without */

/* Rows of options; `at` is the offset of the member, `port` that of metrics. */
/* clang-format off */
#define MOVER_OPTION_LOG() \
    {"log", 0, "LEVEL", 0, "Log lines have time and level; error, warning or info (warning)", 8, \
     mover_take_log, 0}
#define MOVER_OPTION_METRICS(at, port) \
    {"metrics", 0, "ADDR[:PORT]", 0, \
     "Prometheus reads metrics there, at /metrics; port " port " by default", 8, \
     mover_take_text, at}
#define MOVER_OPTION_METRICS_FILE(at) \
    {"metrics-file", 0, "PATH", 0, \
     "Writes metrics there every 15 s, as node_exporter collects them: NAME.prom", 8, \
     mover_take_text, at}
#define MOVER_OPTION_VERBOSE() \
    {"verbose", 'v', NULL, 0, "Says who connects and leaves", 3, mover_take_verbose, 0}
/* clang-format on */

/* Hands out the metrics of `source` as the options say. Returns the exit status: 0, or 1 after it
 * has said why not. */
int mover_operator_export(const struct mover_operator *wish, struct mover_exporter *exporter,
                          struct mover_loop *loop, const struct mover_control_setup *source);

#endif
