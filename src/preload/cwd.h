/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A working directory of ours. The kernel cannot know it, so its own stands at the nearest
 * directory above that it has, and relative paths start from here. A program started from a shell
 * takes over the shell's by $PWD: if that is ours and the kernel's directory is the one that goes
 * with it.
 */
#ifndef SW_PRELOAD_CWD_H
#define SW_PRELOAD_CWD_H

#include "preload/path.h"

/* False while the working directory is the kernel's. */
bool sw_cwd_get(char out[SW_TREE_PATH_MAX]);

#endif
