/* SPDX-License-Identifier: BSD-2-Clause */
/* Delivery to one QP, and to the QPs of a group. */
#include "device/serve/datagram.h"

#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "device/serve/mcast.h"
#include "nic_rig.h"

#define QKEY 0x77u

static const uint8_t grh[SW_GRH_BYTES] = {[0] = 0x60, [39] = 0x11};
static const union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 5}};
static uint8_t memory[4096];

static struct sw_qp *ud_qp(struct rig *rig, enum ibv_qp_state state)
{
    struct sw_qp_init init = {
        .type = IBV_QPT_UD,
        .pd = rig->pd,
        .send_cq = rig->cq,
        .recv_cq = rig->cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 2}};
    struct sw_qp *qp = NULL;
    assert_int_equal(sw_qp_create(rig->ctx, &init, &qp), 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    assert_int_equal(
        sw_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_RTR;
    if (state != IBV_QPS_INIT)
        assert_int_equal(sw_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    return qp;
}

static void post(struct sw_qp *qp, struct sw_mr *mr, uint64_t wr_id, uint32_t len_bytes)
{
    struct ibv_sge sge = rig_sge(mr, memory, len_bytes);
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(sw_qp_post_recv(qp, &wr, &bad), 0);
}

static struct sw_datagram hello(void)
{
    return (struct sw_datagram){.grh = grh,
                                .payload = (const uint8_t *)"hello",
                                .len_bytes = 5,
                                .src_qpn = 0x123456,
                                .qkey = QKEY,
                                .sl = 2};
}

static int completions(struct rig *rig, struct ibv_wc *wc)
{
    return sw_cq_poll(rig->cq, 4, wc);
}

static void sw_datagram_deliver__behind_the_header(void **state)
{
    struct rig *rig = *state;
    struct sw_mr *mr = rig_mr(rig, memory, sizeof(memory), RIG_RIGHTS);
    struct sw_qp *qp = ud_qp(rig, IBV_QPS_RTR);
    struct sw_datagram datagram = hello();
    struct ibv_wc wc[4];
    datagram.has_imm = true;
    datagram.imm = 0xabcd;
    memset(memory, '.', sizeof(memory));
    post(qp, mr, 8, 45);
    sw_datagram_deliver(qp, &datagram);
    assert_int_equal(completions(rig, wc), 1);
    assert_int_equal(wc[0].wr_id, 8);
    assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
    assert_int_equal(wc[0].byte_len, 45);
    assert_int_equal(wc[0].src_qp, 0x123456);
    assert_int_equal(wc[0].wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    assert_int_equal(wc[0].imm_data, 0xabcd);
    assert_int_equal(wc[0].sl, 2);
    assert_memory_equal(memory, grh, SW_GRH_BYTES);
    assert_memory_equal(memory + 40, "hello.", 6);
    sw_qp_destroy(qp);
    sw_mr_dereg(mr);
}

static void sw_datagram_deliver__drops_are_counted(void **state)
{
    struct rig *rig = *state;
    struct sw_mr *mr = rig_mr(rig, memory, sizeof(memory), RIG_RIGHTS);
    struct sw_qp *qp = ud_qp(rig, IBV_QPS_INIT);
    struct sw_netdev *dev = rig->ctx->netdev;
    struct sw_datagram datagram = hello();
    struct ibv_wc wc[4];
    uint64_t before[SW_COUNTER_COUNT];
    for (int i = 0; i < SW_COUNTER_COUNT; i++)
        before[i] = sw_counter_read(dev, (enum sw_counter)i);

    sw_datagram_deliver(qp, &datagram); /* INIT */
    assert_int_equal(sw_counter_read(dev, SW_RX_DROP_NO_QP), before[SW_RX_DROP_NO_QP] + 1);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    assert_int_equal(sw_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    sw_datagram_deliver(qp, &datagram); /* no receive */
    assert_int_equal(sw_counter_read(dev, SW_RX_DROP_NO_RECV), before[SW_RX_DROP_NO_RECV] + 1);
    post(qp, mr, 1, 44);
    sw_datagram_deliver(qp, &datagram); /* a byte short */
    assert_int_equal(sw_counter_read(dev, SW_RX_DROP_LENGTH), before[SW_RX_DROP_LENGTH] + 1);
    datagram.qkey ^= 0x80000000;
    datagram.len_bytes = 4;
    sw_datagram_deliver(qp, &datagram);
    assert_int_equal(sw_counter_read(dev, SW_RX_DROP_QKEY), before[SW_RX_DROP_QKEY] + 1);
    assert_int_equal(completions(rig, wc), 0);
    datagram.qkey = QKEY;
    sw_datagram_deliver(qp, &datagram); /* the receive is still there */
    assert_int_equal(completions(rig, wc), 1);
    assert_int_equal(wc[0].byte_len, 44);
    sw_qp_destroy(qp);
    sw_mr_dereg(mr);
}

/* A fault of the receiver's own is not the sender's to pass over: the QP fails. */
static void sw_datagram_deliver__bad_receive(void **state)
{
    struct rig *rig = *state;
    struct sw_mr *mr = rig_mr(rig, memory, sizeof(memory), RIG_RIGHTS);
    struct sw_qp *qp = ud_qp(rig, IBV_QPS_RTR);
    struct sw_datagram datagram = hello();
    struct ibv_wc wc[4];
    post(qp, mr, 1, 100);
    post(qp, mr, 2, 100);
    sw_mr_dereg(mr);
    sw_datagram_deliver(qp, &datagram);
    assert_int_equal(completions(rig, wc), 2);
    assert_int_equal(wc[0].status, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(wc[1].status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(sw_qp_state(qp), IBV_QPS_ERR);
    assert_int_equal(rig_log.event, IBV_EVENT_QP_FATAL);
    sw_qp_destroy(qp);
}

/* A datagram out of the ordinary ends as it does alone, and the ones behind it come after it. */
static void sw_datagram_batch_deliver__as_one_by_one(void **state)
{
    struct rig *rig = *state;
    struct sw_mr *mr = rig_mr(rig, memory, sizeof(memory), RIG_RIGHTS);
    struct sw_qp *one = ud_qp(rig, IBV_QPS_RTR), *other = ud_qp(rig, IBV_QPS_RTR);
    struct sw_datagram_batch batch = {0};
    struct sw_datagram datagram = hello(), bad = hello(), with_imm = hello();
    struct ibv_wc wc[4];
    const uint64_t bad_keys = sw_counter_read(rig->ctx->netdev, SW_RX_DROP_QKEY);
    const uint64_t without = sw_counter_read(rig->ctx->netdev, SW_RX_DROP_NO_RECV);
    bad.qkey = QKEY + 1;
    with_imm.has_imm = true;
    with_imm.imm = 0xabcd;
    for (uint64_t i = 0; i < 3; i++)
        post(one, mr, i, 45);
    post(other, mr, 10, 45);
    sw_datagram_batch_deliver(&batch, one, &datagram);
    sw_datagram_batch_deliver(&batch, one, &bad);
    sw_datagram_batch_deliver(&batch, one, &with_imm);
    sw_datagram_batch_deliver(&batch, other, &datagram);
    sw_datagram_batch_deliver(&batch, one, &datagram);
    sw_datagram_batch_deliver(&batch, one, &datagram); /* no receive */
    sw_datagram_batch_end(&batch);
    assert_int_equal(completions(rig, wc), 4);
    static const uint64_t order[] = {0, 1, 10, 2};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(wc[i].wr_id, order[i]);
        assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
        assert_int_equal(wc[i].byte_len, 45);
        assert_int_equal(wc[i].src_qp, 0x123456);
        assert_int_equal(wc[i].qp_num, sw_qp_num(i == 2 ? other : one));
        assert_int_equal(wc[i].wc_flags, IBV_WC_GRH | (i == 1 ? IBV_WC_WITH_IMM : 0));
        assert_int_equal(wc[i].imm_data, i == 1 ? 0xabcd : 0);
        assert_int_equal(wc[i].sl, 2);
    }
    assert_memory_equal(memory, grh, SW_GRH_BYTES);
    assert_memory_equal(memory + 40, "hello", 5);
    assert_int_equal(sw_counter_read(rig->ctx->netdev, SW_RX_DROP_QKEY), bad_keys + 1);
    assert_int_equal(sw_counter_read(rig->ctx->netdev, SW_RX_DROP_NO_RECV), without + 1);
    assert_int_equal(one->moved.received_packets, 5); /* also what is dropped */
    sw_qp_destroy(one);
    sw_qp_destroy(other);
    sw_mr_dereg(mr);
}

/* A thread that posts to the queue pair gets its turn, and nothing is locked afterwards. */
static void sw_datagram_batch_deliver__bounds(void **state)
{
    struct rig *rig = *state;
    struct sw_mr *mr = rig_mr(rig, memory, sizeof(memory), RIG_RIGHTS);
    struct sw_qp *qp = ud_qp(rig, IBV_QPS_RTR);
    struct sw_datagram_batch batch = {0};
    const struct sw_datagram datagram = hello();
    for (uint64_t i = 0; i < 20; i++)
        post(qp, mr, i, 45);
    for (uint32_t i = 1; i <= 20; i++) {
        sw_datagram_batch_deliver(&batch, qp, &datagram);
        assert_true(sw_lock_is_held(&qp->lock));
        assert_int_equal(batch.count, i <= 16 ? i : i - 16);
    }
    sw_datagram_batch_end(&batch);
    assert_false(sw_lock_is_held(&qp->lock));
    assert_false(sw_lock_is_held(&rig->cq->push_lock));
    sw_datagram_batch_end(&batch); /* of nothing */
    sw_qp_destroy(qp);
    sw_mr_dereg(mr);
}

/* A program that sleeps hears of each at once. */
static void sw_datagram_batch_deliver__to_who_sleeps(void **state)
{
    struct rig *rig = *state;
    struct sw_mr *mr = rig_mr(rig, memory, sizeof(memory), RIG_RIGHTS);
    struct sw_qp *qp = ud_qp(rig, IBV_QPS_RTR);
    struct sw_datagram_batch batch = {0};
    const struct sw_datagram datagram = hello();
    struct ibv_wc wc[4];
    post(qp, mr, 1, 45);
    post(qp, mr, 2, 45);
    assert_int_equal(sw_cq_req_notify(rig->cq, false), 0);
    sw_datagram_batch_deliver(&batch, qp, &datagram);
    assert_null(batch.qp);
    assert_int_equal(atomic_load(&rig->cq->pub->armed), SW_CQ_DISARMED); /* it was told */
    sw_datagram_batch_deliver(&batch, qp, &datagram);
    assert_ptr_equal(batch.qp, qp);
    sw_datagram_batch_end(&batch);
    assert_int_equal(completions(rig, wc), 2);
    sw_qp_destroy(qp);
    sw_mr_dereg(mr);
}

static void sw_mcast_attach__rules(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = ud_qp(rig, IBV_QPS_RTR), *rc = rig_qp(rig, 1, 1, NULL);
    const union ibv_gid unicast = {.raw = {0xfe, 0x80}};
    assert_int_equal(sw_mcast_attach(rc, &group), -EINVAL);
    assert_int_equal(sw_mcast_attach(qp, &unicast), -EINVAL);
    assert_int_equal(sw_mcast_detach(qp, &group), -EINVAL);
    rig_log.join_rc = -ENOSPC;
    assert_int_equal(sw_mcast_attach(qp, &group), -ENOSPC);
    assert_int_equal(atomic_load(&qp->groups), 0);
    rig_log.join_rc = 0;
    assert_int_equal(sw_mcast_attach(qp, &group), 0);
    assert_int_equal(sw_mcast_attach(qp, &group), 0);
    assert_int_equal(rig_log.joins, 2);
    assert_int_equal(sw_qp_destroy(qp), -EBUSY);
    assert_int_equal(sw_mcast_detach(qp, &group), 0);
    assert_int_equal(rig_log.leaves, 1);
    assert_int_equal(sw_mcast_detach(qp, &group), -EINVAL);
    assert_int_equal(sw_qp_destroy(qp), 0);
    assert_int_equal(rig_log.forgets, 1);
    sw_qp_destroy(rc);
}

static void sw_mcast_deliver__to_each_by_its_own_rules(void **state)
{
    struct rig *rig = *state;
    struct sw_mr *mr = rig_mr(rig, memory, sizeof(memory), RIG_RIGHTS);
    struct sw_qp *qps[3];
    struct sw_datagram datagram = hello();
    struct ibv_wc wc[4];
    for (int i = 0; i < 3; i++) {
        qps[i] = ud_qp(rig, IBV_QPS_RTR);
        assert_int_equal(sw_mcast_attach(qps[i], &group), 0);
        if (i != 1)
            post(qps[i], mr, (uint64_t)i, 100);
    }
    datagram.src_qpn = sw_qp_num(qps[0]);
    sw_mcast_deliver(&group, NULL, &datagram);
    assert_int_equal(completions(rig, wc), 2);
    assert_int_equal(wc[0].qp_num + wc[1].qp_num, sw_qp_num(qps[0]) + sw_qp_num(qps[2]));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sw_mcast_detach(qps[i], &group), 0);
        assert_int_equal(sw_qp_destroy(qps[i]), 0);
    }
    sw_mcast_deliver(&group, NULL, &datagram); /* nobody */
    assert_int_equal(completions(rig, wc), 0);
    sw_mr_dereg(mr);
}

/* Pollers of a CQ that takes datagrams ask the link for them; arming it looks for them too. */
static void sw_cq_poll__asks_for_datagrams(void **state)
{
    struct rig *rig = *state;
    struct ibv_wc wc[4];
    completions(rig, wc);
    assert_int_equal(rig_log.receives, 0);
    struct sw_qp *qp = ud_qp(rig, IBV_QPS_RTR);
    completions(rig, wc);
    assert_int_equal(rig_log.receives, 1);
    assert_int_equal(sw_cq_req_notify(rig->cq, false), 0);
    assert_int_equal(rig_log.kicks, 0);
    rig_log.datagrams_wait = true;
    assert_int_equal(sw_cq_req_notify(rig->cq, false), 0);
    assert_int_equal(rig_log.kicks, 1);
    sw_qp_destroy(qp);
    completions(rig, wc);
    assert_int_equal(rig_log.receives, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_datagram_deliver__behind_the_header),
        rig_test(sw_datagram_deliver__drops_are_counted),
        rig_test(sw_datagram_deliver__bad_receive),
        rig_test(sw_datagram_batch_deliver__as_one_by_one),
        rig_test(sw_datagram_batch_deliver__bounds),
        rig_test(sw_datagram_batch_deliver__to_who_sleeps),
        rig_test(sw_mcast_attach__rules),
        rig_test(sw_mcast_deliver__to_each_by_its_own_rules),
        rig_test(sw_cq_poll__asks_for_datagrams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
