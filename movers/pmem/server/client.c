/* SPDX-License-Identifier: BSD-2-Clause */
/* A client's connection: its queue pair lies in the domain of its rights. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "pmem/server/server.h"
#include "sidewire/flush.h"

enum { RECEIVES = 2, CQ_ENTRIES = 8, READS_MAX = 16 };

struct pms_client {
    struct rdma_cm_id *id;
    struct pms_grant *grant;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    unsigned events;
    uint32_t slot;
    bool may_flush; /* its queue pair has been given the right */
    bool is_over;   /* nothing more is taken; its last answer is on its way */
    char label[PMF_NAME_BYTES], where[INET6_ADDRSTRLEN];
    uint8_t requests[RECEIVES][PMF_REQUEST_MAX];
    uint8_t answer[PMF_ANSWER_MAX];
};

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

static bool post_receive(struct pms_client *client, uint32_t index)
{
    struct ibv_sge sge = {.addr = (uintptr_t)client->requests[index],
                          .length = PMF_REQUEST_MAX,
                          .lkey = client->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1}, *bad;
    return !ibv_post_recv(client->id->qp, &wr, &bad);
}

static bool make_qp(struct pms_server *server, struct pms_client *client)
{
    struct ibv_context *verbs = client->id->verbs;
    client->channel = ibv_create_comp_channel(verbs);
    if (!client->channel)
        return false;
    const int fd = client->channel->fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event))
        return false;
    client->cq = ibv_create_cq(verbs, CQ_ENTRIES, client, client->channel, 0);
    client->mr =
        ibv_reg_mr(client->grant->pd, client->requests,
                   sizeof(client->requests) + sizeof(client->answer), IBV_ACCESS_LOCAL_WRITE);
    if (!client->cq || !client->mr || ibv_req_notify_cq(client->cq, 0))
        return false;
    struct ibv_qp_init_attr attr = {
        .send_cq = client->cq,
        .recv_cq = client->cq,
        .cap = {.max_send_wr = 2, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    if (rdma_create_qp(client->id, client->grant->pd, &attr))
        return false;
    for (uint32_t i = 0; i < RECEIVES; i++)
        if (!post_receive(client, i))
            return false;
    return true;
}

static void reject(struct pms_server *server, struct rdma_cm_id *id, enum pmf_reason reason)
{
    uint8_t why[PMF_REJECT_BYTES];
    char where[INET6_ADDRSTRLEN];
    server->refused++;
    name_address(id, where);
    fprintf(stderr, "sidewire pmem serve: refused %s: %s\n", where, pmf_reason_text(reason));
    rdma_reject(id, why, (uint8_t)pmf_put_reject(why, reason));
    rdma_destroy_id(id);
}

static struct pms_client *new_client(struct pms_server *server, struct rdma_cm_id *id)
{
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++)
        if (!server->clients[i]) {
            struct pms_client *client = calloc(1, sizeof(*client));
            if (client) {
                client->slot = i;
                client->id = id;
                id->context = client;
                server->clients[i] = client;
            }
            return client;
        }
    return NULL;
}

/* Frees all but the id. */
static void free_client(struct pms_server *server, struct pms_client *client)
{
    if (client->id->qp)
        rdma_destroy_qp(client->id);
    if (client->cq) {
        if (client->events)
            ibv_ack_cq_events(client->cq, client->events);
        ibv_destroy_cq(client->cq);
    }
    if (client->mr)
        ibv_dereg_mr(client->mr);
    if (client->channel)
        ibv_destroy_comp_channel(client->channel);
    client->id->context = NULL;
    server->clients[client->slot] = NULL;
    free(client);
}

