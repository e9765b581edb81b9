/* SPDX-License-Identifier: BSD-2-Clause */
/* pair.h, the verbs objects: device, queue pairs, connection, work and completions. */
#include "verbs_util/pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT 1
#define EXPECT_MS 20000
#define KEEN_MS 5 /* without a completion, vu_poll() looks for one all the time */
#define PAUSE_US 100

const struct vu_conn vu_conn_default = {
    .access = VU_ACCESS_REMOTE,
    .rd_atomic = 8,
    .dest_rd_atomic = 8,
    .timeout = 14,
    .retry_cnt = 7,
    .rnr_retry = 7,
    .min_rnr_timer = 12,
};

static struct ibv_device *choose_device(struct ibv_device **list)
{
    const char *wanted = getenv("VU_DEVICE");
    for (int i = 0; list[i]; i++) {
        const char *name = ibv_get_device_name(list[i]);
        if (wanted ? !strcmp(name, wanted) : !strcmp(name, "sw_lo") || !strcmp(name, "iw_lo"))
            return list[i];
    }
    return wanted ? NULL : list[0];
}

static int choose_gid(struct ibv_context *ctx, int table_len)
{
    const char *wanted = getenv("VU_GID");
    if (wanted)
        return atoi(wanted);
    static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};
    int first = -1;
    for (int i = 0; i < table_len; i++) {
        struct ibv_gid_entry entry;
        if (ibv_query_gid_ex(ctx, PORT, (uint32_t)i, &entry, 0))
            continue;
        if (first < 0)
            first = i;
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(entry.gid.raw, v4_mapped, 12) == 0)
            return i;
    }
    VU_CHECK(first >= 0, "the device has no GID");
    return first;
}

void vu_dev_open(struct vu_dev *dev)
{
    memset(dev, 0, sizeof(*dev));
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    if (!list || n == 0)
        vu_skip("no RDMA device");
    struct ibv_device *device = choose_device(list);
    if (!device)
        vu_skip("no device %s", getenv("VU_DEVICE"));
    dev->ctx = ibv_open_device(device);
    VU_CHECK(dev->ctx, "ibv_open_device: %s", strerror(errno));
    ibv_free_device_list(list);

    struct ibv_port_attr port;
    VU_EQ(ibv_query_port(dev->ctx, PORT, &port), 0);
    VU_EQ(port.state, IBV_PORT_ACTIVE);
    dev->mtu = port.active_mtu;
    VU_EQ(ibv_query_device(dev->ctx, &dev->attr), 0);
    dev->gid_index = choose_gid(dev->ctx, port.gid_tbl_len);
    VU_EQ(ibv_query_gid(dev->ctx, PORT, dev->gid_index, &dev->gid), 0);
    dev->pd = ibv_alloc_pd(dev->ctx);
    VU_CHECK(dev->pd, "ibv_alloc_pd: %s", strerror(errno));
}

void vu_dev_close(struct vu_dev *dev)
{
    VU_EQ(ibv_dealloc_pd(dev->pd), 0);
    VU_EQ(ibv_close_device(dev->ctx), 0);
}

bool vu_is_iwarp(const struct vu_dev *dev)
{
    return dev->ctx->device->transport_type == IBV_TRANSPORT_IWARP;
}

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
    return value ? value : fallback;
}

static struct ibv_cq *make_cq(struct vu_ep *ep, int cqe)
{
    struct ibv_cq *cq = ibv_create_cq(ep->dev->ctx, cqe ? cqe : 256, ep, ep->channel, 0);
    VU_CHECK(cq, "ibv_create_cq(%d): %s", cqe, strerror(errno));
    return cq;
}

