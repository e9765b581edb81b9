/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/ece.h"

#include "device/rules/device_limits.h"
#include "nic_rig.h"

static void sw_ece_offer__only_where_packets_are_repeated(void **state)
{
    (void)state;
    assert_int_equal(sw_ece_offer(IBV_QPT_RC), SW_ECE_SELECTIVE_REPEAT);
    assert_int_equal(sw_ece_offer(IBV_QPT_XRC_SEND), SW_ECE_SELECTIVE_REPEAT);
    assert_int_equal(sw_ece_offer(IBV_QPT_XRC_RECV), SW_ECE_SELECTIVE_REPEAT);
    assert_int_equal(sw_ece_offer(IBV_QPT_UC), 0);
    assert_int_equal(sw_ece_offer(IBV_QPT_UD), 0);
}

static void sw_ece_set__before_rtr(void **state)
{
    struct sw_qp *qp = rig_qp(*state, 4, 4, NULL);
    uint32_t options = SW_ECE_SELECTIVE_REPEAT << 8 | SW_ECE_SELECTIVE_REPEAT;
    assert_int_equal(sw_ece_set(qp, SW_VENDOR_ID, &options), 0);
    assert_int_equal(options, SW_ECE_SELECTIVE_REPEAT);
    options = SW_ECE_SELECTIVE_REPEAT;
    assert_int_equal(sw_ece_set(qp, SW_VENDOR_ID + 1, &options), 0);
    assert_int_equal(options, 0);
    assert_int_equal(sw_ece_query(qp), 0);
    rig_take_to(qp, IBV_QPS_RTR);
    options = 4711;
    assert_int_equal(sw_ece_set(qp, SW_VENDOR_ID, &options), -EINVAL);
    assert_int_equal(options, 4711);
    assert_int_equal(sw_ece_query(qp), 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    assert_int_equal(sw_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(sw_ece_query(qp), SW_ECE_SELECTIVE_REPEAT);
    assert_int_equal(sw_qp_destroy(qp), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_ece_offer__only_where_packets_are_repeated),
        rig_test(sw_ece_set__before_rtr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
