/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection: address, route, request, and the answer to OPEN. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/rdma/absent.h"
#include "pmem/client/client.h"
#include "sidewire/flush.h"

enum { RESOLVE_MS = 2000, RETRIES = 7, READS_MAX = 16 };

static bool link_watch_fd(struct pmc_client *c, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK) &&
           !epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

void pmc_link_start(struct sw_pmem *p)
{
    struct pmc_client *c = pmc_client_of(p);
    struct pmc_link *link = &c->link;
    *link = (struct pmc_link){.was_up = false};
    link->events = rdma_create_event_channel();
    if (!link->events)
        pmc_lost(p, SW_PMEM_ADDRESS, "there is no RDMA device (%s); a software one: sidewire run",
                 strerror(errno));
    else if (!link_watch_fd(c, link->events->fd) ||
             rdma_create_id(link->events, &link->id, NULL, RDMA_PS_TCP))
        pmc_lost(p, SW_PMEM_SYSTEM, "no connection can be made: %s", strerror(errno));
    else if (rdma_resolve_addr(link->id, NULL, (struct sockaddr *)&c->address, RESOLVE_MS))
        pmc_lost(p, SW_PMEM_ADDRESS, "no RDMA device leads to %s: %s", p->where, strerror(errno));
}

static bool link_own_device(struct pmc_client *c)
{
    struct ibv_context *verbs = c->link.id->verbs;
    if (c->pd)
        return c->verbs == verbs;
    c->verbs = verbs;
    c->pd = ibv_alloc_pd(verbs);
    if (c->pd)
        c->scratch_mr = ibv_reg_mr(c->pd, c->scratch, c->scratch_bytes, IBV_ACCESS_LOCAL_WRITE);
    return c->scratch_mr;
}

/* The extended kind first, with as much as the device has; else the plain kind. */
static bool link_create_qp(struct pmc_client *c)
{
    struct pmc_link *link = &c->link;
    const struct ibv_qp_cap cap = {.max_send_wr = c->pmem.options.chains * SW_PMEM_CHAIN_MAX + 1,
                                   .max_recv_wr = 1,
                                   .max_send_sge = SW_PMEM_PIECES_MAX,
                                   .max_recv_sge = 1};
    for (int lacks = 0; lacks < 3; lacks++) {
        c->pmem.has_flush = lacks != 2 && !c->pmem.options.no_flush;
        c->pmem.has_atomic = lacks != 1 && !c->pmem.options.no_atomic_write;
        if (!c->pmem.has_flush && !c->pmem.has_atomic)
            continue;
        struct ibv_qp_init_attr_ex attr = {
            .send_cq = link->cq,
            .recv_cq = link->cq,
            .cap = cap,
            .qp_type = IBV_QPT_RC,
            .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            .pd = c->pd,
            .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                              IBV_QP_EX_WITH_SEND |
                              (c->pmem.has_flush ? (uint64_t)IBV_QP_EX_WITH_FLUSH : 0) |
                              (c->pmem.has_atomic ? (uint64_t)IBV_QP_EX_WITH_ATOMIC_WRITE : 0),
        };
        if (!rdma_create_qp_ex(link->id, &attr)) {
            link->qpx = ibv_qp_to_qp_ex(link->id->qp);
            return link->qpx;
        }
    }
    c->pmem.has_flush = c->pmem.has_atomic = false;
    struct ibv_qp_init_attr plain = {
        .send_cq = link->cq, .recv_cq = link->cq, .cap = cap, .qp_type = IBV_QPT_RC};
    return !rdma_create_qp(link->id, c->pd, &plain);
}

static bool link_make_queue(struct pmc_client *c)
{
    struct pmc_link *link = &c->link;
    if (!link_own_device(c))
        return false;
    link->channel = ibv_create_comp_channel(link->id->verbs);
    if (!link->channel || !link_watch_fd(c, link->channel->fd))
        return false;
    link->cq = ibv_create_cq(link->id->verbs, (int)c->pmem.options.chains * SW_PMEM_CHAIN_MAX + 4,
                             c, link->channel, 0);
    if (!link->cq || !link_create_qp(c) || ibv_req_notify_cq(link->cq, 0))
        return false;
    struct ibv_sge sge = {.addr = (uintptr_t)c->scratch->answer,
                          .length = PMF_ANSWER_MAX,
                          .lkey = c->scratch_mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = PMC_CONTROL_WR, .sg_list = &sge, .num_sge = 1};
    return !ibv_post_recv(link->id->qp, &wr, &bad);
}

