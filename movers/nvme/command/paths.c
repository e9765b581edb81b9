/* SPDX-License-Identifier: BSD-2-Clause */
/* The paths of a connection: their addresses as options, their states as text and JSON. */
#include "nvme/command/paths.h"

#include <stdlib.h>
#include <string.h>

#include "common/command/table.h"
#include "common/text/endpoint.h"
#include "nvme/command/host_commands.h"

void nv_take_address(struct argp_state *state, void *place, char *text)
{
    struct nv_host *host = place;
    struct sw_nvme_address address = {0};
    if (!mover_split_endpoint(text, &address.traddr, &address.trsvcid))
        argp_error(state, "\"%s\" is not an address: ADDR, ADDR:PORT or [ADDR]:PORT", text);
    if (host->addresses_count == SW_NVME_PATHS_MAX)
        argp_error(state, "there are more than %d addresses", SW_NVME_PATHS_MAX);
    host->addresses[host->addresses_count++] = address;
    host->options.traddr = host->addresses[0].traddr;
}

void nv_take_policy(struct argp_state *state, void *place, char *text)
{
    struct nv_host *host = place;
    if (sw_nvme_iopolicy_parse(text, &host->options.iopolicy))
        argp_error(state, "\"%s\" is not a policy: round-robin, queue-depth, numa", text);
}

void nv_addresses_own(struct nv_host *host)
{
    struct sw_nvme_options *options = &host->options;
    for (uint32_t i = 0; i < host->addresses_count; i++) {
        struct sw_nvme_address *address = &host->addresses[i];
        if (!address->trsvcid)
            address->trsvcid = options->trsvcid;
        address->host_traddr = options->host_traddr;
    }
    options->trsvcid = host->addresses[0].trsvcid;
    options->more = host->addresses + 1;
    options->more_count = host->addresses_count - 1;
}

int nv_addresses_discover(struct nv_host *host)
{
    struct sw_nvme_error error;
    struct sw_nvme_address *found;
    uint32_t count;
    if (sw_nvme_find_paths(&host->options, &found, &count, &error))
        return nv_fail_error(&error);
    host->found = found;
    host->options.more = found;
    host->options.more_count = count;
    return 0;
}

/* ---- what is told of them ---- */

static const struct mover_column columns[] = {{"Path", "address", .width = -24},
                                              {"State", "state", .width = -8},
                                              {"ANA", "ana", .width = -15},
                                              {"cntlid", "cntlid", .width = 6},
                                              {"requests", "requests", .width = 9},
                                              {"moved", "moved", .width = 6},
                                              {"held", "held", .width = 5},
                                              {"maybe", "maybe_done", .width = 5},
                                              {" ", "why", .gap = 1},
                                              {0}};

json_t *nv_paths_json(const struct nv_host *host)
{
    struct sw_nvme_path paths[SW_NVME_PATHS_MAX];
    const uint32_t count = sw_nvme_paths_of(host->controller, host->nsid, paths, SW_NVME_PATHS_MAX);
    json_t *rows = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const struct sw_nvme_path *path = &paths[i];
        json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "address",
                      path->address, "state", sw_nvme_path_state_text(path->state), "ana",
                      sw_nvme_ana_text(path->ana), "cntlid", (json_int_t)path->cntlid, "requests",
                      (json_int_t)path->requests, "moved", (json_int_t)path->moved, "held",
                      (json_int_t)path->held, "maybe_done", (json_int_t)path->maybe_done,
                      "reconnects", (json_int_t)path->reconnects, "quiesce_ms",
                      (json_int_t)path->quiesce_ms, "why", path->why));
    }
    return rows;
}

void nv_paths_print(const struct nv_host *host)
{
    if (!host->options.more_count)
        return;
    json_t *rows = nv_paths_json(host);
    printf("\n");
    mover_table_print(columns, rows);
    json_decref(rows);
}

void nv_paths_watch(struct nv_host *host)
{
    struct sw_nvme_path paths[SW_NVME_PATHS_MAX];
    if (!host->options.more_count)
        return;
    const uint32_t count = sw_nvme_paths_of(host->controller, host->nsid, paths, SW_NVME_PATHS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const enum sw_nvme_path_state state = paths[i].state;
        if (state == host->told[i] || state == SW_NVME_PATH_CHECKED)
            continue;
        if (state == SW_NVME_PATH_USED)
            mover_fail("path %s: used again", paths[i].address);
        else
            mover_fail("path %s: %s: %s", paths[i].address, sw_nvme_path_state_text(state),
                       paths[i].why);
        host->told[i] = state;
    }
}

void nv_paths_told(struct nv_host *host)
{
    for (uint32_t i = 0; i < SW_NVME_PATHS_MAX; i++)
        host->told[i] = SW_NVME_PATH_USED;
    nv_paths_watch(host);
}
