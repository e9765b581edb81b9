/* SPDX-License-Identifier: BSD-2-Clause */
/* The life of every object: what it needs, what it refuses, and in which order it may go. */
#include <stdlib.h>
#include <string.h>

#include "rig.h"

#define assert_refused(call, error)     \
    do {                                \
        errno = 0;                      \
        assert_null(call);              \
        assert_int_equal(errno, error); \
    } while (0)

static void pd__busy_while_used(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    assert_int_equal(ibv_dealloc_pd(rig.pd), EBUSY); /* the region */

    struct ibv_pd *pd = ibv_alloc_pd(rig.ctx);
    assert_non_null(pd);
    assert_ptr_equal(pd->context, rig.ctx);
    struct ibv_qp_init_attr attr = rig_qp_attr(rig.cq);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    assert_non_null(qp);
    assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
    assert_int_equal(ibv_destroy_qp(qp), 0);

    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    assert_non_null(srq);
    assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
    assert_int_equal(ibv_destroy_srq(srq), 0);

    struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1};
    ah_attr.grh.sgid_index = (uint8_t)rig_gid_index(rig.ctx, &ah_attr.grh.dgid);
    struct ibv_ah *ah = ibv_create_ah(pd, &ah_attr);
    assert_non_null(ah);
    assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
    assert_int_equal(ibv_destroy_ah(ah), 0);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    rig_teardown(&rig);
}

static void mr__fields_and_variants(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    assert_ptr_equal(rig.mr->addr, rig.buf);
    assert_int_equal(rig.mr->length, RIG_BUF_BYTES);
    assert_ptr_equal(rig.mr->pd, rig.pd);
    assert_ptr_equal(rig.mr->context, rig.ctx);

    /* Each way in: the function, the macro with a variable, iova, optional rights. */
    volatile int access = IBV_ACCESS_LOCAL_WRITE;
    struct ibv_mr *mrs[] = {
        (ibv_reg_mr)(rig.pd, rig.buf, 64, access),
        ibv_reg_mr(rig.pd, rig.buf, 64, access | IBV_ACCESS_RELAXED_ORDERING),
        ibv_reg_mr_iova(rig.pd, rig.buf, 64, 0x1000, access),
        ibv_reg_mr_iova2(rig.pd, rig.buf, 64, 0x1000, access | IBV_ACCESS_RELAXED_ORDERING),
        ibv_reg_mr(rig.pd, rig.buf, 64, access | IBV_ACCESS_ZERO_BASED),
        ibv_reg_mr(rig.pd, rig.buf, 0, access),
    };
    const size_t count = sizeof(mrs) / sizeof(mrs[0]);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(mrs[i]);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(mrs[i]->rkey, mrs[j]->rkey);
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ibv_dereg_mr(mrs[i]), 0);
    rig_teardown(&rig);
}

