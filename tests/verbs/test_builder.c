/* SPDX-License-Identifier: BSD-2-Clause */
/* The posting interface of ibv_qp_ex: what can be asked for, every operation and data setter, abort
 * and misuse. */
#include <arpa/inet.h>
#include <sidewire/flush.h>
#include <string.h>

#include "rig.h"

#define SEND_OPS                                                                                   \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |        \
     IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV)

static struct ibv_qp *create_type(struct rig *rig, enum ibv_qp_type type, uint64_t send_ops)
{
    struct ibv_qp_init_attr plain = rig_qp_attr(rig->cq);
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = plain.send_cq,
        .recv_cq = plain.recv_cq,
        .cap = plain.cap,
        .qp_type = type,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = rig->pd,
        .send_ops_flags = send_ops,
    };
    errno = 0;
    struct ibv_qp *qp = ibv_create_qp_ex(rig->ctx, &attr);
    assert_true(!qp || attr.cap.max_inline_data >= 64);
    return qp;
}

static struct ibv_qp *create(struct rig *rig, uint64_t send_ops)
{
    return create_type(rig, IBV_QPT_RC, send_ops);
}

static struct ibv_qp_ex *setup(struct rig *rig)
{
    rig_setup(rig, NULL);
    rig->qp = create(rig, SEND_OPS);
    assert_non_null(rig->qp);
    rig_connect_self(rig, rig->qp);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig->qp);
    assert_non_null(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    return ex;
}

static void expect_one(struct rig *rig, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc;
    rig_poll(rig->cq, 1, &wc);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.opcode, opcode);
}

static void create__send_ops(void **state)
{
    (void)state;
    static const uint64_t unbuilt[] = {IBV_QP_EX_WITH_TSO, 1ull << 50};
    struct rig rig;
    rig_setup(&rig, NULL);
    for (size_t i = 0; i < sizeof(unbuilt) / sizeof(unbuilt[0]); i++) {
        assert_null(create(&rig, SEND_OPS | unbuilt[i]));
        assert_int_equal(errno, EOPNOTSUPP);
    }
    struct ibv_qp *qp = create(&rig, 0);
    assert_non_null(qp);
    assert_non_null(ibv_qp_to_qp_ex(qp));
    assert_int_equal(ibv_destroy_qp(qp), 0);

    struct ibv_qp_init_attr_ex attr = {.send_cq = rig.cq,
                                       .recv_cq = rig.cq,
                                       .qp_type = IBV_QPT_RC,
                                       .pd = rig.pd,
                                       .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH};
    assert_null(ibv_create_qp_ex(rig.ctx, &attr));
    assert_int_equal(errno, EOPNOTSUPP);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    attr.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
    assert_null(ibv_create_qp_ex(rig.ctx, &attr));
    assert_int_equal(errno, EOPNOTSUPP);
    attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB; /* of UD alone */
    assert_null(ibv_create_qp_ex(rig.ctx, &attr));
    assert_int_equal(errno, EOPNOTSUPP);
    attr.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS; /* no PD */
    assert_null(ibv_create_qp_ex(rig.ctx, &attr));
    assert_int_equal(errno, EINVAL);
    rig_teardown(&rig);
}

static void write_and_read__each_data_setter(void **state)
{
    (void)state;
    struct rig rig;
    struct ibv_qp_ex *ex = setup(&rig);
    const uint32_t key = rig.mr->rkey;
    const uint64_t remote = (uintptr_t)rig.buf + 1024;
    char local[] = "reused at once";

    memcpy(rig.buf, "from a list element", 20);
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ibv_wr_rdma_write(ex, key, remote);
    ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf, 20);
    ex->wr_id = 2;
    ibv_wr_rdma_write(ex, key, remote + 100);
    ibv_wr_set_inline_data(ex, local, sizeof(local));
    memset(local, 'x', sizeof(local));
    ex->wr_id = 3;
    struct ibv_data_buf bufs[5] = {
        {(void *)"a", 1}, {(void *)"", 0}, {(void *)"bc", 2}, {(void *)"d", 1}, {(void *)"e", 2}};
    ibv_wr_rdma_write(ex, key, remote + 200);
    ibv_wr_set_inline_data_list(ex, 5, bufs);
    ex->wr_id = 4;
    struct ibv_sge list[2] = {rig_sge(&rig, 5, 2), rig_sge(&rig, 0, 4)};
    ibv_wr_rdma_write(ex, key, remote + 300);
    ibv_wr_set_sge_list(ex, 2, list);
    memset(list, 0, sizeof(list));
    assert_int_equal(ibv_wr_complete(ex), 0);
    for (uint64_t id = 1; id <= 4; id++)
        expect_one(&rig, id, IBV_WC_RDMA_WRITE);
    assert_memory_equal(rig.buf + 1024, "from a list element", 20);
    assert_memory_equal(rig.buf + 1124, "reused at once", 15);
    assert_memory_equal(rig.buf + 1224, "abcde", 6);
    assert_memory_equal(rig.buf + 1324, "a from", 2);
    assert_memory_equal(rig.buf + 1326, "from", 4);

    ibv_wr_start(ex);
    ex->wr_id = 5;
    ibv_wr_rdma_read(ex, key, remote);
    ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf + 2048, 20);
    assert_int_equal(ibv_wr_complete(ex), 0);
    expect_one(&rig, 5, IBV_WC_RDMA_READ);
    assert_memory_equal(rig.buf + 2048, "from a list element", 20);
    rig_teardown(&rig);
}

