/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-snapshot: finds the command. `sidewire snapshot` runs it. */
#include "common/command/front.h"
#include "snapshot/command/command.h"

static const struct mover_command commands[] = {
    {"serve", "holds snapshots of others in memory, or below a folder", snap_serve},
    {"status", "shows what a server of this host holds and has counted", snap_status},
    {"metrics", "writes that for Prometheus", snap_metrics},
    {"stop", "ends a server of this host", snap_stop},
    {"save", "saves files as a snapshot", snap_save},
    {"ls", "lists snapshots", snap_ls},
    {"verify", "reads all copies and compares their sums", snap_verify},
    {"scrub", "the same, and repairs from good copies", snap_scrub_command},
    {"restore", "writes what a rank has saved into files", snap_restore},
    {"export", "writes a snapshot of all ranks as safetensors", snap_export},
    {"prune", "forgets snapshots", snap_prune},
    {"remove", "removes a volume from a server", snap_remove},
    {0},
};

int main(int argc, char **argv)
{
    static const struct mover_front front = {
        .mover = "snapshot",
        .summary = "Snapshots of a program's state: in memory of a peer, files, pmem and NVMe.",
        .commands = commands,
        .examples = "  sidewire snapshot serve -l 192.0.2.1 --memory 16G\n"
                    "  sidewire snapshot status\n"
                    "  sidewire snapshot save --sink file:run.snap model.safetensors\n"
                    "  sidewire snapshot ls --sink file:run.snap\n"
                    "  sidewire snapshot verify --sink file:run.snap\n"
                    "  sidewire snapshot export --sink file:run.snap out.safetensors\n"};
    return mover_front_main(&front, argc, argv);
}