void pms_client_request(struct pms_server *server, const struct rdma_cm_event *event)
{
    struct rdma_cm_id *id = event->id;
    const struct rdma_conn_param *asked = &event->param.conn;
    char label[PMF_NAME_BYTES];
    id->context = NULL;
    const enum pmf_reason reason = pmf_get_connect(
        asked->private_data, asked->private_data ? asked->private_data_len : 0, label);
    const uint64_t mask = pms_rules_of(&server->rules, rdma_get_peer_addr(id));
    if (reason || !mask)
        return reject(server, id, reason ? reason : PMF_REASON_RIGHTS);
    struct pms_grant *grant = pms_grant_of(server, id->verbs, mask);
    struct pms_client *client = grant ? new_client(server, id) : NULL;
    if (!client)
        return reject(server, id, grant ? PMF_REASON_MANY : PMF_REASON_MEMORY);
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
    if (!make_qp(server, client)) {
        free_client(server, client);
        return reject(server, id, PMF_REASON_MEMORY);
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
    if (server->is_verbose)
        fprintf(stderr, "sidewire pmem serve: %s leaves (%s)\n", client->where, client->label);
    rdma_disconnect(id);
    free_client(server, client);
    rdma_destroy_id(id);
}

/* rdma_cm knows nothing of flushes, so the queue pair has not got that right from it. */
static void allow_flush(struct pms_client *client)
{
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    if (client->may_flush || !client->grant->flags)
        return;
    if (client->grant->flags & PMF_VISIBLE)
        attr.qp_access_flags |= IBV_ACCESS_FLUSH_GLOBAL;
    if (client->grant->flags & PMF_PERSISTENT)
        attr.qp_access_flags |= IBV_ACCESS_FLUSH_PERSISTENT;
    client->may_flush = !ibv_modify_qp(client->id->qp, &attr, IBV_QP_ACCESS_FLAGS);
}

static void describe(const struct pms_server *server, const struct pms_client *client,
                     struct pmf_answer *answer)
{
    struct pmf_region *region = &answer->regions[0];
    memcpy(region->name, server->name, sizeof(region->name));
    memcpy(region->identity, server->memory->identity, sizeof(region->identity));
    region->bytes = server->memory->bytes;
    region->kind = (uint8_t)server->memory->kind;
    region->flags = client->may_flush ? client->grant->flags : PMF_VISIBLE;
    /* A READ takes the place of flushes there: on memory that has no page cache between. */
    if (!client->may_flush && server->memory->kind >= SW_PMEM_DAX_FILE)
        region->flags |= PMF_PERSISTENT;
    for (uint32_t i = 0; i < client->grant->count; i++)
        region->rights |= (uint16_t)client->grant->ranges[i].rights;
}

static bool may_write(const struct pms_client *client)
{
    uint32_t rights = 0;
    for (uint32_t i = 0; i < client->grant->count; i++)
        rights |= client->grant->ranges[i].rights;
    return rights & SW_PMEM_WRITE;
}

/* Their queue pairs are gone when this returns: nothing of theirs is stored any more. */
static void end_other_writers(struct pms_server *server, const struct pms_client *client)
{
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++)
        if (server->clients[i] && server->clients[i] != client && may_write(server->clients[i]))
            pms_client_end(server, server->clients[i]);
}

static void answer_request(struct pms_server *server, struct pms_client *client,
                           const struct ibv_wc *wc)
{
    static struct pmf_answer answer; /* the one thread's; too large for its stack */
    struct pmf_request request;
    memset(&answer, 0, sizeof(answer));
    answer.status = (uint8_t)pmf_get_request(client->requests[wc->wr_id], wc->byte_len, &request);
    answer.type = request.type;
    answer.tag = request.tag;
    allow_flush(client);
    if (answer.status) {
        client->is_over = true;
        server->malformed++;
        fprintf(stderr, "sidewire pmem serve: a malformed message of %s; its connection ends\n",
                client->where);
    } else if (request.type == PMF_OPEN && *request.name && strcmp(request.name, server->name)) {
        answer.status = PMF_NO_REGION;
    } else if (request.wishes && !may_write(client)) {
        answer.status = PMF_NO_RIGHTS;
    } else {
        if (request.wishes)
            end_other_writers(server, client);
        describe(server, client, &answer);
        answer.count = request.type == PMF_OPEN ? client->grant->count : 1;
        memcpy(answer.ranges, client->grant->ranges, sizeof(answer.ranges));
    }
    struct ibv_sge sge = {.addr = (uintptr_t)client->answer, .lkey = client->mr->lkey};
    sge.length = (uint32_t)pmf_put_answer(client->answer, &answer);
    struct ibv_send_wr *bad, wr = {.wr_id = RECEIVES + wc->wr_id, /* whose receive comes next */
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND};
    if (ibv_post_send(client->id->qp, &wr, &bad))
        client->is_over = true;
}

/* A client that asks before it has its answer would have that overwritten; it has no right to. */
static bool take(struct pms_server *server, struct pms_client *client, const struct ibv_wc *wc)
{
    if (wc->status) {
        if (wc->status == IBV_WC_LOC_LEN_ERR)
            server->malformed++;
        return false;
    }
    if (wc->opcode == IBV_WC_RECV) {
        if (!client->is_over)
            answer_request(server, client, wc);
        return true;
    }
    return !client->is_over && post_receive(client, (uint32_t)wc->wr_id - RECEIVES);
}

void pms_client_ready(struct pms_server *server, struct pms_client *client)
{
    struct ibv_cq *cq;
    void *context;
    struct ibv_wc wc;
    while (!ibv_get_cq_event(client->channel, &cq, &context))
        client->events++;
    bool is_fine = !ibv_req_notify_cq(client->cq, 0);
    while (is_fine && ibv_poll_cq(client->cq, 1, &wc) > 0)
        is_fine = take(server, client, &wc);
    if (!is_fine)
        pms_client_end(server, client);
}
