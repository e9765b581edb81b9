/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/qp.h"

#include "device/rules/device_limits.h"
#include "nic_rig.h"

static int try_create(struct rig *rig, enum ibv_qp_type type, const struct ibv_qp_cap *cap)
{
    struct sw_qp_init init = {
        .type = type, .pd = rig->pd, .send_cq = rig->cq, .recv_cq = rig->cq, .cap = *cap};
    struct sw_qp *qp = NULL;
    int rc = sw_qp_create(rig->ctx, &init, &qp);
    if (rc) {
        assert_null(qp);
        return rc;
    }
    assert_true(init.cap.max_send_wr >= cap->max_send_wr);
    assert_true(init.cap.max_recv_wr >= cap->max_recv_wr);
    assert_true(init.cap.max_send_sge >= cap->max_send_sge);
    assert_true(init.cap.max_recv_sge >= cap->max_recv_sge);
    assert_true(init.cap.max_inline_data >= cap->max_inline_data);
    return sw_qp_destroy(qp);
}

static void sw_qp_create__caps(void **state)
{
    struct rig *rig = *state;
    static const struct {
        struct ibv_qp_cap cap;
        int rc;
    } cases[] = {
        {{0}, 0},
        {{.max_send_wr = SW_MAX_QP_WR,
          .max_recv_wr = SW_MAX_QP_WR,
          .max_send_sge = SW_MAX_SGE,
          .max_recv_sge = SW_MAX_SGE},
         0},
        {{.max_inline_data = SW_MAX_INLINE_BYTES}, 0},
        {{.max_send_wr = SW_MAX_QP_WR + 1}, -EINVAL},
        {{.max_recv_wr = SW_MAX_QP_WR + 1}, -EINVAL},
        {{.max_send_sge = SW_MAX_SGE + 1}, -EINVAL},
        {{.max_recv_sge = SW_MAX_SGE + 1}, -EINVAL},
        {{.max_inline_data = SW_MAX_INLINE_BYTES + 1}, -EINVAL},
        {{.max_send_wr = UINT32_MAX}, -EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(try_create(rig, IBV_QPT_RC, &cases[i].cap), cases[i].rc);
}

static void sw_qp_create__types(void **state)
{
    struct rig *rig = *state;
    const struct ibv_qp_cap cap = {0};
    assert_int_equal(try_create(rig, IBV_QPT_UD, &cap), 0);
    assert_int_equal(try_create(rig, IBV_QPT_RAW_PACKET, &cap), -EOPNOTSUPP);
    assert_int_equal(try_create(rig, IBV_QPT_XRC_RECV, &cap), -EINVAL); /* it needs a domain */
    assert_int_equal(try_create(rig, (enum ibv_qp_type)0, &cap), -EINVAL);
    assert_int_equal(try_create(rig, (enum ibv_qp_type)4711, &cap), -EINVAL);
}

static void sw_qp_create__number_names_process_and_entry(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL);
    assert_int_equal(sw_qpn_slot(sw_qp_num(qp)), 77);
    assert_int_equal(sw_qpn_index(sw_qp_num(qp)), qp->index);
    assert_int_equal(sw_qp_num(qp) >> 24, 0);
    assert_ptr_equal(qp->pub, &sw_nic.pub->qps[qp->index]);
    assert_int_equal(qp->pub->qpn, sw_qp_num(qp));
    assert_int_equal(sw_pd_dealloc(rig->pd), -EBUSY);
    sw_qp_destroy(qp);
}

static void sw_qp_create__nothing_is_left_of_the_entrys_last_owner(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL);
    uint32_t index = qp->index;
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
    rig_take_to(qp, IBV_QPS_INIT);
    assert_int_equal(sw_qp_post_recv(qp, &wr, &bad), 0);
    assert_int_equal(atomic_load(&qp->pub->rq_posted), 1);
    sw_qp_destroy(qp);
    rig_draw_next(&sw_nic.qp_draw, index); /* as after all the others */
    qp = rig_qp(rig, 1, 1, NULL);
    assert_int_equal(qp->index, index);
    assert_int_equal(atomic_load(&qp->pub->rq_posted), 0);
    assert_int_equal(atomic_load(&qp->pub->rq_len_min_bytes), 0);
    sw_qp_destroy(qp);
}