static void mr__refusals(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    volatile int remote_write = IBV_ACCESS_REMOTE_WRITE, atomic = IBV_ACCESS_REMOTE_ATOMIC;
    assert_refused(ibv_reg_mr(rig.pd, rig.buf, 64, remote_write), EINVAL);
    assert_refused(ibv_reg_mr(rig.pd, rig.buf, 64, atomic), EINVAL);
    assert_refused(ibv_reg_mr(rig.pd, rig.buf, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    assert_refused(ibv_reg_mr(rig.pd, (void *)16, 64, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    assert_int_equal(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, remote_write),
                     IBV_REREG_MR_ERR_INPUT);
    rig_teardown(&rig);
}

static void cq__limits_and_vectors(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open(), *other = rig_open();
    struct ibv_comp_channel *foreign = ibv_create_comp_channel(other);
    struct ibv_device_attr attr;
    assert_non_null(foreign);
    assert_int_equal(ibv_query_device(ctx, &attr), 0);
    assert_refused(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
    assert_refused(ibv_create_cq(ctx, -1, NULL, NULL, 0), EINVAL);
    assert_refused(ibv_create_cq(ctx, attr.max_cqe + 1, NULL, NULL, 0), EINVAL);
    assert_refused(ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors), EINVAL);
    assert_refused(ibv_create_cq(ctx, 1, NULL, NULL, -1), EINVAL);
    assert_refused(ibv_create_cq(ctx, 1, NULL, foreign, 0), EINVAL);

    struct ibv_cq *cq = ibv_create_cq(ctx, 10, &attr, NULL, ctx->num_comp_vectors - 1);
    assert_non_null(cq);
    assert_true(cq->cqe >= 10);
    assert_ptr_equal(cq->cq_context, &attr);
    assert_int_equal(ibv_resize_cq(cq, 1000), 0);
    assert_true(cq->cqe >= 1000);
    assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
    assert_int_equal(ibv_resize_cq(cq, attr.max_cqe + 1), EINVAL);
    assert_true(cq->cqe >= 1000);
    assert_int_equal(ibv_destroy_cq(cq), 0);
    assert_int_equal(ibv_destroy_comp_channel(foreign), 0);
    assert_int_equal(ibv_close_device(other), 0);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void cq__busy_while_used(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    struct ibv_qp_init_attr attr = rig_qp_attr(rig.cq);
    struct ibv_cq *recv_cq = ibv_create_cq(rig.ctx, 4, NULL, NULL, 0);
    assert_non_null(recv_cq);
    attr.recv_cq = recv_cq;
    struct ibv_qp *qp = ibv_create_qp(rig.pd, &attr);
    assert_non_null(qp);
    assert_int_equal(ibv_destroy_cq(rig.cq), EBUSY);
    assert_int_equal(ibv_destroy_cq(recv_cq), EBUSY);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    assert_int_equal(ibv_destroy_cq(recv_cq), 0);
    rig_teardown(&rig);
}

static void srq__life(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    struct ibv_srq_init_attr init = {.srq_context = &rig, .attr = {.max_wr = 10, .max_sge = 2}};
    struct ibv_srq_attr attr;
    struct ibv_srq *srq = ibv_create_srq(rig.pd, &init);
    assert_non_null(srq);
    assert_ptr_equal(srq->srq_context, &rig);
    assert_true(init.attr.max_wr >= 10 && init.attr.max_sge >= 2);
    assert_int_equal(ibv_query_srq(srq, &attr), 0);
    assert_int_equal(attr.max_wr, init.attr.max_wr);
    attr.srq_limit = init.attr.max_wr + 1;
    assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
    uint32_t number;
    assert_int_equal(ibv_get_srq_num(srq, &number), EOPNOTSUPP);

    struct ibv_qp_init_attr qp_attr = rig_qp_attr(rig.cq);
    qp_attr.srq = srq;
    struct ibv_qp *qp = ibv_create_qp(rig.pd, &qp_attr);
    assert_non_null(qp);
    assert_ptr_equal(qp->srq, srq);
    assert_int_equal(ibv_destroy_srq(srq), EBUSY);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    assert_int_equal(ibv_destroy_srq(srq), 0);

    struct ibv_device_attr limits;
    assert_int_equal(ibv_query_device(rig.ctx, &limits), 0);
    init.attr.max_wr = (uint32_t)limits.max_srq_wr + 1;
    assert_refused(ibv_create_srq(rig.pd, &init), EINVAL);
    rig_teardown(&rig);
}

static void srq_ex__basic_only(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    struct ibv_srq_init_attr_ex init = {
        .comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
        .srq_type = IBV_SRQT_BASIC,
        .pd = rig.pd,
        .attr = {.max_wr = 4, .max_sge = 1},
    };
    struct ibv_srq *srq = ibv_create_srq_ex(rig.ctx, &init);
    assert_non_null(srq);
    assert_int_equal(ibv_destroy_srq(srq), 0);
    init.srq_type = IBV_SRQT_XRC;
    assert_refused(ibv_create_srq_ex(rig.ctx, &init), EINVAL); /* without domain and CQ */
    init.srq_type = IBV_SRQT_TM;
    assert_refused(ibv_create_srq_ex(rig.ctx, &init), EOPNOTSUPP);
    init.comp_mask = 0;
    assert_refused(ibv_create_srq_ex(rig.ctx, &init), EINVAL);
    rig_teardown(&rig);
}

static void qp__granted_and_queried(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    struct ibv_qp_init_attr init = rig_qp_attr(rig.cq), queried;
    init.qp_context = &rig;
    init.sq_sig_all = 1;
    rig.qp = ibv_create_qp(rig.pd, &init);
    assert_non_null(rig.qp);
    assert_true(init.cap.max_send_wr >= 16 && init.cap.max_recv_wr >= 16 &&
                init.cap.max_send_sge >= 2 && init.cap.max_inline_data >= 64);
    assert_true(rig.qp->qp_num > 1 && rig.qp->qp_num <= 0xffffff);
    assert_int_equal(rig.qp->state, IBV_QPS_RESET);
    assert_int_equal(rig.qp->qp_type, IBV_QPT_RC);
    assert_null(ibv_qp_to_qp_ex(rig.qp));

    struct ibv_qp_attr attr;
    assert_int_equal(ibv_query_qp(rig.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &queried), 0);
    assert_int_equal(attr.qp_state, IBV_QPS_RESET);
    assert_memory_equal(&attr.cap, &init.cap, sizeof(init.cap));
    assert_memory_equal(&queried.cap, &init.cap, sizeof(init.cap));
    assert_ptr_equal(queried.qp_context, &rig);
    assert_ptr_equal(queried.send_cq, rig.cq);
    assert_ptr_equal(queried.recv_cq, rig.cq);
    assert_null(queried.srq);
    assert_int_equal(queried.qp_type, IBV_QPT_RC);
    assert_int_equal(queried.sq_sig_all, 1);
    rig_teardown(&rig);
}

/* IBV_QUERY_QP_DATA_IN_ORDER_* of newer headers. */
enum { RETURN_CAPS = 1, WHOLE_MSG = 1, ALIGNED_128_BYTES = 2 };

#if defined(__x86_64__)
enum { IN_ORDER = 1 };
#else
enum { IN_ORDER = 0 };
#endif

static void qp__data_in_order(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    struct ibv_qp_init_attr attr = rig_qp_attr(rig.cq);
    static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    for (int i = 0; i < 3; i++) {
        const int good = types[i] == IBV_QPT_UD ? 0 : IN_ORDER;
        attr.qp_type = types[i];
        struct ibv_qp *qp = ibv_create_qp(rig.pd, &attr);
        assert_non_null(qp);
        assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), good);
        assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE_WITH_IMM, 0), good);
        assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, RETURN_CAPS),
                         good * (WHOLE_MSG | ALIGNED_128_BYTES));
        assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 2), 0);
        assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, RETURN_CAPS), 0);
        assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_READ, RETURN_CAPS), 0);
        assert_int_equal(ibv_query_qp_data_in_order(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 0), 0);
        assert_int_equal(ibv_destroy_qp(qp), 0);
    }
    rig_teardown(&rig);
}

