/* SPDX-License-Identifier: BSD-2-Clause */
#include "ud_side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ud_to(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t qkey)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
    VU_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
          0);
    if (state == IBV_QPS_INIT)
        return;
    attr.qp_state = IBV_QPS_RTR;
    VU_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    if (state == IBV_QPS_RTR)
        return;
    attr.qp_state = IBV_QPS_RTS;
    VU_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static struct ibv_qp *create_qp(struct ud_side *side, bool extended)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = side->scq,
        .recv_cq = side->rcq,
        .srq = side->srq,
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 128,
                .max_recv_wr = 128,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 256},
        .comp_mask = IBV_QP_INIT_ATTR_PD | (extended ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
        .pd = side->dev.pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(side->dev.ctx, &init);
    VU_CHECK(qp, "ibv_create_qp_ex: %s", strerror(errno));
    return qp;
}

struct ibv_qp *ud_qp(struct ud_side *side, uint32_t qkey)
{
    struct ibv_qp *qp = create_qp(side, false);
    ud_to(qp, IBV_QPS_RTS, qkey);
    return qp;
}

struct ibv_ah *ud_ah(struct ud_side *side, const union ibv_gid *gid)
{
    struct ibv_ah_attr attr = {
        .is_global = 1,
        .port_num = 1,
        .grh = {.dgid = *gid, .sgid_index = (uint8_t)side->dev.gid_index, .hop_limit = 7}};
    struct ibv_ah *ah = ibv_create_ah(side->dev.pd, &attr);
    VU_CHECK(ah, "ibv_create_ah: %s", strerror(errno));
    return ah;
}

static void make_queues(struct ud_side *side, const struct ud_attr *attr)
{
    if (attr->channel) {
        side->channel = ibv_create_comp_channel(side->dev.ctx);
        VU_TRUE(side->channel);
    }
    side->scq = ibv_create_cq(side->dev.ctx, 1024, NULL, side->channel, 0);
    side->rcq = ibv_create_cq(side->dev.ctx, 1024, NULL, side->channel, 0);
    VU_TRUE(side->scq && side->rcq);
    if (attr->srq) {
        struct ibv_srq_init_attr init = {.attr = {.max_wr = 128, .max_sge = 2}};
        side->srq = ibv_create_srq(side->dev.pd, &init);
        VU_TRUE(side->srq);
    }
}

void ud_open(struct ud_side *side, int sock, const struct ud_attr *attr)
{
    static const struct ud_attr none = {.gid_index = -1};
    struct vu_peer own, peer;
    if (!attr)
        attr = &none;
    memset(side, 0, sizeof(*side));
    side->sock = sock;
    vu_dev_open(&side->dev);
    if (attr->gid_index >= 0) {
        side->dev.gid_index = attr->gid_index;
        VU_EQ(ibv_query_gid(side->dev.ctx, 1, attr->gid_index, &side->dev.gid), 0);
    }
    make_queues(side, attr);
    side->qp = create_qp(side, attr->extended);
    ud_to(side->qp, IBV_QPS_RTS, attr->qkey ? attr->qkey : UD_QKEY);
    side->buf = aligned_alloc(4096, UD_BYTES);
    VU_TRUE(side->buf);
    memset(side->buf, 0xcc, UD_BYTES);
    side->mr = vu_reg(&side->dev, side->buf, UD_BYTES, IBV_ACCESS_LOCAL_WRITE);
    own = (struct vu_peer){side->qp->qp_num, side->dev.gid};
    vu_put(sock, &own, sizeof(own));
    vu_get(sock, &peer, sizeof(peer));
    side->peer_qpn = peer.qpn;
    side->ah = ud_ah(side, &peer.gid);
}

void ud_destroy(struct ud_side *side)
{
    VU_EQ(ibv_destroy_ah(side->ah), 0);
    VU_EQ(ibv_destroy_qp(side->qp), 0);
    if (side->srq)
        VU_EQ(ibv_destroy_srq(side->srq), 0);
    VU_EQ(ibv_destroy_cq(side->scq), 0);
    VU_EQ(ibv_destroy_cq(side->rcq), 0);
    if (side->channel)
        VU_EQ(ibv_destroy_comp_channel(side->channel), 0);
    VU_EQ(ibv_dereg_mr(side->mr), 0);
    vu_dev_close(&side->dev);
    free(side->buf);
}

void ud_close(struct ud_side *side)
{
    vu_barrier(side->sock);
    ud_destroy(side);
}

void ud_recv(struct ud_side *side, struct ibv_qp *qp, uint64_t wr_id, uint32_t len_bytes)
{
    uint8_t *at = side->buf + wr_id % (UD_BYTES / UD_SLOT) * UD_SLOT;
    memset(at, 0xcc, UD_SLOT);
    if (side->srq)
        VU_EQ(vu_post_srq(side->srq, wr_id, at, len_bytes, side->mr->lkey), 0);
    else
        VU_EQ(vu_post_recv(qp, wr_id, at, len_bytes, side->mr->lkey), 0);
}

int ud_post(struct ud_side *side, const struct ud_send *send)
{
    struct ibv_sge sge = {(uintptr_t)side->buf + send->at, send->len_bytes, side->mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = send->wr_id,
        .sg_list = &sge,
        .num_sge = send->len_bytes != 0,
        .opcode = send->imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED | send->flags,
        .imm_data = htonl(send->imm),
        .wr.ud = {.ah = send->ah ? send->ah : side->ah,
                  .remote_qpn = send->qpn ? send->qpn : side->peer_qpn,
                  .remote_qkey = send->qkey ? send->qkey : UD_QKEY},
    };
    struct ibv_send_wr *bad;
    return ibv_post_send(side->qp, &wr, &bad);
}

void ud_send(struct ud_side *side, const struct ud_send *send)
{
    VU_EQ(ud_post(side, send), 0);
    vu_expect(side->scq, send->wr_id, IBV_WC_SUCCESS);
}

void ud_check(const struct ud_side *side, uint64_t wr_id, uint32_t len_bytes, uint8_t value)
{
    const uint8_t *at = side->buf + wr_id % (UD_BYTES / UD_SLOT) * UD_SLOT + UD_GRH;
    for (uint32_t i = 0; i < len_bytes; i++)
        VU_CHECK(at[i] == value, "byte %u is 0x%02x, not 0x%02x", i, at[i], value);
    VU_CHECK(at[len_bytes] == 0xcc, "written past the message");
}
