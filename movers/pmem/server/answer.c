/* SPDX-License-Identifier: BSD-2-Clause */
/* What clients ask, and what they are told: regions, ranges, keys, counts. */
#include <stdio.h>
#include <string.h>

#include "common/serve/log.h"
#include "common/time/clock.h"
#include "pmem/server/server.h"
#include "sidewire/flush.h"

/* rdma_cm knows nothing of flushes, so the queue pair has not got that right from it. */
static void allow_flush(struct pms_client *client, uint8_t flags)
{
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    flags |= client->flush_flags;
    if (flags == client->flush_flags)
        return;
    if (flags & PMF_VISIBLE)
        attr.qp_access_flags |= IBV_ACCESS_FLUSH_GLOBAL;
    if (flags & PMF_PERSISTENT)
        attr.qp_access_flags |= IBV_ACCESS_FLUSH_PERSISTENT;
    if (!ibv_modify_qp(client->base.id->qp, &attr, IBV_QP_ACCESS_FLAGS))
        client->flush_flags = flags;
}

static void describe_region(struct pms_client *client, const struct pms_region *from,
                            const struct pms_share *share, struct pmf_region *to)
{
    memcpy(to->name, from->name, sizeof(to->name));
    memcpy(to->identity, from->memory.identity, sizeof(to->identity));
    to->bytes = from->memory.bytes;
    to->kind = (uint8_t)from->memory.kind;
    allow_flush(client, share->flags);
    to->flags = share->flags & client->flush_flags;
    /* A READ takes the place of flushes there: on memory that has no page cache between. */
    if (!to->flags)
        to->flags =
            from->memory.kind >= SW_PMEM_DAX_FILE ? PMF_VISIBLE | PMF_PERSISTENT : PMF_VISIBLE;
}

static uint32_t answer_rights_of(const struct pms_server *server, const struct pms_client *client,
                                 uint32_t region)
{
    return pms_rules_rights(&server->rules, client->grant->mask, server->regions[region].name);
}

static bool may_write(const struct pms_server *server, const struct pms_client *client,
                      uint32_t region)
{
    return client->opened >> region & 1 && answer_rights_of(server, client, region) & SW_PMEM_WRITE;
}

/* Nothing of theirs is stored any more when this returns NULL. Else this one is stopped amid a
 * store, and may finish it. */
static const struct pms_client *end_other_writers(struct pms_server *server,
                                                  const struct pms_client *client, uint32_t region)
{
    const struct pms_client *stopped = NULL;
    pms_clients_sweep(server);
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        struct pms_client *other = server->clients[i];
        if (!other || other == client || !may_write(server, other, region))
            continue;
        server->ended += !other->is_stopped;
        pms_client_end(server, other);
        if (server->clients[i] == other)
            stopped = other;
    }
    return stopped;
}

/* An empty name is that of the only one. */
static enum pmf_status answer_find_region(const struct pms_server *server, const char *name,
                                          uint32_t *region)
{
    if (!*name && server->regions_count == 1) {
        *region = 0;
        return PMF_OK;
    }
    for (uint32_t i = 0; i < server->regions_count; i++)
        if (!strcmp(name, server->regions[i].name)) {
            *region = i;
            return PMF_OK;
        }
    return PMF_NO_REGION;
}

static enum pmf_status open_region(struct pms_server *server, struct pms_client *client,
                                   const struct pmf_request *request, struct pmf_answer *answer)
{
    uint32_t region;
    const enum pmf_status status = answer_find_region(server, request->name, &region);
    if (status)
        return status;
    const uint32_t rights = answer_rights_of(server, client, region);
    if (rights && server->regions[region].memory.disk.error)
        return PMF_DISK_FAILED;
    if (!rights || (request->wishes && !(rights & SW_PMEM_WRITE)))
        return PMF_NO_RIGHTS;
    if (request->wishes && server->is_shared)
        return PMF_SHARED;
    const struct pms_share *share = pms_share_of(server, client->grant, region);
    if (!share)
        return PMF_NO_MEMORY;
    const struct pms_client *stopped =
        request->wishes ? end_other_writers(server, client, region) : NULL;
    if (stopped) {
        memcpy(answer->regions[0].name, stopped->label, sizeof(stopped->label));
        return PMF_BUSY;
    }
    client->opened |= 1u << region;
    server->regions[region].opens++;
    describe_region(client, &server->regions[region], share, &answer->regions[0]);
    answer->count = share->count;
    memcpy(answer->ranges, share->ranges, sizeof(answer->ranges));
    return PMF_OK;
}

/* Lists the regions that the client has any right on. */
static enum pmf_status list_regions(struct pms_server *server, struct pms_client *client,
                                    struct pmf_answer *answer)
{
    for (uint32_t i = 0; i < server->regions_count; i++) {
        const uint32_t rights = answer_rights_of(server, client, i);
        const struct pms_share *share = rights ? pms_share_of(server, client->grant, i) : NULL;
        if (!share)
            continue;
        struct pmf_region *region = &answer->regions[answer->count++];
        describe_region(client, &server->regions[i], share, region);
        region->rights = (uint16_t)rights;
    }
    return PMF_OK;
}

void pms_counts_of(const struct pms_server *server, struct pmf_counts *counts)
{
    *counts = (struct pmf_counts){
        .uptime_ms = (mover_now_ns() - server->started_ns) / NS_PER_MS,
        .connections = server->connections,
        .refused = server->refused,
        .malformed = server->malformed,
        .ended = server->ended,
        .clients_max = PMS_CLIENTS_MAX,
    };
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++)
        counts->clients += server->clients[i] != NULL;
}

void pms_region_counts_of(const struct pms_server *server, uint32_t region,
                          struct pmf_region_counts *counts)
{
    memcpy(counts->name, server->regions[region].name, sizeof(counts->name));
    counts->opens = server->regions[region].opens;
    counts->clients = counts->writers = 0;
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        const struct pms_client *client = server->clients[i];
        counts->clients += client && client->opened >> region & 1;
        counts->writers += client && may_write(server, client, region);
    }
}

static enum pmf_status count_all(const struct pms_server *server, const struct pms_client *asks,
                                 struct pmf_answer *answer)
{
    pms_counts_of(server, &answer->counts);
    for (uint32_t i = 0; i < server->regions_count; i++)
        if (answer_rights_of(server, asks, i))
            pms_region_counts_of(server, i, &answer->region_counts[answer->count++]);
    return PMF_OK;
}

/* Strangers may send such as often as they like. */
static void tell_malformed(struct pms_server *server, const struct pms_client *client)
{
    mover_log_told(&server->acceptor.told, MOVER_LOG_WARNING,
                   "a malformed message of %s; its connection ends", client->where);
}

void pms_answer(struct pms_server *server, struct pms_client *client, const uint8_t *message,
                size_t bytes, struct pmf_answer *answer)
{
    struct pmf_request request;
    enum pmf_status status = pmf_get_request(message, bytes, &request);
    answer->type = request.type;
    answer->tag = request.tag;
    pms_server_look_at_disks(server);
    if (status) {
        client->base.is_over = true;
        server->malformed++;
        tell_malformed(server, client);
    } else if (request.type == PMF_OPEN) {
        status = open_region(server, client, &request, answer);
    } else if (request.type == PMF_LIST) {
        status = list_regions(server, client, answer);
    } else {
        status = count_all(server, client, answer);
    }
    answer->status = (uint8_t)status;
}
