/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>

#include "common/command/table.h"
#include "common/serve/json_text.h"
#include "transfer/command/command.h"

static void print_head(const struct sw_xfer_card *card, const char *instance)
{
    printf("instance %s at", instance);
    for (uint32_t i = 0; i < card->addresses_count; i++)
        printf("%s %s", i ? "," : "", card->addresses[i]);
    if (card->layout)
        printf(", layout %016" PRIx64, card->layout);
    putchar('\n');
}

static int show_card(const struct xf_remote *remote, const struct sw_xfer_card *card)
{
    static const struct mover_column columns[] = {{"NAME", "name", .width = -31},
                                                  {"BYTES", "bytes", .width = 16},
                                                  {"RIGHTS", "rights", .gap = 1},
                                                  {0}};
    char instance[33], layout[17];
    json_t *addresses = json_array();
    struct mover_table table;
    mover_hex(card->instance, instance);
    snprintf(layout, sizeof(layout), "%016" PRIx64, card->layout);
    for (uint32_t i = 0; i < card->addresses_count; i++)
        json_array_append_new(addresses, json_string(card->addresses[i]));
    if (!remote->is_json)
        print_head(card, instance);
    mover_table_open(&table, columns, remote->is_json);
    for (uint32_t i = 0; i < card->regions_count; i++) {
        struct sw_xfer_region region;
        if (!sw_xfer_card_region(remote->card, remote->card_bytes, i, &region))
            mover_table_add(&table, NULL,
                            json_pack("{so sI ss}", "name", mover_json_text(region.name), "bytes",
                                      (json_int_t)region.bytes, "rights",
                                      mover_rights_text(region.rights)));
    }
    return mover_table_close(&table, json_pack("{si ss ss so so}", "version", (int)card->version,
                                               "instance", instance, "layout", layout, "addresses",
                                               addresses, "regions", table.rows));
}

int xf_ls(int argc, char **argv)
{
    static const struct mover_usage usage = {.about = "Shows what a card says. Nobody is asked.",
                                             .shared = &xf_remote_options};
    static struct xf_remote remote;
    struct sw_xfer_card card;
    xf_remote_parse(&usage, argc, argv, &remote);
    const int code = xf_remote_card(&remote);
    if (code || sw_xfer_card_read(remote.card, remote.card_bytes, &card))
        return code;
    return show_card(&remote, &card);
}
