/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/sq.h"

#include <sidewire/flush.h>

#include "nic_rig.h"

static struct sw_sq new_sq(uint32_t wr, uint32_t sges, uint32_t inline_max, bool sig_all)
{
    struct sw_sq sq;
    memset(&sq, 0, sizeof(sq));
    struct ibv_qp_cap cap = {
        .max_send_wr = wr, .max_send_sge = sges, .max_inline_data = inline_max};
    assert_int_equal(sw_sq_init(&sq, NULL, &cap, sig_all, sw_qp_type(IBV_QPT_RC)->send_opcodes), 0);
    return sq;
}

static void start_at(struct sw_sq *sq, uint32_t position)
{
    sq->head = sq->next = sq->tail = position;
    sq->polled = position;
}

static void sw_sq_init__grants_at_least_what_was_asked(void **state)
{
    (void)state;
    struct sw_sq sq = {0};
    struct ibv_qp_cap cap = {.max_send_wr = 5, .max_send_sge = 0, .max_inline_data = 65};
    assert_int_equal(sw_sq_init(&sq, NULL, &cap, false, sw_qp_type(IBV_QPT_RC)->send_opcodes), 0);
    assert_int_equal(cap.max_send_wr, 8);
    assert_int_equal(cap.max_send_sge, 1);
    assert_int_equal(cap.max_inline_data, 128);
    assert_int_equal(sq.wr_max, 8);
    sw_sq_fini(&sq);
    cap = (struct ibv_qp_cap){0};
    assert_int_equal(sw_sq_init(&sq, NULL, &cap, false, sw_qp_type(IBV_QPT_RC)->send_opcodes), 0);
    assert_true(cap.max_send_wr >= 1);
    assert_int_equal(cap.max_inline_data, 0);
    assert_null(sq.inline_bytes);
    sw_sq_fini(&sq);
    cap = (struct ibv_qp_cap){.max_send_wr = 1, .max_send_sge = 5};
    assert_int_equal(sw_sq_init(&sq, NULL, &cap, false, sw_qp_type(IBV_QPT_RC)->send_opcodes), 0);
    assert_int_equal(cap.max_inline_data, 128); /* 16 bytes an element, in cache lines */
    sw_sq_fini(&sq);
}

static void sw_sq_append__full_also_past_the_wrap_of_positions(void **state)
{
    (void)state;
    struct sw_sq sq = new_sq(4, 1, 0, false);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    start_at(&sq, UINT32_MAX - 1);
    for (uint64_t i = 0; i < 4; i++) {
        wr.wr_id = i;
        assert_int_equal(sw_sq_append(&sq, &wr), 0);
    }
    assert_int_equal(sq.tail, 2);
    assert_int_equal(sw_sq_append(&sq, &wr), -ENOMEM);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(sw_sq_at(&sq, UINT32_MAX - 1 + i)->wr_id, i);
    sq.head = sq.next = 2; /* completed but not polled: still full, as on hardware */
    assert_int_equal(sw_sq_append(&sq, &wr), -ENOMEM);
    sq.polled = UINT32_MAX;
    assert_int_equal(sw_sq_append(&sq, &wr), 0);
    assert_int_equal(sw_sq_append(&sq, &wr), -ENOMEM);
    sw_sq_fini(&sq);
}

static void sw_sq_append__opcodes(void **state)
{
    (void)state;
    static const struct {
        enum ibv_wr_opcode opcode;
        int rc;
    } cases[] = {
        {IBV_WR_RDMA_WRITE, 0},
        {IBV_WR_RDMA_WRITE_WITH_IMM, 0},
        {IBV_WR_SEND, 0},
        {IBV_WR_SEND_WITH_IMM, 0},
        {IBV_WR_SEND_WITH_INV, 0},
        {IBV_WR_RDMA_READ, 0},
        {IBV_WR_ATOMIC_CMP_AND_SWP, 0},
        {IBV_WR_ATOMIC_FETCH_AND_ADD, 0},
        {IBV_WR_LOCAL_INV, 0},
        {IBV_WR_BIND_MW, -EINVAL}, /* of no window */
        {IBV_WR_TSO, -EOPNOTSUPP},
        {IBV_WR_DRIVER1, -EOPNOTSUPP},
        {(enum ibv_wr_opcode)200, -EINVAL},
        {(enum ibv_wr_opcode) - 1, -EINVAL},
    };
    struct sw_sq sq = new_sq(16, 1, 0, false);
    struct ibv_sge sge = {0, 8, 0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ibv_send_wr wr = {.opcode = cases[i].opcode, .sg_list = &sge, .num_sge = 1};
        uint32_t before = sq.tail;
        assert_int_equal(sw_sq_append(&sq, &wr), cases[i].rc);
        assert_int_equal(sq.tail - before, cases[i].rc == 0);
    }
    sw_sq_fini(&sq);
}

