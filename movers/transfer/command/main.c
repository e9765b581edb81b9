/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-transfer: finds the command. `sidewire transfer` runs it. */
#include "transfer/command/command.h"

static const struct mover_command commands[] = {
    {"serve", "lets peers read and write files or memory", xf_serve},
    {"ls", "shows what a card says", xf_ls},
    {"status", "shows what a server of this host has counted", xf_status},
    {"metrics", "writes that for Prometheus", xf_metrics},
    {"stop", "ends a server of this host", xf_stop},
    {"read", "reads bytes of a region into a file", xf_read},
    {"write", "writes a file into a region", xf_write},
    {"bench", "draws size against bandwidth and latency", xf_bench},
    {"plan", "shows what it takes to hand a KV cache on", xf_plan},
    {0},
};

int main(int argc, char **argv)
{
    static const struct mover_front front = {
        .mover = "transfer",
        .summary = "Blocks of memory between processes and hosts, over RDMA.",
        .commands = commands,
        .examples = "  sidewire transfer serve -l 127.0.0.1 -c card --memory 64M\n"
                    "  sidewire transfer ls -c card\n"
                    "  sidewire transfer write -c card weights.bin\n"
                    "  ssh host cat card | sidewire transfer bench -c -\n"
                    "  sidewire transfer plan --from L/PBTH:2:16 --to L/PBHT:4:64\n"};
    return mover_front_main(&front, argc, argv);
}
