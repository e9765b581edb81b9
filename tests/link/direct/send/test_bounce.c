/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that the target executes, and its answers, well-formed and not. */
#include <stdlib.h>

#include "link/direct/bind/bind.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/send/bounce.h"
#include "link/direct/serve/answer.h"
#include "link_rig.h"

static struct sw_wqe *ask(struct rig *rig, enum ibv_wr_opcode opcode, uint32_t offset, uint32_t len)
{
    struct ibv_sge sge = rig_sge(rig, offset, len);
    struct ibv_send_wr wr = {.wr_id = 21, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)rig->bytes;
        wr.wr.atomic.rkey = sw_mr_key(rig->mr);
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)rig->bytes;
        wr.wr.rdma.rkey = sw_mr_key(rig->mr);
    }
    uint32_t position = rig->qp->sq.tail;
    struct sw_wqe *wqe = rig_append(rig, &wr, &sge);
    assert_true(sw_bind_enter(rig->qp, rig->d));
    enum sw_step step = sw_bounce_start(rig->qp, rig->d, wqe, position);
    sw_bind_leave(rig->d);
    assert_int_equal(step, SW_STEP_SENT);
    wqe->state = SW_WQE_SENT;
    rig->qp->sq.next = rig->qp->sq.tail;
    return wqe;
}

static struct sw_record *next_answer(struct rig *rig, enum sw_record_kind kind)
{
    struct sw_record *record = &rig->block->responses[rig->d->send.response_at % SW_RESPONSE_SLOTS];
    memset((void *)record, 0, sizeof(*record));
    record->kind = (uint8_t)kind;
    return record;
}

static bool collect(struct rig *rig, struct sw_record *record)
{
    atomic_store(&record->seq, rig->d->send.response_at + 1);
    return sw_bounce_collect(rig->qp, rig->d);
}

/* The target says that it has done so many requests, ever. */
static bool collect_acks(struct rig *rig, uint32_t count)
{
    atomic_store(&rig->block->acknowledged, count);
    return sw_bounce_collect(rig->qp, rig->d);
}

static void sw_bounce_start__send_in_pieces(void **state)
{
    struct rig *rig = *state;
    const uint32_t len = 2 * SW_BOUNCE_CHUNK + 5;
    for (uint32_t i = 0; i < len; i++)
        rig->bytes[i] = (uint8_t)(i % 241);
    ask(rig, IBV_WR_SEND_WITH_IMM, 0, len);
    static const uint8_t flags[3] = {SW_REC_IMM | SW_REC_FIRST, SW_REC_IMM,
                                     SW_REC_IMM | SW_REC_LAST};
    static const uint32_t lens[3] = {SW_BOUNCE_CHUNK, SW_BOUNCE_CHUNK, 5};
    for (uint32_t i = 0; i < 3; i++) {
        const struct sw_record *record = &rig->out->requests[i];
        assert_int_equal(atomic_load(&record->seq), i + 1);
        assert_int_equal(record->kind, SW_REC_SEND);
        assert_int_equal(record->flags, flags[i]);
        assert_int_equal(record->len_bytes, lens[i]);
        assert_int_equal(record->total_bytes, len);
        assert_int_equal(record->bounce_at, i * SW_BOUNCE_CHUNK);
        assert_memory_equal(rig->out->request_bounce + record->bounce_at,
                            rig->bytes + i * SW_BOUNCE_CHUNK, lens[i]);
    }
    assert_int_equal(rig->d->send.answers_due, 1);
    assert_int_equal(rig->d->send.recv_used, 1);
}