/* An opcode of another type of queue pair is no operation of this one. */
static void sw_sq_append__opcodes_of_other_types(void **state)
{
    (void)state;
    struct sw_sq sq = {0};
    struct ibv_qp_cap cap = {.max_send_wr = 4};
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, write = {.opcode = IBV_WR_RDMA_WRITE};
    struct ibv_send_wr tso = {.opcode = IBV_WR_TSO};
    assert_int_equal(sw_sq_init(&sq, NULL, &cap, false, 1u << IBV_WR_SEND), 0);
    assert_int_equal(sw_sq_append(&sq, &send), 0);
    assert_int_equal(sw_sq_append(&sq, &write), -EINVAL);
    assert_int_equal(sw_sq_append(&sq, &tso), -EOPNOTSUPP);
    assert_int_equal(sq.tail, 1);
    sw_sq_fini(&sq);
}

static void sw_sq_append__keeps_the_request(void **state)
{
    (void)state;
    struct sw_sq sq = new_sq(4, 2, 0, false);
    struct ibv_sge sges[] = {{0x1000, 24, 7}, {0x2000, 8, 8}};
    struct ibv_send_wr wr = {
        .wr_id = 5,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .sg_list = sges,
        .num_sge = 2,
        .send_flags = IBV_SEND_FENCE | IBV_SEND_SOLICITED,
        .imm_data = 0x11223344,
        .wr.rdma = {.remote_addr = 0xabcdef, .rkey = 0x77},
    };
    assert_int_equal(sw_sq_append(&sq, &wr), 0);
    const struct sw_wqe *wqe = sw_sq_at(&sq, 0);
    assert_int_equal(wqe->wr_id, 5);
    assert_int_equal(wqe->opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
    assert_int_equal(wqe->flags, SW_WQE_FENCE | SW_WQE_SOLICITED);
    assert_int_equal(wqe->imm, 0x11223344);
    assert_int_equal(wqe->remote_addr, 0xabcdef);
    assert_int_equal(wqe->rkey, 0x77);
    assert_int_equal(wqe->len_bytes, 32);
    assert_int_equal(wqe->sge_count, 2);
    assert_memory_equal(sw_sq_sges(&sq, 0), sges, sizeof(sges));

    /* The slot's next user finds nothing of it. */
    start_at(&sq, 4);
    wr = (struct ibv_send_wr){.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    wr.imm_data = 0x99;
    assert_int_equal(sw_sq_append(&sq, &wr), 0);
    assert_int_equal(wqe->imm, 0);
    assert_int_equal(wqe->flags, SW_WQE_SIGNALED);
    assert_int_equal(wqe->sge_count, 0);
    assert_int_equal(wqe->len_bytes, 0);
    assert_int_equal(wqe->done_bytes, 0);
    sw_sq_fini(&sq);
}

static void sw_sq_append__atomics_are_eight_bytes(void **state)
{
    (void)state;
    struct sw_sq sq = new_sq(4, 2, 64, false);
    struct ibv_sge sges[] = {{0, 4, 0}, {0, 4, 0}};
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
        .sg_list = sges,
        .num_sge = 2,
        .wr.atomic = {.remote_addr = 64, .compare_add = 1, .swap = 2, .rkey = 3},
    };
    assert_int_equal(sw_sq_append(&sq, &wr), 0);
    assert_int_equal(sw_sq_at(&sq, 0)->compare_add, 1);
    assert_int_equal(sw_sq_at(&sq, 0)->swap, 2);
    assert_int_equal(sw_sq_at(&sq, 0)->rkey, 3);
    wr.num_sge = 1;
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    wr.num_sge = 0;
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    sges[1].length = 12;
    wr.num_sge = 2;
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    sw_sq_fini(&sq);
}

static void sw_sq_append__lengths_and_counts(void **state)
{
    (void)state;
    struct sw_sq sq = new_sq(8, 2, 0, false);
    struct ibv_sge sges[] = {{0, 1u << 30, 0}, {0, 1u << 30, 0}, {0}};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .sg_list = sges, .num_sge = 2};
    assert_int_equal(sw_sq_append(&sq, &wr), 0); /* 2 GiB, the most a message has */
    assert_int_equal(sw_sq_at(&sq, 0)->len_bytes, 1u << 31);
    sges[1].length++;
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    sges[0].length = sges[1].length = UINT32_MAX;
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    wr.num_sge = 3;
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    wr.num_sge = -1;
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    assert_int_equal(sq.tail, 1);
    sw_sq_fini(&sq);
}

