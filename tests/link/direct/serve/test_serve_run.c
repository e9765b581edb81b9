/* SPDX-License-Identifier: BSD-2-Clause */
/* Short messages that lie in records, many at once. */
#include "link/direct/serve/serve_run.h"

#include "link/direct/serve/responder.h"
#include "link/direct/serve/serve.h"
#include "link_rig.h"

#define COUNT 40u
#define LEN_BYTES 8u
#define ROOM 64u /* from one receive to the next */

/* The QP takes its receives from a shared queue that has `count` of them. */
static struct sw_srq *share_queue(struct rig *rig, uint32_t count)
{
    struct ibv_srq_attr attr = {.max_wr = COUNT, .max_sge = 2};
    struct sw_srq *srq;
    assert_int_equal(sw_srq_create(rig->pd, &attr, rig, &srq), 0);
    for (uint32_t i = 0; i < count; i++) {
        struct ibv_sge sge = rig_sge(rig, i * ROOM, LEN_BYTES);
        struct ibv_recv_wr wr = {.wr_id = 100 + i, .sg_list = &sge, .num_sge = 1}, *bad;
        assert_int_equal(sw_srq_post_recv(srq, &wr, &bad), 0);
    }
    rig->qp->srq = srq;
    return srq;
}

static void unshare_queue(struct rig *rig)
{
    struct sw_srq *srq = rig->qp->srq;
    rig->qp->srq = NULL;
    assert_int_equal(sw_srq_destroy(srq), 0);
}

/* All but the first are there; that one is for rig_serve(). */
static struct sw_record *messages(struct rig *rig, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct sw_record *record = &rig->block->requests[i];
        memset((void *)record, 0, sizeof(*record));
        record->kind = SW_REC_SEND_WHOLE;
        record->slots = 1;
        record->flags = SW_REC_FIRST | SW_REC_LAST;
        record->len_bytes = LEN_BYTES;
        memset(record->payload, 'a' + (int)i % 26, LEN_BYTES);
        if (i)
            atomic_store(&record->seq, i + 1);
    }
    return &rig->block->requests[0];
}

static void expect(struct rig *rig, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct ibv_wc wc = rig_wc(rig);
        uint8_t bytes[LEN_BYTES + 1] = {0};
        memset(bytes, 'a' + (int)i % 26, LEN_BYTES);
        assert_int_equal(wc.wr_id, 100 + i);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_RECV);
        assert_int_equal(wc.byte_len, LEN_BYTES);
        assert_int_equal(wc.qp_num, sw_qp_num(rig->qp));
        assert_int_equal(wc.src_qp, rig->qp->dest_qpn);
        assert_memory_equal(rig->bytes + i * ROOM, bytes, LEN_BYTES + 1);
    }
}

static void sw_serve_run__many_to_a_shared_queue(void **state)
{
    struct rig *rig = *state;
    share_queue(rig, COUNT);
    assert_true(rig_serve(rig, messages(rig, COUNT)));
    expect(rig, COUNT);
    rig_no_wc(rig);
    rig_is_answered(rig, SW_ACK);
    assert_int_equal(rig_acknowledged(rig), COUNT);
    assert_int_equal(rig->d->serve.answer_at, 0);
    assert_int_equal(rig->d->serve.at, COUNT);
    unshare_queue(rig);
}

static uint32_t serve_whole(struct rig *rig, uint32_t most)
{
    return sw_serve_together(rig->qp, rig->d, SW_REC_SEND_WHOLE, most);
}

/* How many are served under one lock: no more than asked for, and none that waits for a receive. */
static void sw_serve_together__bounds(void **state)
{
    struct rig *rig = *state;
    share_queue(rig, 5);
    atomic_store(&messages(rig, 7)->seq, 1);
    assert_int_equal(serve_whole(rig, 3), 3);
    assert_int_equal(rig->d->serve.at, 3);
    assert_int_equal(serve_whole(rig, 10), 2);
    assert_int_equal(serve_whole(rig, 10), 0);
    assert_int_equal(rig->d->serve.acks_due, 5);
    expect(rig, 5);
    unshare_queue(rig);
}

