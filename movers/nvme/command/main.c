/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-nvme: finds the command. `sidewire nvme` runs it. */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "nvme/command/command.h"
#include "nvme/command/host_commands.h"

static const struct nv_command commands[] = {
    {"target", "serves files, devices and memory to NVMe hosts", nv_target_main},
    {"discover", "asks a target for its subsystems", nv_discover},
    {"connect-test", "connects, measures how long that takes, and leaves", nv_connect_test},
    {"id-ctrl", "shows what a controller says of itself", nv_id_ctrl},
    {"id-ns", "shows what it says of a namespace", nv_id_ns},
    {"list", "lists namespaces", nv_list},
    {"read", "reads blocks into a file", nv_read},
    {"write", "writes blocks out of a file", nv_write},
    {"bench", "measures latency and throughput, and checks data", nv_bench},
    {"resv-report", "shows who is registered with a namespace, and who has reserved it",
     nv_resv_report},
    {"resv-register", "registers a key of this host with a namespace", nv_resv_register},
    {"resv-acquire", "reserves a namespace", nv_resv_acquire},
    {"resv-release", "gives up a reservation", nv_resv_release},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(*commands) };

static void nvme_print_help(FILE *out)
{
    fputs("Usage: sidewire nvme COMMAND [OPTION...]\n"
          "NVMe over RDMA, in user space.\n\nCommands:\n",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-13s %s\n", commands[i].name, commands[i].summary);
    fputs("\nExamples:\n"
          "  sidewire nvme target --listen 127.0.0.1 --namespace ram:64M\n"
          "  sidewire nvme discover -a 127.0.0.1\n"
          "  sidewire nvme bench -a 127.0.0.1 -n nqn.2026-01.io.sidewire:default\n",
          out);
}

int main(int argc, char **argv)
{
    argp_err_exit_status = NV_STATUS_USAGE;
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help"))) {
        nvme_print_help(stdout);
        return NV_STATUS_OK;
    }
    for (int i = 0; argc > 1 && i < COMMAND_COUNT; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            char name[64];
            snprintf(name, sizeof(name), "sidewire nvme %s", commands[i].name);
            argv[1] = name; /* what argp says in messages */
            return commands[i].main(argc - 1, argv + 1);
        }
    if (argc > 1)
        fprintf(stderr, "sidewire nvme: there is no command '%s'\n\n", argv[1]);
    nvme_print_help(stderr);
    return NV_STATUS_USAGE;
}
