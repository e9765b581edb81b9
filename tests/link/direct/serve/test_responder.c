/* SPDX-License-Identifier: BSD-2-Clause */
/* What a peer writes into our inbox, well-formed and not. Requests that reach for our memory are in
 * test_responder_memory.c. */
#include <stdlib.h>

#include "base/clock.h"
#include "link/direct/process/block.h"
#include "link/direct/serve/responder.h"
#include "link_rig.h"

static void sw_serve_run__nothing_new(void **state)
{
    struct rig *rig = *state;
    struct sw_record *record = rig_request(rig, SW_REC_FATAL);
    assert_false(sw_serve_run(rig->qp, rig->d));
    atomic_store(&record->seq, 2); /* of another position */
    assert_false(sw_serve_run(rig->qp, rig->d));
    atomic_store(&record->seq, 1u << 31);
    assert_false(sw_serve_run(rig->qp, rig->d));
    assert_int_equal(rig->d->serve.at, 0);
}

static void sw_serve_run__inline_message(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 48);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_INLINE);
    memset(record->payload, 'm', 48);
    record->len_bytes = 48;
    record->imm = 0x1234;
    record->flags = SW_REC_IMM;
    assert_true(rig_serve(rig, record));
    struct ibv_wc wc = rig_wc(rig);
    assert_int_equal(wc.wr_id, 11);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.byte_len, 48);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
    assert_int_equal(wc.imm_data, 0x1234);
    assert_int_equal(wc.qp_num, sw_qp_num(rig->qp));
    assert_int_equal(rig->bytes[47], 'm');
    assert_int_equal(rig->bytes[48], 0);
    assert_int_equal(rig->d->serve.at, 1);
}

static void start_at(struct rig *rig, uint32_t position)
{
    rig->d->serve.at = rig->d->serve.told = position;
}

/* Four records, their positions and their place in the ring wrap. */
static void sw_serve_run__longest_inline_message_past_the_wrap(void **state)
{
    struct rig *rig = *state;
    uint8_t message[SW_INLINE_BYTES];
    for (uint32_t i = 0; i < SW_INLINE_BYTES; i++)
        message[i] = (uint8_t)(i + 1);
    start_at(rig, UINT32_MAX - 1);
    rig_recv(rig, 11, 100, SW_INLINE_BYTES);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_INLINE);
    record->slots = 4;
    record->len_bytes = SW_INLINE_BYTES;
    memcpy(record->payload, message, 48);
    for (uint32_t i = 0; i < 3; i++) {
        struct sw_record_more *more =
            (struct sw_record_more *)&rig->block->requests[(UINT32_MAX + i) % SW_REQUEST_SLOTS];
        memcpy(more->payload, message + 48 + 60 * i, 60);
    }
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig_wc(rig).byte_len, SW_INLINE_BYTES);
    assert_memory_equal(rig->bytes + 100, message, SW_INLINE_BYTES);
    assert_int_equal(rig->d->serve.at, 2);
}

static void sw_serve_run__inline_message_that_lies(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 4096);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_INLINE);
    record->len_bytes = SW_INLINE_BYTES + 1;
    assert_true(rig_serve(rig, record));
    rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
    assert_int_equal(rig_wc(rig).status, IBV_WC_WR_FLUSH_ERR);
}

static void sw_serve_run__inline_message_longer_than_the_receive(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 10);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_INLINE);
    record->len_bytes = 11;
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig_wc(rig).status, IBV_WC_LOC_LEN_ERR);
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_ERR);
}

static void sw_serve_run__message_without_a_receive(void **state)
{
    static const enum sw_record_kind kinds[] = {SW_REC_SEND_INLINE, SW_REC_SEND_PLACED,
                                                SW_REC_WRITE_IMM, SW_REC_SEND_PARTLY};
    struct rig *rig = *state;
    for (size_t i = 0; i < 4; i++) { /* the sender matches receives itself: it broke the protocol */
        assert_true(rig_serve(rig, rig_request(rig, kinds[i])));
        rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
        rig_no_wc(rig);
        rig_drop(rig);
        rig_connect(rig, 0);
        atomic_store(&rig->events, 0);
    }
}

