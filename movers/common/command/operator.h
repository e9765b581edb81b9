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
mover_take mover_take_metrics; /* const char *: ADDR[:PORT], whose port can be one */

/* The rows of each server; `at` is the offset of its struct mover_operator, `port` that of metrics,
 * a string. */
/* clang-format off */
#define MOVER_OPTIONS_OPERATOR(at, port) \
    MOVER_OPTION_CONTROL((at) + offsetof(struct mover_operator, control_path)), \
    MOVER_OPTION_BACKGROUND((at) + offsetof(struct mover_operator, is_background)), \
    {"log", 0, "LEVEL", 0, "Log lines have time and level; error, warning or info (warning)", 8, \
     mover_take_log, 0}, \
    {"metrics", 0, "ADDR[:PORT]", 0, \
     "Prometheus reads metrics there, at /metrics; port " port " by default", 8, \
     mover_take_metrics, (at) + offsetof(struct mover_operator, metrics)}, \
    {"metrics-file", 0, "PATH", 0, \
     "Writes metrics there every 15 s, as node_exporter collects them: NAME.prom", 8, \
     mover_take_text, (at) + offsetof(struct mover_operator, metrics_file)}
#define MOVER_OPTION_VERBOSE() \
    {"verbose", 'v', NULL, 0, "Says who connects and leaves", 3, mover_take_verbose, 0}
/* clang-format on */

/* Hands out the metrics of `source` as the options say. Returns the exit status: 0, or 1 after it
 * has said why not. */
int mover_operator_export(const struct mover_operator *wish, struct mover_exporter *exporter,
                          struct mover_loop *loop, const struct mover_control_setup *source);

#endif