static void link_request_connection(struct pmc_client *c)
{
    uint8_t hello[PMF_CONNECT_BYTES];
    struct ibv_device_attr attr;
    if (!link_make_queue(c))
        return pmc_lost(&c->pmem, SW_PMEM_SYSTEM, "the RDMA device has no room for a queue: %s",
                        strerror(errno));
    const int depth = ibv_query_device(c->verbs, &attr) ? 1 : attr.max_qp_init_rd_atom;
    struct rdma_conn_param param = {
        .private_data = hello,
        .private_data_len = (uint8_t)pmf_put_connect(hello, c->label),
        .initiator_depth = (uint8_t)(depth < READS_MAX ? depth : READS_MAX),
        .retry_count = RETRIES,
        .rnr_retry_count = RETRIES,
    };
    c->pmem.stage = PMC_ASKING;
    if (rdma_connect(c->link.id, &param))
        pmc_lost(&c->pmem, SW_PMEM_SYSTEM, "connect to %s: %s", c->pmem.where, strerror(errno));
}

static void ask_server(struct pmc_client *c, const struct rdma_conn_param *param)
{
    struct pmf_request request = {
        .type = (uint8_t)c->pmem.asks, .tag = 1, .wishes = c->pmem.options.alone ? PMF_ALONE : 0};
    c->link.was_up = true;
    if (!pmf_get_accept(param->private_data, param->private_data ? param->private_data_len : 0,
                        c->pmem.next_instance))
        return pmc_lost(&c->pmem, SW_PMEM_PROTOCOL, "%s is no server of this protocol",
                        c->pmem.where);
    memcpy(request.name, c->region, sizeof(request.name));
    struct ibv_sge sge = {.addr = (uintptr_t)c->scratch->request, .lkey = c->scratch_mr->lkey};
    sge.length = (uint32_t)pmf_put_request(c->scratch->request, &request);
    struct ibv_send_wr *bad, wr = {.wr_id = PMC_CONTROL_WR,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};
    c->pmem.stage = PMC_OPENING;
    if (ibv_post_send(c->link.id->qp, &wr, &bad))
        pmc_lost(&c->pmem, SW_PMEM_SYSTEM, "the RDMA device takes no request");
}

static void server_rejected(struct pmc_client *c, const struct rdma_cm_event *event)
{
    const struct rdma_conn_param *param = &event->param.conn;
    const enum pmf_reason reason =
        pmf_get_reject(param->private_data, param->private_data ? param->private_data_len : 0);
    if (!reason)
        return pmc_lost(&c->pmem, SW_PMEM_UNREACHABLE,
                        "nobody serves at %s; there: sidewire pmem serve", c->pmem.where);
    c->pmem.is_full = reason == PMF_REASON_MANY;
    pmc_lost(&c->pmem, SW_PMEM_REFUSED, "%s refuses: %s", c->pmem.where, pmf_reason_text(reason));
}

static void client_handle_event(struct pmc_client *c, enum rdma_cm_event_type type,
                                const struct rdma_cm_event *event)
{
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(c->link.id, RESOLVE_MS))
            pmc_lost(&c->pmem, SW_PMEM_ADDRESS, "no route to %s: %s", c->pmem.where,
                     strerror(errno));
        return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return link_request_connection(c);
    case RDMA_CM_EVENT_ESTABLISHED:
        return ask_server(c, &event->param.conn);
    case RDMA_CM_EVENT_REJECTED:
        return server_rejected(c, event);
    case RDMA_CM_EVENT_ADDR_ERROR:
        if (mover_is_absent(event))
            return pmc_lost(&c->pmem, SW_PMEM_UNREACHABLE, "nobody answers at %s", c->pmem.where);
        return pmc_lost(&c->pmem, SW_PMEM_ADDRESS, "no RDMA device leads to %s: %s", c->pmem.where,
                        strerror(-event->status));
    case RDMA_CM_EVENT_ROUTE_ERROR:
        return pmc_lost(&c->pmem, SW_PMEM_ADDRESS, "no route to %s: %s", c->pmem.where,
                        strerror(-event->status));
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
        return pmc_lost(&c->pmem, SW_PMEM_UNREACHABLE, "%s does not answer", c->pmem.where);
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return pmc_lost(&c->pmem, SW_PMEM_UNREACHABLE, "%s has ended the connection",
                        c->pmem.where);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return pmc_lost(&c->pmem, SW_PMEM_SYSTEM, "the RDMA device is gone");
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
    case RDMA_CM_EVENT_ADDR_CHANGE:
        return;
    }
}