static void sw_serve_run__placed_message(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 1000);
    rig_recv(rig, 12, 0, 1000);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_PLACED);
    record->len_bytes = 1000;
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig_wc(rig).byte_len, 1000);
    record = rig_request(rig, SW_REC_SEND_PLACED);
    record->len_bytes = 1001; /* a program would read past its buffer */
    assert_true(rig_serve(rig, record));
    struct ibv_wc wc = rig_wc(rig);
    assert_int_equal(wc.wr_id, 12);
    assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
    rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
}

static void sw_serve_run__write_with_immediate(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 0); /* the length is the write's, not the receive's */
    struct sw_record *record = rig_request(rig, SW_REC_WRITE_IMM);
    record->flags = SW_REC_IMM;
    record->imm = 7;
    record->len_bytes = 1u << 20;
    assert_true(rig_serve(rig, record));
    struct ibv_wc wc = rig_wc(rig);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(wc.byte_len, 1u << 20);
    assert_int_equal(wc.imm_data, 7);
}

/* Verdicts of a sender who was refused: what the receive and the QP get. */
static void sw_serve_run__verdicts(void **state)
{
    static const struct {
        uint8_t verdict;
        enum ibv_wc_status status;
        int event;
    } cases[] = {
        {SW_NAK_INVALID, IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR},
        {SW_NAK_ACCESS, IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR}, /* is told by FATAL */
        {SW_NAK_OPERATIONAL, IBV_WC_LOC_PROT_ERR, IBV_EVENT_QP_FATAL},
        {SW_RNR, IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR}, /* nothing a sender has to say */
        {SW_UNREACHABLE, IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR},
        {SW_VERDICT_COUNT, IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR},
        {255, IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR},
    };
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig_recv(rig, 11, 0, 100);
        struct sw_record *record = rig_request(rig, SW_REC_SEND_PLACED);
        record->verdict = cases[i].verdict;
        assert_true(rig_serve(rig, record));
        assert_int_equal(rig_wc(rig).status, cases[i].status);
        rig_is_dead(rig, cases[i].event);
        rig_drop(rig);
        rig_connect(rig, 0);
        atomic_store(&rig->events, 0);
    }
}

static void sw_serve_run__fatal(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 100);
    struct sw_record *record = rig_request(rig, SW_REC_FATAL);
    record->verdict = SW_NAK_ACCESS;
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig_wc(rig).status, IBV_WC_WR_FLUSH_ERR);
    rig_is_dead(rig, IBV_EVENT_QP_ACCESS_ERR);
}

static void sw_serve_run__unknown_kinds(void **state)
{
    static const uint8_t kinds[] = {0, SW_REC_ANSWER, SW_REC_DATA, SW_REC_HELLO + 1, 200, 255};
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof(kinds); i++) {
        struct sw_record *record = rig_request(rig, SW_REC_FATAL);
        record->kind = kinds[i];
        assert_true(rig_serve(rig, record));
        rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
        rig_drop(rig);
        rig_connect(rig, 0);
        atomic_store(&rig->events, 0);
    }
}

static void sw_serve_run__hello(void **state)
{
    struct rig *rig = *state;
    assert_true(rig_serve(rig, rig_request(rig, SW_REC_HELLO)));
    assert_int_equal(atomic_load(&rig->events), 0); /* the QP is in RTS */
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_RTS);
    assert_true(rig_serve(rig, rig_request(rig, SW_REC_HELLO))); /* again: not in the same life */
    rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
}

static void sw_serve_run__hello_in_rtr(void **state)
{
    struct rig *rig = *state;
    sw_qp_set_state(rig->qp, IBV_QPS_RTR);
    assert_true(rig_serve(rig, rig_request(rig, SW_REC_HELLO)));
    assert_int_equal(atomic_load(&rig->events), 1);
    assert_int_equal(atomic_load(&rig->event), IBV_EVENT_COMM_EST);
}

