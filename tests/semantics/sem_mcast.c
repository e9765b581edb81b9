/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: multicast. */
#include <errno.h>
#include <string.h>

#include "ud_side.h"

#define MCAST_QPN 0xffffffu

/* A group of its own for each case and pair, so that runs side by side do not meet. */
enum { IPV6, IPV4, IPV4_AS_IPV6, BURST = 40 };
static union ibv_gid group_of(const struct ud_side *side, int kind)
{
    uint32_t a = side->qp->qp_num, b = side->peer_qpn;
    union ibv_gid group = {.raw = {0xff, 0x0e}};
    if (kind == IPV4)
        group = (union ibv_gid){.raw = {[10] = 0xff, 0xff, 239}};
    else if (kind == IPV4_AS_IPV6) /* as the kernel's rdma_cm makes them */
        group = (union ibv_gid){.raw = {0xff, 0x0e, [10] = 0xff, 0xff, 239}};
    uint32_t low = a < b ? a : b;
    memcpy(group.raw + 13, &low, 3);
    return group;
}

static void rules(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    const union ibv_gid group = group_of(&side, IPV6), unicast = {.raw = {0xfe, 0x80, [15] = 1}};
    struct vu_ep rc;
    vu_ep_create(&side.dev, NULL, &rc);
    VU_EQ(ibv_attach_mcast(rc.qp, &group, 0), EINVAL);
    VU_EQ(ibv_detach_mcast(rc.qp, &group, 0), EINVAL);
    vu_ep_destroy(&rc);
    VU_EQ(ibv_attach_mcast(side.qp, &unicast, 0), EINVAL);
    VU_EQ(ibv_attach_mcast(side.qp, &side.dev.gid, 0), EINVAL);
    VU_EQ(ibv_detach_mcast(side.qp, &group, 0), EINVAL);
    VU_EQ(ibv_attach_mcast(side.qp, &group, 0), 0);
    VU_EQ(ibv_attach_mcast(side.qp, &group, 0), 0);
    VU_EQ(ibv_destroy_qp(side.qp), EBUSY);
    VU_EQ(ibv_detach_mcast(side.qp, &group, 0), 0);
    VU_EQ(ibv_detach_mcast(side.qp, &group, 0), EINVAL);
    ud_close(&side);
}

/* Every attached QP has one copy, also the sender's own and one attached twice; the others none. */
static void all_a(int sock, int kind)
{
    struct ud_side side;
    ud_open(&side, sock, NULL);
    const union ibv_gid group = group_of(&side, kind);
    struct ibv_ah *ah = ud_ah(&side, &group);
    struct ibv_qp *other = ud_qp(&side, UD_QKEY);
    VU_EQ(ibv_attach_mcast(side.qp, &group, 0), 0);
    ud_recv(&side, side.qp, 1, UD_SLOT);
    ud_recv(&side, other, 2, UD_SLOT);
    memset(side.buf, 0x91, 1024);
    vu_barrier(sock);
    struct ud_send send = {.wr_id = 7, .len_bytes = 1000, .ah = ah, .qpn = MCAST_QPN, .imm = 3};
    ud_send(&side, &send);
    VU_EQ(vu_expect(side.rcq, 1, IBV_WC_SUCCESS).byte_len, UD_GRH + 1000);
    ud_check(&side, 1, 1000, 0x91);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    send.qkey = 4711; /* nobody's */
    ud_send(&side, &send);
    vu_barrier(sock); /* b has left */
    vu_barrier(sock);
    VU_EQ(ibv_detach_mcast(side.qp, &group, 0), 0);
    send.qkey = UD_QKEY;
    ud_send(&side, &send);
    vu_barrier(sock);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    VU_EQ(ibv_destroy_qp(other), 0);
    VU_EQ(ibv_destroy_ah(ah), 0);
    ud_close(&side);
}

static void all_b(int sock, int kind)
{
    struct ud_side side;
    ud_open(&side, sock, NULL);
    const union ibv_gid group = group_of(&side, kind);
    struct ibv_qp *other = ud_qp(&side, UD_QKEY);
    VU_EQ(ibv_attach_mcast(side.qp, &group, 0), 0);
    VU_EQ(ibv_attach_mcast(side.qp, &group, 0), 0);
    VU_EQ(ibv_attach_mcast(other, &group, 0), 0);
    for (uint64_t i = 1; i <= 2; i++) {
        ud_recv(&side, side.qp, i, UD_SLOT);
        ud_recv(&side, other, 2 + i, UD_SLOT);
    }
    vu_barrier(sock);
    struct ibv_wc wc[2];
    VU_EQ(vu_poll(side.rcq, wc, 2, 20000), 2);
    VU_EQ(wc[0].wr_id + wc[1].wr_id, 1 + 3);
    for (int i = 0; i < 2; i++) {
        VU_EQ(wc[i].status, IBV_WC_SUCCESS);
        VU_EQ(wc[i].byte_len, UD_GRH + 1000);
        VU_EQ(wc[i].src_qp, side.peer_qpn);
        ud_check(&side, wc[i].wr_id, 1000, 0x91);
    }
    vu_expect_none(side.rcq, UD_QUIET_MS);
    vu_barrier(sock);
    VU_EQ(ibv_detach_mcast(side.qp, &group, 0), 0);
    VU_EQ(ibv_detach_mcast(other, &group, 0), 0);
    vu_barrier(sock);
    vu_barrier(sock);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    VU_EQ(ibv_destroy_qp(other), 0);
    ud_close(&side);
}

