/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/server/status.h"

#include <string.h>

static json_t *region_status(const struct pms_server *server, uint32_t region)
{
    struct pmf_region_counts counts;
    pms_region_counts_of(server, region, &counts);
    const int error = server->regions[region].memory.disk.error;
    return json_pack("{s:s, s:I, s:i, s:i, s:s?}", "name", counts.name, "opens",
                     (json_int_t)counts.opens, "clients", (int)counts.clients, "writers",
                     (int)counts.writers, "disk_error", error ? strerror(error) : NULL);
}

json_t *pms_status(const struct pms_server *server)
{
    struct pmf_counts counts;
    json_t *regions = json_array();
    pms_counts_of(server, &counts);
    for (uint32_t i = 0; i < server->regions_count; i++)
        json_array_append_new(regions, region_status(server, i));
    return json_pack("{s:I, s:i, s:i, s:I, s:I, s:I, s:I, s:b, s:o}", "uptime_ms",
                     (json_int_t)counts.uptime_ms, "clients", (int)counts.clients, "clients_max",
                     (int)counts.clients_max, "connected", (json_int_t)counts.connections,
                     "refused", (json_int_t)counts.refused, "ended", (json_int_t)counts.ended,
                     "malformed", (json_int_t)counts.malformed, "is_listening",
                     server->acceptor.listener.id != NULL, "regions", regions);
}

const struct mover_metric pms_metrics[] = {
    {"clients", "clients", "Clients that are connected", MOVER_GAUGE},
    {"clients_max", "clients_max", "Clients at most", MOVER_GAUGE},
    {"connected_total", "connected", "Connections that were asked for", MOVER_COUNTER},
    {"refused_total", "refused", "Connections that were refused", MOVER_COUNTER},
    {"ended_total", "ended", "Connections that were ended for another client", MOVER_COUNTER},
    {"malformed_total", "malformed", "Malformed messages", MOVER_COUNTER},
    {"is_listening", "is_listening", "0: its address is away", MOVER_GAUGE},
    {"region_opens_total", "regions[name].opens", "Times a region was opened", MOVER_COUNTER},
    {"region_clients", "regions[name].clients", "Clients that have it open", MOVER_GAUGE},
    {"region_writers", "regions[name].writers", "Of them, those that may write", MOVER_GAUGE},
    {0},
};