static void sw_serve_run__record_counts(void **state)
{
    static const uint8_t bad[] = {0, SW_RECORD_SLOTS_MAX + 1, 255};
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof(bad); i++) {
        rig_recv(rig, 11, 0, 100);
        struct sw_record *record = rig_request(rig, SW_REC_SEND_PLACED);
        record->slots = bad[i];
        assert_true(rig_serve(rig, record));
        rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
        rig_drop(rig);
        rig_connect(rig, 0);
        atomic_store(&rig->events, 0);
    }
}

static void sw_serve_run__send_in_pieces(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 30);
    for (uint32_t i = 0; i < 3; i++) {
        memset(rig->block->request_bounce + i * 10, (int)('a' + i), 10);
        struct sw_record *record = rig_request(rig, SW_REC_SEND);
        record->flags = (uint8_t)((i == 0 ? SW_REC_FIRST : 0) | (i == 2 ? SW_REC_LAST : 0));
        record->len_bytes = 10;
        record->total_bytes = 30;
        record->bounce_at = i * 10;
        assert_true(rig_serve(rig, record));
    }
    struct ibv_wc wc = rig_wc(rig);
    assert_int_equal(wc.byte_len, 30);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_memory_equal(rig->bytes, "aaaaaaaaaabbbbbbbbbbcccccccccc", 31);
    assert_int_equal(rig_acknowledged(rig), 1); /* once in all */
}

/* Its bytes lie in four records, of which the first has less room than that of an inline message,
 * and two of them are answered together. */
static void sw_serve_run__whole_messages(void **state)
{
    struct rig *rig = *state;
    uint8_t message[SW_WHOLE_BYTES];
    for (uint32_t i = 0; i < SW_WHOLE_BYTES; i++)
        message[i] = (uint8_t)(i + 1);
    rig_recv(rig, 11, 100, SW_WHOLE_BYTES);
    rig_recv(rig, 12, 1000, 8);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_WHOLE);
    record->flags = SW_REC_FIRST | SW_REC_LAST | SW_REC_IMM;
    record->slots = 4;
    record->len_bytes = SW_WHOLE_BYTES;
    record->imm = 77;
    memcpy(record->payload, message, SW_WHOLE_FIRST);
    for (uint32_t i = 0; i < 3; i++) {
        struct sw_record_more *more = (struct sw_record_more *)&rig->block->requests[1 + i];
        memcpy(more->payload, message + SW_WHOLE_FIRST + SW_MORE_BYTES * i, SW_MORE_BYTES);
    }
    struct sw_record *second = &rig->block->requests[4];
    second->kind = SW_REC_SEND_WHOLE;
    second->flags = SW_REC_FIRST | SW_REC_LAST;
    second->slots = 1;
    second->len_bytes = 8;
    memset(second->payload, 'z', 8);
    atomic_store(&second->seq, 5);
    assert_true(rig_serve(rig, record));
    struct ibv_wc wc = rig_wc(rig);
    assert_int_equal(wc.wr_id, 11);
    assert_int_equal(wc.byte_len, SW_WHOLE_BYTES);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
    assert_int_equal(wc.imm_data, 77);
    assert_memory_equal(rig->bytes + 100, message, SW_WHOLE_BYTES);
    assert_int_equal(rig_wc(rig).wr_id, 12);
    assert_memory_equal(rig->bytes + 1000, "zzzzzzzz", 9);
    assert_int_equal(rig_acknowledged(rig), 2);
    assert_int_equal(rig->d->serve.answer_at, 0);
    assert_int_equal(rig->d->serve.at, 5);
}

static void sw_serve_run__whole_message_that_lies(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 4096);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_WHOLE);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    record->len_bytes = SW_WHOLE_BYTES + 1;
    assert_true(rig_serve(rig, record));
    rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
}

/* Messages that were done before a refusal are answered before it. */
static void sw_serve_run__refusal_after_messages(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 8);
    rig_recv(rig, 12, 0, 8);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_WHOLE);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    record->len_bytes = 8;
    struct sw_record *second = &rig->block->requests[1];
    memcpy((void *)second, (const void *)record, sizeof(*second));
    second->len_bytes = 9;
    atomic_store(&second->seq, 2);
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig_answer(rig, 0)->verdict, SW_NAK_INVALID);
    assert_int_equal(rig_answer(rig, 0)->imm, 1);
    assert_int_equal(rig_acknowledged(rig), 1);
    rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
}

