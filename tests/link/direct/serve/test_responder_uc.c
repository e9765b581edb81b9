/* SPDX-License-Identifier: BSD-2-Clause */
/* What the responder tells the sender of an unreliable connection: nothing of a fault of its own
 * (IBTA Vol1 9.9.3, class A); of a message that is lost, that its receive was not used. */
#include "link/direct/process/block.h"
#include "link_rig.h"

/* A receive that will turn out to have a bad key, and the first request of a message to it. */
static struct sw_record *into_bad_receive(struct rig *rig, enum sw_record_kind kind)
{
    struct ibv_sge sge = rig_sge(rig, 0, 64);
    sge.lkey ^= 0x5a5a5a00;
    struct ibv_recv_wr wr = {.wr_id = 11, .sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(sw_qp_post_recv(rig->qp, &wr, &bad), 0);
    rig->d->rules = sw_verdict_rules_uc;
    struct sw_record *record = rig_request(rig, kind);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    record->len_bytes = 8;
    record->total_bytes = 8;
    return record;
}

static void fails_alone(struct rig *rig)
{
    struct ibv_wc wc = rig_wc(rig);
    assert_int_equal(wc.wr_id, 11);
    assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
    rig_is_dead(rig, IBV_EVENT_QP_FATAL);
}

static void sw_serve_run__own_fault_is_acknowledged(void **state)
{
    struct rig *rig = *state;
    assert_true(rig_serve(rig, into_bad_receive(rig, SW_REC_SEND_WHOLE)));
    fails_alone(rig);
    rig_is_answered(rig, SW_ACK);
}

static void sw_serve_run__own_fault_in_the_only_piece(void **state)
{
    struct rig *rig = *state;
    assert_true(rig_serve(rig, into_bad_receive(rig, SW_REC_SEND)));
    fails_alone(rig);
    rig_is_answered(rig, SW_ACK);
}

/* The message is not sent yet: an answer would be for none. */
static void sw_serve_run__own_fault_in_a_first_piece(void **state)
{
    struct rig *rig = *state;
    struct sw_record *record = into_bad_receive(rig, SW_REC_SEND);
    record->flags = SW_REC_FIRST;
    record->total_bytes = 16;
    assert_true(rig_serve(rig, record));
    fails_alone(rig);
    assert_int_equal(atomic_load(&rig->out->responses[0].seq), 0);
}

static struct sw_record *bad_write(struct rig *rig, uint8_t flags)
{
    rig_recv(rig, 11, 0, 64);
    rig->d->rules = sw_verdict_rules_uc;
    struct sw_record *record = rig_request(rig, SW_REC_WRITE);
    record->flags = flags;
    record->len_bytes = 8;
    record->total_bytes = 8;
    record->rkey = 0x5a5a5a00;
    return record;
}

static void sw_serve_run__lost_immediate_leaves_its_receive(void **state)
{
    struct rig *rig = *state;
    assert_true(rig_serve(rig, bad_write(rig, SW_REC_FIRST | SW_REC_LAST | SW_REC_IMM)));
    rig_no_wc(rig);
    rig_is_answered(rig, SW_RNR);
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_RTS);
}

static void sw_serve_run__lost_immediate_in_pieces(void **state)
{
    struct rig *rig = *state;
    assert_true(rig_serve(rig, bad_write(rig, SW_REC_FIRST | SW_REC_IMM)));
    assert_int_equal(atomic_load(&rig->out->responses[0].seq), 0);
    struct sw_record *record = rig_request(rig, SW_REC_WRITE);
    record->flags = SW_REC_LAST | SW_REC_IMM;
    assert_true(rig_serve(rig, record));
    rig_no_wc(rig);
    rig_is_answered(rig, SW_RNR);
    assert_int_equal(rig->d->serve.lost, 1);
}

static void sw_serve_run__lost_write_uses_none(void **state)
{
    struct rig *rig = *state;
    assert_true(rig_serve(rig, bad_write(rig, SW_REC_FIRST | SW_REC_LAST)));
    rig_is_answered(rig, SW_ACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_serve_run__own_fault_is_acknowledged),
        rig_test(sw_serve_run__own_fault_in_the_only_piece),
        rig_test(sw_serve_run__own_fault_in_a_first_piece),
        rig_test(sw_serve_run__lost_immediate_leaves_its_receive),
        rig_test(sw_serve_run__lost_immediate_in_pieces),
        rig_test(sw_serve_run__lost_write_uses_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
