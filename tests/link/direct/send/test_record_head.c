/* SPDX-License-Identifier: BSD-2-Clause */
/* What a record says of a message, by both ways that a request takes. */
#include "link/direct/process/block.h"
#include "link/direct/send/ahead.h"
#include "link/direct/send/record_head.h"
#include "link/direct/send/requester.h"
#include "link_rig.h"

static void sw_record_head_flags__of_each_opcode(void **state)
{
    static const struct {
        enum ibv_wr_opcode opcode;
        uint8_t flags;
    } rows[] = {
        {IBV_WR_RDMA_WRITE, 0},
        {IBV_WR_RDMA_WRITE_WITH_IMM, SW_REC_IMM},
        {IBV_WR_SEND, 0},
        {IBV_WR_SEND_WITH_IMM, SW_REC_IMM},
        {IBV_WR_RDMA_READ, 0},
        {IBV_WR_ATOMIC_CMP_AND_SWP, 0},
        {IBV_WR_ATOMIC_FETCH_AND_ADD, 0},
        {IBV_WR_SEND_WITH_INV, SW_REC_INV},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(sw_record_head_flags(rows[i].opcode, false), rows[i].flags);
        assert_int_equal(sw_record_head_flags(rows[i].opcode, true),
                         rows[i].flags | SW_REC_SOLICITED);
    }
}

/* Ahead of the queue, then by it. All but the position is the same. */
static void compare_records(struct rig *rig, struct ibv_send_wr *wr, enum sw_record_kind kind)
{
    const uint32_t at = rig->d->send.request_at;
    uint32_t sent = 0;
    assert_int_equal(sw_ahead_run(rig->qp, rig->d, wr, 1, &sent), 1);
    const uint32_t slots = rig->d->send.request_at - at;
    rig->d->send.answers_due = 0;
    rig_append(rig, wr, wr->sg_list);
    sw_direct_send_run(rig->qp, rig->d);
    assert_int_equal(rig->d->send.request_at, at + 2 * slots);
    const struct sw_record *ahead = &rig->out->requests[at], *queued = ahead + slots;
    assert_int_equal(ahead->kind, kind);
    assert_memory_equal((const uint8_t *)ahead + sizeof(ahead->seq),
                        (const uint8_t *)queued + sizeof(queued->seq),
                        sizeof(*ahead) - sizeof(ahead->seq));
    rig->d->send.answers_due = 0;
}

static const struct {
    enum ibv_wr_opcode opcode;
    unsigned int flags;
} sends[] = {{IBV_WR_SEND, 0},
             {IBV_WR_SEND, IBV_SEND_SOLICITED},
             {IBV_WR_SEND_WITH_IMM, 0},
             {IBV_WR_SEND_WITH_IMM, IBV_SEND_SOLICITED}};

static void compare_sends(struct rig *rig, uint32_t len_bytes, enum sw_record_kind kind)
{
    struct ibv_sge from = rig_sge(rig, 0, len_bytes), room = rig_sge(rig, 16384, 4096);
    memset(rig->bytes, 0x5a, len_bytes);
    for (size_t i = 0; i < sizeof(sends) / sizeof(*sends); i++) {
        struct ibv_send_wr wr = {.sg_list = &from,
                                 .num_sge = 1,
                                 .opcode = sends[i].opcode,
                                 .imm_data = 0x1234,
                                 .send_flags = sends[i].flags};
        struct ibv_recv_wr recv = {.sg_list = &room, .num_sge = 1}, *bad;
        for (int times = 0; times < 2; times++)
            assert_int_equal(sw_qp_post_recv(rig->other, &recv, &bad), 0);
        compare_records(rig, &wr, kind);
    }
}

static void ahead_as_from_the_queue__in_the_ring(void **state)
{
    compare_sends(*state, 48, SW_REC_SEND_INLINE);
    compare_sends(*state, 200, SW_REC_SEND_INLINE);
}

static void ahead_as_from_the_queue__in_the_receive(void **state)
{
    compare_sends(*state, 3000, SW_REC_SEND_PLACED);
}

static void ahead_as_from_the_queue__to_a_shared_queue(void **state)
{
    struct rig *rig = *state;
    rig->d->remote.rq_entries = 0;
    compare_sends(rig, 40, SW_REC_SEND_WHOLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_record_head_flags__of_each_opcode),
        rig_test(ahead_as_from_the_queue__in_the_ring),
        rig_test(ahead_as_from_the_queue__in_the_receive),
        rig_test(ahead_as_from_the_queue__to_a_shared_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
