/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-transfer: finds the command. `sidewire transfer` runs it. */
#include <stdio.h>
#include <string.h>

#include "transfer/command/command.h"

static const struct xf_command {
    const char *name, *summary;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"serve", "lets peers read and write files or memory", xf_serve},
    {"ls", "shows what a card says", xf_ls},
    {"read", "reads bytes of a region into a file", xf_read},
    {"write", "writes a file into a region", xf_write},
    {"bench", "draws size against bandwidth and latency", xf_bench},
    {"plan", "shows what it takes to hand a KV cache on", xf_plan},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(*commands) };

static void transfer_print_help(FILE *out)
{
    fputs("Usage: sidewire transfer COMMAND [OPTION...]\n"
          "Blocks of memory between processes and hosts, over RDMA.\n\nCommands:\n",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-13s %s\n", commands[i].name, commands[i].summary);
    fputs("\nExamples:\n"
          "  sidewire transfer serve -l 127.0.0.1 -c card --memory 64M\n"
          "  sidewire transfer ls -c card\n"
          "  sidewire transfer write -c card weights.bin\n"
          "  ssh host cat card | sidewire transfer bench -c -\n"
          "  sidewire transfer plan --from L/PBTH:2:16 --to L/PBHT:4:64\n",
          out);
}

int main(int argc, char **argv)
{
    argp_err_exit_status = XF_STATUS_USAGE;
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help"))) {
        transfer_print_help(stdout);
        return XF_STATUS_OK;
    }
    for (int i = 0; argc > 1 && i < COMMAND_COUNT; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            char name[64];
            snprintf(name, sizeof(name), "sidewire transfer %s", commands[i].name);
            argv[1] = name; /* what argp says in messages */
            return commands[i].main(argc - 1, argv + 1);
        }
    if (argc > 1)
        fprintf(stderr, "sidewire transfer: there is no command '%s'\n\n", argv[1]);
    transfer_print_help(stderr);
    return XF_STATUS_USAGE;
}
