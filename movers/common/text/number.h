/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_NUMBER_H
#define SW_MOVERS_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* The whole number that a text begins with, and what follows it: decimal, or hexadecimal behind
 * "0x". "010" is ten. False: no digit is first, or it needs more than 64 bits. */
bool mover_parse_number(const char *text, uint64_t *out, const char **rest);
/* A port in decimal, 0 to 65535, and nothing behind it. libc takes a larger number for what is left
 * of it in 16 bits. */
bool mover_parse_port(const char *text, uint16_t *out);

#endif
