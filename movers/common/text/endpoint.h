/* SPDX-License-Identifier: BSD-2-Clause */
/* "ADDR", "ADDR:PORT", "[ADDR]" and "[ADDR]:PORT", as users name where somebody listens. */
#ifndef SW_MOVERS_ENDPOINT_H
#define SW_MOVERS_ENDPOINT_H

#include <stdbool.h>

/* Cuts `text` in place. *port stays as it is where the text has none, so it may hold a default. An
 * IPv6 address needs its brackets only if a port follows: 2001:db8::1 is all address. False: no
 * address, or brackets that do not close. The values of address and port are not looked at. */
bool mover_split_endpoint(char *text, const char **address, const char **port);

#endif
