/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-coll: finds the command. `sidewire coll` runs it. */
#include "collectives/command/command.h"

static const struct mover_command commands[] = {
    {"diagnose", "says which rank differs, is awaited, or is late", co_diagnose},
    {"dump", "writes the last operations of the ranks of this host into files", co_dump},
    {"perf", "measures and checks collective operations", co_perf},
    {"status", "shows what ranks of this host do, and whom they wait for", co_status},
    {"trace", "shows what a rank does for an operation", co_trace},
    {0},
};

int main(int argc, char **argv)
{
    static const struct mover_front front = {
        .mover = "coll",
        .summary = "Sums, gathers and broadcasts of the buffers of many processes, over RDMA.",
        .commands = commands,
        .examples = "  sidewire coll perf --ranks 4\n"
                    "  sidewire coll perf --ranks 3 -b 8 -e 1M -f 2 -d bf16 -o avg reduce_scatter\n"
                    "  sidewire coll status\n"
                    "  sidewire coll diagnose /tmp/dumps\n"
                    "  sidewire coll trace --ranks 3 --size 64K\n"
                    "  mpirun -n 4 sidewire coll perf\n"};
    return mover_front_main(&front, argc, argv);
}