#define UC_OPS                                                                        \
    (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE | \
     IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define RC_OPS                                                               \
    (UC_OPS | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE)

static void make_qp(const struct vu_ep_attr *attr, struct vu_ep *ep)
{
    struct ibv_qp_cap cap = {
        .max_send_wr = or_default(attr->send_wr, 64),
        .max_recv_wr = attr->srq ? 0 : or_default(attr->recv_wr, 64),
        .max_send_sge = or_default(attr->send_sge, 4),
        .max_recv_sge = attr->srq ? 0 : or_default(attr->recv_sge, 4),
        .max_inline_data = attr->inline_bytes,
    };
    if (attr->extended) {
        struct ibv_qp_init_attr_ex init = {
            .qp_context = ep,
            .send_cq = ep->scq,
            .recv_cq = ep->rcq,
            .srq = attr->srq,
            .cap = cap,
            .qp_type = attr->type ? attr->type : IBV_QPT_RC,
            .sq_sig_all = attr->sig_all,
            .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            .pd = ep->dev->pd,
            .send_ops_flags =
                attr->send_ops | (attr->type == IBV_QPT_UC ? (uint64_t)UC_OPS : (uint64_t)RC_OPS),
        };
        ep->qp = ibv_create_qp_ex(ep->dev->ctx, &init);
        cap = init.cap;
    } else {
        struct ibv_qp_init_attr init = {.qp_context = ep,
                                        .send_cq = ep->scq,
                                        .recv_cq = ep->rcq,
                                        .srq = attr->srq,
                                        .cap = cap,
                                        .qp_type = attr->type ? attr->type : IBV_QPT_RC,
                                        .sq_sig_all = attr->sig_all};
        ep->qp = ibv_create_qp(ep->dev->pd, &init);
        cap = init.cap;
    }
    VU_CHECK(ep->qp, "creating a QP: %s", strerror(errno));
    ep->send_wr = cap.max_send_wr;
    ep->recv_wr = cap.max_recv_wr;
    ep->inline_bytes = cap.max_inline_data;
    VU_TRUE(cap.max_inline_data >= attr->inline_bytes);
}

void vu_ep_create(struct vu_dev *dev, const struct vu_ep_attr *attr, struct vu_ep *ep)
{
    static const struct vu_ep_attr none;
    if (!attr)
        attr = &none;
    memset(ep, 0, sizeof(*ep));
    ep->dev = dev;
    if (attr->channel) {
        ep->channel = ibv_create_comp_channel(dev->ctx);
        VU_CHECK(ep->channel, "ibv_create_comp_channel: %s", strerror(errno));
    }
    ep->own_scq = !attr->send_cq;
    ep->own_rcq = !attr->recv_cq;
    ep->scq = attr->send_cq ? attr->send_cq : make_cq(ep, attr->cqe);
    ep->rcq = attr->recv_cq ? attr->recv_cq : make_cq(ep, attr->cqe);
    make_qp(attr, ep);
}

void vu_ep_destroy(struct vu_ep *ep)
{
    vu_cm_end(&ep->cm);
    VU_EQ(ibv_destroy_qp(ep->qp), 0);
    if (ep->own_scq)
        VU_EQ(ibv_destroy_cq(ep->scq), 0);
    if (ep->own_rcq)
        VU_EQ(ibv_destroy_cq(ep->rcq), 0);
    if (ep->channel)
        VU_EQ(ibv_destroy_comp_channel(ep->channel), 0);
}

struct vu_peer vu_ep_self(const struct vu_ep *ep)
{
    return (struct vu_peer){.qpn = ep->qp->qp_num, .gid = ep->dev->gid};
}

void vu_ep_init(struct vu_ep *ep, const struct vu_conn *conn)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = conn->access};
    VU_EQ(ibv_modify_qp(ep->qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
          0);
}

void vu_ep_rtr(struct vu_ep *ep, const struct vu_peer *peer, const struct vu_conn *conn)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = ep->dev->mtu,
        .dest_qp_num = peer->qpn,
        .rq_psn = 0x123,
        .max_dest_rd_atomic = conn->dest_rd_atomic,
        .min_rnr_timer = conn->min_rnr_timer,
        .ah_attr = {.is_global = 1,
                    .port_num = PORT,
                    .grh = {.dgid = peer->gid,
                            .sgid_index = (uint8_t)ep->dev->gid_index,
                            .hop_limit = 64}},
    };
    const int reliable =
        ep->qp->qp_type == IBV_QPT_UC ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    VU_EQ(ibv_modify_qp(ep->qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | reliable),
          0);
}

void vu_ep_rts(struct vu_ep *ep, const struct vu_conn *conn)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = conn->timeout,
                               .retry_cnt = conn->retry_cnt,
                               .rnr_retry = conn->rnr_retry,
                               .sq_psn = 0x123,
                               .max_rd_atomic = conn->rd_atomic};
    const int reliable =
        ep->qp->qp_type == IBV_QPT_UC
            ? 0
            : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    VU_EQ(ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | reliable), 0);
}

