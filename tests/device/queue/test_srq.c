/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/srq.h"

#include "device/rules/device_limits.h"
#include "nic_rig.h"

static struct sw_srq *new_srq(struct rig *rig, uint32_t wr, uint32_t sges)
{
    struct ibv_srq_attr attr = {.max_wr = wr, .max_sge = sges};
    struct sw_srq *srq = NULL;
    assert_int_equal(sw_srq_create(rig->pd, &attr, rig, &srq), 0);
    assert_true(attr.max_wr >= wr);
    assert_true(attr.max_sge >= sges);
    return srq;
}

static int post(struct sw_srq *srq, uint64_t wr_id)
{
    struct ibv_recv_wr wr = {.wr_id = wr_id}, *bad = NULL;
    int rc = sw_srq_post_recv(srq, &wr, &bad);
    assert_ptr_equal(bad, rc ? &wr : NULL);
    return rc;
}

static int set_limit(struct sw_srq *srq, uint32_t limit)
{
    struct ibv_srq_attr attr = {.srq_limit = limit};
    return sw_srq_modify(srq, &attr, IBV_SRQ_LIMIT);
}

static void start_at(struct sw_srq *srq, uint32_t position)
{
    atomic_store(&srq->rq.posted, position);
    atomic_store(&srq->rq.consumed, position);
}

static void sw_srq_create__bounds(void **state)
{
    struct rig *rig = *state;
    static const struct ibv_srq_attr bad[] = {
        {.max_wr = 0, .max_sge = 1},
        {.max_wr = SW_MAX_SRQ_WR + 1, .max_sge = 1},
        {.max_wr = 1, .max_sge = SW_MAX_SGE + 1},
    };
    for (size_t i = 0; i < 3; i++) {
        struct ibv_srq_attr attr = bad[i];
        struct sw_srq *srq = NULL;
        assert_int_equal(sw_srq_create(rig->pd, &attr, NULL, &srq), -EINVAL);
        assert_null(srq);
    }
    struct sw_srq *srq = new_srq(rig, SW_MAX_SRQ_WR, SW_MAX_SGE);
    assert_int_equal(sw_pd_dealloc(rig->pd), -EBUSY);
    assert_int_equal(sw_srq_destroy(srq), 0);
}

static void sw_srq_destroy__busy(void **state)
{
    struct rig *rig = *state;
    struct sw_srq *srq = new_srq(rig, 4, 1);
    struct sw_qp *qp = rig_qp(rig, 1, 0, srq);
    assert_int_equal(sw_srq_destroy(srq), -EBUSY);
    sw_qp_destroy(qp);
    assert_int_equal(sw_srq_destroy(srq), 0);
}

static void sw_srq_modify__resize_keeps_receives(void **state)
{
    struct rig *rig = *state;
    struct sw_srq *srq = new_srq(rig, 4, 2);
    struct ibv_srq_attr attr = {.max_wr = 100};
    struct sw_recv_claim claim;
    start_at(srq, UINT32_MAX - 1);
    for (uint64_t i = 0; i < 4; i++) {
        struct ibv_sge sges[] = {{i, 10, 1}, {i + 1, 20, 2}};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = sges, .num_sge = 2}, *bad;
        assert_int_equal(sw_srq_post_recv(srq, &wr, &bad), 0);
    }
    assert_int_equal(post(srq, 9), -ENOMEM);
    assert_int_equal(sw_srq_modify(srq, &attr, IBV_SRQ_MAX_WR), 0);
    sw_srq_query(srq, &attr);
    assert_int_equal(attr.max_wr, 128);
    for (uint64_t i = 4; i < 128; i++)
        assert_int_equal(post(srq, i), 0);
    assert_int_equal(post(srq, 128), -ENOMEM);
    for (uint64_t i = 0; i < 128; i++) {
        assert_true(sw_srq_take(srq, &claim));
        assert_int_equal(claim.wr_id, i);
        assert_int_equal(claim.sge_count, i < 4 ? 2 : 0);
        assert_int_equal(claim.pd, rig->pd->id);
        if (i < 4)
            assert_int_equal(claim.sges[1].addr, i + 1);
    }
    assert_false(sw_srq_take(srq, &claim));
    assert_int_equal(sw_srq_destroy(srq), 0);
}

