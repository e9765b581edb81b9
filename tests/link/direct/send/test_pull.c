/* SPDX-License-Identifier: BSD-2-Clause */
/* Long messages to a queue that many senders share, which the target fetches. */
#include "link/direct/bind/bind.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/send/pull.h"
#include "link_rig.h"

/* A message that is described by a list in the bounce area, as the sender of a long one does. */
static struct sw_record *list_record(struct rig *rig, const struct ibv_sge *list, uint32_t count)
{
    struct sw_record *record = rig_request(rig, SW_REC_SEND_PULL);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    record->len_bytes = count * (uint32_t)sizeof(*list);
    record->rnr_retry = 7;
    for (uint32_t i = 0; i < count; i++)
        record->total_bytes += list[i].length;
    memcpy(rig->block->request_bounce, list, record->len_bytes);
    return record;
}

static void sw_pull__fetches_a_message(void **state)
{
    struct rig *rig = *state;
    memset(rig->bytes + 30000, 'x', 5000);
    memset(rig->bytes + 40000, 'y', 6000);
    rig_recv(rig, 11, 100, 20000);
    struct ibv_sge list[] = {rig_sge(rig, 30000, 5000), rig_sge(rig, 0, 0),
                             rig_sge(rig, 40000, 6000)};
    assert_true(rig_serve(rig, list_record(rig, list, 3)));
    struct ibv_wc wc = rig_wc(rig);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, 11000);
    assert_memory_equal(rig->bytes + 100, rig->bytes + 30000, 5000);
    assert_memory_equal(rig->bytes + 5100, rig->bytes + 40000, 6000);
    assert_int_equal(rig->bytes[11100], 0);
    rig_is_answered(rig, SW_ACK);
}

/* In steps, so that a poll does not take long: the record stays where it is meanwhile. */
static void sw_pull__in_steps_of_the_budget(void **state)
{
    struct rig *rig = *state;
    for (uint32_t i = 0; i < 10000; i++)
        rig->bytes[30000 + i] = (uint8_t)(i % 251);
    rig_recv(rig, 11, 0, 20000);
    assert_true(sw_qp_take_recv(rig->qp, &rig->d->serve.receive.claim));
    struct ibv_sge list[] = {rig_sge(rig, 30000, 4000), rig_sge(rig, 34000, 6000)};
    rig->d->serve.received_bytes = 0;
    enum sw_step step = SW_STEP_BLOCKED;
    int steps = 0;
    assert_true(sw_bind_enter(rig->qp, rig->d));
    for (; step == SW_STEP_BLOCKED && steps < 20; steps++) {
        rig->d->send.budget_bytes = 900;
        step = sw_pull(rig->d, list, 2);
    }
    sw_bind_leave(rig->d);
    assert_int_equal(step, SW_STEP_DONE);
    assert_int_equal(steps, 12);
    assert_int_equal(rig->d->serve.received_bytes, 10000);
    assert_memory_equal(rig->bytes, rig->bytes + 30000, 10000);
}

static void sw_pull__fetches_only_what_may_be_read(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 20000);
    struct ibv_sge list[] = {rig_sge(rig, 30000, 5000), rig_sge(rig, RIG_BYTES - 10, 11)};
    assert_true(rig_serve(rig, list_record(rig, list, 2)));
    assert_int_equal(rig_wc(rig).status, IBV_WC_LOC_PROT_ERR);
    rig_is_answered(rig, SW_NAK_OPERATIONAL);
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_ERR);
}

static void sw_pull__fetches_too_much(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 4999);
    struct ibv_sge list[] = {rig_sge(rig, 30000, 5000)};
    assert_true(rig_serve(rig, list_record(rig, list, 1)));
    assert_int_equal(rig_wc(rig).status, IBV_WC_LOC_LEN_ERR);
    rig_is_answered(rig, SW_NAK_INVALID);
}

static void sw_pull__lists_that_are_not_sane(void **state)
{
    (void)state;
    for (int how = 0; how < 5; how++) {
        struct rig rig = {0};
        rig_open(&rig);
        rig_connect(&rig, 0);
        rig_recv(&rig, 11, 0, 20000);
        struct ibv_sge list[] = {rig_sge(&rig, 30000, 5000)};
        struct sw_record *record = list_record(&rig, list, 1);
        if (how == 0)
            record->len_bytes--;
        else if (how == 1)
            record->len_bytes = 0;
        else if (how == 2)
            record->len_bytes = (SW_MAX_SGE + 1) * sizeof(*list);
        else if (how == 3)
            record->bounce_at = SW_REQUEST_BOUNCE - 8;
        else
            record->total_bytes++;
        assert_true(rig_serve(&rig, record));
        rig_is_dead(&rig, IBV_EVENT_QP_REQ_ERR);
        rig_drop(&rig);
        rig_close(&rig);
    }
}

static bool suits(struct rig *rig, uint32_t len_bytes)
{
    struct ibv_sge sge = rig_sge(rig, 0, len_bytes);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    const uint32_t position = rig->qp->sq.tail;
    rig_append(rig, &wr, &sge);
    const bool suits = sw_pull_suits(rig->qp, rig->d, position);
    rig->qp->sq.tail = position;
    return suits;
}

/* A system call for memory that the target has not mapped costs as much as the copies of more. */
static void sw_pull_suits__by_length_and_reach(void **state)
{
    struct rig *rig = *state;
    struct sw_pub_mr *entry = &sw_nic.pub->mrs[sw_key_index(sw_mr_key(rig->mr))];
    const uint32_t handed = atomic_load(&entry->handed);
    atomic_store(&rig->block->can_pull, 1);
    assert_int_not_equal(handed, SW_HANDED_OUT_NOT);
    assert_false(suits(rig, 4095));
    assert_true(suits(rig, 4096));
    atomic_store(&entry->handed, SW_HANDED_OUT_NOT);
    assert_false(suits(rig, 32767));
    assert_true(suits(rig, 32768));
    atomic_store(&rig->block->can_pull, 0);
    assert_false(suits(rig, 32768));
    atomic_store(&entry->handed, handed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_pull__fetches_a_message),
        rig_test(sw_pull__in_steps_of_the_budget),
        rig_test(sw_pull__fetches_only_what_may_be_read),
        rig_test(sw_pull__fetches_too_much),
        rig_test(sw_pull_suits__by_length_and_reach),
        cmocka_unit_test(sw_pull__lists_that_are_not_sane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
