/* SPDX-License-Identifier: BSD-2-Clause */
/* Why a path is closed to this user. */
#ifndef SW_CLI_CLOSED_H
#define SW_CLI_CLOSED_H

#include <limits.h>

struct sw_closed {
    char reason[PATH_MAX + 128];
    char mend[PATH_MAX + 32];
};

/* Names the first folder on the way to `path` that the user cannot pass, or else the file, which
 * lacks `right`: 'r' or 'x'. */
void sw_closed_explain(const char *path, char right, struct sw_closed *out);

#endif
