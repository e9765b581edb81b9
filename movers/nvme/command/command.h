/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of sidewire-nvme for a target; host_commands.h has those of hosts. */
#ifndef SW_MOVERS_NVME_COMMAND_H
#define SW_MOVERS_NVME_COMMAND_H

#include <argp.h>
#include <stdbool.h>

#include "common/command/front.h"
#include "common/serve/ask.h"

int nv_target_main(int argc, char **argv);

/* add, remove, status and others, which speak to a target that serves. */
bool nv_is_target_control(const char *word);
int nv_target_control(int argc, char **argv);
int nv_target_move(const struct mover_ask *ask, int argc, char **argv);
int nv_target_clear(const struct mover_ask *ask, int argc, char **argv);
/* What --namespace says: the number of one. Ends the program where it is none. */
long nv_take_nsid(struct argp_state *state, const char *text);

#endif