static void sw_sq_append__inline(void **state)
{
    (void)state;
    struct sw_sq sq = new_sq(4, 2, 64, false);
    uint8_t first[40], second[40];
    memset(first, 'a', sizeof(first));
    memset(second, 'b', sizeof(second));
    struct ibv_sge sges[] = {{(uintptr_t)first, 40, 0}, {(uintptr_t)second, 24, 0}};
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_SEND, .sg_list = sges, .num_sge = 2, .send_flags = IBV_SEND_INLINE};
    start_at(&sq, 3); /* a slot's bytes are its own */
    assert_int_equal(sw_sq_append(&sq, &wr), 0);
    memset(first, 'x', sizeof(first)); /* the program may use them again at once */
    const struct sw_wqe *wqe = sw_sq_at(&sq, 3);
    assert_true(wqe->flags & SW_WQE_INLINE);
    assert_int_equal(wqe->len_bytes, 64);
    assert_int_equal(wqe->sge_count, 0);
    for (int i = 0; i < 64; i++)
        assert_int_equal(sw_sq_inline(&sq, 3)[i], i < 40 ? 'a' : 'b');

    sges[1].length = 25;
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    sges[0].length = sges[1].length = 1u << 31; /* their sum in 32 bits would fit */
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    sges[0].length = 4;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_READ; /* bytes come in, there is nothing to copy */
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL);
    assert_int_equal(sq.tail, 4);
    sw_sq_fini(&sq);
}

static void sw_sq_append_flush__keeps_the_request(void **state)
{
    (void)state;
    struct sw_sq sq = new_sq(4, 1, 0, false);
    const struct sw_flush_wr good = {.wr_id = 9,
                                     .send_flags = IBV_SEND_FENCE,
                                     .rkey = 0x1234,
                                     .remote_addr = 1ull << 60,
                                     .len_bytes = 2ull << 30,
                                     .type = IBV_FLUSH_PERSISTENT,
                                     .level = IBV_FLUSH_RANGE};
    struct sw_flush_wr bad = good;
    bad.type = 0;
    assert_int_equal(sw_sq_append_flush(&sq, &bad), -EINVAL);
    bad.type = 4;
    assert_int_equal(sw_sq_append_flush(&sq, &bad), -EINVAL);
    bad = good;
    bad.level = 2;
    assert_int_equal(sw_sq_append_flush(&sq, &bad), -EINVAL);
    bad = good;
    bad.len_bytes++;
    assert_int_equal(sw_sq_append_flush(&sq, &bad), -EINVAL);
    bad.level = IBV_FLUSH_MR; /* of which the length means nothing */
    assert_int_equal(sw_sq_append_flush(&sq, &bad), 0);
    assert_true(sw_wqe_flush(sw_sq_at(&sq, 0)).whole_region);
    assert_int_equal(sw_sq_append_flush(&sq, &good), 0);
    const struct sw_wqe *wqe = sw_sq_at(&sq, 1);
    assert_int_equal(wqe->wr_id, 9);
    assert_int_equal(wqe->opcode, IBV_WR_FLUSH);
    assert_int_equal(wqe->flags, SW_WQE_FENCE);
    assert_int_equal(wqe->len_bytes, 0); /* that would be moved */
    struct sw_target_flush flush = sw_wqe_flush(wqe);
    assert_int_equal(flush.key, 0x1234);
    assert_int_equal(flush.addr, 1ull << 60);
    assert_int_equal(flush.len_bytes, 2ull << 30);
    assert_int_equal(flush.type, IBV_FLUSH_PERSISTENT);
    assert_false(flush.whole_region);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sw_sq_append_flush(&sq, &good), 0);
    assert_int_equal(sw_sq_append_flush(&sq, &good), -ENOMEM);
    struct ibv_send_wr wr = {.opcode = IBV_WR_FLUSH};
    start_at(&sq, 0);
    assert_int_equal(sw_sq_append(&sq, &wr), -EINVAL); /* has no place for any of it */
    sw_sq_fini(&sq);
}

static void sw_sq_append__sig_all(void **state)
{
    (void)state;
    struct sw_sq sq = new_sq(4, 1, 0, true);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    assert_int_equal(sw_sq_append(&sq, &wr), 0);
    assert_int_equal(sw_sq_at(&sq, 0)->flags, SW_WQE_SIGNALED);
    sw_sq_fini(&sq);
}

static void append_many(struct sw_qp *qp, uint32_t count, uint32_t signal_every)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ibv_send_wr wr = {.wr_id = i, .opcode = IBV_WR_SEND};
        wr.send_flags = (i + 1) % signal_every == 0 ? IBV_SEND_SIGNALED : 0;
        assert_int_equal(sw_sq_append(&qp->sq, &wr), 0);
    }
}