/* A short one lies in the records themselves: no space of the area. */
static void sw_bounce_start__short_send(void **state)
{
    struct rig *rig = *state;
    for (uint32_t i = 0; i < SW_WHOLE_BYTES; i++)
        rig->bytes[i] = (uint8_t)(i + 1);
    rig->qp->attr.rnr_retry = 5;
    ask(rig, IBV_WR_SEND_WITH_INV, 0, SW_WHOLE_BYTES);
    const struct sw_record *record = &rig->out->requests[0];
    assert_int_equal(record->kind, SW_REC_SEND_WHOLE);
    assert_int_equal(record->flags, SW_REC_FIRST | SW_REC_LAST | SW_REC_INV);
    assert_int_equal(record->slots, 4);
    assert_int_equal(record->len_bytes, SW_WHOLE_BYTES);
    assert_int_equal(record->rnr_retry, 5);
    assert_memory_equal(record->payload, rig->bytes, SW_WHOLE_FIRST);
    const struct sw_record_more *last = (const struct sw_record_more *)&rig->out->requests[3];
    assert_memory_equal(last->payload, rig->bytes + SW_WHOLE_BYTES - SW_MORE_BYTES, SW_MORE_BYTES);
    assert_int_equal(rig->d->send.bounce_at, 0);
    assert_int_equal(rig->d->send.answers_due, 1);
    assert_int_equal(rig->d->send.recv_used, 1);
    ask(rig, IBV_WR_SEND, 0, SW_WHOLE_BYTES + 1);
    assert_int_equal(rig->out->requests[4].kind, SW_REC_SEND);
}

static void sw_bounce_start__write_addresses_each_piece(void **state)
{
    struct rig *rig = *state;
    ask(rig, IBV_WR_RDMA_WRITE, 0, SW_BOUNCE_CHUNK + 1);
    assert_int_equal(rig->out->requests[0].remote_addr, (uintptr_t)rig->bytes);
    assert_int_equal(rig->out->requests[1].remote_addr, (uintptr_t)rig->bytes + SW_BOUNCE_CHUNK);
    assert_int_equal(rig->out->requests[0].kind, SW_REC_WRITE);
    assert_int_equal(rig->d->send.recv_used, 0);
}

/* The area is full: the rest goes on where it stopped, and never around the area's end. */
static void sw_bounce_start__goes_on_when_there_is_room(void **state)
{
    struct rig *rig = *state;
    struct ibv_sge sge = rig_sge(rig, 0, 3 * SW_BOUNCE_CHUNK);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    const uint32_t start = 0u - SW_BOUNCE_CHUNK - 100; /* the positions wrap too */
    rig->d->send.bounce_at = start;
    atomic_store(&rig->block->request_bounce_consumed,
                 start - SW_REQUEST_BOUNCE + 2 * SW_BOUNCE_CHUNK + 99);
    struct sw_wqe *wqe = rig_append(rig, &wr, &sge);
    assert_true(sw_bind_enter(rig->qp, rig->d));
    assert_int_equal(sw_bounce_start(rig->qp, rig->d, wqe, 0), SW_STEP_BLOCKED);
    assert_int_equal(wqe->done_bytes, SW_BOUNCE_CHUNK); /* 100 bytes at the end cannot be used */
    assert_int_equal(wqe->via_ring, 1);
    assert_int_equal(rig->out->requests[0].bounce_at, SW_REQUEST_BOUNCE - SW_BOUNCE_CHUNK - 100);
    assert_int_equal(rig->d->send.answers_due, 0);
    atomic_store(&rig->block->request_bounce_consumed, rig->d->send.bounce_at);
    assert_int_equal(sw_bounce_start(rig->qp, rig->d, wqe, 0), SW_STEP_SENT);
    assert_int_equal(rig->out->requests[1].bounce_at, 0);
    assert_int_equal(rig->out->requests[1].bounce_end, SW_BOUNCE_CHUNK);
    assert_int_equal(rig->out->requests[1].flags, 0);
    assert_int_equal(rig->out->requests[2].flags, SW_REC_LAST);
    assert_int_equal(rig->d->send.answers_due, 1);
    sw_bind_leave(rig->d);
}

static void sw_bounce_start__bad_local_key(void **state)
{
    struct rig *rig = *state;
    struct ibv_sge sge = rig_sge(rig, 0, 100);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    sge.lkey ^= 1;
    struct sw_wqe *wqe = rig_append(rig, &wr, &sge);
    assert_true(sw_bind_enter(rig->qp, rig->d));
    assert_int_equal(sw_bounce_start(rig->qp, rig->d, wqe, 0), SW_STEP_FAILED);
    sw_bind_leave(rig->d);
    assert_int_equal(rig->d->send.fail_status, IBV_WC_LOC_PROT_ERR);
    assert_int_not_equal(atomic_load(&rig->out->requests[0].seq), 1); /* nothing was said */
}

