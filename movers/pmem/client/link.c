/* SPDX-License-Identifier: BSD-2-Clause */
/* What this protocol says on a connection: the request, OPEN, and the answers to both. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pmem/client/client.h"
#include "sidewire/flush.h"

enum { RETRIES = 7, READS_MAX = 16 };

static bool link_own_device(struct pmc_client *c)
{
    struct ibv_context *verbs = c->link.connection.id->verbs;
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
            .send_cq = link->connection.queue.cq,
            .recv_cq = link->connection.queue.cq,
            .cap = cap,
            .qp_type = IBV_QPT_RC,
            .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            .pd = c->pd,
            .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                              IBV_QP_EX_WITH_SEND |
                              (c->pmem.has_flush ? (uint64_t)IBV_QP_EX_WITH_FLUSH : 0) |
                              (c->pmem.has_atomic ? (uint64_t)IBV_QP_EX_WITH_ATOMIC_WRITE : 0),
        };
        if (!rdma_create_qp_ex(link->connection.id, &attr)) {
            link->qpx = ibv_qp_to_qp_ex(link->connection.id->qp);
            return link->qpx;
        }
    }
    c->pmem.has_flush = c->pmem.has_atomic = false;
    return mover_queue_make_qp(&link->connection.queue, link->connection.id, c->pd,
                               &(struct ibv_qp_init_attr){.cap = cap});
}

static bool link_make_queue(struct pmc_client *c)
{
    struct mover_connection *connection = &c->link.connection;
    if (!link_own_device(c) ||
        !mover_connection_queue(connection, c->pmem.options.chains * SW_PMEM_CHAIN_MAX + 4) ||
        !link_create_qp(c))
        return false;
    return mover_post_receive(connection->id->qp, PMC_CONTROL_WR, c->scratch->answer,
                              PMF_ANSWER_MAX, c->scratch_mr->lkey);
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
    if (rdma_connect(c->link.connection.id, &param))
        pmc_lost(&c->pmem, SW_PMEM_SYSTEM, "connect to %s: %s", c->pmem.where, strerror(errno));
}

static void ask_server(struct pmc_client *c)
{
    const struct mover_connection *connection = &c->link.connection;
    struct pmf_request request = {
        .type = (uint8_t)c->pmem.asks, .tag = 1, .wishes = c->pmem.options.alone ? PMF_ALONE : 0};
    if (!pmf_get_accept(connection->private_data, connection->private_bytes, c->pmem.next_instance))
        return pmc_lost(&c->pmem, SW_PMEM_PROTOCOL, "%s is no server of this protocol",
                        c->pmem.where);
    memcpy(request.name, c->region, sizeof(request.name));
    const uint32_t bytes = (uint32_t)pmf_put_request(c->scratch->request, &request);
    c->pmem.stage = PMC_OPENING;
    if (!mover_post_send(connection->id->qp, PMC_CONTROL_WR, c->scratch->request, bytes,
                         c->scratch_mr->lkey, IBV_SEND_SIGNALED))
        pmc_lost(&c->pmem, SW_PMEM_SYSTEM, "the RDMA device takes no request");
}

static void server_rejected(struct pmc_client *c)
{
    const enum pmf_reason reason =
        pmf_get_reject(c->link.connection.private_data, c->link.connection.private_bytes);
    if (!reason)
        return pmc_lost(&c->pmem, SW_PMEM_UNREACHABLE,
                        "nobody serves at %s; there: sidewire pmem serve", c->pmem.where);
    c->pmem.is_full = reason == PMF_REASON_MANY;
    pmc_lost(&c->pmem, SW_PMEM_REFUSED, "%s refuses: %s", c->pmem.where, pmf_reason_text(reason));
}

static const char *link_mend_of(enum mover_event event)
{
    if (event == MOVER_NO_ANSWER)
        return "; is the server running, and does the network lead there?";
    if (event == MOVER_NO_DEVICE)
        return "; 'ip route' shows the networks, and 'sidewire devices' the devices of this host";
    return "";
}

static void lose_link(struct pmc_client *c, enum sw_pmem_status status, enum mover_event event)
{
    char text[MOVER_CONNECTION_SAID];
    mover_connection_say(&c->link.connection, event, c->pmem.where, text);
    pmc_lost(&c->pmem, status, "%s%s", text, link_mend_of(event));
}

static void link_take_event(struct pmc_client *c, enum mover_event event)
{
    switch (event) {
    case MOVER_NOTHING:
        return;
    case MOVER_ROUTED:
        return link_request_connection(c);
    case MOVER_UP:
        return ask_server(c);
    case MOVER_REJECTED:
        return server_rejected(c);
    case MOVER_NO_RDMA:
    case MOVER_NO_DEVICE:
        return lose_link(c, SW_PMEM_ADDRESS, event);
    case MOVER_FAULT:
    case MOVER_DEVICE_GONE:
        return lose_link(c, SW_PMEM_SYSTEM, event);
    case MOVER_NO_ANSWER:
    case MOVER_ENDED:
        return lose_link(c, SW_PMEM_UNREACHABLE, event);
    }
}

void pmc_link_start(struct sw_pmem *p)
{
    struct pmc_client *c = pmc_client_of(p);
    link_take_event(c, mover_connection_start(&c->link.connection, c->epoll_fd, NULL, NULL,
                                              (struct sockaddr *)&c->address));
}

void pmc_link_events(struct pmc_client *c)
{
    enum mover_event event;
    while ((event = mover_connection_next(&c->link.connection)) != MOVER_NOTHING)
        link_take_event(c, event);
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
    if (status == PMF_DISK_FAILED)
        return pmc_lost(p, SW_PMEM_DISK_FAILED,
                        "%s does not open the region: its disk has failed a flush; check that "
                        "disk, then restart the server",
                        p->where);
    if (status == PMF_BUSY) {
        p->is_full = true;
        return pmc_lost(p, SW_PMEM_BUSY,
                        "the writer before (%s), on the host of %s, is stopped amid a store and "
                        "may still finish it: continue that process, or end it",
                        *p->answer.regions[0].name ? p->answer.regions[0].name : "without a name",
                        p->where);
    }
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
    mover_connection_destroy(&link->connection);
    link->qpx = NULL;
}