static void sw_sq_retire__errors_complete_unsignaled_requests_too(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 8, 1, NULL);
    start_at(&qp->sq, UINT32_MAX);
    append_many(qp, 3, 100);
    rig_locked(&qp->lock, sw_sq_retire(qp, IBV_WC_SUCCESS));
    rig_locked(&qp->lock, sw_sq_retire(qp, IBV_WC_REM_ACCESS_ERR));
    rig_locked(&qp->lock, sw_sq_retire(qp, IBV_WC_WR_FLUSH_ERR));
    struct ibv_wc wc[4];
    assert_int_equal(sw_cq_poll(rig->cq, 4, wc), 2);
    assert_int_equal(wc[0].wr_id, 1);
    assert_int_equal(wc[0].status, IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(wc[0].qp_num, qp->qpn);
    assert_int_equal(wc[1].wr_id, 2);
    assert_int_equal(wc[1].status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(qp->sq.head, 2);
    assert_int_equal(qp->sq.next, 2); /* never behind head */
    assert_int_equal(qp->sq.polled, 2);
    sw_qp_destroy(qp);
}

static void sw_sq_retire_run__only_signaled_ones_show(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 8, 1, NULL);
    start_at(&qp->sq, UINT32_MAX - 2);
    append_many(qp, 8, 3);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    assert_int_equal(sw_sq_append(&qp->sq, &wr), -ENOMEM);
    rig_locked(&qp->lock, sw_sq_retire_run(qp, 8));
    assert_int_equal(sw_sq_append(&qp->sq, &wr), -ENOMEM); /* nothing polled yet */
    struct ibv_wc wc[4];
    assert_int_equal(sw_cq_poll(rig->cq, 1, wc), 1);
    assert_int_equal(wc[0].wr_id, 2);
    assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
    assert_int_equal(wc[0].opcode, IBV_WC_SEND);
    assert_int_equal(qp->sq.tail - qp->sq.polled, 5); /* it stands for those before it */
    assert_int_equal(sw_cq_poll(rig->cq, 4, wc), 1);
    assert_int_equal(wc[0].wr_id, 5);
    assert_int_equal(qp->sq.tail - qp->sq.polled, 2);
    assert_int_equal(qp->sq.head, qp->sq.tail);
    sw_qp_destroy(qp);
}

static void sw_sq_retire_run__opcodes_of_completions(void **state)
{
    struct rig *rig = *state;
    static const enum ibv_wr_opcode in[] = {
        IBV_WR_RDMA_WRITE,         IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,      IBV_WR_SEND_WITH_INV,       IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
    static const enum ibv_wc_opcode out[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND,
                                             IBV_WC_SEND,       IBV_WC_SEND,       IBV_WC_RDMA_READ,
                                             IBV_WC_COMP_SWAP,  IBV_WC_FETCH_ADD};
    struct sw_qp *qp = rig_qp(rig, 8, 1, NULL);
    struct ibv_sge sge = {0, 8, 0};
    for (size_t i = 0; i < 8; i++) {
        struct ibv_send_wr wr = {
            .opcode = in[i], .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1};
        assert_int_equal(sw_sq_append(&qp->sq, &wr), 0);
    }
    rig_locked(&qp->lock, sw_sq_retire_run(qp, 8));
    struct ibv_wc wc[8];
    assert_int_equal(sw_cq_poll(rig->cq, 8, wc), 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(wc[i].opcode, out[i]);
        assert_int_equal(wc[i].byte_len, 8);
    }
    sw_qp_destroy(qp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_sq_init__grants_at_least_what_was_asked),
        cmocka_unit_test(sw_sq_append__full_also_past_the_wrap_of_positions),
        cmocka_unit_test(sw_sq_append__opcodes),
        cmocka_unit_test(sw_sq_append__opcodes_of_other_types),
        cmocka_unit_test(sw_sq_append__keeps_the_request),
        cmocka_unit_test(sw_sq_append__atomics_are_eight_bytes),
        cmocka_unit_test(sw_sq_append__lengths_and_counts),
        cmocka_unit_test(sw_sq_append__inline),
        cmocka_unit_test(sw_sq_append_flush__keeps_the_request),
        cmocka_unit_test(sw_sq_append__sig_all),
        rig_test(sw_sq_retire__errors_complete_unsignaled_requests_too),
        rig_test(sw_sq_retire_run__only_signaled_ones_show),
        rig_test(sw_sq_retire_run__opcodes_of_completions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
