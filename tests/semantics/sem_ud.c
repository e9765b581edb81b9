/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: unreliable datagrams. Side a sends, side b receives, unless a case says otherwise. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <string.h>

#include "ud_side.h"

/* --- what arrives --- */

enum { GRH_V1 = 0, GRH_V2 = 1 };

static void arrives_a(int sock, int param)
{
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = param});
    memset(side.buf, 0x5a, 4096);
    vu_barrier(sock);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 100});
    ud_send(&side, &(struct ud_send){.wr_id = 2, .imm = 0xfeedbeef});
    ud_send(&side, &(struct ud_send){.wr_id = 3, .len_bytes = 4096, .imm = 1});
    ud_send(&side, &(struct ud_send){.wr_id = 4, .len_bytes = 200, .flags = IBV_SEND_INLINE});
    ud_close(&side);
}

static void check_ipv4(const uint8_t *grh, const struct ud_side *side, uint32_t len_bytes)
{
    struct iphdr ip;
    uint32_t sum = 0;
    memcpy(&ip, grh + 20, sizeof(ip));
    VU_EQ(ip.version, 4);
    VU_EQ(ip.ihl, 5);
    VU_EQ(ip.ttl, 7);
    VU_EQ(ip.protocol, IPPROTO_UDP);
    VU_EQ(ntohs(ip.tot_len), 20 + 8 + 12 + 8 + len_bytes + 4);
    VU_TRUE(!memcmp(&ip.saddr, side->dev.gid.raw + 12, 4));
    VU_TRUE(!memcmp(&ip.daddr, side->dev.gid.raw + 12, 4));
    for (int i = 20; i < 40; i += 2)
        sum += (uint32_t)(grh[i] << 8 | grh[i + 1]);
    VU_EQ((sum & 0xffff) + (sum >> 16), 0xffff);
}

static void check_grh(const uint8_t *bytes, const struct ud_side *side, uint32_t len_bytes)
{
    struct ibv_grh grh;
    memcpy(&grh, bytes, sizeof(grh));
    VU_EQ(ntohl(grh.version_tclass_flow) >> 28, 6);
    VU_EQ(grh.next_hdr, 0x1b);
    VU_EQ(grh.hop_limit, 7);
    VU_EQ(ntohs(grh.paylen), 12 + 8 + len_bytes + 4);
    VU_TRUE(!memcmp(&grh.sgid, &side->dev.gid, 16) && !memcmp(&grh.dgid, &side->dev.gid, 16));
}

static void arrives_b(int sock, int param)
{
    static const uint32_t lens[] = {0, 100, 0, 4096, 200};
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = param});
    for (uint64_t i = 1; i <= 4; i++)
        ud_recv(&side, side.qp, i, UD_SLOT);
    vu_barrier(sock);
    for (uint64_t i = 1; i <= 4; i++) {
        struct ibv_wc wc = vu_expect(side.rcq, i, IBV_WC_SUCCESS);
        VU_EQ(wc.opcode, IBV_WC_RECV);
        VU_EQ(wc.byte_len, UD_GRH + lens[i]);
        VU_EQ(wc.src_qp, side.peer_qpn);
        VU_EQ(wc.qp_num, side.qp->qp_num);
        VU_EQ(wc.wc_flags, IBV_WC_GRH | (i == 2 || i == 3 ? IBV_WC_WITH_IMM : 0));
        VU_EQ(wc.pkey_index, 0);
        VU_EQ(wc.dlid_path_bits, 0);
        if (i == 2)
            VU_EQ(ntohl(wc.imm_data), 0xfeedbeef);
        ud_check(&side, i, lens[i], 0x5a);
    }
    if (param == GRH_V2)
        check_ipv4(side.buf + UD_SLOT, &side, 100);
    else
        check_grh(side.buf + UD_SLOT, &side, 100);
    ud_close(&side);
}

static void gather_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    for (int i = 0; i < 300; i++)
        side.buf[i] = (uint8_t)i;
    uint64_t base = (uintptr_t)side.buf;
    struct ibv_sge sges[] = {{base, 1, side.mr->lkey},
                             {base + 1, 0, side.mr->lkey},
                             {base + 1, 255, side.mr->lkey},
                             {base + 256, 44, side.mr->lkey}};
    struct ibv_send_wr *bad,
        wr = {.wr_id = 1,
              .sg_list = sges,
              .num_sge = 4,
              .opcode = IBV_WR_SEND,
              .send_flags = IBV_SEND_SIGNALED,
              .wr.ud = {.ah = side.ah, .remote_qpn = side.peer_qpn, .remote_qkey = UD_QKEY}};
    vu_barrier(sock);
    VU_EQ(ibv_post_send(side.qp, &wr, &bad), 0);
    vu_expect(side.scq, 1, IBV_WC_SUCCESS);
    ud_close(&side);
}