/* Each is left to who serves messages one by one. */
static void sw_serve_together__leaves_what_is_out_of_the_ordinary(void **state)
{
    struct rig *rig = *state;
    struct sw_srq *srq = share_queue(rig, 2);
    struct sw_record *record = messages(rig, 1);
    atomic_store(&record->seq, 1);
    record->flags |= SW_REC_INV;
    assert_int_equal(serve_whole(rig, 1), 0);
    record->flags &= (uint8_t)~SW_REC_INV;
    record->slots = 2;
    assert_int_equal(serve_whole(rig, 1), 0);
    record->slots = 1;
    record->len_bytes = LEN_BYTES + 1;
    assert_int_equal(serve_whole(rig, 1), 0);
    record->len_bytes = UINT32_MAX;
    assert_int_equal(serve_whole(rig, 1), 0);
    record->len_bytes = LEN_BYTES;
    srq->limit = 2;
    assert_int_equal(serve_whole(rig, 1), 0);
    srq->limit = 1;
    rig->d->send.answers_due = 1;
    assert_int_equal(serve_whole(rig, 1), 0);
    rig->d->send.answers_due = 0;
    rig->d->serve.answer_at = SW_RESPONSE_SLOTS;
    assert_int_equal(serve_whole(rig, 1), 0);
    rig->d->serve.answer_at = 0;
    rig_no_wc(rig);
    assert_int_equal(serve_whole(rig, 1), 1);
    expect(rig, 1);
    unshare_queue(rig);
}

/* The limit event comes once, in the middle. */
static void sw_serve_run__below_the_limit_of_a_shared_queue(void **state)
{
    struct rig *rig = *state;
    struct sw_srq *srq = share_queue(rig, COUNT);
    srq->limit = COUNT / 2;
    assert_true(rig_serve(rig, messages(rig, COUNT)));
    assert_int_equal(srq->limit, 0);
    assert_int_equal(atomic_load(&rig->events), 1);
    assert_int_equal(atomic_load(&rig->event), IBV_EVENT_SRQ_LIMIT_REACHED);
    expect(rig, COUNT);
    unshare_queue(rig);
}

/* A program that is woken finds that its peer has been answered. */
static void sw_serve_run__answers_before_an_armed_queue_fires(void **state)
{
    struct rig *rig = *state;
    struct sw_peer_request request = {.message = {.pd = rig->qp->pd_id}};
    share_queue(rig, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const bool is_armed = i;
        atomic_store(&rig->cq->pub->armed, is_armed ? SW_CQ_ARMED_ANY : SW_CQ_DISARMED);
        assert_true(sw_receive_take(rig->qp, &rig->d->serve.receive, &request.message));
        assert_int_equal(sw_serve_deliver(rig->qp, rig->d, &request, 0, IBV_WC_RECV), SW_SERVED);
        assert_int_equal(rig_acknowledged(rig), is_armed ? 2 : 0);
        rig_wc(rig);
    }
    unshare_queue(rig);
}

/* Completions for which there is no room are lost, and the program told: not their messages. */
static void sw_serve_run__more_than_the_completion_queue_takes(void **state)
{
    struct rig *rig = *state;
    struct sw_srq *srq = share_queue(rig, 8);
    const uint32_t capacity = rig->cq->capacity;
    rig->cq->capacity = 5;
    assert_true(rig_serve(rig, messages(rig, 8)));
    assert_true(sw_cq_is_overrun(rig->cq));
    assert_int_equal(atomic_load(&srq->rq.consumed), 8);
    assert_int_equal(rig_acknowledged(rig), 8);
    expect(rig, 5);
    rig->cq->capacity = capacity;
    unshare_queue(rig);
}

