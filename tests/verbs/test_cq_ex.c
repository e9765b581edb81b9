/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended CQs: the cursor, the read functions, and the batch behind it beside ibv_poll_cq and
 * destruction. */
#include <arpa/inet.h>
#include <string.h>

#include "rig.h"

struct ex_rig {
    struct rig rig;
    struct ibv_cq_ex *ex;
};

static void setup(struct ex_rig *r, uint32_t flags)
{
    rig_setup(&r->rig, NULL);
    struct ibv_cq_init_attr_ex attr = {
        .cqe = 64,
        .cq_context = r,
        .wc_flags = IBV_WC_STANDARD_FLAGS,
        .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
        .flags = flags,
    };
    r->ex = ibv_create_cq_ex(r->rig.ctx, &attr);
    assert_non_null(r->ex);
    assert_true(r->ex->cqe >= 64);
    assert_ptr_equal(r->ex->cq_context, r);
    assert_int_equal(ibv_destroy_cq(r->rig.cq), 0);
    r->rig.cq = ibv_cq_ex_to_cq(r->ex);
    rig_add_qp(&r->rig, NULL);
}

/* `count` messages to oneself; sends have wr_id i, receives 100 + i. The receives complete in
 * order. */
static void exchange(struct rig *rig, unsigned int count, unsigned int flags)
{
    struct ibv_sge from = rig_sge(rig, 0, 24), to = rig_sge(rig, 64, 32);
    for (unsigned int i = 0; i < count; i++)
        assert_int_equal(rig_post_recv(rig->qp, 100 + i, &to), 0);
    for (unsigned int i = 0; i < count; i++)
        assert_int_equal(rig_post_send(rig->qp, i, &from, flags), 0);
}