/* The same where the peer broke the protocol. */
static void sw_serve_run__nonsense_after_messages(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 8);
    struct sw_record *record = rig_request(rig, SW_REC_SEND_WHOLE);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    struct sw_record *second = &rig->block->requests[1];
    second->kind = 250;
    second->slots = 1;
    atomic_store(&second->seq, 2);
    assert_true(rig_serve(rig, record));
    rig_is_answered(rig, SW_ACK);
    rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
}

/* Nothing is served that might have to be refused, without room for that. */
static void sw_serve_run__serves_when_there_is_room(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 8);
    rig_recv(rig, 12, 0, 8);
    rig->d->serve.answer_at = SW_RESPONSE_SLOTS;
    struct sw_record *record = rig_request(rig, SW_REC_SEND_WHOLE);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    struct sw_record *second = &rig->block->requests[1];
    memcpy((void *)second, (const void *)record, sizeof(*second));
    atomic_store(&second->seq, 2);
    assert_false(rig_serve(rig, record));
    assert_int_equal(rig->d->serve.at, 0);
    atomic_store(&rig->block->responses_consumed, 1);
    assert_true(sw_serve_run(rig->qp, rig->d));
    assert_int_equal(rig->d->serve.at, 2);
    assert_int_equal(rig_acknowledged(rig), 2); /* takes no room itself */
    assert_int_equal(rig->d->serve.acks_due, 0);
    assert_false(atomic_load(&rig->qp->rx_pending));
}

/* The receive of a message that came in part is flushed like those behind it, before them. */
static void sw_serve_run__send_in_part_then_error(void **state)
{
    struct rig *rig = *state;
    struct ibv_wc wc[3];
    rig_recv(rig, 11, 0, 30);
    rig_recv(rig, 12, 0, 30);
    struct sw_record *record = rig_request(rig, SW_REC_SEND);
    record->flags = SW_REC_FIRST;
    record->len_bytes = 10;
    record->total_bytes = 30;
    assert_true(rig_serve(rig, record));
    rig_no_wc(rig);
    sw_qp_fail(rig->qp, -1);
    assert_int_equal(sw_cq_poll(rig->cq, 3, wc), 2);
    for (unsigned int i = 0; i < 2; i++) {
        assert_int_equal(wc[i].wr_id, 11 + i);
        assert_int_equal(wc[i].status, IBV_WC_WR_FLUSH_ERR);
    }
}

static void sw_serve_run__send_pieces_that_do_not_fit(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 15);
    struct sw_record *record = rig_request(rig, SW_REC_SEND);
    record->flags = SW_REC_FIRST;
    record->len_bytes = record->total_bytes = 10; /* says 10, sends 20 */
    assert_true(rig_serve(rig, record));
    record = rig_request(rig, SW_REC_SEND);
    record->flags = SW_REC_LAST;
    record->len_bytes = 10;
    record->total_bytes = 10;
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig_wc(rig).status, IBV_WC_LOC_LEN_ERR);
    rig_is_answered(rig, SW_NAK_INVALID);
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_ERR);
}

static void sw_serve_run__send_too_long(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 15);
    struct sw_record *record = rig_request(rig, SW_REC_SEND);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    record->len_bytes = record->total_bytes = 16;
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig_wc(rig).status, IBV_WC_LOC_LEN_ERR);
    rig_is_answered(rig, SW_NAK_INVALID);
}

static void sw_serve_run__send_continues_without_a_start(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 0, 15);
    struct sw_record *record = rig_request(rig, SW_REC_SEND);
    record->flags = SW_REC_LAST;
    assert_true(rig_serve(rig, record));
    rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
}

/* The record waits in the ring until a receive is posted, or the sender's retries are over. */
static void sw_serve_run__send_waits_for_a_receive(void **state)
{
    struct rig *rig = *state;
    struct sw_record *record = rig_request(rig, SW_REC_SEND);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    record->rnr_retry = 7;
    assert_false(rig_serve(rig, record));
    assert_int_equal(rig->d->serve.at, 0);
    rig_recv(rig, 11, 0, 15);
    assert_true(sw_serve_run(rig->qp, rig->d));
    assert_int_equal(rig_wc(rig).wr_id, 11);
}