/* A peer that has seen the word may keep what it read: so the word must change. */
static void sw_qp_publish__changes_the_word(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL);
    uint64_t before = atomic_load(&qp->pub->bind_word);
    rig_take_to(qp, IBV_QPS_RTS);
    uint64_t word = atomic_load(&qp->pub->bind_word);
    assert_int_not_equal(before >> 32, word >> 32);
    assert_int_equal((uint32_t)word, IBV_QPS_RTS);
    assert_int_equal(qp->pub->access, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    assert_int_equal(qp->pub->min_rnr_timer, 12);
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ, .qp_state = IBV_QPS_RTS};
    assert_int_equal(sw_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
    assert_int_not_equal(atomic_load(&qp->pub->bind_word) >> 32, word >> 32);
    assert_int_equal(qp->pub->access, IBV_ACCESS_REMOTE_READ);
    sw_qp_destroy(qp);
}

static void sw_qp_post_send__states(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 4, 1, NULL);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad = NULL;
    assert_int_equal(sw_qp_post_send(qp, &wr, &bad), -EINVAL); /* RESET */
    assert_ptr_equal(bad, &wr);
    rig_take_to(qp, IBV_QPS_RTS);
    assert_int_equal(sw_qp_post_send(qp, &wr, &bad), 0);
    assert_int_equal(rig_log.sends, 1);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
    assert_int_equal(sw_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(sw_qp_post_send(qp, &wr, &bad), 0);
    assert_int_equal(rig_log.sends, 1); /* kept until RTS */
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(sw_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(rig_log.sends, 2);
    sw_qp_destroy(qp);
}

static void sw_qp_post_send__stops_at_the_first_bad_one(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 4, 1, NULL);
    rig_take_to(qp, IBV_QPS_RTS);
    struct ibv_send_wr third = {.opcode = IBV_WR_SEND};
    struct ibv_send_wr second = {.opcode = IBV_WR_SEND, .next = &third, .num_sge = 99};
    struct ibv_send_wr first = {.opcode = IBV_WR_SEND, .next = &second}, *bad = NULL;
    assert_int_equal(sw_qp_post_send(qp, &first, &bad), -EINVAL);
    assert_ptr_equal(bad, &second);
    assert_int_equal(qp->sq.tail, 1);
    assert_int_equal(rig_log.sends, 1); /* those before it are on their way */
    sw_qp_destroy(qp);
}

static void sw_qp_batch__all_or_nothing(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 4, 1, NULL);
    rig_take_to(qp, IBV_QPS_RTS);
    struct ibv_send_wr good = {.opcode = IBV_WR_SEND};
    struct ibv_send_wr bad = {.opcode = IBV_WR_SEND, .num_sge = 99};
    sw_qp_batch_begin(qp);
    sw_qp_batch_add(qp, &good);
    sw_qp_batch_add(qp, &bad);
    sw_qp_batch_add(qp, &good);
    assert_int_equal(sw_qp_batch_commit(qp), -EINVAL);
    assert_int_equal(qp->sq.tail, 0);
    assert_int_equal(rig_log.sends, 0);
    sw_qp_batch_begin(qp);
    sw_qp_batch_add(qp, &good);
    sw_qp_batch_abort(qp);
    assert_int_equal(qp->sq.tail, 0);
    sw_qp_batch_begin(qp);
    sw_qp_batch_add(qp, &good);
    sw_qp_batch_add(qp, &good);
    assert_int_equal(sw_qp_batch_commit(qp), 0);
    assert_int_equal(qp->sq.tail, 2);
    assert_int_equal(rig_log.sends, 1);
    sw_qp_destroy(qp);
}

static int post_recv(struct sw_qp *qp, uint64_t wr_id, struct ibv_sge *sge)
{
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = sge, .num_sge = sge != NULL}, *bad = NULL;
    int rc = sw_qp_post_recv(qp, &wr, &bad);
    assert_ptr_equal(bad, rc ? &wr : NULL);
    return rc;
}

