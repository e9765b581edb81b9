/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listening sockets that the engine leaves alone for a while, as there is no descriptor, memory or
 * place for the next connection: the kernel tells of such a socket again and again, and the engine
 * would do nothing else. A peer that calls meanwhile waits in the kernel.
 */
#ifndef SW_LINK_ENGINE_PAUSE_H
#define SW_LINK_ENGINE_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "link/engine.h"

/* Whether accept() failed for want of what others give back in time. `rc`: a negative errno. */
bool sw_accept_is_short(int rc);

/* A watched socket, with what its kind was given: there is no descriptor. */
void sw_engine_pause(int fd, void *what, enum sw_watch_kind kind);
/* There is no place at its door: callers.h. */
void sw_engine_pause_briefly(int fd, void *what, enum sw_watch_kind kind);
/* The engine's: watches again what has paused for long enough. Returns when to call again. */
uint64_t sw_engine_pause_step(uint64_t now_ns);
/* The socket is about to be closed. */
void sw_engine_pause_forget(int fd);
/* In a forked child, and at the end. */
void sw_engine_pause_clear(void);

#endif