/* A sleeping member is woken. */
static void sleeper_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    const union ibv_gid group = group_of(&side, IPV6);
    struct ibv_ah *ah = ud_ah(&side, &group);
    for (uint64_t i = 1; i <= 3; i++) {
        vu_barrier(sock);
        ud_send(&side, &(struct ud_send){.wr_id = i, .len_bytes = 8, .ah = ah, .qpn = MCAST_QPN});
    }
    VU_EQ(ibv_destroy_ah(ah), 0);
    ud_close(&side);
}

static void sleeper_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, &(struct ud_attr){.gid_index = -1, .channel = true});
    const union ibv_gid group = group_of(&side, IPV6);
    VU_EQ(ibv_attach_mcast(side.qp, &group, 0), 0);
    for (uint64_t i = 1; i <= 3; i++) {
        ud_recv(&side, side.qp, i, UD_SLOT);
        VU_EQ(ibv_req_notify_cq(side.rcq, 0), 0);
        vu_barrier(sock);
        VU_CHECK(vu_cq_event(side.channel, UD_EVENT_MS), "not woken");
        vu_expect(side.rcq, i, IBV_WC_SUCCESS);
    }
    VU_EQ(ibv_detach_mcast(side.qp, &group, 0), 0);
    ud_close(&side);
}

/* More than the kernel keeps for a process: it is given the rest when it has taken some. */
static void burst_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    const union ibv_gid group = group_of(&side, IPV6);
    struct ibv_ah *ah = ud_ah(&side, &group);
    vu_barrier(sock);
    for (uint64_t i = 1; i <= BURST; i++)
        VU_EQ(ud_post(&side,
                      &(struct ud_send){.wr_id = i, .len_bytes = 8, .ah = ah, .qpn = MCAST_QPN}),
              0);
    for (uint64_t i = 1; i <= BURST; i++)
        vu_expect(side.scq, i, IBV_WC_SUCCESS);
    vu_barrier(sock);
    VU_EQ(ibv_destroy_ah(ah), 0);
    ud_close(&side);
}

static void burst_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    const union ibv_gid group = group_of(&side, IPV6);
    VU_EQ(ibv_attach_mcast(side.qp, &group, 0), 0);
    for (uint64_t i = 1; i <= BURST; i++)
        ud_recv(&side, side.qp, i, UD_SLOT);
    vu_barrier(sock);
    for (uint64_t i = 1; i <= BURST; i++)
        vu_expect(side.rcq, i, IBV_WC_SUCCESS);
    vu_barrier(sock);
    VU_EQ(ibv_detach_mcast(side.qp, &group, 0), 0);
    ud_close(&side);
}

/* A QP that asked for it does not hear itself, and hears all others. */
static struct ibv_qp *deaf_to_itself(struct ud_side *side, const union ibv_gid *group)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = side->scq,
        .recv_cq = side->rcq,
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
        .pd = side->dev.pd,
        .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB};
    struct ibv_qp *qp = ibv_create_qp_ex(side->dev.ctx, &init);
    VU_CHECK(qp, "ibv_create_qp_ex: %s", strerror(errno));
    ud_to(qp, IBV_QPS_RTS, UD_QKEY);
    VU_EQ(ibv_attach_mcast(qp, group, 0), 0);
    return qp;
}

static void deaf_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    const union ibv_gid group = group_of(&side, IPV6);
    struct ibv_ah *ah = ud_ah(&side, &group);
    struct ibv_qp *deaf = deaf_to_itself(&side, &group), *first = side.qp;
    VU_EQ(ibv_attach_mcast(first, &group, 0), 0);
    ud_recv(&side, deaf, 1, UD_SLOT);
    ud_recv(&side, first, 2, UD_SLOT);
    vu_barrier(sock);
    struct ud_send send = {.wr_id = 7, .len_bytes = 8, .ah = ah, .qpn = MCAST_QPN};
    side.qp = deaf;
    ud_send(&side, &send);
    VU_EQ(vu_expect(side.rcq, 2, IBV_WC_SUCCESS).src_qp, deaf->qp_num);
    vu_expect_none(side.rcq, UD_QUIET_MS);
    side.qp = first;
    ud_send(&side, &send); /* its own copy finds no receive */
    VU_EQ(vu_expect(side.rcq, 1, IBV_WC_SUCCESS).src_qp, first->qp_num);
    VU_EQ(ibv_detach_mcast(deaf, &group, 0), 0);
    VU_EQ(ibv_detach_mcast(first, &group, 0), 0);
    VU_EQ(ibv_destroy_qp(deaf), 0);
    VU_EQ(ibv_destroy_ah(ah), 0);
    ud_close(&side);
}

static void deaf_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    const union ibv_gid group = group_of(&side, IPV6);
    struct ibv_qp *deaf = deaf_to_itself(&side, &group);
    ud_recv(&side, deaf, 1, UD_SLOT);
    ud_recv(&side, deaf, 2, UD_SLOT);
    vu_barrier(sock);
    vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    vu_expect(side.rcq, 2, IBV_WC_SUCCESS);
    VU_EQ(ibv_detach_mcast(deaf, &group, 0), 0);
    VU_EQ(ibv_destroy_qp(deaf), 0);
    ud_close(&side);
}

const struct sem_case sem_mcast[] = {
    {"mcast__attach_and_detach", rules, rules, 0},
    {"mcast__to_all_attached", all_a, all_b, IPV6},
    {"mcast__to_all_attached_ipv4", all_a, all_b, IPV4},
    {"mcast__to_all_attached_ipv4_as_ff0e", all_a, all_b, IPV4_AS_IPV6},
    {"mcast__not_back_to_who_blocks_it", deaf_a, deaf_b, 0},
    {"mcast__a_burst_comes_whole", burst_a, burst_b, 0},
    {"mcast__wakes_a_sleeper", sleeper_a, sleeper_b, 0},
    {NULL, NULL, NULL, 0},
};