/* Scattered with the first element ending inside the header. */
static void gather_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    uint64_t base = (uintptr_t)side.buf;
    struct ibv_sge sges[] = {{base, 30, side.mr->lkey},
                             {base + 1000, 20, side.mr->lkey},
                             {base + 2000, 290, side.mr->lkey}};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = sges, .num_sge = 3}, *bad;
    VU_EQ(ibv_post_recv(side.qp, &wr, &bad), 0);
    vu_barrier(sock);
    VU_EQ(vu_expect(side.rcq, 1, IBV_WC_SUCCESS).byte_len, UD_GRH + 300);
    for (int i = 0; i < 300; i++)
        VU_EQ(side.buf[i < 10 ? 1010 + i : 1990 + i], (uint8_t)i);
    ud_close(&side);
}

#define MANY 4000u
#define WINDOW 64u

/* In order, and none is lost while a receive is there for each. */
static void many_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t len_bytes = 4 + i * 37 % 4093;
        if (i % WINDOW == 0)
            vu_barrier(sock);
        memcpy(side.buf, &i, sizeof(i));
        ud_send(&side, &(struct ud_send){.wr_id = i, .len_bytes = len_bytes, .imm = i + 1});
    }
    ud_close(&side);
}

static void many_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        if (i % WINDOW == 0) {
            for (uint32_t j = i; j < i + WINDOW && j < MANY; j++)
                ud_recv(&side, side.qp, j, UD_SLOT);
            vu_barrier(sock);
        }
        struct ibv_wc wc = vu_expect(side.rcq, i, IBV_WC_SUCCESS);
        uint32_t seen;
        memcpy(&seen, side.buf + i % (UD_BYTES / UD_SLOT) * UD_SLOT + UD_GRH, sizeof(seen));
        VU_EQ(seen, i);
        VU_EQ(ntohl(wc.imm_data), i + 1);
        VU_EQ(wc.byte_len, UD_GRH + 4 + i * 37 % 4093);
    }
    ud_close(&side);
}

/* --- what does not --- */

static void drops_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    memset(side.buf, 0x77, 4096);
    vu_barrier(sock);
    /* Wrong Q_Key; too long for the receive; no such QP, no such process, no such address. */
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 32, .qkey = UD_QKEY + 1});
    ud_send(&side, &(struct ud_send){.wr_id = 2, .len_bytes = 65});
    ud_send(&side, &(struct ud_send){.wr_id = 3, .len_bytes = 32, .qpn = side.peer_qpn ^ 0x1fff});
    ud_send(&side, &(struct ud_send){.wr_id = 4, .len_bytes = 32, .qpn = 0x2000 ^ side.peer_qpn});
    ud_send(&side, &(struct ud_send){.wr_id = 5, .len_bytes = 32, .qpn = 1});
    const union ibv_gid nobody = {.raw = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}};
    struct ibv_ah *away = ud_ah(&side, &nobody);
    ud_send(&side, &(struct ud_send){.wr_id = 6, .len_bytes = 32, .ah = away});
    VU_EQ(ibv_destroy_ah(away), 0);
    memset(side.buf, 0x78, 4096);
    ud_send(&side, &(struct ud_send){.wr_id = 7, .len_bytes = 64});
    ud_close(&side);
}

/* None of them uses up the receive. */
static void drops_b(int sock, int param)
{
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = -1, .srq = param});
    ud_recv(&side, side.qp, 9, UD_GRH + 64);
    vu_barrier(sock);
    VU_EQ(vu_expect(side.rcq, 9, IBV_WC_SUCCESS).byte_len, UD_GRH + 64);
    ud_check(&side, 9, 64, 0x78);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    VU_EQ(side.qp->state, IBV_QPS_RTS);
    ud_close(&side);
}

static void no_receive_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 32});
    vu_barrier(sock);
    vu_barrier(sock);
    memset(side.buf, 0x42, 64);
    ud_send(&side, &(struct ud_send){.wr_id = 2, .len_bytes = 33});
    ud_close(&side);
}

