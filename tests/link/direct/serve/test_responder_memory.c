/* SPDX-License-Identifier: BSD-2-Clause */
/* What a peer's requests do to our memory: WRITEs, READs and atomics, well-formed and not. */
#include "link/direct/process/block.h"
#include "link/direct/serve/responder.h"
#include "link_rig.h"

static struct sw_record *write_record(struct rig *rig, uint32_t offset, uint32_t len)
{
    struct sw_record *record = rig_request(rig, SW_REC_WRITE);
    record->flags = SW_REC_FIRST | SW_REC_LAST;
    record->len_bytes = record->total_bytes = len;
    record->remote_addr = (uintptr_t)rig->bytes + offset;
    record->rkey = sw_mr_key(rig->mr);
    record->bounce_end = len;
    return record;
}

static void sw_serve_run__write(void **state)
{
    struct rig *rig = *state;
    memset(rig->block->request_bounce, 'w', 300);
    struct sw_record *record = write_record(rig, 200, 256);
    record->bounce_end = 256;
    assert_true(rig_serve(rig, record));
    assert_int_equal(rig->bytes[199], 0);
    assert_int_equal(rig->bytes[200], 'w');
    assert_int_equal(rig->bytes[455], 'w');
    assert_int_equal(rig->bytes[456], 0);
    assert_int_equal(rig_acknowledged(rig), 1);
    assert_int_equal(atomic_load(&rig->out->request_bounce_consumed), 256);
    assert_int_equal(atomic_load(&rig->out->requests_consumed), 1);
    rig_no_wc(rig);
}

static void sw_serve_run__write_out_of_bounds(void **state)
{
    struct rig *rig = *state;
    static const struct {
        int64_t offset;
        uint32_t len;
    } cases[] = {{-1, 1},
                 {-4096, 4097},
                 {RIG_BYTES, 1},
                 {RIG_BYTES - 1, 2},
                 {RIG_BYTES - 1, SW_BOUNCE_CHUNK},
                 {-INT64_MAX, 8}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sw_record *record = write_record(rig, 0, cases[i].len);
        record->remote_addr += (uint64_t)cases[i].offset;
        assert_true(rig_serve(rig, record));
        rig_is_answered(rig, SW_NAK_ACCESS);
        rig_is_dead(rig, IBV_EVENT_QP_ACCESS_ERR);
        rig_drop(rig);
        rig_connect(rig, 0);
        atomic_store(&rig->events, 0);
    }
}

static void sw_serve_run__write_from_beyond_the_area(void **state)
{
    struct rig *rig = *state;
    static const struct {
        uint32_t at, len;
    } cases[] = {{SW_REQUEST_BOUNCE, 1}, {SW_REQUEST_BOUNCE - 7, 8},
                 {UINT32_MAX, 8},        {0, SW_BOUNCE_CHUNK + 1},
                 {0, UINT32_MAX},        {SW_REQUEST_BOUNCE + 1, UINT32_MAX}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sw_record *record = write_record(rig, 0, cases[i].len);
        record->bounce_at = cases[i].at;
        assert_true(rig_serve(rig, record));
        rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
        rig_drop(rig);
        rig_connect(rig, 0);
        atomic_store(&rig->events, 0);
    }
    for (uint32_t i = 0; i < RIG_BYTES; i++)
        assert_int_equal(rig->bytes[i], 0);
}

/* No right of the region or of the QP. */
static void sw_serve_run__write_without_the_right(void **state)
{
    struct rig *rig = *state;
    rig->qp->attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    memset(rig->block->request_bounce, 'w', 8);
    assert_true(rig_serve(rig, write_record(rig, 0, 8)));
    rig_is_answered(rig, SW_NAK_INVALID);
    assert_int_equal(rig->bytes[0], 0);
}

static void sw_serve_run__write_of_nothing_needs_no_key(void **state)
{
    struct rig *rig = *state;
    struct sw_record *record = write_record(rig, 0, 0);
    record->rkey = 0xbad;
    assert_true(rig_serve(rig, record));
    rig_is_answered(rig, SW_ACK);
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_RTS);
}

