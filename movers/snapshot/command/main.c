/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-snapshot: finds the command. `sidewire snapshot` runs it. */
#include "snapshot/command/command.h"

#include "common/command/front.h"

static const struct mover_command commands[] = {
    {"serve", "holds snapshots of others in memory, or below a folder", snap_serve},
    {"status", "shows what a server of this host holds and has counted", snap_status},
    {"metrics", "writes that for Prometheus", snap_metrics},
    {0},
};

int main(int argc, char **argv)
{
    static const struct mover_front front = {
        .mover = "snapshot",
        .summary = "Snapshots of a program's state, over RDMA.",
        .commands = commands,
        .examples = "  sidewire snapshot serve -l 192.0.2.1 --memory 16G\n"
                    "  sidewire snapshot status\n"};
    return mover_front_main(&front, argc, argv);
}