static void no_receive_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    vu_barrier(sock);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    ud_recv(&side, side.qp, 2, UD_SLOT);
    vu_barrier(sock);
    VU_EQ(vu_expect(side.rcq, 2, IBV_WC_SUCCESS).byte_len, UD_GRH + 33);
    ud_check(&side, 2, 33, 0x42);
    ud_close(&side);
}

/* The high bit of a Q_Key asks for the sending QP's own (IBTA Vol1 10.2.5). */
static void own_qkey_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = -1, .qkey = 0x80001234});
    vu_barrier(sock);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 1}); /* refused there */
    ud_send(&side, &(struct ud_send){.wr_id = 2, .len_bytes = 2, .qkey = 0xffffffff});
    ud_close(&side);
}

static void own_qkey_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = -1, .qkey = 0x80001234});
    ud_recv(&side, side.qp, 1, UD_SLOT);
    vu_barrier(sock);
    VU_EQ(vu_expect(side.rcq, 1, IBV_WC_SUCCESS).byte_len, UD_GRH + 2);
    ud_close(&side);
}

/* --- errors of the sender --- */

static void none_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    vu_barrier(sock);
    VU_EQ(vu_expect(side.rcq, 1, IBV_WC_SUCCESS).byte_len, UD_GRH + 5);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    ud_close(&side);
}

static void refusals_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    struct ibv_send_wr *bad,
        wr = {.opcode = IBV_WR_RDMA_WRITE,
              .wr.ud = {.ah = side.ah, .remote_qpn = side.peer_qpn, .remote_qkey = UD_QKEY}};
    VU_EQ(ibv_post_send(side.qp, &wr, &bad), EINVAL);
    VU_TRUE(bad == &wr);
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = NULL;
    VU_EQ(ibv_post_send(side.qp, &wr, &bad), EINVAL);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .pkey_index = 1};
    VU_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX), EINVAL);
    struct ibv_ah_attr good = {
        .is_global = 1,
        .port_num = 1,
        .grh = {.dgid = side.dev.gid, .sgid_index = (uint8_t)side.dev.gid_index}};
    struct ibv_ah_attr other_port = good, no_route = good, no_gid = good, past_end = good;
    other_port.port_num = 2;
    no_route.is_global = 0;
    no_gid.grh.sgid_index = 126;
    past_end.grh.sgid_index = 255;
    const struct ibv_ah_attr *refused[] = {&other_port, &no_route, &no_gid, &past_end};
    for (int i = 0; i < 4; i++) {
        errno = 0;
        VU_TRUE(!ibv_create_ah(side.dev.pd, (struct ibv_ah_attr *)(uintptr_t)refused[i]));
        VU_EQ(errno, EINVAL);
    }
    /* A handle may go as soon as the request is posted. */
    struct ibv_ah *brief = ibv_create_ah(side.dev.pd, &good);
    VU_TRUE(brief);
    vu_barrier(sock);
    VU_EQ(ud_post(&side, &(struct ud_send){.wr_id = 5, .len_bytes = 5, .ah = brief}), 0);
    VU_EQ(ibv_destroy_ah(brief), 0);
    vu_expect(side.scq, 5, IBV_WC_SUCCESS);
    ud_close(&side);
}

enum { FAIL_LENGTH, FAIL_KEY, FAIL_KEY_TO_NOBODY, FAIL_HANDLE };

/* A handle to the same address, of another PD or of a parent domain of the same. */
static struct ibv_ah *handle_of(struct ud_side *side, struct ibv_pd *pd)
{
    struct ud_side other = *side;
    other.dev.pd = pd;
    VU_CHECK(pd, "a protection domain: %s", strerror(errno));
    return ud_ah(&other, &side->dev.gid);
}