void pmc_link_events(struct pmc_client *c)
{
    struct rdma_cm_event *event;
    while (c->link.events && !rdma_get_cm_event(c->link.events, &event)) {
        struct rdma_cm_event copy = *event;
        uint8_t data[256]; /* the event has to be acknowledged before its id is destroyed */
        const bool has_data =
            event->event == RDMA_CM_EVENT_ESTABLISHED || event->event == RDMA_CM_EVENT_REJECTED;
        if (has_data && event->param.conn.private_data) {
            memcpy(data, event->param.conn.private_data, event->param.conn.private_data_len);
            copy.param.conn.private_data = data;
        }
        rdma_ack_cm_event(event);
        client_handle_event(c, copy.event, &copy);
    }
}

static void refuse_region(struct pmc_client *c, uint8_t status)
{
    struct sw_pmem *p = &c->pmem;
    if (status == PMF_NO_REGION && !*c->region)
        return pmc_lost(p, SW_PMEM_NO_REGION,
                        "%s has several regions: name one; 'sidewire pmem ls' lists them",
                        p->where);
    if (status == PMF_NO_REGION)
        return pmc_lost(p, SW_PMEM_NO_REGION,
                        "%s has no region \"%s\"; 'sidewire pmem ls' lists them", p->where,
                        c->region);
    if (status == PMF_NO_RIGHTS)
        return pmc_lost(p, SW_PMEM_REFUSED, "%s gives this client no %s on the region", p->where,
                        p->options.alone ? "right to write" : "rights");
    if (status == PMF_SHARED)
        return pmc_lost(p, SW_PMEM_REFUSED,
                        "%s serves the region --shared, where nobody can be its only writer: start "
                        "it without --shared",
                        p->where);
    pmc_lost(p, SW_PMEM_REFUSED, "%s refuses the request (status %u)", p->where, status);
}

void pmc_link_completion(struct pmc_client *c, const struct ibv_wc *wc)
{
    if (wc->status)
        return pmc_lost(&c->pmem, SW_PMEM_UNREACHABLE, "%s has ended the connection (%s)",
                        c->pmem.where, ibv_wc_status_str(wc->status));
    if (wc->opcode != IBV_WC_RECV)
        return;
    struct pmf_answer *answer = &c->pmem.answer;
    if (c->pmem.stage != PMC_OPENING || !pmf_get_answer(c->scratch->answer, wc->byte_len, answer) ||
        answer->type != c->pmem.asks)
        return pmc_lost(&c->pmem, SW_PMEM_PROTOCOL, "the answer of %s is malformed", c->pmem.where);
    if (answer->status)
        return refuse_region(c, answer->status);
    pmc_live(&c->pmem);
}

void pmc_link_end(struct sw_pmem *p)
{
    struct pmc_link *link = &pmc_client_of(p)->link;
    if (link->id && link->was_up)
        rdma_disconnect(link->id);
    if (link->id && link->id->qp)
        rdma_destroy_qp(link->id);
    if (link->cq) {
        struct ibv_cq *cq;
        void *context;
        while (!ibv_get_cq_event(link->channel, &cq, &context))
            link->channel_events++;
        if (link->channel_events)
            ibv_ack_cq_events(link->cq, link->channel_events);
        ibv_destroy_cq(link->cq);
    }
    if (link->channel)
        ibv_destroy_comp_channel(link->channel);
    if (link->id)
        rdma_destroy_id(link->id);
    if (link->events)
        rdma_destroy_event_channel(link->events);
    *link = (struct pmc_link){.was_up = false};
}
