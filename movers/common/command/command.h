/* SPDX-License-Identifier: BSD-2-Clause */
/* What the commands of the movers read and print alike. A text that is wrong ends the program, as
 * argp_error() does. */
#ifndef SW_MOVERS_COMMAND_H
#define SW_MOVERS_COMMAND_H

#include <argp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/command/json.h"

/* Seconds, "0.5" too; as milliseconds. */
uint64_t mover_parse_seconds_ms(struct argp_state *state, const char *text);
/* "sidewire nvme read: " and what went wrong, on standard error. Returns the exit status: 1. */
int mover_fail_as(const char *program, const char *command, const char *format, va_list args);

#endif
