/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The descriptors of this library among those of its program. A program may close numbers that it
 * never opened, as daemons do with all of them; what it opens next gets these numbers, and what we
 * write goes to its files. So ours have high numbers, and are known: the hooks of close() and the
 * like answer for them as for numbers that are not open (preload/fds.c).
 *
 * In the layers below preload the compiler takes close() for sw_fd_close() (src/meson.build).
 * Descriptors that are handed to the program are the program's and not told here.
 */
#ifndef SW_BASE_FDS_H
#define SW_BASE_FDS_H

#include <stdbool.h>
#include <stdint.h>

#define SW_FDS_MAX 8192 /* higher numbers are not known */

/* Takes a descriptor over; returns its new number. Negative ones are returned as they are. */
int sw_fd_own(int fd);
/* close(2) of any descriptor. */
int sw_fd_close(int fd);
/* Whether it was taken over, and not closed since. One load. */
bool sw_fd_is_own(int fd);
/* Whether the number still is what was taken over, as a raw system call may have closed it and
 * something else have got it. A system call. All eventfds look alike. */
bool sw_fd_is_intact(int fd);
/* Whether a number that the program knows, too, may still be the eventfd that it was: a file, pipe
 * or socket is not. A system call. */
bool sw_fd_is_anonymous(int fd);
/* One of so many parts of the descriptors that the process may have; `most` at most. At least a
 * few. A system call: the program may change its limit. */
uint32_t sw_fds_share(uint32_t parts, uint32_t most);
/* The program has got a number of ours by a raw system call: it is not ours any more. */
void sw_fd_lose(int fd);

#endif
