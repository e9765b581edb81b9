/* SPDX-License-Identifier: BSD-2-Clause */
/* The subcommands of `sidewire`. Each parses its own arguments; argv[0] is "sidewire NAME". */
#ifndef SW_CLI_COMMAND_H
#define SW_CLI_COMMAND_H

#include <stdbool.h>

/* Statuses of the command itself; `run` has its own, as env(1) and timeout(1) do. */
enum sw_status {
    SW_STATUS_OK = 0,
    SW_STATUS_NO = 1,    /* asked and answered: no */
    SW_STATUS_USAGE = 2, /* arguments */
    SW_STATUS_RUN_FAILED = 125,
    SW_STATUS_NOT_EXECUTABLE = 126,
    SW_STATUS_NOT_FOUND = 127,
};

struct sw_command {
    const char *name;
    const char *summary;
    int (*main)(int argc, char **argv);
};

int sw_command_run(int argc, char **argv);
/* Runs the program of the mover. */
int sw_command_mover(int argc, char **argv);
/* Whether that program is there. */
bool sw_has_mover(const char *mover);
int sw_command_doctor(int argc, char **argv);
int sw_command_devices(int argc, char **argv);
int sw_command_status(int argc, char **argv);

#endif