static void sw_bounce_collect__read_in_pieces(void **state)
{
    struct rig *rig = *state;
    struct sw_wqe *wqe = ask(rig, IBV_WR_RDMA_READ, 100, 30);
    assert_int_equal(rig->out->requests[0].kind, SW_REC_READ);
    assert_int_equal(rig->d->send.reads_due, 1);
    for (uint32_t i = 0; i < 3; i++) {
        memset(rig->block->response_bounce + 50 * i, (int)('a' + i), 10);
        struct sw_record *record = next_answer(rig, SW_REC_DATA);
        record->len_bytes = 10;
        record->bounce_at = 50 * i;
        record->bounce_end = 50 * i + 10;
        assert_int_equal(wqe->state, SW_WQE_SENT);
        assert_true(collect(rig, record));
        assert_int_equal(atomic_load(&rig->out->responses_consumed), i + 1);
        assert_int_equal(atomic_load(&rig->out->response_bounce_consumed), 50 * i + 10);
    }
    assert_int_equal(wqe->state, SW_WQE_DONE);
    assert_int_equal(rig->d->send.answers_due, 0);
    assert_int_equal(rig->d->send.reads_due, 0);
    assert_memory_equal(rig->bytes + 99, "\0aaaaaaaaaabbbbbbbbbbcccccccccc", 32);
}