/* A fault of a request takes the send queue to SQE; receiving goes on, and RTS heals. */
static void sqe_a(int sock, int param)
{
    struct ud_side side;
    ud_open(&side, sock, NULL);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    static const enum ibv_wc_status status[] = {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
                                                IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR};
    struct ibv_pd *stranger = ibv_alloc_pd(side.dev.ctx);
    struct ibv_ah *foreign = handle_of(&side, stranger);
    struct ud_send bad = {.wr_id = 1, .len_bytes = param == FAIL_LENGTH ? 4097 : 64};
    if (param == FAIL_KEY || param == FAIL_KEY_TO_NOBODY)
        bad.at = UD_BYTES - 63;
    if (param == FAIL_KEY_TO_NOBODY)
        bad.qpn = 2; /* of no process */
    if (param == FAIL_HANDLE)
        bad.ah = foreign;
    VU_EQ(ud_post(&side, &bad), 0);
    VU_EQ(ud_post(&side, &(struct ud_send){.wr_id = 2, .len_bytes = 1}), 0);
    vu_expect(side.scq, 1, status[param]);
    vu_expect(side.scq, 2, IBV_WC_WR_FLUSH_ERR);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(side.qp, &attr, IBV_QP_STATE, &init), 0);
    VU_EQ(attr.qp_state, IBV_QPS_SQE);
    VU_EQ(ud_post(&side, &(struct ud_send){.wr_id = 3, .len_bytes = 1}), 0);
    vu_expect(side.scq, 3, IBV_WC_WR_FLUSH_ERR);
    vu_barrier(sock);
    vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
    VU_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
    ud_send(&side, &(struct ud_send){.wr_id = 4, .len_bytes = 7});
    VU_EQ(ibv_destroy_ah(foreign), 0);
    VU_EQ(ibv_dealloc_pd(stranger), 0);
    ud_close(&side);
}

/* A parent domain is the same protection domain. */
static void parent_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    struct ibv_parent_domain_init_attr init = {.pd = side.dev.pd};
    struct ibv_pd *parent = ibv_alloc_parent_domain(side.dev.ctx, &init);
    struct ibv_ah *ah = handle_of(&side, parent);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 7, .ah = ah});
    VU_EQ(ibv_destroy_ah(ah), 0);
    VU_EQ(ibv_dealloc_pd(parent), 0);
    ud_close(&side);
}

static void parent_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    ud_close(&side);
}

static void sqe_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    vu_barrier(sock);
    ud_send(&side, &(struct ud_send){.wr_id = 9, .len_bytes = 9});
    VU_EQ(vu_expect(side.rcq, 1, IBV_WC_SUCCESS).byte_len, UD_GRH + 7);
    ud_close(&side);
}

/* --- states --- */

static void states_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    vu_barrier(sock);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 1}); /* INIT: dropped */
    vu_barrier(sock);
    vu_barrier(sock);
    ud_send(&side, &(struct ud_send){.wr_id = 2, .len_bytes = 2}); /* RTR */
    ud_close(&side);
}

static void states_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    VU_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE), 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
    VU_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), EINVAL);
    ud_to(side.qp, IBV_QPS_INIT, UD_QKEY);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    ud_recv(&side, side.qp, 2, UD_SLOT);
    vu_barrier(sock);
    vu_barrier(sock);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .qkey = UD_QKEY};
    VU_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_QKEY), 0);
    VU_EQ(ud_post(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 1}), EINVAL);
    vu_barrier(sock);
    VU_EQ(vu_expect(side.rcq, 1, IBV_WC_SUCCESS).byte_len, UD_GRH + 2);
    attr.qp_state = IBV_QPS_ERR;
    VU_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE), 0);
    vu_expect(side.rcq, 2, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(ibv_query_qp(side.qp, &attr, IBV_QP_QKEY, &(struct ibv_qp_init_attr){0}), 0);
    VU_EQ(attr.qkey, UD_QKEY);
    ud_close(&side);
}

/* --- the way back --- */

static void reply_a(int sock, int param)
{
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = param});
    ud_recv(&side, side.qp, 1, UD_SLOT);
    vu_barrier(sock);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 10});
    struct ibv_wc wc = vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    VU_EQ(wc.byte_len, UD_GRH + 20);
    VU_EQ(wc.src_qp, side.peer_qpn);
    ud_close(&side);
}

static void reply_b(int sock, int param)
{
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = param});
    ud_recv(&side, side.qp, 1, UD_SLOT);
    vu_barrier(sock);
    struct ibv_wc wc = vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    struct ibv_grh *grh = (struct ibv_grh *)(side.buf + UD_SLOT);
    struct ibv_ah_attr attr;
    VU_EQ(ibv_init_ah_from_wc(side.dev.ctx, 1, &wc, grh, &attr), 0);
    VU_TRUE(!memcmp(&attr.grh.dgid, &side.dev.gid, 16));
    VU_EQ(attr.grh.sgid_index, side.dev.gid_index);
    struct ibv_ah *ah = ibv_create_ah_from_wc(side.dev.pd, &wc, grh, 1);
    VU_CHECK(ah, "%s", strerror(errno));
    ud_send(&side, &(struct ud_send){.wr_id = 2, .len_bytes = 20, .ah = ah, .qpn = wc.src_qp});
    VU_EQ(ibv_destroy_ah(ah), 0);
    ud_close(&side);
}