static void qp__refusals(void **state)
{
    (void)state;
    struct rig rig, other;
    rig_setup(&rig, NULL);
    rig_setup(&other, NULL);
    struct ibv_device_attr limits;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_device(rig.ctx, &limits), 0);

    init = rig_qp_attr(NULL);
    assert_refused(ibv_create_qp(rig.pd, &init), EINVAL);
    init = rig_qp_attr(other.cq);
    assert_refused(ibv_create_qp(rig.pd, &init), EINVAL);
    init = rig_qp_attr(rig.cq);
    init.cap.max_send_wr = (uint32_t)limits.max_qp_wr + 1;
    assert_refused(ibv_create_qp(rig.pd, &init), EINVAL);
    init = rig_qp_attr(rig.cq);
    init.cap.max_recv_sge = (uint32_t)limits.max_sge + 1;
    assert_refused(ibv_create_qp(rig.pd, &init), EINVAL);
    init = rig_qp_attr(rig.cq);
    init.cap.max_inline_data = 1u << 30;
    assert_refused(ibv_create_qp(rig.pd, &init), EINVAL);

    static const enum ibv_qp_type unbuilt[] = {IBV_QPT_DRIVER, IBV_QPT_RAW_PACKET};
    for (size_t i = 0; i < sizeof(unbuilt) / sizeof(unbuilt[0]); i++) {
        init = rig_qp_attr(rig.cq);
        init.qp_type = unbuilt[i];
        assert_refused(ibv_create_qp(rig.pd, &init), EOPNOTSUPP);
    }
    init = rig_qp_attr(rig.cq);
    init.qp_type = (enum ibv_qp_type)77;
    assert_refused(ibv_create_qp(rig.pd, &init), EINVAL);
    rig_teardown(&other);
    rig_teardown(&rig);
}

static void ah__needs_a_global_route(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    struct ibv_ah_attr good = {.is_global = 1, .port_num = 1}, attr;
    good.grh.sgid_index = (uint8_t)rig_gid_index(rig.ctx, &good.grh.dgid);
    struct ibv_ah *ah = ibv_create_ah(rig.pd, &good);
    assert_non_null(ah);
    assert_ptr_equal(ah->pd, rig.pd);
    assert_ptr_equal(ah->context, rig.ctx);
    assert_int_equal(ibv_destroy_ah(ah), 0);

    attr = good;
    attr.is_global = 0;
    assert_refused(ibv_create_ah(rig.pd, &attr), EINVAL);
    attr = good;
    attr.port_num = 2;
    assert_refused(ibv_create_ah(rig.pd, &attr), EINVAL);
    attr = good;
    attr.grh.sgid_index = 255;
    assert_refused(ibv_create_ah(rig.pd, &attr), EINVAL);
    rig_teardown(&rig);
}