void vu_ep_to(struct vu_ep *ep, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    VU_EQ(ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE), 0);
}

enum ibv_qp_state vu_ep_state(const struct vu_ep *ep)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

void vu_connect(struct vu_ep *ep, int sock, const struct vu_conn *conn)
{
    if (!conn)
        conn = &vu_conn_default;
    struct vu_peer self = vu_ep_self(ep), peer;
    vu_put(sock, &self, sizeof(self));
    vu_get(sock, &peer, sizeof(peer));
    vu_ep_init(ep, conn);
    if (vu_is_iwarp(ep->dev)) {
        vu_cm_connect(ep, sock, conn);
    } else {
        vu_ep_rtr(ep, &peer, conn);
        vu_ep_rts(ep, conn);
    }
    vu_barrier(sock);
}

void vu_connect_here(struct vu_ep *ep)
{
    struct vu_peer self = vu_ep_self(ep);
    if (vu_is_iwarp(ep->dev)) {
        vu_cm_connect_here(ep);
        return;
    }
    vu_ep_init(ep, &vu_conn_default);
    vu_ep_rtr(ep, &self, &vu_conn_default);
    vu_ep_rts(ep, &vu_conn_default);
}

struct ibv_mr *vu_reg(struct vu_dev *dev, void *addr, size_t len_bytes, int access)
{
    struct ibv_mr *mr = ibv_reg_mr(dev->pd, addr, len_bytes, access);
    VU_CHECK(mr, "ibv_reg_mr(%p, %zu, 0x%x): %s", addr, len_bytes, access, strerror(errno));
    return mr;
}

struct vu_key vu_trade_keys(int sock, const struct ibv_mr *mr)
{
    struct vu_key mine = {(uintptr_t)mr->addr, mr->length, mr->rkey}, other;
    vu_put(sock, &mine, sizeof(mine));
    vu_get(sock, &other, sizeof(other));
    return other;
}

int vu_post_send(struct ibv_qp *qp, const struct vu_send *send)
{
    struct ibv_sge sge = {(uintptr_t)send->addr, send->len_bytes, send->lkey};
    struct ibv_send_wr wr = {.wr_id = send->wr_id,
                             .sg_list = &sge,
                             .num_sge = send->addr || send->len_bytes ? 1 : 0,
                             .opcode = send->opcode,
                             .send_flags = send->flags},
                       *bad = NULL;
    if (send->opcode == IBV_WR_SEND_WITH_INV)
        wr.invalidate_rkey = send->imm;
    else
        wr.imm_data = htonl(send->imm);
    if (send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || send->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = send->remote;
        wr.wr.atomic.rkey = send->rkey;
        wr.wr.atomic.compare_add = send->compare_add;
        wr.wr.atomic.swap = send->swap;
    } else {
        wr.wr.rdma.remote_addr = send->remote;
        wr.wr.rdma.rkey = send->rkey;
    }
    int rc = ibv_post_send(qp, &wr, &bad);
    if (rc)
        VU_TRUE(bad == &wr);
    return rc;
}

int vu_post_recv(struct ibv_qp *qp, uint64_t wr_id, void *addr, uint32_t len_bytes, uint32_t lkey)
{
    struct ibv_sge sge = {(uintptr_t)addr, len_bytes, lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = addr ? 1 : 0}, *bad = NULL;
    int rc = ibv_post_recv(qp, &wr, &bad);
    if (rc)
        VU_TRUE(bad == &wr);
    return rc;
}

int vu_post_srq(struct ibv_srq *srq, uint64_t wr_id, void *addr, uint32_t len_bytes, uint32_t lkey)
{
    struct ibv_sge sge = {(uintptr_t)addr, len_bytes, lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = addr ? 1 : 0}, *bad = NULL;
    int rc = ibv_post_srq_recv(srq, &wr, &bad);
    if (rc)
        VU_TRUE(bad == &wr);
    return rc;
}

/* At first without a pause. Then with one, as most long waits are for a timeout, and others want
 * the processor meanwhile. */
