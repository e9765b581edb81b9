/* SPDX-License-Identifier: BSD-2-Clause */
/* What the commands of the movers read and print alike. A text that is wrong ends the program, as
 * argp_error() does. */
#ifndef SW_MOVERS_COMMAND_H
#define SW_MOVERS_COMMAND_H

#include <argp.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

/* A number with K, M, G or T. */
uint64_t mover_parse_bytes(struct argp_state *state, const char *text);
/* The same, of 32 bits. */
uint32_t mover_parse_count(struct argp_state *state, const char *text);
/* Seconds, "0.5" too; as milliseconds. */
uint64_t mover_parse_seconds_ms(struct argp_state *state, const char *text);
/* "normal" or "json". Whether it is json. */
bool mover_parse_format(struct argp_state *state, const char *text);

/* "sidewire nvme read: " and what went wrong, on standard error. Returns the exit status: 1. */
int mover_fail(const char *program, const char *command, const char *format, va_list args);
/* One line that is written over itself, on a terminal only. In bytes. `ends`: it is the last. */
void mover_progress(uint64_t done, uint64_t total, bool ends);

/* Prints and releases it. Returns the exit status: 0, or 1 if it could not. */
int mover_print_json(json_t *json);
void mover_hex(const uint8_t bytes[16], char text[33]);
/* The name of rights to read (1) and to write (2). */
const char *mover_rights_text(uint32_t rights);

#endif
