/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranks as processes of this host. */
#ifndef SW_COLLECTIVES_LAUNCH_H
#define SW_COLLECTIVES_LAUNCH_H

#include <stdint.h>

/*
 * Forks `size` processes, before this one uses a device. Each has a processor of its own where
 * there are enough, and ends with what `run` returns for its rank. Once one has failed, the others
 * have 5 s to say what they know, and are then killed. They are killed, too, when SIGINT, SIGTERM
 * or SIGHUP come, and when this process ends in any way. Returns the exit status: 0 if that of all
 * is 0.
 */
int co_launch(uint32_t size, int (*run)(void *context, uint32_t rank), void *context);

#endif