static void start_poll__empty_then_read_functions(void **state)
{
    (void)state;
    struct ex_rig r;
    struct ibv_poll_cq_attr attr = {0};
    setup(&r, 0);
    assert_int_equal(ibv_start_poll(r.ex, &attr), ENOENT);
    attr.comp_mask = 1;
    assert_int_equal(ibv_start_poll(r.ex, &attr), EINVAL);
    attr.comp_mask = 0;

    struct ibv_sge from = rig_sge(&r.rig, 0, 24), to = rig_sge(&r.rig, 64, 32);
    struct ibv_send_wr wr = {.wr_id = 5,
                             .sg_list = &from,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .imm_data = htonl(0x12345678)},
                       *bad;
    assert_int_equal(rig_post_recv(r.rig.qp, 6, &to), 0);
    assert_int_equal(ibv_post_send(r.rig.qp, &wr, &bad), 0);
    int rc;
    while ((rc = ibv_start_poll(r.ex, &attr)) == ENOENT)
        ;
    assert_int_equal(rc, 0);
    assert_int_equal(r.ex->wr_id, 6);
    assert_int_equal(r.ex->status, IBV_WC_SUCCESS);
    assert_int_equal(ibv_wc_read_opcode(r.ex), IBV_WC_RECV);
    assert_int_equal(ibv_wc_read_byte_len(r.ex), 24);
    assert_int_equal(ntohl(ibv_wc_read_imm_data(r.ex)), 0x12345678);
    assert_int_equal(ibv_wc_read_wc_flags(r.ex) & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
    assert_int_equal(ibv_wc_read_qp_num(r.ex), r.rig.qp->qp_num);
    assert_int_equal(ibv_wc_read_slid(r.ex), 0);
    assert_int_equal(ibv_wc_read_sl(r.ex), 0);
    assert_int_equal(ibv_wc_read_dlid_path_bits(r.ex), 0);
    assert_int_equal(ibv_wc_read_vendor_err(r.ex), 0);
    (void)ibv_wc_read_src_qp(r.ex);
    assert_int_equal(ibv_next_poll(r.ex), ENOENT);
    ibv_end_poll(r.ex);
    rig_teardown(&r.rig);
}

static void next_poll__all_in_order(void **state)
{
    (void)state;
    static const uint32_t flags[] = {0, IBV_CREATE_CQ_ATTR_SINGLE_THREADED};
    for (int f = 0; f < 2; f++) {
        struct ex_rig r;
        struct ibv_poll_cq_attr attr = {0};
        unsigned int sends = 0, receives = 0;
        setup(&r, flags[f]);
        exchange(&r.rig, 16, IBV_SEND_SIGNALED); /* 32 completions: more than one batch */
        while (sends + receives < 32) {
            int rc = ibv_start_poll(r.ex, &attr);
            if (rc == ENOENT)
                continue;
            for (; !rc; rc = ibv_next_poll(r.ex)) {
                assert_int_equal(r.ex->status, IBV_WC_SUCCESS);
                if (ibv_wc_read_opcode(r.ex) == IBV_WC_RECV)
                    assert_int_equal(r.ex->wr_id, 100 + receives++);
                else
                    assert_int_equal(r.ex->wr_id, sends++);
            }
            assert_int_equal(rc, ENOENT);
            ibv_end_poll(r.ex);
        }
        assert_int_equal(sends, 16);
        rig_teardown(&r.rig);
    }
}

/* One completion by the cursor, the rest by ibv_poll_cq: nothing is lost or doubled. */
static void poll_cq__takes_what_the_cursor_left(void **state)
{
    (void)state;
    struct ex_rig r;
    struct ibv_poll_cq_attr attr = {0};
    struct ibv_wc wc[8];
    setup(&r, 0);
    exchange(&r.rig, 8, 0); /* unsignaled: 8 receives */
    int rc;
    while ((rc = ibv_start_poll(r.ex, &attr)) == ENOENT)
        ;
    assert_int_equal(rc, 0);
    assert_int_equal(r.ex->wr_id, 100);
    ibv_end_poll(r.ex);
    rig_poll(r.rig.cq, 3, wc);
    for (unsigned int i = 0; i < 3; i++)
        assert_int_equal(wc[i].wr_id, 101 + i);
    rig_poll(r.rig.cq, 4, wc);
    assert_int_equal(wc[3].wr_id, 107);
    assert_int_equal(ibv_poll_cq(r.rig.cq, 8, wc), 0);
    assert_int_equal(ibv_start_poll(r.ex, &attr), ENOENT);
    rig_teardown(&r.rig);
}

static void destroy_qp__takes_its_requests_completions_along(void **state)
{
    (void)state;
    struct ex_rig r;
    struct ibv_poll_cq_attr attr = {0};
    struct ibv_wc wc[8];
    setup(&r, 0);
    struct rig second = r.rig;
    rig_add_qp(&second, NULL);
    exchange(&r.rig, 4, IBV_SEND_SIGNALED);
    exchange(&second, 2, 0);
    int rc;
    while ((rc = ibv_start_poll(r.ex, &attr)) == ENOENT)
        ;
    assert_int_equal(rc, 0); /* the others are now in the batch, or still in the CQ */
    const bool was_receive = r.ex->wr_id >= 100;
    ibv_end_poll(r.ex);
    assert_int_equal(ibv_destroy_qp(r.rig.qp), 0);
    r.rig.qp = NULL;
    int left = 0;
    for (int n = 1; n > 0; left += n) {
        n = ibv_poll_cq(r.rig.cq, 8, wc);
        for (int i = 0; i < n; i++) {
            assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
            assert_true(wc[i].wr_id >= 100); /* what came stays */
        }
    }
    assert_int_equal(left, 2 + 4 - was_receive);
    assert_int_equal(ibv_destroy_qp(second.qp), 0);
    rig_teardown(&r.rig);
}

static void create__unbuilt_wishes(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open();
    static const uint64_t unbuilt[] = {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG,
                                       IBV_WC_EX_WITH_TM_INFO, 1ull << 40};
    struct ibv_cq_init_attr_ex attr = {.cqe = 4};
    for (size_t i = 0; i < sizeof(unbuilt) / sizeof(unbuilt[0]); i++) {
        attr.wc_flags = unbuilt[i];
        errno = 0;
        assert_null(ibv_create_cq_ex(ctx, &attr));
        assert_int_equal(errno, EOPNOTSUPP);
    }
    attr.wc_flags = 0;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = 1u << 31;
    assert_null(ibv_create_cq_ex(ctx, &attr));
    assert_int_equal(errno, EOPNOTSUPP);
    attr.comp_mask = 1 << 30;
    assert_null(ibv_create_cq_ex(ctx, &attr));
    assert_int_equal(errno, EOPNOTSUPP);
    attr.comp_mask = 0;
    attr.cqe = 0;
    assert_null(ibv_create_cq_ex(ctx, &attr));
    assert_int_equal(errno, EINVAL);
    attr.cqe = 4;
    attr.comp_vector = (uint32_t)ctx->num_comp_vectors;
    assert_null(ibv_create_cq_ex(ctx, &attr));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(ibv_close_device(ctx), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_poll__empty_then_read_functions),
        cmocka_unit_test(next_poll__all_in_order),
        cmocka_unit_test(poll_cq__takes_what_the_cursor_left),
        cmocka_unit_test(destroy_qp__takes_its_requests_completions_along),
        cmocka_unit_test(create__unbuilt_wishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
