/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ibv_context *rig_open(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = NULL;
    assert_non_null(list);
    for (int i = 0; list[i] && !ctx; i++)
        if (!strcmp(ibv_get_device_name(list[i]), RIG_DEVICE))
            ctx = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    assert_non_null(ctx);
    return ctx;
}

void rig_setup(struct rig *rig, struct ibv_comp_channel *channel)
{
    memset(rig, 0, sizeof(*rig));
    rig->ctx = channel ? channel->context : rig_open();
    rig->pd = ibv_alloc_pd(rig->ctx);
    assert_non_null(rig->pd);
    rig->cq = ibv_create_cq(rig->ctx, 64, rig, channel, 0);
    assert_non_null(rig->cq);
    assert_int_equal(posix_memalign((void **)&rig->buf, 4096, RIG_BUF_BYTES), 0);
    memset(rig->buf, 0, RIG_BUF_BYTES);
    rig->mr = ibv_reg_mr(rig->pd, rig->buf, RIG_BUF_BYTES,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC);
    assert_non_null(rig->mr);
}

void rig_teardown(struct rig *rig)
{
    if (rig->qp)
        assert_int_equal(ibv_destroy_qp(rig->qp), 0);
    struct ibv_comp_channel *channel = rig->cq ? rig->cq->channel : NULL;
    assert_int_equal(ibv_dereg_mr(rig->mr), 0);
    if (rig->cq)
        assert_int_equal(ibv_destroy_cq(rig->cq), 0);
    assert_int_equal(ibv_dealloc_pd(rig->pd), 0);
    if (!channel)
        assert_int_equal(ibv_close_device(rig->ctx), 0);
    free(rig->buf);
}

struct ibv_qp_init_attr rig_qp_attr(struct ibv_cq *cq)
{
    return (struct ibv_qp_init_attr){
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64},
    };
}

int rig_gid_index(struct ibv_context *ctx, union ibv_gid *gid)
{
    struct ibv_gid_entry entries[64];
    const ssize_t count = ibv_query_gid_table(ctx, entries, 64, 0);
    for (ssize_t i = 0; i < count; i++) {
        if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2) {
            *gid = entries[i].gid;
            return (int)entries[i].gid_index;
        }
    }
    fail_msg("the device has no RoCE v2 GID");
    return -1;
}

void rig_connect_self(struct rig *rig, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 4,
        .max_rd_atomic = 4,
        .min_rnr_timer = 1,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
    };
    attr.ah_attr.grh.sgid_index = (uint8_t)rig_gid_index(rig->ctx, &attr.ah_attr.grh.dgid);
    assert_int_equal(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    attr.qp_state = IBV_QPS_RTR;
    assert_int_equal(ibv_modify_qp(qp, &attr,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER),
                     0);
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(ibv_modify_qp(qp, &attr,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
    assert_int_equal(qp->state, IBV_QPS_RTS);
}

void rig_add_qp(struct rig *rig, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr attr = rig_qp_attr(rig->cq);
    attr.srq = srq;
    rig->qp = ibv_create_qp(rig->pd, &attr);
    assert_non_null(rig->qp);
    rig_connect_self(rig, rig->qp);
}

int rig_post_recv(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge *sge)
{
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = sge, .num_sge = sge ? 1 : 0}, *bad;
    return ibv_post_recv(qp, &wr, &bad);
}

int rig_post_send(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge *sge, unsigned int flags)
{
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = sge,
                             .num_sge = sge ? 1 : 0,
                             .opcode = IBV_WR_SEND,
                             .send_flags = flags},
                       *bad;
    return ibv_post_send(qp, &wr, &bad);
}

void rig_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
    const time_t deadline = time(NULL) + 10;
    int got = 0;
    while (got < count) {
        const int n = ibv_poll_cq(cq, count - got, wc + got);
        assert_true(n >= 0);
        for (int i = got; i < got + n; i++)
            assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
        got += n;
        if (got < count && time(NULL) > deadline)
            fail_msg("%d of %d completions", got, count);
    }
}

struct ibv_sge rig_sge(const struct rig *rig, size_t offset, uint32_t len_bytes)
{
    return (struct ibv_sge){
        .addr = (uintptr_t)rig->buf + offset, .length = len_bytes, .lkey = rig->mr->lkey};
}

bool rig_readable(int fd, int timeout_ms)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    return poll(&readable, 1, timeout_ms) == 1;
}
