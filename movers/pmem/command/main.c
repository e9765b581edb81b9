/* SPDX-License-Identifier: BSD-2-Clause */
/* sidewire-pmem: finds the command. `sidewire pmem` runs it. */
#include "pmem/command/command.h"

static const struct mover_command commands[] = {
    {"serve", "serves files, DAX devices and BARs to clients", pm_serve},
    {"ls", "lists the regions of a server", pm_ls},
    {"info", "shows a region, and what a flush promises there", pm_info},
    {"status", "shows what a server has counted", pm_status},
    {"metrics", "writes the counts of a server of this host for Prometheus", pm_metrics},
    {"stop", "ends a server of this host", pm_stop},
    {"get", "reads bytes of a region into a file", pm_get},
    {"put", "writes a file into a region, persistently", pm_put},
    {"bench", "measures the latency of persistent writes", pm_bench},
    {"log", "appends to and reads a log on several regions", pm_log},
    {0},
};

int main(int argc, char **argv)
{
    static const struct mover_front front = {
        .mover = "pmem",
        .summary = "Persistent memory of another host, over RDMA.",
        .commands = commands,
        .examples = "  sidewire pmem serve /tmp/region.img --size 64M --listen 127.0.0.1\n"
                    "  sidewire pmem info -a 127.0.0.1\n"
                    "  sidewire pmem put -a 127.0.0.1 letter.txt\n"};
    return mover_front_main(&front, argc, argv);
}
