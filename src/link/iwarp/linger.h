/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets that are done with, but for their last bytes: these are sent, the peer's are read and
 * dropped until it closes, too (to close earlier could take our last bytes from it), and after a
 * bounded time the socket is closed whatever is. RFC 5040 s7.
 */
#ifndef SW_LINK_IWARP_LINGER_H
#define SW_LINK_IWARP_LINGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes over the socket and `bytes`, which free() frees. `waits`: for the end of the peer. */
void sw_iwarp_linger(int fd, uint8_t *bytes, size_t len, bool waits);
bool sw_iwarp_lingers(void);
/* The engine's: returns when to call again. */
uint64_t sw_iwarp_linger_step(uint64_t now_ns);
void sw_iwarp_linger_fork_child(void);

#endif