/* The GRH area of a datagram over IPv4: the IP header is in its last 20 bytes. */
static struct ibv_grh ipv4_grh(uint32_t from, uint32_t to)
{
    uint8_t ip[20] = {0x45, 0x10, 0, 60, 0, 0, 0x40, 0, 63, 17};
    uint32_t sum = 0;
    struct ibv_grh grh;
    memcpy(ip + 12, &from, 4);
    memcpy(ip + 16, &to, 4);
    for (int i = 0; i < 20; i += 2)
        sum += (uint32_t)ip[i] << 8 | ip[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~(sum + (sum >> 16));
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
    memset(&grh, 0x66, sizeof(grh)); /* what stands before is undefined, and may look like IPv6 */
    memcpy((uint8_t *)&grh + 20, ip, sizeof(ip));
    return grh;
}

static void ah__from_completion(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    struct ibv_ah_attr attr;
    struct ibv_wc wc = {.wc_flags = IBV_WC_GRH, .sl = 3};
    union ibv_gid local;
    const int index = rig_gid_index(rig.ctx, &local);
    uint32_t to, from;
    memcpy(&to, local.raw + 12, 4); /* 127.0.0.1 is the first address of the loopback */
    memcpy(&from, (const uint8_t[]){10, 1, 2, 3}, 4);
    struct ibv_grh grh = ipv4_grh(from, to);

    assert_int_equal(ibv_init_ah_from_wc(rig.ctx, 1, &wc, &grh, &attr), 0);
    assert_int_equal(attr.is_global, 1);
    assert_int_equal(attr.port_num, 1);
    assert_int_equal(attr.sl, 3);
    assert_int_equal(attr.grh.sgid_index, index);
    assert_int_equal(attr.grh.hop_limit, 63);
    assert_int_equal(attr.grh.traffic_class, 0x10);
    assert_memory_equal(attr.grh.dgid.raw + 12, &from, 4);
    assert_int_equal(attr.grh.dgid.raw[10], 0xff);
    struct ibv_ah *ah = ibv_create_ah_from_wc(rig.pd, &wc, &grh, 1);
    assert_non_null(ah);
    assert_int_equal(ibv_destroy_ah(ah), 0);

    grh = ipv4_grh(from, from); /* not to us */
    assert_int_equal(ibv_init_ah_from_wc(rig.ctx, 1, &wc, &grh, &attr), -1);
    assert_null(ibv_create_ah_from_wc(rig.pd, &wc, &grh, 1));
    assert_int_equal(ibv_init_ah_from_wc(rig.ctx, 2, &wc, &grh, &attr), -1);
    memset(&grh, 0, sizeof(grh)); /* neither IPv4 nor IPv6 */
    assert_int_equal(ibv_init_ah_from_wc(rig.ctx, 1, &wc, &grh, &attr), -1);
    rig_teardown(&rig);
}

static void close_device__before_its_objects(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    rig_add_qp(&rig, NULL);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(rig.ctx);
    assert_non_null(channel);
    assert_int_equal(ibv_close_device(rig.ctx), 0);
    /* They still go one by one, as programs do that close in the wrong order. */
    assert_int_equal(ibv_destroy_comp_channel(channel), 0);
    assert_int_equal(ibv_destroy_qp(rig.qp), 0);
    assert_int_equal(ibv_destroy_cq(rig.cq), 0);
    assert_int_equal(ibv_dereg_mr(rig.mr), 0);
    assert_int_equal(ibv_dealloc_pd(rig.pd), 0);
    free(rig.buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pd__busy_while_used),
        cmocka_unit_test(mr__fields_and_variants),
        cmocka_unit_test(mr__refusals),
        cmocka_unit_test(cq__limits_and_vectors),
        cmocka_unit_test(cq__busy_while_used),
        cmocka_unit_test(srq__life),
        cmocka_unit_test(srq_ex__basic_only),
        cmocka_unit_test(qp__granted_and_queried),
        cmocka_unit_test(qp__data_in_order),
        cmocka_unit_test(qp__refusals),
        cmocka_unit_test(ah__needs_a_global_route),
        cmocka_unit_test(ah__from_completion),
        cmocka_unit_test(close_device__before_its_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
