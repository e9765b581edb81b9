/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that are sent before they are queued, to the process itself; one that fails. */
#include "link/direct/datagram/send.h"

#include <stdlib.h>
#include <unistd.h>

#include "../../../preload/namespace.h"
#include "device/queue/ah.h"
#include "link_rig.h"

#define QKEY 5u
#define ROOM 512u

static struct sw_ah near_ah;

static struct sw_ah handle_to(struct rig *rig, const union ibv_gid *gid)
{
    const struct ibv_ah_attr attr = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .sgid_index = 1}};
    struct sw_ah ah = {0};
    assert_int_equal(sw_ah_init(&ah, rig->pd, rig->ctx->netdev, &attr), 0);
    return ah;
}

static struct ibv_send_wr message(struct rig *rig, struct ibv_sge *sge, uint32_t len_bytes)
{
    *sge = rig_sge(rig, RIG_BYTES / 2, len_bytes);
    struct ibv_send_wr wr = {.wr_id = 7, .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 1};
    wr.wr.ud.ah = &near_ah.ibv;
    wr.wr.ud.remote_qpn = sw_qp_num(rig->qp);
    wr.wr.ud.remote_qkey = QKEY;
    return wr;
}

static uint32_t ahead(struct rig *rig, const struct ibv_send_wr *wr, uint32_t most)
{
    sw_lock_acquire(&rig->qp->lock);
    const uint32_t sent = sw_datagram_ahead(rig->qp, wr, most);
    sw_lock_release(&rig->qp->lock);
    return sent;
}

/* The first one of the process goes by the queue, which has the channel opened. */
static void open_channel(struct rig *rig)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = message(rig, &sge, 8), *bad;
    struct ibv_wc wc;
    int count = 0;
    rig_recv(rig, 1, 0, ROOM);
    assert_int_equal(sw_qp_post_send(rig->qp, &wr, &bad), 0);
    for (int i = 0; i < 5000 && !(count = sw_cq_poll(rig->cq, 1, &wc)); i++)
        usleep(1000);
    assert_int_equal(count, 1);
    assert_int_equal(wc.wr_id, 1);
}