static struct sw_record *read_record(struct rig *rig, uint32_t total)
{
    struct sw_record *record = rig_request(rig, SW_REC_READ);
    record->remote_addr = (uintptr_t)rig->bytes;
    record->rkey = sw_mr_key(rig->mr);
    record->total_bytes = total;
    return record;
}

static void sw_serve_run__read_in_pieces_as_room_allows(void **state)
{
    struct rig *rig = *state;
    uint32_t total = RIG_BYTES; /* as much as the area holds */
    for (uint32_t i = 0; i < total; i++)
        rig->bytes[i] = (uint8_t)(i * 7);
    rig->d->serve.answer_bounce_at = 8192; /* half a piece is in use already */
    assert_false(rig_serve(rig, read_record(rig, total)));
    assert_int_equal(rig->d->serve.read_bytes, 3 * SW_BOUNCE_CHUNK);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sw_record *data = rig_answer(rig, i);
        assert_int_equal(data->kind, SW_REC_DATA);
        assert_int_equal(data->len_bytes, SW_BOUNCE_CHUNK);
        assert_memory_equal(rig->out->response_bounce + data->bounce_at,
                            rig->bytes + i * SW_BOUNCE_CHUNK, SW_BOUNCE_CHUNK);
    }
    atomic_store(&rig->block->response_bounce_consumed, rig_answer(rig, 0)->bounce_end);
    assert_true(sw_serve_run(rig->qp, rig->d));
    const struct sw_record *data = rig_answer(rig, 3);
    assert_int_equal(data->bounce_at, 0); /* never around the area's end */
    assert_memory_equal(rig->out->response_bounce, rig->bytes + 3 * SW_BOUNCE_CHUNK,
                        SW_BOUNCE_CHUNK);
    assert_int_equal(rig->d->serve.read_bytes, 0);
}

static void sw_serve_run__read_out_of_bounds(void **state)
{
    struct rig *rig = *state;
    static const uint32_t totals[] = {RIG_BYTES + 1, UINT32_MAX};
    for (size_t i = 0; i < 2; i++) {
        assert_true(rig_serve(rig, read_record(rig, totals[i])));
        rig_is_answered(rig, SW_NAK_ACCESS);
        rig_is_dead(rig, IBV_EVENT_QP_ACCESS_ERR);
        rig_drop(rig);
        rig_connect(rig, 0);
        atomic_store(&rig->events, 0);
    }
}

/* The request changes while it is served: each piece is checked anew. */
static void sw_serve_run__read_that_grows_meanwhile(void **state)
{
    struct rig *rig = *state;
    rig->d->serve.answer_bounce_at = 8192;
    struct sw_record *record = read_record(rig, RIG_BYTES);
    assert_false(rig_serve(rig, record));
    record->total_bytes = UINT32_MAX;
    assert_true(sw_serve_run(rig->qp, rig->d));
    rig_is_dead(rig, IBV_EVENT_QP_ACCESS_ERR);
}

static void sw_serve_run__read_that_moves_meanwhile(void **state)
{
    struct rig *rig = *state;
    rig->d->serve.answer_bounce_at = 8192;
    struct sw_record *record = read_record(rig, RIG_BYTES);
    assert_false(rig_serve(rig, record));
    record->remote_addr += 1;
    assert_true(sw_serve_run(rig->qp, rig->d));
    rig_is_dead(rig, IBV_EVENT_QP_ACCESS_ERR);
}

