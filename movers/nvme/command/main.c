/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-nvme: finds the command. `sidewire nvme` runs it. */
#include "nvme/command/command.h"
#include "nvme/command/host_commands.h"

static const struct mover_command commands[] = {
    {"target", "serves files, devices and memory to NVMe hosts", nv_target_main},
    {"discover", "asks a target for its subsystems", nv_discover},
    {"connect-test", "connects, measures how long that takes, and leaves", nv_connect_test},
    {"id-ctrl", "shows what a controller says of itself", nv_id_ctrl},
    {"id-ns", "shows what it says of a namespace", nv_id_ns},
    {"list", "lists namespaces", nv_list},
    {"read", "reads blocks into a file", nv_read},
    {"write", "writes blocks out of a file", nv_write},
    {"bench", "measures latency and throughput, and checks data", nv_bench},
    {"resv-report", "shows who is registered with a namespace, or has it", nv_resv_report},
    {"resv-register", "registers a key of this host with a namespace", nv_resv_register},
    {"resv-acquire", "reserves a namespace", nv_resv_acquire},
    {"resv-release", "gives up a reservation", nv_resv_release},
    {0},
};

#define BY_ITSELF                                                                                  \
    "each command connects by itself. 'nvme connect' of nvme-cli makes a disk of the kernel, and " \
    "nbdkit one without the kernel's host: sidewire-nvme(1)"

static const struct mover_hint hints[] = {
    {"connect", BY_ITSELF},
    {"connect-all", BY_ITSELF},
    {"disconnect", BY_ITSELF},
    {"disconnect-all", BY_ITSELF},
    {"list-ns", "'sidewire nvme list' lists namespaces"},
    {"list-subsys", "'sidewire nvme discover' lists subsystems"},
    {"serve", "'sidewire nvme target' serves"},
    {0},
};

int main(int argc, char **argv)
{
    static const struct mover_front front = {
        .mover = "nvme",
        .summary = "NVMe over RDMA, in user space.",
        .commands = commands,
        .hints = hints,
        .examples = "  sidewire nvme target --listen 127.0.0.1 --namespace ram:64M\n"
                    "  sidewire nvme discover -a 127.0.0.1\n"
                    "  sidewire nvme bench -a 127.0.0.1 -n nqn.2026-01.io.sidewire:default\n"};
    return mover_front_main(&front, argc, argv);
}