static void sw_qp_post_recv__least_length_is_published(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[64];
    struct sw_mr *mr = rig_mr(rig, bytes, sizeof(bytes), RIG_RIGHTS);
    struct sw_qp *qp = rig_qp(rig, 1, 4, NULL);
    struct ibv_sge sge = rig_sge(mr, bytes, 64);
    struct sw_recv_claim claim;
    assert_int_equal(post_recv(qp, 1, &sge), -EINVAL); /* RESET */
    rig_take_to(qp, IBV_QPS_INIT);
    assert_int_equal(post_recv(qp, 1, &sge), 0);
    assert_int_equal(qp->pub->rq_posted, 1);
    assert_int_equal(qp->pub->rq_len_min_bytes, 64);
    sge.length = 10;
    assert_int_equal(post_recv(qp, 2, &sge), 0);
    assert_int_equal(qp->pub->rq_len_min_bytes, 10);
    sge.length = 64;
    assert_int_equal(post_recv(qp, 3, &sge), 0); /* a short one is still there */
    assert_int_equal(qp->pub->rq_len_min_bytes, 10);
    sge.lkey++;
    assert_int_equal(post_recv(qp, 4, &sge), 0);
    assert_int_equal(qp->pub->rq_len_min_bytes, 0);
    assert_int_equal(post_recv(qp, 5, &sge), -ENOMEM);
    for (uint64_t i = 1; i <= 4; i++) {
        rig_locked(&qp->lock, assert_true(sw_qp_take_recv(qp, &claim)));
        assert_int_equal(claim.wr_id, i);
        assert_int_equal(claim.pd, rig->pd->id);
    }
    rig_locked(&qp->lock, assert_false(sw_qp_take_recv(qp, &claim)));
    sge.lkey--;
    assert_int_equal(post_recv(qp, 6, &sge), 0); /* nothing is owed to earlier ones */
    assert_int_equal(qp->pub->rq_len_min_bytes, 64);
    sw_qp_destroy(qp);
    sw_mr_dereg(mr);
}

static void sw_qp_post_recv__in_err_is_flushed(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 4, NULL);
    struct ibv_wc wc[4];
    rig_take_to(qp, IBV_QPS_RTS);
    sw_lock_acquire(&qp->lock);
    sw_qp_fail(qp, -1);
    sw_lock_release(&qp->lock);
    assert_int_equal(post_recv(qp, 8, NULL), 0);
    assert_int_equal(sw_cq_poll(rig->cq, 4, wc), 1);
    assert_int_equal(wc[0].wr_id, 8);
    assert_int_equal(wc[0].status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(wc[0].qp_num, sw_qp_num(qp));
    sw_qp_destroy(qp);
}

static void sw_qp_fail__flushes_in_order_once(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 8, 4, NULL);
    struct ibv_wc wc[8];
    rig_take_to(qp, IBV_QPS_RTS);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(post_recv(qp, 100 + i, NULL), 0);
    for (uint64_t i = 0; i < 3; i++) {
        struct ibv_send_wr wr = {.wr_id = i, .opcode = IBV_WR_SEND}, *bad;
        assert_int_equal(sw_qp_post_send(qp, &wr, &bad), 0);
    }
    sw_lock_acquire(&qp->lock);
    sw_qp_fail(qp, IBV_EVENT_QP_FATAL);
    assert_int_equal(sw_qp_state(qp), IBV_QPS_ERR);
    assert_int_equal((uint32_t)atomic_load(&qp->pub->bind_word), IBV_QPS_ERR);
    assert_int_equal(rig_log.disconnects, 1);
    assert_int_equal(rig_log.event, IBV_EVENT_QP_FATAL);
    sw_qp_fail(qp, -1);
    sw_lock_release(&qp->lock);
    assert_int_equal(rig_log.disconnects, 1);
    assert_int_equal(rig_log.events, 1);
    assert_int_equal(sw_cq_poll(rig->cq, 8, wc), 6);
    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(wc[i].status, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(wc[i].wr_id, i < 3 ? i : 97 + i);
    }
    sw_qp_destroy(qp);
}