static void sw_serve_run__send_retries_run_out(void **state)
{
    struct rig *rig = *state;
    rig->qp->attr.min_rnr_timer = 14; /* 1.28 ms */
    struct sw_record *record = rig_request(rig, SW_REC_SEND);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    record->rnr_retry = 3;
    uint64_t start_ns = sw_clock_ns();
    bool any = rig_serve(rig, record);
    while (!any && sw_clock_ns() - start_ns < SW_NS_PER_S)
        any = sw_serve_run(rig->qp, rig->d);
    assert_true(any);
    assert_true(sw_clock_ns() - start_ns >= 3 * 1280 * SW_NS_PER_US);
    rig_is_answered(rig, SW_RNR_EXHAUSTED);
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_RTS); /* only the requester's QP fails */
    rig_recv(rig, 11, 0, 15);
    rig_request(rig, SW_REC_SEND_PLACED);
    atomic_store(&rig->block->requests[1].seq, 2);
    assert_false(sw_serve_run(rig->qp, rig->d)); /* and nothing it sent afterwards counts */
    rig_no_wc(rig);
}

/* A flood is served in bounded steps, and the sender told how far. */
static void sw_serve_run__many_records(void **state)
{
    struct rig *rig = *state;
    start_at(rig, UINT32_MAX - 40);
    for (int i = 0; i < 100; i++)
        rig_recv(rig, (uint64_t)i, 0, 0);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t position = UINT32_MAX - 40 + i;
        struct sw_record *record = &rig->block->requests[position % SW_REQUEST_SLOTS];
        memset((void *)record, 0, sizeof(*record));
        record->kind = SW_REC_SEND_PLACED;
        record->slots = 1;
        atomic_store(&record->seq, position + 1);
    }
    assert_true(sw_serve_run(rig->qp, rig->d));
    assert_int_equal(rig->d->serve.at, UINT32_MAX - 40 + 64);
    assert_int_equal(atomic_load(&rig->out->requests_consumed), UINT32_MAX - 40 + 64);
    assert_true(sw_serve_run(rig->qp, rig->d));
    assert_false(sw_serve_run(rig->qp, rig->d));
    assert_int_equal(rig->d->serve.at, UINT32_MAX - 40 + 100);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(rig_wc(rig).wr_id, i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_serve_run__nothing_new),
        rig_test(sw_serve_run__inline_message),
        rig_test(sw_serve_run__longest_inline_message_past_the_wrap),
        rig_test(sw_serve_run__inline_message_that_lies),
        rig_test(sw_serve_run__inline_message_longer_than_the_receive),
        rig_test(sw_serve_run__message_without_a_receive),
        rig_test(sw_serve_run__placed_message),
        rig_test(sw_serve_run__write_with_immediate),
        rig_test(sw_serve_run__verdicts),
        rig_test(sw_serve_run__send_waits_for_a_receive),
        rig_test(sw_serve_run__send_retries_run_out),
        rig_test(sw_serve_run__whole_messages),
        rig_test(sw_serve_run__whole_message_that_lies),
        rig_test(sw_serve_run__refusal_after_messages),
        rig_test(sw_serve_run__nonsense_after_messages),
        rig_test(sw_serve_run__serves_when_there_is_room),
        rig_test(sw_serve_run__send_in_pieces),
        rig_test(sw_serve_run__send_in_part_then_error),
        rig_test(sw_serve_run__send_pieces_that_do_not_fit),
        rig_test(sw_serve_run__send_too_long),
        rig_test(sw_serve_run__send_continues_without_a_start),
        rig_test(sw_serve_run__fatal),
        rig_test(sw_serve_run__unknown_kinds),
        rig_test(sw_serve_run__hello),
        rig_test(sw_serve_run__hello_in_rtr),
        rig_test(sw_serve_run__record_counts),
        rig_test(sw_serve_run__many_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
