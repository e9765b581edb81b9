/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs that are looked at by AddressSanitizer or by valgrind, and run with our library. */
#ifndef SW_CLI_CHECKERS_H
#define SW_CLI_CHECKERS_H

#include "cli/library.h"

/* A program of gcc that is linked with AddressSanitizer refuses to start where a preloaded library
 * comes before its runtime. This lets it, its children too; what the user has set counts more.
 * 0, or -1 without memory. */
int sw_checkers_allow_preload(void);

/* The words of a command as valgrind runs it, with the suppressions for our library; NULL without
 * memory. */
char **sw_checkers_by_valgrind(const struct sw_library *library, int argc, char **argv);

#endif