static void sw_bounce_collect__data_that_does_not_fit(void **state)
{
    struct rig *rig = *state;
    static const struct {
        uint32_t at, len;
    } cases[] = {{0, 31},
                 {0, 0},
                 {0, UINT32_MAX},
                 {SW_RESPONSE_BOUNCE, 1},
                 {SW_RESPONSE_BOUNCE - 9, 10},
                 {UINT32_MAX, 10},
                 {1, SW_RESPONSE_BOUNCE + 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sw_wqe *wqe = ask(rig, IBV_WR_RDMA_READ, 100, 30);
        memset(rig->block->response_bounce, 'x', 64);
        struct sw_record *record = next_answer(rig, SW_REC_DATA);
        record->bounce_at = cases[i].at;
        record->len_bytes = cases[i].len;
        assert_false(collect(rig, record));
        assert_int_equal(rig->d->send.fail_status, IBV_WC_BAD_RESP_ERR);
        assert_int_equal(wqe->state, SW_WQE_SENT);
        assert_int_equal(rig->bytes[100], 0);
        rig_drop(rig);
        rig_connect(rig, 0);
    }
}

/* An answer that is no answer to the request at the head. */
static void sw_bounce_collect__answers_of_the_wrong_kind(void **state)
{
    struct rig *rig = *state;
    static const struct {
        enum ibv_wr_opcode opcode;
        uint8_t kind;
    } cases[] = {
        {IBV_WR_RDMA_READ, SW_REC_ANSWER}, /* done, but where are the bytes? */
        {IBV_WR_RDMA_WRITE, SW_REC_DATA},
        {IBV_WR_SEND, SW_REC_DATA},
        {IBV_WR_ATOMIC_FETCH_AND_ADD, SW_REC_DATA},
        {IBV_WR_SEND, 0},
        {IBV_WR_SEND, SW_REC_FATAL},
        {IBV_WR_RDMA_READ, 255},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ask(rig, cases[i].opcode, 0, 8);
        struct sw_record *record = next_answer(rig, SW_REC_ANSWER);
        record->kind = cases[i].kind;
        record->len_bytes = 8;
        assert_false(collect(rig, record));
        assert_int_equal(rig->d->send.fail_status, IBV_WC_BAD_RESP_ERR);
        rig_drop(rig);
        rig_connect(rig, 0);
    }
}

static void sw_bounce_collect__verdicts(void **state)
{
    struct rig *rig = *state;
    static const struct {
        uint8_t verdict;
        enum ibv_wc_status status;
    } cases[] = {
        {SW_NAK_ACCESS, IBV_WC_REM_ACCESS_ERR},  {SW_NAK_INVALID, IBV_WC_REM_INV_REQ_ERR},
        {SW_NAK_OPERATIONAL, IBV_WC_REM_OP_ERR}, {SW_RNR_EXHAUSTED, IBV_WC_RNR_RETRY_EXC_ERR},
        {SW_RNR, IBV_WC_BAD_RESP_ERR}, /* would be a success with a dead QP */
        {SW_VERDICT_COUNT, IBV_WC_BAD_RESP_ERR}, {255, IBV_WC_BAD_RESP_ERR},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ask(rig, IBV_WR_RDMA_WRITE, 0, 8);
        struct sw_record *record = next_answer(rig, SW_REC_ANSWER);
        record->verdict = cases[i].verdict;
        assert_false(collect(rig, record));
        assert_int_equal(rig->d->send.fail_status, cases[i].status);
        assert_int_equal(rig->d->send.fail_verdict, SW_ACK); /* the target knows */
        rig_drop(rig);
        rig_connect(rig, 0);
    }
}

static void sw_bounce_collect__atomic_result(void **state)
{
    struct rig *rig = *state;
    struct sw_wqe *wqe = ask(rig, IBV_WR_ATOMIC_CMP_AND_SWP, 64, 8);
    struct sw_record *record = next_answer(rig, SW_REC_ANSWER);
    record->compare_add = 0x1122334455667788;
    assert_true(collect(rig, record));
    assert_int_equal(*(uint64_t *)(rig->bytes + 64), 0x1122334455667788);
    assert_int_equal(wqe->state, SW_WQE_DONE);
    assert_int_equal(rig->d->send.reads_due, 0);
}

/* Nothing was asked: whatever is in the ring stays there. */
static void sw_bounce_collect__answers_to_nothing(void **state)
{
    struct rig *rig = *state;
    assert_true(collect(rig, next_answer(rig, SW_REC_ANSWER)));
    assert_int_equal(rig->d->send.response_at, 0);
    ask(rig, IBV_WR_SEND, 0, 8);
    struct sw_record *extra = &rig->block->responses[1];
    extra->kind = SW_REC_ANSWER;
    extra->verdict = SW_NAK_ACCESS;
    atomic_store(&extra->seq, 2);
    assert_true(collect(rig, next_answer(rig, SW_REC_ANSWER)));
    assert_int_equal(rig->d->send.response_at, 1);
    assert_int_equal(rig->d->send.answers_due, 0);
}

static void sw_bounce_collect__past_the_wrap(void **state)
{
    struct rig *rig = *state;
    rig->d->send.response_at = UINT32_MAX - 1;
    for (int i = 0; i < 4; i++) {
        struct sw_wqe *wqe = ask(rig, IBV_WR_SEND, 0, 8);
        assert_true(collect(rig, next_answer(rig, SW_REC_ANSWER)));
        assert_int_equal(wqe->state, SW_WQE_DONE);
    }
    assert_int_equal(rig->d->send.response_at, 2);
}

/* Three requests are done, of which none may be answered twice. */
static void sw_bounce_collect__acks(void **state)
{
    struct rig *rig = *state;
    struct sw_wqe *wqes[4];
    for (int i = 0; i < 4; i++)
        wqes[i] = ask(rig, IBV_WR_SEND, 0, 8);
    for (int again = 0; again < 2; again++) {
        assert_true(collect_acks(rig, 3));
        for (int i = 0; i < 3; i++)
            assert_int_equal(wqes[i]->state, SW_WQE_DONE);
        assert_int_equal(wqes[3]->state, SW_WQE_SENT);
        assert_int_equal(rig->d->send.answers_due, 1);
    }
    assert_int_equal(rig->d->send.response_at, 0);
}

static void sw_bounce_collect__acks_past_the_wrap(void **state)
{
    struct rig *rig = *state;
    rig->d->send.acknowledged = UINT32_MAX;
    struct sw_wqe *first = ask(rig, IBV_WR_SEND, 0, 8), *second = ask(rig, IBV_WR_SEND, 0, 8);
    assert_true(collect_acks(rig, 1));
    assert_int_equal(first->state, SW_WQE_DONE);
    assert_int_equal(second->state, SW_WQE_DONE);
}

/* A record says how much was done before it; the rest of the count comes behind it. */
static void sw_bounce_collect__a_record_among_acks(void **state)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                 IBV_WR_SEND, IBV_WR_SEND};
    struct rig *rig = *state;
    struct sw_wqe *wqes[4];
    for (int i = 0; i < 4; i++)
        wqes[i] = ask(rig, opcodes[i], 0, 8);
    struct sw_record *record = next_answer(rig, SW_REC_ANSWER);
    record->imm = 1;
    record->compare_add = 0x1122334455667788;
    atomic_store(&record->seq, 1);
    assert_true(collect_acks(rig, 2));
    for (int i = 0; i < 3; i++)
        assert_int_equal(wqes[i]->state, SW_WQE_DONE);
    assert_int_equal(wqes[3]->state, SW_WQE_SENT);
    const uint64_t original = 0x1122334455667788;
    assert_memory_equal(rig->bytes, &original, 8);
    assert_int_equal(rig->d->send.answers_due, 1);
    assert_int_equal(rig->d->send.acknowledged, 2);
}