/* A message that follows is out of bounds: what was served before is answered. */
static void sw_serve_run__nonsense_after_some_to_a_shared_queue(void **state)
{
    struct rig *rig = *state;
    share_queue(rig, 8);
    struct sw_record *record = messages(rig, 4);
    rig->block->requests[3].len_bytes = SW_WHOLE_BYTES + 1;
    assert_true(rig_serve(rig, record));
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_ERR);
    rig_is_answered(rig, SW_ACK);
    assert_int_equal(rig_acknowledged(rig), 3);
    expect(rig, 3);
    unshare_queue(rig);
}

/* ---- to receives of the queue pair itself ---- */

/* Each of two elements, of which the first has room for a message. */
static void own_queue(struct rig *rig, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ibv_sge sges[] = {rig_sge(rig, i * ROOM, LEN_BYTES),
                                 rig_sge(rig, RIG_BYTES / 2 + i * ROOM, ROOM)};
        struct ibv_recv_wr wr = {.wr_id = 100 + i, .sg_list = sges, .num_sge = 2}, *bad;
        assert_int_equal(sw_qp_post_recv(rig->qp, &wr, &bad), 0);
    }
}

static struct sw_record *inline_messages(struct rig *rig, uint32_t count)
{
    struct sw_record *first = messages(rig, count);
    for (uint32_t i = 0; i < count; i++) {
        rig->block->requests[i].kind = SW_REC_SEND_INLINE;
        rig->block->requests[i].flags = 0;
    }
    return first;
}

static uint32_t serve_inline(struct rig *rig, uint32_t most)
{
    return sw_serve_together(rig->qp, rig->d, SW_REC_SEND_INLINE, most);
}

/* Nobody waits for an answer. */
static void sw_serve_run__many_to_the_queue_pair(void **state)
{
    struct rig *rig = *state;
    own_queue(rig, COUNT);
    assert_true(rig_serve(rig, inline_messages(rig, COUNT)));
    expect(rig, COUNT);
    rig_no_wc(rig);
    assert_int_equal(rig->d->serve.answer_at, 0);
    assert_int_equal(rig->d->serve.at, COUNT);
    assert_int_equal(atomic_load(&rig->qp->rq.consumed), COUNT);
}

static void sw_serve_together__bounds_of_the_queue_pair(void **state)
{
    struct rig *rig = *state;
    own_queue(rig, 5);
    atomic_store(&inline_messages(rig, 7)->seq, 1);
    assert_int_equal(serve_inline(rig, 3), 3);
    assert_int_equal(serve_inline(rig, 10), 2);
    assert_int_equal(serve_inline(rig, 10), 0); /* there is no receive */
    assert_int_equal(rig->d->serve.at, 5);
    assert_int_equal(rig->d->serve.acks_due, 0);
    expect(rig, 5);
}

/* Messages of two records each: 48 bytes in the first. */
static void sw_serve_together__messages_of_two_records(void **state)
{
    enum { BYTES = 64, FIRST = SW_INLINE_FIRST };
    struct rig *rig = *state;
    uint8_t bytes[BYTES];
    memset(bytes, 'a', FIRST);
    memset(bytes + FIRST, 'b', BYTES - FIRST);
    for (uint32_t i = 0; i < 2; i++) {
        rig_recv(rig, 100 + i, i * 2 * BYTES, 2 * BYTES);
        struct sw_record *record = &rig->block->requests[2 * i];
        struct sw_record_more *more = (struct sw_record_more *)(record + 1);
        memset((void *)record, 0, 2 * sizeof(*record));
        record->kind = SW_REC_SEND_INLINE;
        record->slots = 2;
        record->len_bytes = BYTES;
        memcpy(record->payload, bytes, FIRST);
        memcpy(more->payload, bytes + FIRST, BYTES - FIRST);
        atomic_store(&more->seq, 2 * i + 1);
        atomic_store(&record->seq, 2 * i + 1);
    }
    assert_int_equal(serve_inline(rig, 10), 2);
    assert_int_equal(rig->d->serve.at, 4);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(rig_wc(rig).byte_len, BYTES);
        assert_memory_equal(rig->bytes + i * 2 * BYTES, bytes, BYTES);
    }
}