static void sw_serve_run__atomics(void **state)
{
    struct rig *rig = *state;
    uint64_t *word = (uint64_t *)(rig->bytes + 64);
    *word = 40;
    struct sw_record *record = rig_request(rig, SW_REC_ATOMIC);
    record->remote_addr = (uintptr_t)word;
    record->rkey = sw_mr_key(rig->mr);
    record->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    record->compare_add = 2;
    assert_true(rig_serve(rig, record));
    assert_int_equal(*word, 42);
    assert_int_equal(rig_answer(rig, 0)->compare_add, 40);
    for (uint32_t i = 0; i < 2; i++) {
        record = rig_request(rig, SW_REC_ATOMIC);
        record->remote_addr = (uintptr_t)word;
        record->rkey = sw_mr_key(rig->mr);
        record->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        record->compare_add = 42;
        record->swap = 7;
        assert_true(rig_serve(rig, record));
        assert_int_equal(*word, 7);
        assert_int_equal(rig_answer(rig, 1 + i)->compare_add, i == 0 ? 42 : 7);
    }
}

static void sw_serve_run__atomics_refused(void **state)
{
    struct rig *rig = *state;
    static const struct {
        uint32_t offset;
        enum sw_verdict verdict;
    } cases[] = {{4, SW_NAK_INVALID}, {1, SW_NAK_INVALID}, {RIG_BYTES, SW_NAK_ACCESS}};
    for (size_t i = 0; i < 3; i++) {
        struct sw_record *record = rig_request(rig, SW_REC_ATOMIC);
        record->remote_addr = (uintptr_t)rig->bytes + cases[i].offset;
        record->rkey = sw_mr_key(rig->mr);
        record->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        record->compare_add = 1;
        assert_true(rig_serve(rig, record));
        rig_is_answered(rig, cases[i].verdict);
        rig_drop(rig);
        rig_connect(rig, 0);
    }
}

/* An address that is aligned for the peer, memory that is not. */
static void sw_serve_run__atomic_on_unaligned_memory(void **state)
{
    struct rig *rig = *state;
    struct sw_mr *mr = NULL;
    assert_int_equal(sw_mr_reg(rig->pd, rig->bytes + 1, 64, 0, RIG_RIGHTS, &mr), 0);
    struct sw_record *record = rig_request(rig, SW_REC_ATOMIC);
    record->rkey = sw_mr_key(mr);
    record->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    record->compare_add = 1;
    assert_true(rig_serve(rig, record));
    rig_is_answered(rig, SW_NAK_INVALID);
    sw_lock_release(&rig->qp->lock); /* dereg waits for whoever works with the region */
    sw_lock_release(&rig->other->lock);
    sw_mr_dereg(mr);
    sw_lock_acquire(&rig->other->lock);
    sw_lock_acquire(&rig->qp->lock);
    assert_int_equal(rig->bytes[1], 0);
}

/* No room for the answer: the effect must wait too, for it must not be repeated. */
static void sw_serve_run__atomic_without_room_for_its_answer(void **state)
{
    struct rig *rig = *state;
    uint64_t *word = (uint64_t *)rig->bytes;
    struct sw_record *record = rig_request(rig, SW_REC_ATOMIC);
    record->remote_addr = (uintptr_t)word;
    record->rkey = sw_mr_key(rig->mr);
    record->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    record->compare_add = 1;
    rig->d->serve.answer_at = SW_RESPONSE_SLOTS;
    assert_false(rig_serve(rig, record));
    assert_int_equal(*word, 0);
    atomic_store(&rig->block->responses_consumed, 1);
    assert_true(sw_serve_run(rig->qp, rig->d));
    assert_int_equal(*word, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_serve_run__write),
        rig_test(sw_serve_run__write_out_of_bounds),
        rig_test(sw_serve_run__write_from_beyond_the_area),
        rig_test(sw_serve_run__write_without_the_right),
        rig_test(sw_serve_run__write_of_nothing_needs_no_key),
        rig_test(sw_serve_run__read_in_pieces_as_room_allows),
        rig_test(sw_serve_run__read_out_of_bounds),
        rig_test(sw_serve_run__read_that_grows_meanwhile),
        rig_test(sw_serve_run__read_that_moves_meanwhile),
        rig_test(sw_serve_run__atomics),
        rig_test(sw_serve_run__atomics_refused),
        rig_test(sw_serve_run__atomic_on_unaligned_memory),
        rig_test(sw_serve_run__atomic_without_room_for_its_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