int vu_poll(struct ibv_cq *cq, struct ibv_wc *wc, int n, unsigned int timeout_ms)
{
    uint64_t last_ms = vu_now_ms(), deadline = last_ms + timeout_ms;
    bool pauses = false;
    int got = 0;
    for (unsigned int spins = 0; got < n; spins++) {
        int rc = ibv_poll_cq(cq, n - got, wc + got);
        VU_CHECK(rc >= 0, "ibv_poll_cq returned %d", rc);
        got += rc;
        if (rc > 0) {
            last_ms = vu_now_ms();
            pauses = false;
            continue;
        }
        if (pauses || spins % 64 == 63) {
            uint64_t now = vu_now_ms();
            if (now >= deadline)
                break;
            pauses = now > last_ms + KEEN_MS;
        }
        if (pauses)
            usleep(PAUSE_US);
        else
            sched_yield();
    }
    return got;
}

/* A peer that refuses ends an iWARP connection. The request may be complete by then: TCP had it. */
static bool is_refused_by_iwarp(const struct ibv_cq *cq, const struct ibv_wc *wc,
                                enum ibv_wc_status wanted)
{
    const struct vu_ep *ep = cq->cq_context;
    if (!vu_is_iwarp(ep->dev) ||
        (wanted != IBV_WC_REM_ACCESS_ERR && wanted != IBV_WC_REM_OP_ERR &&
         wanted != IBV_WC_REM_INV_REQ_ERR && wanted != IBV_WC_WR_FLUSH_ERR))
        return false;
    if (wc->status != IBV_WC_SUCCESS)
        return wc->status == IBV_WC_WR_FLUSH_ERR || wc->status == IBV_WC_REM_ACCESS_ERR ||
               wc->status == IBV_WC_REM_OP_ERR;
    if (wc->qp_num != ep->qp->qp_num)
        return true; /* one of those that share the queue */
    const uint64_t end_ms = vu_now_ms() + EXPECT_MS;
    while (vu_ep_state(ep) != IBV_QPS_ERR && vu_now_ms() < end_ms)
        vu_sleep_ms(1);
    return vu_ep_state(ep) == IBV_QPS_ERR;
}

struct ibv_wc vu_expect_at(const char *file, int line, struct ibv_cq *cq, uint64_t wr_id,
                           enum ibv_wc_status status)
{
    struct ibv_wc wc;
    memset(&wc, 0, sizeof(wc));
    if (vu_poll(cq, &wc, 1, EXPECT_MS) != 1)
        vu_fail(file, line, "no completion of wr %llu (%s) in %d ms", (unsigned long long)wr_id,
                ibv_wc_status_str(status), EXPECT_MS);
    if (wc.wr_id != wr_id || (wc.status != status && !is_refused_by_iwarp(cq, &wc, status)))
        vu_fail(file, line, "completion of wr %llu with \"%s\", not of %llu with \"%s\"",
                (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
                (unsigned long long)wr_id, ibv_wc_status_str(status));
    return wc;
}

void vu_expect_none_at(const char *file, int line, struct ibv_cq *cq, unsigned int ms)
{
    struct ibv_wc wc;
    if (vu_poll(cq, &wc, 1, ms) != 0)
        vu_fail(file, line, "a completion nobody waits for: wr %llu, \"%s\", opcode %d",
                (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), (int)wc.opcode);
}

static bool readable(int fd, uint64_t deadline)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    uint64_t now = vu_now_ms();
    return poll(&pfd, 1, now < deadline ? (int)(deadline - now) : 0) == 1;
}

bool vu_async_event(struct ibv_context *ctx, enum ibv_event_type type, unsigned int timeout_ms)
{
    uint64_t deadline = vu_now_ms() + timeout_ms;
    while (readable(ctx->async_fd, deadline)) {
        struct ibv_async_event event;
        VU_EQ(ibv_get_async_event(ctx, &event), 0);
        ibv_ack_async_event(&event);
        if (event.event_type == type)
            return true;
    }
    return false;
}

bool vu_cq_event(struct ibv_comp_channel *channel, unsigned int timeout_ms)
{
    if (!readable(channel->fd, vu_now_ms() + timeout_ms))
        return false;
    struct ibv_cq *cq;
    void *context;
    VU_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    return true;
}