static void sw_bounce_collect__a_record_from_before(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 3; i++)
        ask(rig, IBV_WR_SEND, 0, 8);
    assert_true(collect_acks(rig, 1));
    assert_false(collect(rig, next_answer(rig, SW_REC_ANSWER))); /* none was done before it? */
    assert_int_equal(rig->d->send.fail_status, IBV_WC_BAD_RESP_ERR);
}

/* Messages are done at once, and what is between them by its own rules. */
static void sw_bounce_collect__acks_of_several_kinds(void **state)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND};
    struct rig *rig = *state;
    struct sw_wqe *wqes[5];
    for (int i = 0; i < 5; i++)
        wqes[i] = ask(rig, opcodes[i], 0, 8);
    assert_true(collect_acks(rig, 4));
    for (int i = 0; i < 4; i++)
        assert_int_equal(wqes[i]->state, SW_WQE_DONE);
    assert_int_equal(wqes[4]->state, SW_WQE_SENT);
    assert_int_equal(rig->d->send.answers_due, 1);
}

static void sw_bounce_collect__answers_more_than_was_asked(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 2; i++)
        ask(rig, IBV_WR_SEND, 0, 8);
    assert_false(collect_acks(rig, UINT32_MAX));
    assert_int_equal(rig->d->send.fail_status, IBV_WC_BAD_RESP_ERR);
    assert_int_equal(rig->d->send.answers_due, 0);
}

