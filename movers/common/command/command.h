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

/* A number with K, M, G or T. */
uint64_t mover_parse_bytes(struct argp_state *state, const char *text);
/* The same, of 32 bits. */
uint32_t mover_parse_count(struct argp_state *state, const char *text);
/* Seconds, "0.5" too; as milliseconds. */
uint64_t mover_parse_seconds_ms(struct argp_state *state, const char *text);
/* "normal" or "json". Whether it is json. */
bool mover_parse_format(struct argp_state *state, const char *text);

/* "sidewire nvme read: " and what went wrong, on standard error. Returns the exit status: 1. */
int mover_fail_as(const char *program, const char *command, const char *format, va_list args);
/* One line that is written over itself, on a terminal only. In bytes. `ends`: it is the last. */
void mover_progress_show(uint64_t done, uint64_t total, bool ends);

#endif
