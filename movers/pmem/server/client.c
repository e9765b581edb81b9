/* SPDX-License-Identifier: BSD-2-Clause */
/* A client's connection: its queue pair lies in the domain of its rights. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/serve/origin.h"
#include "common/time/clock.h"
#include "pmem/server/server.h"

enum { CQ_ENTRIES = 8, READS_MAX = 16, PROBE_ID = 2 * PMS_RECEIVES };

static void name_address(struct rdma_cm_id *id, char where[INET6_ADDRSTRLEN])
{
    const struct sockaddr *a = rdma_get_peer_addr(id);
    const void *bytes =
        a->sa_family == AF_INET6
            ? (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr
            : (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr;
    if (!inet_ntop(a->sa_family, bytes, where, INET6_ADDRSTRLEN))
        snprintf(where, INET6_ADDRSTRLEN, "?");
}

static bool client_post_receive(struct pms_client *client, uint32_t index)
{
    return mover_post_receive(client->id->qp, index, client->requests[index], PMF_REQUEST_MAX,
                              client->mr->lkey);
}

static void take_completions(struct mover_watch *watch)
{
    pms_client_ready(watch->context, LIST_MEMBER(watch, struct pms_client, watch));
}

static bool client_make_qp(struct pms_server *server, struct pms_client *client)
{
    const struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = PMS_RECEIVES + 1,
                                                  .max_recv_wr = PMS_RECEIVES,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1},
                                          .sq_sig_all = 1};
    struct ibv_pd *pd = client->grant->pd;
    client->watch = (struct mover_watch){.fd = -1, .ready = take_completions, .context = server};
    if (!mover_queue_open(&client->queue, client->id->verbs, CQ_ENTRIES, server->loop->epoll_fd,
                          &client->watch))
        return false;
    client->watch.fd = client->queue.channel->fd;
    client->mr = ibv_reg_mr(pd, client->requests, sizeof(client->requests) + sizeof(client->answer),
                            IBV_ACCESS_LOCAL_WRITE);
    if (!client->mr || !mover_queue_make_qp(&client->queue, client->id, pd, &attr))
        return false;
    for (uint32_t i = 0; i < PMS_RECEIVES; i++)
        if (!client_post_receive(client, i))
            return false;
    return true;
}

/* Strangers may be refused as often as they like. */
static void tell_refused(struct pms_server *server, struct rdma_cm_id *id, const char *why)
{
    char where[INET6_ADDRSTRLEN];
    server->refused++;
    if (!mover_told_begin(&server->told))
        return;
    name_address(id, where);
    fprintf(stderr, "sidewire pmem serve: refused %s: %s", where, why);
    mover_told_end(&server->told);
}

static void reject_client(struct pms_server *server, struct rdma_cm_id *id, enum pmf_reason reason)
{
    uint8_t why[PMF_REJECT_BYTES];
    tell_refused(server, id, pmf_reason_text(reason));
    rdma_reject(id, why, (uint8_t)pmf_put_reject(why, reason));
    rdma_destroy_id(id);
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
    client->id = id;
    id->context = client;
    server->clients[slot] = client;
    pms_places_watch(server);
    return client;
}

/* Frees all but the id. */
static void free_client(struct pms_server *server, struct pms_client *client)
{
    if (client->id->qp)
        rdma_destroy_qp(client->id);
    if (client->queue.channel)
        mover_loop_unwatch(server->loop, &client->watch);
    mover_queue_close(&client->queue);
    if (client->mr)
        ibv_dereg_mr(client->mr);
    client->id->context = NULL;
    server->clients[client->slot] = NULL;
    free(client);
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
    name_address(id, client->where);
    uint8_t accept[PMF_ACCEPT_BYTES];
    struct rdma_conn_param param = {
        .private_data = accept,
        .private_data_len = (uint8_t)pmf_put_accept(accept, server->instance),
        .responder_resources = asked->responder_resources < READS_MAX ? asked->responder_resources
                                                                      : (uint8_t)READS_MAX,
        .rnr_retry_count = 7,
    };
    if (!client_make_qp(server, client)) {
        free_client(server, client);
        return reject_client(server, id, PMF_REASON_MEMORY);
    }
    if (rdma_accept(id, &param)) {
        free_client(server, client);
        rdma_destroy_id(id);
    } else if (server->is_verbose) {
        fprintf(stderr, "sidewire pmem serve: %s connects (%s)\n", client->where, client->label);
    }
}

void pms_client_end(struct pms_server *server, struct pms_client *client)
{
    struct rdma_cm_id *id = client->id;
    pms_server_look_at_disks(server); /* a flush that fails ends its connection */
    if (server->is_verbose)
        fprintf(stderr, "sidewire pmem serve: %s leaves (%s)\n", client->where, client->label);
    rdma_disconnect(id);
    free_client(server, client);
    rdma_destroy_id(id);
}

static void client_answer_request(struct pms_server *server, struct pms_client *client,
                                  const struct ibv_wc *wc)
{
    static struct pmf_answer answer; /* the one thread's; too large for its stack */
    memset(&answer, 0, sizeof(answer));
    pms_answer(server, client, client->requests[wc->wr_id], wc->byte_len, &answer);
    const uint32_t bytes = (uint32_t)pmf_put_answer(client->answer, &answer);
    client->is_proved |= !answer.status;
    client->answered_ns = mover_now_ns();
    /* The receive of that number comes next. */
    if (!mover_post_send(client->id->qp, PMS_RECEIVES + wc->wr_id, client->answer, bytes,
                         client->mr->lkey, 0))
        client->is_over = true;
}

/* No key is looked at for no bytes. A client whose host is gone leaves its place by the error. */
void pms_client_probe(struct pms_server *server, struct pms_client *client)
{
    struct ibv_send_wr *bad, wr = {.wr_id = PROBE_ID, .opcode = IBV_WR_RDMA_WRITE};
    if (client->is_probed || client->is_over)
        return;
    client->is_probed = !ibv_post_send(client->id->qp, &wr, &bad);
    server->probes++;
}

/* A client that asks before it has its answer would have that overwritten; it has no right to. */
static bool client_take_message(struct pms_server *server, struct pms_client *client,
                                const struct ibv_wc *wc)
{
    if (wc->status) {
        if (wc->status == IBV_WC_LOC_LEN_ERR)
            server->malformed++;
        return false;
    }
    if (wc->opcode == IBV_WC_RECV) {
        if (!client->is_over)
            client_answer_request(server, client, wc);
        return true;
    }
    if (wc->wr_id == PROBE_ID) {
        client->is_probed = false;
        return true;
    }
    client->answered_ns = 0;
    return !client->is_over && client_post_receive(client, (uint32_t)wc->wr_id - PMS_RECEIVES);
}

void pms_client_ready(struct pms_server *server, struct pms_client *client)
{
    struct ibv_wc wc;
    bool is_fine = mover_queue_rearm(&client->queue);
    while (is_fine && mover_queue_poll(&client->queue, 1, &wc) > 0)
        is_fine = client_take_message(server, client, &wc);
    if (!is_fine)
        pms_client_end(server, client);
}