static void atomics__return_the_old_value(void **state)
{
    (void)state;
    struct rig rig;
    struct ibv_qp_ex *ex = setup(&rig);
    uint64_t *target = (uint64_t *)(void *)(rig.buf + 512), *old = (uint64_t *)(void *)rig.buf;
    *target = 40;
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ibv_wr_atomic_fetch_add(ex, rig.mr->rkey, (uintptr_t)target, 2);
    ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)&old[0], 8);
    ex->wr_id = 2;
    ibv_wr_atomic_cmp_swp(ex, rig.mr->rkey, (uintptr_t)target, 42, 7);
    ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)&old[1], 8);
    assert_int_equal(ibv_wr_complete(ex), 0);
    expect_one(&rig, 1, IBV_WC_FETCH_ADD);
    expect_one(&rig, 2, IBV_WC_COMP_SWAP);
    assert_int_equal(old[0], 40);
    assert_int_equal(old[1], 42);
    assert_int_equal(*target, 7);
    rig_teardown(&rig);
}

static void send__each_kind(void **state)
{
    (void)state;
    struct rig rig;
    struct ibv_qp_ex *ex = setup(&rig);
    struct ibv_sge to = rig_sge(&rig, 1024, 64);
    struct ibv_wc wc[4];
    for (unsigned int i = 0; i < 4; i++)
        assert_int_equal(rig_post_recv(rig.qp, 10 + i, &to), 0);
    ex->wr_flags = 0;
    ibv_wr_start(ex);
    ibv_wr_send(ex); /* without data: zero length, handed over by the next */
    ibv_wr_send_imm(ex, htonl(0xabcd));
    ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf, 8);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, (void *)"hi", 2);
    ibv_wr_rdma_write_imm(ex, rig.mr->rkey, (uintptr_t)rig.buf + 3000,
                          htonl(77)); /* the last, without data */
    assert_int_equal(ibv_wr_complete(ex), 0);
    rig_poll(rig.cq, 4, wc);
    assert_int_equal(wc[0].byte_len, 0);
    assert_int_equal(wc[1].wc_flags, IBV_WC_WITH_IMM);
    assert_int_equal(ntohl(wc[1].imm_data), 0xabcd);
    assert_int_equal(wc[1].byte_len, 8);
    assert_int_equal(wc[2].byte_len, 2);
    assert_int_equal(wc[3].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(ntohl(wc[3].imm_data), 77);
    rig_teardown(&rig);
}

/* Only windows may be invalidated from afar, so the request arrives and is refused there. */
static void send_inv__of_a_plain_region(void **state)
{
    (void)state;
    struct rig rig;
    struct ibv_qp_ex *ex = setup(&rig);
    struct ibv_sge to = rig_sge(&rig, 1024, 64);
    struct ibv_wc wc;
    int n;
    assert_int_equal(rig_post_recv(rig.qp, 10, &to), 0);
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ibv_wr_send_inv(ex, rig.mr->rkey);
    ibv_wr_set_inline_data(ex, (void *)"hi", 2);
    assert_int_equal(ibv_wr_complete(ex), 0);
    do {
        while ((n = ibv_poll_cq(rig.cq, 1, &wc)) == 0)
            ;
        assert_int_equal(n, 1);
    } while (wc.wr_id != 1);
    assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
    rig_teardown(&rig);
}

static void abort__posts_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct ibv_qp_ex *ex = setup(&rig);
    struct ibv_wc wc;
    ibv_wr_start(ex);
    ibv_wr_rdma_write(ex, rig.mr->rkey, (uintptr_t)rig.buf + 1024);
    ibv_wr_set_inline_data(ex, (void *)"gone", 5);
    ibv_wr_rdma_write(ex, rig.mr->rkey, (uintptr_t)rig.buf + 2048);
    ibv_wr_abort(ex);
    assert_int_equal(ibv_poll_cq(rig.cq, 1, &wc), 0);
    assert_int_equal(rig.buf[1024], 0);
    ibv_wr_start(ex); /* and the next list is not disturbed by it */
    ex->wr_id = 9;
    ibv_wr_rdma_write(ex, rig.mr->rkey, (uintptr_t)rig.buf + 1024);
    ibv_wr_set_inline_data(ex, (void *)"kept", 5);
    assert_int_equal(ibv_wr_complete(ex), 0);
    expect_one(&rig, 9, IBV_WC_RDMA_WRITE);
    assert_string_equal((char *)rig.buf + 1024, "kept");
    assert_int_equal(ibv_poll_cq(rig.cq, 1, &wc), 0);
    rig_teardown(&rig);
}