static int up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct sw_gid gid;
    rig_open(rig);
    const struct ibv_qp_cap cap = {.max_send_wr = 256,
                                   .max_recv_wr = 64,
                                   .max_recv_sge = 1,
                                   .max_send_sge = 2,
                                   .max_inline_data = 64};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    rig->qp = rig_ud(rig, &cap, QKEY);
    assert_int_equal(sw_qp_modify(rig->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    assert_true(sw_netdev_gid(rig->ctx->netdev, 1, &gid));
    near_ah = handle_to(rig, &gid.gid);
    open_channel(rig);
    *state = rig;
    return 0;
}

static int down(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(sw_qp_destroy(rig->qp), 0);
    rig_close(rig);
    free(rig);
    return 0;
}

static void sw_datagram_ahead__as_by_the_queue(void **state)
{
    struct rig *rig = *state;
    struct ibv_sge sges[3];
    struct ibv_send_wr wrs[3], *bad;
    char text[] = "inline";
    for (int i = 0; i < 3; i++) {
        wrs[i] = message(rig, &sges[i], 8);
        wrs[i].next = i < 2 ? &wrs[i + 1] : NULL;
        rig_recv(rig, (uint64_t)i, (uint32_t)i * ROOM, ROOM);
    }
    memcpy(rig->bytes + RIG_BYTES / 2, "message", 8);
    wrs[0].imm_data = 0x77; /* of no message */
    wrs[1].opcode = IBV_WR_SEND_WITH_IMM;
    wrs[1].imm_data = 0x1234;
    wrs[2].send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    sges[2] = (struct ibv_sge){.addr = (uintptr_t)text, .length = sizeof(text)};
    const uint64_t packets = rig->qp->moved.sent_packets, bytes = rig->qp->moved.sent_bytes;
    assert_int_equal(sw_qp_post_send(rig->qp, wrs, &bad), 0);
    const struct ibv_wc sent = rig_wc(rig);
    assert_int_equal(sent.wr_id, 7);
    assert_int_equal(sent.opcode, IBV_WC_SEND);
    for (uint32_t i = 0; i < 3; i++) {
        const struct ibv_wc wc = rig_wc(rig);
        assert_int_equal(wc.wr_id, i);
        assert_int_equal(wc.byte_len, SW_GRH_BYTES + (i < 2 ? 8 : sizeof(text)));
        assert_int_equal(wc.imm_data, i == 1 ? 0x1234 : 0);
        assert_int_equal(wc.wc_flags, IBV_WC_GRH | (i == 1 ? IBV_WC_WITH_IMM : 0));
        assert_string_equal((char *)rig->bytes + i * ROOM + SW_GRH_BYTES, i < 2 ? "message" : text);
    }
    assert_int_equal(rig->qp->moved.sent_packets, packets + 3);
    assert_int_equal(rig->qp->moved.sent_bytes, bytes + 16 + sizeof(text));
}

/* Each is left to the queue, which knows what becomes of it. */
static void sw_datagram_ahead__leaves_what_is_out_of_the_ordinary(void **state)
{
    static const union ibv_gid far = {.raw = {[10] = 0xff, 0xff, 192, 0, 2, 1}};
    struct rig *rig = *state;
    struct ibv_sge sge, two[2];
    const struct ibv_send_wr good = message(rig, &sge, 8);
    struct sw_ah far_ah = handle_to(rig, &far), foreign = near_ah;
    foreign.pd_id++;
    struct ibv_send_wr wr = good;
    wr.wr.ud.ah = NULL;
    assert_int_equal(ahead(rig, &wr, 1), 0);
    wr.wr.ud.ah = &far_ah.ibv;
    assert_int_equal(ahead(rig, &wr, 1), 0);
    wr.wr.ud.ah = &foreign.ibv;
    assert_int_equal(ahead(rig, &wr, 1), 0);
    wr = good;
    wr.wr.ud.remote_qpn = SW_MULTICAST_QPN;
    assert_int_equal(ahead(rig, &wr, 1), 0);
    wr = good;
    wr.opcode = IBV_WR_RDMA_WRITE; /* not of this type */
    assert_int_equal(ahead(rig, &wr, 1), 0);
    wr = good;
    two[0] = two[1] = sge;
    wr.sg_list = two;
    wr.num_sge = 2;
    assert_int_equal(ahead(rig, &wr, 1), 0);
    wr = good;
    sge.lkey ^= 1;
    assert_int_equal(ahead(rig, &wr, 1), 0);
    sge.lkey ^= 1;
    sge.length = 65;
    wr.send_flags = IBV_SEND_INLINE; /* more than may be */
    assert_int_equal(ahead(rig, &wr, 1), 0);
    sge.length = rig->qp->mtu_bytes + 1;
    assert_int_equal(ahead(rig, &good, 1), 0);
    sge.length = 8;
    rig_no_wc(rig);
    assert_int_equal(ahead(rig, &good, 0), 0);
    assert_int_equal(ahead(rig, &good, 1), 1);
}

/* It ends before the ring is full, and the queue waits for room then. */
static void sw_datagram_ahead__until_the_ring_is_full(void **state)
{
    struct rig *rig = *state;
    struct ibv_sge sge;
    const struct ibv_send_wr wr = message(rig, &sge, 4 * SW_DATAGRAM_UNIT);
    uint32_t sent = 0;
    while (sent < SW_DATAGRAM_UNITS && ahead(rig, &wr, 1))
        sent++;
    assert_in_range(sent, SW_DATAGRAM_UNITS / 5 - 2, SW_DATAGRAM_UNITS / 5);
    rig_no_wc(rig); /* all without a receive */
    assert_int_equal(ahead(rig, &wr, 1), 1);
}

/* As one to a group that waited for the third member's room, and whose key has gone since. */
static void sw_datagram_run__counts_members_for_one_alone(void **state)
{
    static const union ibv_gid far = {.raw = {[10] = 0xff, 0xff, 192, 0, 2, 1}};
    struct rig *rig = *state;
    struct ibv_sge sge;
    struct ibv_send_wr wr = message(rig, &sge, 8), *bad;
    struct sw_ah far_ah = handle_to(rig, &far);
    wr.wr.ud.ah = &far_ah.ibv;
    wr.send_flags = IBV_SEND_SIGNALED;
    sge.lkey ^= 1;
    rig->qp->given = 2;
    assert_int_equal(sw_qp_post_send(rig->qp, &wr, &bad), 0);
    assert_int_equal(rig_wc(rig).status, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(rig->qp->given, 0);
}

#define send_test(function) cmocka_unit_test_setup_teardown(function, up, down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        send_test(sw_datagram_ahead__as_by_the_queue),
        send_test(sw_datagram_ahead__leaves_what_is_out_of_the_ordinary),
        send_test(sw_datagram_ahead__until_the_ring_is_full),
        send_test(sw_datagram_run__counts_members_for_one_alone),
    };
    /* A network where addresses for documentation are nobody's. Where it is refused, they rarely
     * are anybody's in that of the machine. */
    (void)namespace_own_network();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
