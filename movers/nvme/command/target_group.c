/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/command/target_group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/endpoint.h"

enum { TIMEOUT_MAX_S = 3600 };

static bool parse_copy(struct nv_group_place *place, const char *text)
{
    if (strlen(text) >= sizeof(place->text))
        return false;
    strcpy(place->text, text);
    char *slash = strchr(place->text, '/');
    if (slash) {
        *slash = '\0';
        place->region = slash + 1;
    }
    return mover_split_endpoint(place->text, &place->address, &place->port) &&
           (!slash || *place->region);
}

void nv_group_take_copy(struct argp_state *state, void *place, char *text)
{
    struct nv_group_args *args = place;
    if (args->copy_count == NVG_COPIES_MAX)
        argp_error(state, "the log of a group has at most %u copies", NVG_COPIES_MAX);
    if (!parse_copy(&args->copies[args->copy_count], text))
        argp_error(state, "--group is ADDR[:PORT][/REGION] of a pmem server, not '%s'", text);
    args->copy_count++;
}

void nv_group_take_timeout(struct argp_state *state, void *place, char *text)
{
    char *end;
    const unsigned long seconds = strtoul(text, &end, 10);
    if (end == text || *end || !seconds || seconds > TIMEOUT_MAX_S)
        argp_error(state, "--group-timeout is 1 to %d seconds, not '%s'", TIMEOUT_MAX_S, text);
    ((struct nv_group_args *)place)->timeout_s = (uint32_t)seconds;
}

void nv_group_take_active(struct argp_state *state, void *place, char *text)
{
    if (strcmp(text, "one") && strcmp(text, "all"))
        argp_error(state, "--active is one or all, not '%s'", text);
    ((struct nv_group_args *)place)->is_all_active = !strcmp(text, "all");
}

bool nv_group_is_wanted(const struct nv_group_args *args)
{
    return args->copy_count || args->member || args->listen || args->timeout_s ||
           args->is_all_active;
}

void nv_group_check(struct argp_state *state, const struct nv_group_args *args)
{
    if (!nv_group_is_wanted(args))
        return;
    if (!args->copy_count)
        argp_error(state, "say by --group where the log of the group is");
    if (!args->member)
        argp_error(state, "say by --member what this target is called in its group");
}

static bool is_anywhere(const char *address)
{
    return !strcmp(address, "0.0.0.0") || !strcmp(address, "::");
}

static void write_endpoint(const struct nvt_listen *listen, char out[NVG_ADDRESS_BYTES])
{
    const bool is_ip6 = strchr(listen->traddr, ':');
    snprintf(out, NVG_ADDRESS_BYTES, "%s%.54s%s:%u", is_ip6 ? "[" : "", listen->traddr,
             is_ip6 ? "]" : "", listen->port);
}

static int take_addresses(const struct nvt_config *config, struct nvg_settings *out, char *error,
                          size_t error_bytes)
{
    if (config->port_count > NVG_ADDRESSES_MAX) {
        snprintf(error, error_bytes, "a member of a group listens at %d addresses at most",
                 NVG_ADDRESSES_MAX);
        return -EINVAL;
    }
    for (size_t i = 0; i < config->port_count; i++) {
        if (is_anywhere(config->ports[i].listen.traddr)) {
            snprintf(error, error_bytes,
                     "say by --listen ADDR where hosts find this target: the other members of the "
                     "group tell them");
            return -EINVAL;
        }
        write_endpoint(&config->ports[i].listen, out->addresses[i]);
    }
    out->address_count = (uint32_t)config->port_count;
    return 0;
}

/* Beside the first port, unless it is said. */
static int place_group_port(struct nv_group_args *args, const struct nvt_config *config,
                            char *error, size_t error_bytes)
{
    struct nvt_listen listen = config->ports[0].listen;
    listen.port++;
    const int rc = args->listen ? nvt_listen_parse(args->listen, &listen, error, error_bytes) : 0;
    if (!rc && (is_anywhere(listen.traddr) || !listen.port)) {
        snprintf(error, error_bytes, "say by --group-listen ADDR:PORT where members find this one");
        return -EINVAL;
    }
    snprintf(args->group_address, sizeof(args->group_address), "%s", listen.traddr);
    snprintf(args->group_port, sizeof(args->group_port), "%u", listen.port);
    return rc;
}

int nv_group_settings(struct nv_group_args *args, const struct nvt_config *config,
                      struct nvg_settings *out, char *error, size_t error_bytes)
{
    *out = (struct nvg_settings){.member = args->member,
                                 .copy_count = args->copy_count,
                                 .group_address = args->group_address,
                                 .group_port = args->group_port,
                                 .is_all_active = args->is_all_active,
                                 .timeout_ms = args->timeout_s * 1000};
    for (uint32_t i = 0; i < args->copy_count; i++)
        out->copies[i] = (struct nvg_copy){.address = args->copies[i].address,
                                           .port = args->copies[i].port,
                                           .region = args->copies[i].region};
    const int rc = take_addresses(config, out, error, error_bytes);
    return rc ? rc : place_group_port(args, config, error, error_bytes);
}
