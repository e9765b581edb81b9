/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of sidewire-nvme. Each gets its arguments from its own name on, and returns the
 * status of the process: 0 done, 1 failed, 2 wrong usage. */
#ifndef SW_MOVERS_NVME_COMMAND_H
#define SW_MOVERS_NVME_COMMAND_H

#include <stdbool.h>

enum { NV_STATUS_OK = 0, NV_STATUS_FAILED = 1, NV_STATUS_USAGE = 2 };

struct nv_command {
    const char *name, *summary;
    int (*main)(int argc, char **argv);
};

int nv_target_main(int argc, char **argv);

/* add, remove and status, which speak to a target that serves. */
bool nv_is_target_control(const char *word);
int nv_target_control(int argc, char **argv);

#endif
