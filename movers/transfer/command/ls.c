/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>

#include "transfer/command/command.h"

static const struct argp_child children[] = {{&xf_remote_argp, 0, NULL, 0}, {0}};

static error_t parse_ls(int key, char *value, struct argp_state *state)
{
    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = state->input;
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "'%s' is too much", value);
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

static int show_json(const struct xf_remote *remote, const struct sw_xfer_card *card)
{
    char instance[33], layout[17];
    json_t *addresses = json_array(), *regions = json_array();
    mover_hex(card->instance, instance);
    snprintf(layout, sizeof(layout), "%016" PRIx64, card->layout);
    for (uint32_t i = 0; i < card->addresses_count; i++)
        json_array_append_new(addresses, json_string(card->addresses[i]));
    for (uint32_t i = 0; i < card->regions_count; i++) {
        struct sw_xfer_region region;
        if (!sw_xfer_card_region(remote->card, remote->card_bytes, i, &region))
            json_array_append_new(regions, json_pack("{ss sI ss}", "name", region.name, "bytes",
                                                     (json_int_t)region.bytes, "rights",
                                                     mover_rights_text(region.rights)));
    }
    return mover_print_json(json_pack("{si ss ss so so}", "version", (int)card->version, "instance",
                                      instance, "layout", layout, "addresses", addresses, "regions",
                                      regions));
}

static int show_card(const struct xf_remote *remote, const struct sw_xfer_card *card)
{
    char instance[33];
    mover_hex(card->instance, instance);
    printf("instance %s at", instance);
    for (uint32_t i = 0; i < card->addresses_count; i++)
        printf("%s %s", i ? "," : "", card->addresses[i]);
    if (card->layout)
        printf(", layout %016" PRIx64, card->layout);
    printf("\n%-31s %16s  %s\n", "NAME", "BYTES", "RIGHTS");
    for (uint32_t i = 0; i < card->regions_count; i++) {
        struct sw_xfer_region region;
        if (!sw_xfer_card_region(remote->card, remote->card_bytes, i, &region))
            printf("%-31s %16" PRIu64 "  %s\n", region.name, region.bytes,
                   mover_rights_text(region.rights));
    }
    return fflush(stdout) ? XF_STATUS_FAILED : XF_STATUS_OK;
}

int xf_ls(int argc, char **argv)
{
    static const struct argp argp = {.parser = parse_ls,
                                     .doc = "Shows what a card says. Nobody is asked.",
                                     .children = children};
    static struct xf_remote remote;
    struct sw_xfer_card card;
    xf_remote_parse("ls", &argp, argc, argv, &remote);
    const int code = xf_remote_card(&remote);
    if (code || sw_xfer_card_read(remote.card, remote.card_bytes, &card))
        return code;
    return remote.is_json ? show_json(&remote, &card) : show_card(&remote, &card);
}