/* --- oneself --- */

static void loopback(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    struct ibv_qp *other = ud_qp(&side, UD_QKEY);
    memset(side.buf, 0x31, 64);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    ud_recv(&side, other, 2, UD_SLOT);
    ud_send(&side, &(struct ud_send){.wr_id = 5, .len_bytes = 50, .qpn = side.qp->qp_num});
    struct ibv_wc wc = vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    VU_EQ(wc.src_qp, side.qp->qp_num);
    ud_check(&side, 1, 50, 0x31);
    ud_send(&side, &(struct ud_send){.wr_id = 6, .len_bytes = 60, .qpn = other->qp_num});
    wc = vu_expect(side.rcq, 2, IBV_WC_SUCCESS);
    VU_EQ(wc.qp_num, other->qp_num);
    ud_check(&side, 2, 60, 0x31);
    VU_EQ(ibv_destroy_qp(other), 0);
    ud_close(&side);
}

/* --- the builder --- */

static void builder_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = -1, .extended = true});
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(side.qp);
    memset(side.buf, 0x66, 64);
    vu_barrier(sock);
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ex->wr_id = 1;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, side.ah, side.peer_qpn, UD_QKEY);
    ibv_wr_set_sge(ex, side.mr->lkey, (uintptr_t)side.buf, 11);
    ex->wr_id = 2;
    ibv_wr_send_imm(ex, htonl(22));
    ibv_wr_set_inline_data(ex, side.buf, 12);
    ibv_wr_set_ud_addr(ex, side.ah, side.peer_qpn, UD_QKEY); /* of the last one */
    VU_EQ(ibv_wr_complete(ex), 0);
    vu_expect(side.scq, 1, IBV_WC_SUCCESS);
    vu_expect(side.scq, 2, IBV_WC_SUCCESS);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, side.buf, 12);
    VU_EQ(ibv_wr_complete(ex), EINVAL); /* without an address */
    vu_expect_none(side.scq, UD_QUIET_MS);
    ud_close(&side);
}

static void builder_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    for (uint64_t i = 1; i <= 3; i++)
        ud_recv(&side, side.qp, i, UD_SLOT);
    vu_barrier(sock);
    vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    ud_check(&side, 1, 11, 0x66);
    VU_EQ(ntohl(vu_expect(side.rcq, 2, IBV_WC_SUCCESS).imm_data), 22);
    ud_check(&side, 2, 12, 0x66);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    ud_close(&side);
}

const struct sem_case sem_ud[] = {
    {"ud__what_arrives_v1", arrives_a, arrives_b, GRH_V1},
    {"ud__what_arrives_v2_ipv4", arrives_a, arrives_b, GRH_V2},
    {"ud__gather_and_scatter", gather_a, gather_b, 0},
    {"ud__many_in_order", many_a, many_b, 0},
    {"ud__silent_drops", drops_a, drops_b, false},
    {"ud__silent_drops_srq", drops_a, drops_b, true},
    {"ud__no_receive", no_receive_a, no_receive_b, 0},
    {"ud__own_qkey", own_qkey_a, own_qkey_b, 0},
    {"ud__refusals", refusals_a, none_b, 0},
    {"ud__sqe_after_length_error", sqe_a, sqe_b, FAIL_LENGTH},
    {"ud__sqe_after_bad_key", sqe_a, sqe_b, FAIL_KEY},
    {"ud__sqe_after_bad_key_to_nobody", sqe_a, sqe_b, FAIL_KEY_TO_NOBODY},
    {"ud__sqe_after_a_handle_of_another_pd", sqe_a, sqe_b, FAIL_HANDLE},
    {"ud__handle_of_a_parent_domain", parent_a, parent_b, 0},
    {"ud__states", states_a, states_b, 0},
    {"ud__ah_from_wc_v1", reply_a, reply_b, GRH_V1},
    {"ud__ah_from_wc_v2", reply_a, reply_b, GRH_V2},
    {"ud__loopback", loopback, loopback, 0},
    {"ud__builder", builder_a, builder_b, 0},
    {NULL, NULL, NULL, 0},
};
