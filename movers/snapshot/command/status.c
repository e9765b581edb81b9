/* SPDX-License-Identifier: BSD-2-Clause */
/* status, metrics and the end of a server of this host. */
#include <stdio.h>

#include "common/command/control.h"
#include "common/command/front.h"
#include "common/command/table.h"
#include "snapshot/command/command.h"

static long long number_of(const json_t *status, const char *key)
{
    return json_integer_value(json_object_get(status, key));
}

static void print_snapshot_server(const json_t *status)
{
    static const struct mover_column volumes[] = {
        {"VOLUME", "name", .width = -31}, {"BYTES", "bytes", .width = 14},
        {"EPOCH", "epoch", .width = 6},   {"CONNECTED", "has_writer", .width = 0},
        {"WRITER", "writer", .gap = 1},   {0}};
    printf("up           %lld s\n", number_of(status, "uptime_ms") / 1000);
    printf("clients      %lld of %lld\n", number_of(status, "clients"),
           number_of(status, "clients_max"));
    printf("memory       %lld of %lld bytes\n", number_of(status, "used_bytes"),
           number_of(status, "memory_bytes"));
    printf("leaves       %lld checked, %lld with a block that differed\n\n",
           number_of(status, "leaves"), number_of(status, "differences"));
    mover_table_print(volumes, json_object_get(status, "volumes"));
}

static struct mover_ask snapshot_ask(void)
{
    return (struct mover_ask){.mover = "snapshot",
                              .command = mover_front_words(),
                              .noun = "server",
                              .start = "sidewire snapshot serve"};
}

int snap_status(int argc, char **argv)
{
    const struct mover_ask ask = snapshot_ask();
    return mover_control_status(&ask, print_snapshot_server, argc, argv);
}

int snap_stop(int argc, char **argv)
{
    const struct mover_ask ask = snapshot_ask();
    return mover_control_stop(&ask, argc, argv);
}

int snap_metrics(int argc, char **argv)
{
    const struct mover_ask ask = snapshot_ask();
    return mover_control_metrics(&ask, argc, argv);
}
