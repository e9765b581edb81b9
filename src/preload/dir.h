/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Directory streams over the tree. A program holds them as DIR pointers; the hooks tell them from
 * libc's by two words that no stream of libc begins with. The list is taken at opendir and
 * rewinddir, as POSIX allows.
 */
#ifndef SW_PRELOAD_DIR_H
#define SW_PRELOAD_DIR_H

#include <dirent.h>

#include "preload/node.h"

struct sw_dir;

/* The stream if `dir` is one of ours, else NULL. */
struct sw_dir *sw_dir_of(DIR *dir);

/* fd: a descriptor of the directory that the stream takes over, or -1. NULL with errno on failure.
 */
struct sw_dir *sw_dir_open(const struct sw_found *found, int fd);
/* A directory of the kernel's that a root of ours is in (or would be). */
struct sw_dir *sw_dir_open_above(const char *path);
void sw_dir_close(struct sw_dir *dir);
struct dirent *sw_dir_read(struct sw_dir *dir); /* NULL at the end */
void sw_dir_seek(struct sw_dir *dir, long at);
long sw_dir_tell(const struct sw_dir *dir);
int sw_dir_rewind(struct sw_dir *dir); /* 0 or -1 with errno */
int sw_dir_fd(struct sw_dir *dir);     /* -1 with errno on failure */

#endif