/* An atomic has an answer of its own, for it returns a value. */
static void sw_bounce_collect__an_atomic_among_acks(void **state)
{
    struct rig *rig = *state;
    ask(rig, IBV_WR_SEND, 0, 8);
    struct sw_wqe *wqe = ask(rig, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
    assert_false(collect_acks(rig, 2));
    assert_int_equal(wqe->state, SW_WQE_SENT);
    assert_int_equal(rig->d->send.fail_status, IBV_WC_BAD_RESP_ERR);
}

/* The target is told of its room before it has to wait for it, not after each answer. */
static void sw_bounce_collect__tells_room_now_and_then(void **state)
{
    struct rig *rig = *state;
    uint32_t told = 0;
    for (uint32_t i = 1; i <= 2 * SW_RESPONSE_SLOTS; i++) {
        ask(rig, IBV_WR_SEND, 0, 8);
        assert_true(collect(rig, next_answer(rig, SW_REC_ANSWER)));
        rig->qp->sq.head = rig->qp->sq.next; /* there is no end to the queue */
        atomic_store(&rig->qp->sq.polled, rig->qp->sq.head);
        told = atomic_load(&rig->out->responses_consumed);
        assert_true(i - told <= SW_RESPONSE_SLOTS / 2);
        atomic_store(&rig->block->requests_consumed, rig->d->send.request_at);
    }
    assert_int_not_equal(told, 0);
}

static void sw_answer_reserve__ring_and_area(void **state)
{
    struct rig *rig = *state;
    rig->d->serve.answer_at = UINT32_MAX - 10;
    rig->d->serve.answer_limit = UINT32_MAX - 10;
    atomic_store(&rig->block->responses_consumed, UINT32_MAX - 10);
    for (uint32_t i = 0; i < SW_RESPONSE_SLOTS; i++) {
        struct sw_record *record = sw_answer_reserve(rig->d, 0);
        assert_non_null(record);
        sw_answer_publish(rig->d, record);
    }
    assert_null(sw_answer_reserve(rig->d, 0));
    atomic_fetch_add(&rig->block->responses_consumed, 1);
    assert_non_null(sw_answer_reserve(rig->d, 0));
    atomic_fetch_add(&rig->block->responses_consumed, SW_RESPONSE_SLOTS + 1); /* not that many */
    sw_answer_publish(rig->d, sw_answer_reserve(rig->d, 0));
    assert_null(sw_answer_reserve(rig->d, 0));
}

static void sw_answer_acks__before_any_other_answer(void **state)
{
    struct rig *rig = *state;
    sw_answer_acks(rig->d);
    assert_int_equal(rig_acknowledged(rig), 0);
    assert_false(rig->d->serve.wake_due);
    rig->d->serve.acks_due = 3;
    sw_answer_acks(rig->d);
    sw_answer_acks(rig->d);
    assert_int_equal(rig_acknowledged(rig), 3);
    assert_true(rig->d->serve.wake_due);
    assert_int_equal(rig->d->serve.answer_at, 0);
    sw_answer_publish(rig->d, sw_answer_reserve(rig->d, 0));
    assert_int_equal(rig_answer(rig, 0)->imm, 3);
    rig->d->serve.acknowledged = UINT32_MAX;
    rig->d->serve.acks_due = 2;
    sw_answer_acks(rig->d);
    assert_int_equal(rig_acknowledged(rig), 1);
}

static void sw_answer_reserve__area_wraps_whole_pieces(void **state)
{
    struct rig *rig = *state;
    const uint32_t chunk = SW_BOUNCE_CHUNK, area = SW_RESPONSE_BOUNCE;
    uint32_t consumed = 0u - area - 24; /* 24 before a multiple of the area */
    rig->d->serve.answer_bounce_at = consumed;
    atomic_store(&rig->block->response_bounce_consumed, consumed);
    struct sw_record *record = sw_answer_reserve(rig->d, chunk);
    assert_int_equal(record->bounce_at, 0); /* 24 bytes are skipped */
    assert_int_equal(record->bounce_end, 0u - area + chunk);
    sw_answer_publish(rig->d, record);
    for (int i = 0; i < 2; i++)
        sw_answer_publish(rig->d, sw_answer_reserve(rig->d, chunk));
    assert_null(sw_answer_reserve(rig->d, chunk)); /* 24 bytes short */
    record = sw_answer_reserve(rig->d, chunk - 24);
    assert_int_equal(record->bounce_at, 3 * chunk);
    assert_int_equal(record->len_bytes, chunk - 24);
    sw_answer_publish(rig->d, record);
    assert_null(sw_answer_reserve(rig->d, 1));
    atomic_store(&rig->block->response_bounce_consumed, 0u - area + chunk);
    record = sw_answer_reserve(rig->d, 24);
    assert_int_equal(record->bounce_at, area - 24);
    assert_int_equal(record->bounce_end, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_bounce_start__send_in_pieces),
        rig_test(sw_bounce_start__short_send),
        rig_test(sw_bounce_start__write_addresses_each_piece),
        rig_test(sw_bounce_start__goes_on_when_there_is_room),
        rig_test(sw_bounce_start__bad_local_key),
        rig_test(sw_bounce_collect__read_in_pieces),
        rig_test(sw_bounce_collect__data_that_does_not_fit),
        rig_test(sw_bounce_collect__answers_of_the_wrong_kind),
        rig_test(sw_bounce_collect__verdicts),
        rig_test(sw_bounce_collect__atomic_result),
        rig_test(sw_bounce_collect__answers_to_nothing),
        rig_test(sw_bounce_collect__past_the_wrap),
        rig_test(sw_bounce_collect__acks),
        rig_test(sw_bounce_collect__acks_past_the_wrap),
        rig_test(sw_bounce_collect__a_record_among_acks),
        rig_test(sw_bounce_collect__a_record_from_before),
        rig_test(sw_bounce_collect__acks_of_several_kinds),
        rig_test(sw_bounce_collect__answers_more_than_was_asked),
        rig_test(sw_bounce_collect__an_atomic_among_acks),
        rig_test(sw_bounce_collect__tells_room_now_and_then),
        rig_test(sw_answer_reserve__ring_and_area),
        rig_test(sw_answer_reserve__area_wraps_whole_pieces),
        rig_test(sw_answer_acks__before_any_other_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