/* One kind at a time: those of the other are served next. */
static void sw_serve_together__ends_with_its_kind(void **state)
{
    struct rig *rig = *state;
    own_queue(rig, 3);
    struct sw_record *record = inline_messages(rig, 3);
    rig->block->requests[2].kind = SW_REC_SEND_WHOLE;
    atomic_store(&record->seq, 1);
    assert_int_equal(serve_inline(rig, 10), 2);
    assert_int_equal(serve_inline(rig, 10), 0); /* it waits for no shared queue */
    expect(rig, 2);
}

/* The peer has changed it since the caller read it. */
static void sw_serve_together__another_kind_than_was_read(void **state)
{
    struct rig *rig = *state;
    own_queue(rig, 1);
    struct sw_record *record = inline_messages(rig, 1);
    atomic_store(&record->seq, 1);
    assert_int_equal(serve_whole(rig, 1), 0);
    assert_int_equal(rig->d->serve.at, 0);
    rig_no_wc(rig);
    assert_int_equal(serve_inline(rig, 1), 1);
    expect(rig, 1);
}

static void sw_serve_together__leaves_what_is_out_of_the_ordinary_to_a_queue_pair(void **state)
{
    struct rig *rig = *state;
    own_queue(rig, 1);
    struct sw_record *record = inline_messages(rig, 1);
    atomic_store(&record->seq, 1);
    record->flags = SW_REC_INV;
    assert_int_equal(serve_inline(rig, 1), 0);
    record->flags = 0;
    record->slots = 2;
    assert_int_equal(serve_inline(rig, 1), 0);
    record->slots = 1;
    record->len_bytes = LEN_BYTES + 1; /* it goes on in the second element */
    assert_int_equal(serve_inline(rig, 1), 0);
    record->len_bytes = SW_INLINE_BYTES + 1;
    assert_int_equal(serve_inline(rig, 1), 0);
    record->len_bytes = LEN_BYTES;
    rig->d->send.answers_due = 1;
    assert_int_equal(serve_inline(rig, 1), 0);
    rig->d->send.answers_due = 0;
    atomic_store(&rig->cq->pub->armed, SW_CQ_ARMED_ANY);
    assert_int_equal(serve_inline(rig, 1), 0);
    atomic_store(&rig->cq->pub->armed, SW_CQ_DISARMED);
    rig_no_wc(rig);
    assert_int_equal(serve_inline(rig, 1), 1);
    expect(rig, 1);
}

/* A message that is longer than the first element is in both. */
static void sw_serve_run__message_in_two_elements(void **state)
{
    struct rig *rig = *state;
    own_queue(rig, 1);
    struct sw_record *record = inline_messages(rig, 1);
    record->len_bytes = 2 * LEN_BYTES;
    memset(record->payload + LEN_BYTES, 'z', LEN_BYTES);
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig_wc(rig).byte_len, 2 * LEN_BYTES);
    assert_memory_equal(rig->bytes, "aaaaaaaa", LEN_BYTES + 1);
    assert_memory_equal(rig->bytes + RIG_BYTES / 2, "zzzzzzzz", LEN_BYTES + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_serve_run__many_to_a_shared_queue),
        rig_test(sw_serve_together__bounds),
        rig_test(sw_serve_together__leaves_what_is_out_of_the_ordinary),
        rig_test(sw_serve_run__below_the_limit_of_a_shared_queue),
        rig_test(sw_serve_run__answers_before_an_armed_queue_fires),
        rig_test(sw_serve_run__more_than_the_completion_queue_takes),
        rig_test(sw_serve_run__nonsense_after_some_to_a_shared_queue),
        rig_test(sw_serve_run__many_to_the_queue_pair),
        rig_test(sw_serve_together__bounds_of_the_queue_pair),
        rig_test(sw_serve_together__messages_of_two_records),
        rig_test(sw_serve_together__ends_with_its_kind),
        rig_test(sw_serve_together__another_kind_than_was_read),
        rig_test(sw_serve_together__leaves_what_is_out_of_the_ordinary_to_a_queue_pair),
        rig_test(sw_serve_run__message_in_two_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
