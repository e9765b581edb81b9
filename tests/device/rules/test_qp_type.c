/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/rules/qp_type.h"

#include "nic_rig.h"

static bool may(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
    return sw_qp_type(type)->send_opcodes >> opcode & 1;
}

static void sw_qp_type__rc(void **state)
{
    (void)state;
    for (int op = IBV_WR_RDMA_WRITE; op <= IBV_WR_ATOMIC_FETCH_AND_ADD; op++)
        assert_true(may(IBV_QPT_RC, (enum ibv_wr_opcode)op));
    assert_true(may(IBV_QPT_RC, IBV_WR_SEND_WITH_INV));
    assert_false(may(IBV_QPT_RC, IBV_WR_TSO));
    assert_false(sw_qp_type(IBV_QPT_RC)->has_sqe);
}

/* IBTA Vol1 11.4.1.1: no operation that wants an answer. */
static void sw_qp_type__uc(void **state)
{
    (void)state;
    assert_true(may(IBV_QPT_UC, IBV_WR_SEND));
    assert_true(may(IBV_QPT_UC, IBV_WR_SEND_WITH_IMM));
    assert_true(may(IBV_QPT_UC, IBV_WR_RDMA_WRITE));
    assert_true(may(IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM));
    assert_false(may(IBV_QPT_UC, IBV_WR_RDMA_READ));
    assert_false(may(IBV_QPT_UC, IBV_WR_ATOMIC_CMP_AND_SWP));
    assert_false(may(IBV_QPT_UC, IBV_WR_ATOMIC_FETCH_AND_ADD));
    assert_false(may(IBV_QPT_UC, IBV_WR_ATOMIC_WRITE));
    assert_true(may(IBV_QPT_UC, IBV_WR_SEND_WITH_INV));
    assert_true(may(IBV_QPT_UC, IBV_WR_LOCAL_INV));
    assert_true(may(IBV_QPT_UC, IBV_WR_BIND_MW));
    assert_true(sw_qp_type(IBV_QPT_UC)->has_sqe);
}

/* IBTA annex A14: an initiator does all that RC does and takes nothing, a target the reverse. */
static void sw_qp_type__xrc(void **state)
{
    (void)state;
    const struct sw_qp_type *rc = sw_qp_type(IBV_QPT_RC);
    for (int op = IBV_WR_RDMA_WRITE; op <= IBV_WR_ATOMIC_FETCH_AND_ADD; op++)
        assert_true(may(IBV_QPT_XRC_SEND, (enum ibv_wr_opcode)op));
    assert_true(may(IBV_QPT_XRC_SEND, IBV_WR_ATOMIC_WRITE));
    assert_int_equal(sw_qp_type(IBV_QPT_XRC_RECV)->send_opcodes, 0);
    assert_true(rc->has_rq && sw_qp_type(IBV_QPT_UC)->has_rq);
    assert_false(sw_qp_type(IBV_QPT_XRC_SEND)->has_rq || sw_qp_type(IBV_QPT_XRC_RECV)->has_rq);
}

static void sw_qp_type__none(void **state)
{
    (void)state;
    assert_null(sw_qp_type(IBV_QPT_RAW_PACKET));
    assert_null(sw_qp_type(IBV_QPT_DRIVER));
    assert_null(sw_qp_type((enum ibv_qp_type)0));
    assert_null(sw_qp_type((enum ibv_qp_type)4711));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_qp_type__rc),
        cmocka_unit_test(sw_qp_type__uc),
        cmocka_unit_test(sw_qp_type__xrc),
        cmocka_unit_test(sw_qp_type__none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