static void sw_qp_fail__last_wqe_reached_once(void **state)
{
    struct rig *rig = *state;
    struct ibv_srq_attr attr = {.max_wr = 4, .max_sge = 1};
    struct sw_srq *srq = NULL;
    assert_int_equal(sw_srq_create(rig->pd, &attr, NULL, &srq), 0);
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
    struct sw_recv_claim claim;
    assert_int_equal(sw_srq_post_recv(srq, &wr, &bad), 0);
    struct sw_qp *qp = rig_qp(rig, 1, 0, srq);
    rig_take_to(qp, IBV_QPS_RTS);
    assert_int_equal(post_recv(qp, 1, NULL), -EINVAL); /* it has no queue of its own */
    sw_lock_acquire(&qp->lock);
    sw_qp_fail(qp, -1);
    sw_qp_fail(qp, -1);
    sw_lock_release(&qp->lock);
    assert_int_equal(rig_log.events, 1);
    assert_int_equal(rig_log.event, IBV_EVENT_QP_LAST_WQE_REACHED);
    assert_true(sw_srq_take(srq, &claim)); /* shared receives are not flushed */
    sw_qp_destroy(qp);
    assert_int_equal(sw_srq_destroy(srq), 0);
}

static void sw_qp_modify__reset_starts_anew(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 4, 4, NULL), *other = rig_qp(rig, 4, 4, NULL);
    struct ibv_wc wc[4];
    rig_take_to(qp, IBV_QPS_RTS);
    rig_take_to(other, IBV_QPS_RTS);
    assert_int_equal(post_recv(qp, 1, NULL), 0);
    assert_int_equal(post_recv(other, 2, NULL), 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(sw_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(sw_qp_modify(other, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RESET;
    assert_int_equal(sw_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(sw_cq_poll(rig->cq, 4, wc), 1); /* its own flush is gone, the other's not */
    assert_int_equal(wc[0].wr_id, 2);
    assert_int_equal(qp->pub->rq_posted, 0);
    assert_int_equal(qp->dest_qpn, 0);
    rig_take_to(qp, IBV_QPS_RTS);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(post_recv(qp, i, NULL), 0);
    sw_qp_destroy(qp);
    sw_qp_destroy(other);
}

static void sw_qp_modify__refusals_change_nothing(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 4, 4, NULL);
    rig_take_to(qp, IBV_QPS_INIT);
    struct ibv_qp_attr good = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = 0x123456,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}},
    };
    const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    struct ibv_qp_attr bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].path_mtu = (enum ibv_mtu)6;
    bad[1].dest_qp_num = 1u << 24;
    bad[2].max_dest_rd_atomic = SW_MAX_RD_ATOMIC + 1;
    bad[3].min_rnr_timer = 32;
    bad[4].ah_attr.is_global = 0;
    bad[5].ah_attr.port_num = 2;
    bad[6].ah_attr.grh.sgid_index = 127; /* an empty entry */
    bad[7].path_mtu = (enum ibv_mtu)0;
    struct ibv_qp_attr now;
    struct ibv_qp_cap cap;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(sw_qp_modify(qp, &bad[i], mask), -EINVAL);
        assert_int_equal(sw_qp_state(qp), IBV_QPS_INIT);
    }
    rig_log.connect_rc = -ENOMEM; /* the link cannot */
    assert_int_equal(sw_qp_modify(qp, &good, mask), -ENOMEM);
    sw_qp_query(qp, &now, &cap);
    assert_int_equal(now.qp_state, IBV_QPS_INIT);
    assert_int_equal(now.dest_qp_num, 0);
    assert_int_equal(now.path_mtu, 0);
    rig_log.connect_rc = 0;
    assert_int_equal(sw_qp_modify(qp, &good, mask), 0);
    sw_qp_query(qp, &now, &cap);
    assert_int_equal(now.qp_state, IBV_QPS_RTR);
    assert_int_equal(now.dest_qp_num, 0x123456);
    sw_qp_destroy(qp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_qp_create__caps),
        rig_test(sw_qp_create__types),
        rig_test(sw_qp_create__number_names_process_and_entry),
        rig_test(sw_qp_create__nothing_is_left_of_the_entrys_last_owner),
        rig_test(sw_qp_publish__changes_the_word),
        rig_test(sw_qp_post_send__states),
        rig_test(sw_qp_post_send__stops_at_the_first_bad_one),
        rig_test(sw_qp_batch__all_or_nothing),
        rig_test(sw_qp_post_recv__least_length_is_published),
        rig_test(sw_qp_post_recv__in_err_is_flushed),
        rig_test(sw_qp_fail__flushes_in_order_once),
        rig_test(sw_qp_fail__last_wqe_reached_once),
        rig_test(sw_qp_modify__reset_starts_anew),
        rig_test(sw_qp_modify__refusals_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
