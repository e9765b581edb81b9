/* SPDX-License-Identifier: BSD-2-Clause */
/* A client's connection: its queue pair lies in the domain of its rights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/serve/log.h"
#include "common/serve/origin.h"
#include "common/time/clock.h"
#include "pmem/server/server.h"

enum { READS_MAX = 16 };

static void reject_client(struct pms_server *server, struct rdma_cm_id *id, enum pmf_reason reason)
{
    uint8_t why[PMF_REJECT_BYTES];
    const size_t bytes = pmf_put_reject(why, reason);
    server->refused++;
    mover_acceptor_refuse(&server->acceptor, id, pmf_reason_text(reason), why, bytes);
}

static bool may_write_any(const struct pms_server *server, uint64_t mask)
{
    uint32_t rights = 0;
    for (uint32_t i = 0; i < server->regions_count; i++)
        rights |= pms_rules_rights(&server->rules, mask, server->regions[i].name);
    return rights & SW_PMEM_WRITE;
}

static struct pms_client *new_client(struct pms_server *server, struct rdma_cm_id *id,
                                     uint64_t mask)
{
    const struct in6_addr origin = mover_origin_of_peer(rdma_get_peer_addr(id));
    const bool may_write = may_write_any(server, mask);
    if (!pms_places_make_room(server, &origin, may_write))
        return NULL;
    uint32_t slot = 0;
    while (slot < PMS_CLIENTS_MAX && server->clients[slot])
        slot++;
    struct pms_client *client = slot < PMS_CLIENTS_MAX ? calloc(1, sizeof(*client)) : NULL;
    if (!client)
        return NULL;
    client->origin = origin;
    client->may_write = may_write;
    client->since_ns = client->probed_ns = mover_now_ns();
    client->slot = slot;
    id->context = client;
    server->clients[slot] = client;
    pms_places_watch(server);
    return client;
}

/* Frees all but the id. */
static void free_client(struct pms_server *server, struct pms_client *client)
{
    mover_client_close(&client->base);
    server->clients[client->slot] = NULL;
    free(client);
}

static bool client_answer_message(struct mover_client *base, uint8_t *message, uint32_t *bytes)
{
    static struct pmf_answer answer; /* the one thread's; too large for its stack */
    struct pms_client *client = LIST_MEMBER(base, struct pms_client, base);
    memset(&answer, 0, sizeof(answer));
    pms_answer(base->context, client, message, *bytes, &answer);
    *bytes = (uint32_t)pmf_put_answer(message, &answer);
    client->is_proved |= !answer.status;
    return true;
}

static void client_is_over(struct mover_client *base)
{
    struct pms_server *server = base->context;
    if (base->status == IBV_WC_LOC_LEN_ERR)
        server->malformed++;
    pms_client_end(server, LIST_MEMBER(base, struct pms_client, base));
}

static bool client_make_qp(struct pms_server *server, struct pms_client *client,
                           struct rdma_cm_id *id)
{
    client->base = (struct mover_client){
        .context = server, .answer = client_answer_message, .ended = client_is_over};
    return mover_client_open(&client->base, server->loop, id, client->grant->pd, PMS_RECEIVES,
                             PMF_ANSWER_MAX);
}

void pms_client_request(struct pms_server *server, const struct mover_arrival *request)
{
    struct rdma_cm_id *id = request->id;
    const struct rdma_conn_param *asked = &request->param;
    char label[PMF_NAME_BYTES];
    id->context = NULL;
    const enum pmf_reason reason =
        pmf_get_connect(asked->private_data, asked->private_data_len, label);
    const uint64_t mask = pms_rules_of(&server->rules, rdma_get_peer_addr(id));
    server->connections++;
    if (reason || !mask)
        return reject_client(server, id, reason ? reason : PMF_REASON_RIGHTS);
    struct pms_grant *grant = pms_grant_of(server, id->verbs, mask);
    struct pms_client *client = grant ? new_client(server, id, mask) : NULL;
    if (!client)
        return reject_client(server, id, grant ? PMF_REASON_MANY : PMF_REASON_MEMORY);
    client->grant = grant;
    memcpy(client->label, label, sizeof(label));
    mover_address_name(rdma_get_peer_addr(id), client->where);
    uint8_t accept[PMF_ACCEPT_BYTES];
    struct rdma_conn_param param = {
        .private_data = accept,
        .private_data_len = (uint8_t)pmf_put_accept(accept, server->instance),
        .responder_resources = asked->responder_resources < READS_MAX ? asked->responder_resources
                                                                      : (uint8_t)READS_MAX,
        .rnr_retry_count = 7,
    };
    if (!client_make_qp(server, client, id)) {
        free_client(server, client);
        return reject_client(server, id, PMF_REASON_MEMORY);
    }
    if (rdma_accept(id, &param)) {
        free_client(server, client);
        rdma_destroy_id(id);
    } else {
        mover_log(MOVER_LOG_INFO, "%s connects (%s)", client->where, client->label);
    }
}

static void remove_client(struct pms_server *server, struct pms_client *client)
{
    struct rdma_cm_id *id = client->base.id;
    free_client(server, client);
    rdma_destroy_id(id);
}

static void tell_stopped(const struct pms_client *client)
{
    mover_log(MOVER_LOG_WARNING,
              "a writer of this host, %s (%s), is stopped amid a store. Nobody is the only writer "
              "of its regions until it goes on or ends",
              client->where, *client->label ? client->label : "without a name");
}

void pms_client_end(struct pms_server *server, struct pms_client *client)
{
    if (client->is_stopped)
        return;
    pms_server_look_at_disks(server); /* a flush that fails ends its connection */
    mover_log(MOVER_LOG_INFO, "%s leaves (%s)", client->where, client->label);
    rdma_disconnect(client->base.id);
    client->is_stopped =
        client->may_write && client->opened && !mover_client_is_quiet(&client->base);
    if (client->is_stopped)
        tell_stopped(client);
    else
        remove_client(server, client);
}

bool pms_clients_sweep(struct pms_server *server)
{
    bool are_stopped = false;
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        struct pms_client *client = server->clients[i];
        if (!client || !client->is_stopped)
            continue;
        if (mover_client_is_quiet(&client->base))
            remove_client(server, client);
        else
            are_stopped = true;
    }
    return are_stopped;
}

void pms_clients_end(struct pms_server *server)
{
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        struct pms_client *client = server->clients[i];
        if (client)
            pms_client_end(server, client);
        if (client && server->clients[i] == client)
            remove_client(server, client);
    }
}
