/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-pmem: finds the command. `sidewire pmem` runs it. */
#include <stdio.h>
#include <string.h>

#include "pmem/command/command.h"

static const struct pm_command {
    const char *name, *summary;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"serve", "serves files, DAX devices and BARs to clients", pm_serve},
    {"ls", "lists the regions of a server", pm_ls},
    {"info", "shows a region, and what a flush promises there", pm_info},
    {"status", "shows what a server has counted", pm_status},
    {"get", "reads bytes of a region into a file", pm_get},
    {"put", "writes a file into a region, persistently", pm_put},
    {"bench", "measures the latency of persistent writes", pm_bench},
    {"log", "appends to and reads a log on several regions", pm_log},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(*commands) };

static void pmem_print_help(FILE *out)
{
    fputs("Usage: sidewire pmem COMMAND [OPTION...]\n"
          "Persistent memory of another host, over RDMA.\n\nCommands:\n",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-13s %s\n", commands[i].name, commands[i].summary);
    fputs("\nExamples:\n"
          "  sidewire pmem serve /tmp/region.img --size 64M --listen 127.0.0.1\n"
          "  sidewire pmem info -a 127.0.0.1\n"
          "  sidewire pmem put -a 127.0.0.1 letter.txt\n",
          out);
}

int main(int argc, char **argv)
{
    argp_err_exit_status = PM_STATUS_USAGE;
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help"))) {
        pmem_print_help(stdout);
        return PM_STATUS_OK;
    }
    for (int i = 0; argc > 1 && i < COMMAND_COUNT; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            char name[64];
            snprintf(name, sizeof(name), "sidewire pmem %s", commands[i].name);
            argv[1] = name; /* what argp says in messages */
            return commands[i].main(argc - 1, argv + 1);
        }
    if (argc > 1)
        fprintf(stderr, "sidewire pmem: there is no command '%s'\n\n", argv[1]);
    pmem_print_help(stderr);
    return PM_STATUS_USAGE;
}