static void sw_srq_modify__refusals_change_nothing(void **state)
{
    struct rig *rig = *state;
    struct sw_srq *srq = new_srq(rig, 8, 1);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(post(srq, i), 0);
    struct ibv_srq_attr attr = {.max_wr = 4};
    assert_int_equal(sw_srq_modify(srq, &attr, IBV_SRQ_MAX_WR), -EINVAL); /* more are queued */
    attr.max_wr = 0;
    assert_int_equal(sw_srq_modify(srq, &attr, IBV_SRQ_MAX_WR), -EINVAL);
    attr.max_wr = SW_MAX_SRQ_WR + 1;
    assert_int_equal(sw_srq_modify(srq, &attr, IBV_SRQ_MAX_WR), -EINVAL);
    attr = (struct ibv_srq_attr){.max_wr = 16, .srq_limit = 17};
    assert_int_equal(sw_srq_modify(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), -EINVAL);
    assert_int_equal(set_limit(srq, 9), -EINVAL);
    assert_int_equal(sw_srq_modify(srq, &attr, 1 << 10), -EINVAL);
    sw_srq_query(srq, &attr);
    assert_int_equal(attr.max_wr, 8);
    assert_int_equal(attr.srq_limit, 0);
    attr = (struct ibv_srq_attr){.max_wr = 16, .srq_limit = 16};
    assert_int_equal(sw_srq_modify(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
    assert_int_equal(sw_srq_destroy(srq), 0);
}

static void sw_srq_post_recv__stops_at_the_first_bad_one(void **state)
{
    struct rig *rig = *state;
    struct sw_srq *srq = new_srq(rig, 8, 1);
    struct ibv_sge sges[2] = {{0}};
    struct ibv_recv_wr third = {.wr_id = 3};
    struct ibv_recv_wr second = {.wr_id = 2, .next = &third, .sg_list = sges, .num_sge = 2};
    struct ibv_recv_wr first = {.wr_id = 1, .next = &second}, *bad = NULL;
    struct sw_recv_claim claim;
    assert_int_equal(sw_srq_post_recv(srq, &first, &bad), -EINVAL);
    assert_ptr_equal(bad, &second);
    assert_true(sw_srq_take(srq, &claim));
    assert_int_equal(claim.wr_id, 1);
    assert_false(sw_srq_take(srq, &claim));
    assert_int_equal(sw_srq_destroy(srq), 0);
}

static void sw_srq_take__limit_fires_once_per_arming(void **state)
{
    struct rig *rig = *state;
    struct sw_srq *srq = new_srq(rig, 8, 1);
    struct sw_recv_claim claim;
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(post(srq, i), 0);
    assert_int_equal(set_limit(srq, 6), 0);
    assert_true(sw_srq_take(srq, &claim)); /* 7 left */
    assert_true(sw_srq_take(srq, &claim)); /* 6 */
    assert_int_equal(rig_log.events, 0);
    assert_true(sw_srq_take(srq, &claim)); /* fewer than 6 */
    assert_int_equal(rig_log.events, 1);
    assert_int_equal(rig_log.event, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_ptr_equal(rig_log.element, rig);
    struct ibv_srq_attr attr;
    sw_srq_query(srq, &attr);
    assert_int_equal(attr.srq_limit, 0);
    assert_true(sw_srq_take(srq, &claim));
    assert_int_equal(rig_log.events, 1);
    assert_int_equal(set_limit(srq, 4), 0);
    assert_true(sw_srq_take(srq, &claim)); /* 3 left */
    assert_int_equal(rig_log.events, 2);
    while (sw_srq_take(srq, &claim)) {
    }
    assert_int_equal(set_limit(srq, 1), 0);
    assert_false(sw_srq_take(srq, &claim)); /* nothing was taken, so nothing fell below */
    assert_int_equal(rig_log.events, 2);
    assert_int_equal(sw_srq_destroy(srq), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_srq_create__bounds),
        rig_test(sw_srq_destroy__busy),
        rig_test(sw_srq_modify__resize_keeps_receives),
        rig_test(sw_srq_modify__refusals_change_nothing),
        rig_test(sw_srq_post_recv__stops_at_the_first_bad_one),
        rig_test(sw_srq_take__limit_fires_once_per_arming),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
