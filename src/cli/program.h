/* SPDX-License-Identifier: BSD-2-Clause */
/* A program as `sidewire run` sees it: where it is, and whether a library can be preloaded into it.
 */
#ifndef SW_CLI_PROGRAM_H
#define SW_CLI_PROGRAM_H

#include <limits.h>

enum sw_program_fault {
    SW_PROGRAM_OK,
    SW_PROGRAM_NOT_FOUND,
    SW_PROGRAM_DIRECTORY,
    SW_PROGRAM_NOT_EXECUTABLE,
    /* It would run, but without the device: */
    SW_PROGRAM_STATIC,
    SW_PROGRAM_PRIVILEGED, /* set-user-ID, set-group-ID or file capabilities: the loader drops
                              LD_PRELOAD */
    SW_PROGRAM_FOREIGN_MACHINE,
    SW_PROGRAM_FOREIGN_LIBC,
};

struct sw_program {
    char path[PATH_MAX];  /* of the program */
    char image[PATH_MAX]; /* of the file the kernel loads: the interpreter of a script, otherwise
                             the program; the fault is its */
};

/* Looks `name` up as execvp(3) does and looks into it. `out` is set as far as the search came. */
enum sw_program_fault sw_program_find(const char *name, struct sw_program *out);

#endif
