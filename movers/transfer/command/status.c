/* SPDX-License-Identifier: BSD-2-Clause */
/* status, metrics and the end of a server of this host. */
#include <stdio.h>

#include "common/command/control.h"
#include "common/command/table.h"
#include "transfer/command/command.h"

static void print_server(const json_t *status)
{
    static const struct mover_column rails[] = {
        {"ADDRESS", "address", .width = -39}, {"UP", "is_up", .width = 0}, {0}};
    static const struct mover_column regions[] = {{"REGION", "name", .width = -31},
                                                  {"BYTES", "bytes", .width = 16},
                                                  {"RIGHTS", "rights", .gap = 1},
                                                  {0}};
    printf("up           %lld s\n",
           (long long)json_integer_value(json_object_get(status, "uptime_ms")) / 1000);
    printf("clients      %lld of %lld\n",
           (long long)json_integer_value(json_object_get(status, "clients")),
           (long long)json_integer_value(json_object_get(status, "clients_max")));
    printf("notices      %lld\n\n",
           (long long)json_integer_value(json_object_get(status, "notices")));
    mover_table_print(rails, json_object_get(status, "rails"));
    putchar('\n');
    mover_table_print(regions, json_object_get(status, "regions"));
}

static struct mover_ask status_ask(void)
{
    return (struct mover_ask){.mover = "transfer",
                              .command = mover_front_words(),
                              .noun = "server",
                              .start = "sidewire transfer serve"};
}

int xf_status(int argc, char **argv)
{
    const struct mover_ask ask = status_ask();
    return mover_control_status(&ask, print_server, argc, argv);
}

int xf_stop(int argc, char **argv)
{
    const struct mover_ask ask = status_ask();
    return mover_control_stop(&ask, argc, argv);
}

int xf_metrics(int argc, char **argv)
{
    const struct mover_ask ask = status_ask();
    return mover_control_metrics(&ask, argc, argv);
}