static void misuse__fails_at_complete(void **state)
{
    (void)state;
    struct rig rig;
    struct ibv_qp_ex *ex = setup(&rig);
    struct ibv_wc wc;
    char large[2048] = {0};
    struct ibv_sge list[64] = {{0}};

    ibv_wr_start(ex); /* one good request before the bad one: none is posted */
    ibv_wr_rdma_write(ex, rig.mr->rkey, (uintptr_t)rig.buf + 1024);
    ibv_wr_set_inline_data(ex, (void *)"no", 3);
    ibv_wr_rdma_write(ex, rig.mr->rkey, (uintptr_t)rig.buf + 1024);
    ibv_wr_set_inline_data(ex, large, sizeof(large));
    assert_int_equal(ibv_wr_complete(ex), EINVAL);
    ibv_wr_start(ex);
    ibv_wr_rdma_write(ex, rig.mr->rkey, (uintptr_t)rig.buf + 1024);
    ibv_wr_set_sge_list(ex, 64, list);
    assert_int_equal(ibv_wr_complete(ex), EINVAL);
    ibv_wr_start(ex); /* data without an operation */
    ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf, 8);
    assert_int_equal(ibv_wr_complete(ex), EINVAL);
    ibv_wr_start(ex); /* more than the queue holds */
    for (int i = 0; i < 5000; i++) {
        ibv_wr_rdma_write(ex, rig.mr->rkey, (uintptr_t)rig.buf + 1024);
        ibv_wr_set_inline_data(ex, (void *)"no", 3);
    }
    assert_int_equal(ibv_wr_complete(ex), ENOMEM);
    assert_int_equal(ibv_poll_cq(rig.cq, 1, &wc), 0);
    assert_int_equal(rig.buf[1024], 0);
    rig_teardown(&rig);
}

/* Only a reliable queue pair hears when its requests have been executed. */
static void flush__is_refused_where_nothing_is_acknowledged(void **state)
{
    (void)state;
    static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD};
    struct rig rig;
    rig_setup(&rig, NULL);
    for (size_t i = 0; i < 2; i++) {
        assert_null(create_type(&rig, types[i], IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_FLUSH));
        assert_int_equal(errno, EOPNOTSUPP);
        struct ibv_qp *qp = create_type(&rig, types[i], IBV_QP_EX_WITH_SEND);
        assert_non_null(qp);
        struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
        ibv_wr_start(ex);
        ibv_wr_flush(ex, rig.mr->rkey, 0, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
        assert_int_equal(ibv_wr_complete(ex), EOPNOTSUPP);
        assert_int_equal(ibv_destroy_qp(qp), 0);
    }
    rig_teardown(&rig);
}

static void refused_operations__do_not_crash(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    rig.qp = create(&rig, IBV_QP_EX_WITH_SEND);
    assert_non_null(rig.qp);
    rig_connect_self(&rig, rig.qp);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig.qp);
    const uint64_t remote = (uintptr_t)rig.buf;
    for (int op = 0; op < 14; op++) {
        ibv_wr_start(ex);
        switch (op) {
        case 0:
            ibv_wr_rdma_write(ex, 1, remote);
            break;
        case 1:
            ibv_wr_rdma_write_imm(ex, 1, remote, 0);
            break;
        case 2:
            ibv_wr_rdma_read(ex, 1, remote);
            break;
        case 3:
            ibv_wr_atomic_cmp_swp(ex, 1, remote, 0, 0);
            break;
        case 4:
            ibv_wr_atomic_fetch_add(ex, 1, remote, 0);
            break;
        case 5:
            ibv_wr_send_imm(ex, 0);
            break;
        case 6:
            ibv_wr_send_inv(ex, 1);
            break;
        case 7:
            ibv_wr_local_inv(ex, 1);
            break;
        case 8:
            ibv_wr_bind_mw(ex, NULL, 1, NULL);
            break;
        case 9:
            ibv_wr_send_tso(ex, NULL, 0, 0);
            break;
        case 10:
            ibv_wr_atomic_write(ex, 1, remote, rig.buf);
            break;
        case 11:
            ibv_wr_set_ud_addr(ex, NULL, 1, 1);
            break;
        case 12:
            ibv_wr_set_xrc_srqn(ex, 1);
            break;
        default:
            ibv_wr_flush(ex, 1, remote, 1, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
            break;
        }
        assert_int_equal(ibv_wr_complete(ex), op == 11 || op == 12 ? EINVAL : EOPNOTSUPP);
    }
    rig_teardown(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create__send_ops),
        cmocka_unit_test(write_and_read__each_data_setter),
        cmocka_unit_test(atomics__return_the_old_value),
        cmocka_unit_test(send__each_kind),
        cmocka_unit_test(send_inv__of_a_plain_region),
        cmocka_unit_test(abort__posts_nothing),
        cmocka_unit_test(misuse__fails_at_complete),
        cmocka_unit_test(flush__is_refused_where_nothing_is_acknowledged),
        cmocka_unit_test(refused_operations__do_not_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
