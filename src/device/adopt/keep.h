/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a fork may need when it cannot be had any more: no descriptor may be left, or no /proc after
 * chroot(2). It is opened when memory is first adopted and kept; without it nothing is adopted. All
 * with the move lock held.
 */
#ifndef SW_DEVICE_ADOPT_KEEP_H
#define SW_DEVICE_ADOPT_KEEP_H

#include <stdbool.h>

#include "device/adopt/uffd.h"

enum sw_keep {
    SW_KEEP_MAPS,    /* /proc/self/maps */
    SW_KEEP_FDS,     /* /proc/self/fd */
    SW_KEEP_TASKS,   /* /proc/self/task */
    SW_KEEP_PAGEMAP, /* /proc/self/pagemap */
    SW_KEEP_UFFD,    /* a userfaultfd, never used as long as another one can be opened */
    SW_KEEP_COUNT,
};

/* Opens what is not open yet. 0 or a negative errno. */
int sw_keep_all(void);
/* Opens a userfaultfd, or takes the kept one. For sw_keep_close(uffd->fd). 0 or a negative errno.
 */
int sw_keep_uffd(struct sw_uffd *uffd);
/* Opens one of the files in /proc, or takes the kept one, from its beginning. Its descriptor, for
 * sw_keep_close(), or a negative errno. */
int sw_keep_open(enum sw_keep what);
void sw_keep_close(int fd);
/* How many are open. */
int sw_keep_count(void);
/* In a forked child, where they are of the parent. */
void sw_keep_forget(void);

#endif
