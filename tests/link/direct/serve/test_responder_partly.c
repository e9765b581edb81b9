/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of which the peer has placed a part: what comes along in the area. */
#include <stdlib.h>
#include <string.h>

#include "link/direct/process/block.h"
#include "link/direct/send/bounce.h"
#include "link/direct/serve/responder.h"
#include "link_rig.h"

/* Runs of a message behind each other in the area; returns what they take. */
static uint32_t put_run(struct rig *rig, uint32_t at_in_area, uint32_t at, const char *bytes)
{
    const struct sw_record_run run = {at, (uint32_t)strlen(bytes)};
    memcpy(rig->block->request_bounce + at_in_area, &run, sizeof(run));
    memcpy(rig->block->request_bounce + at_in_area + sizeof(run), bytes, run.len_bytes);
    return at_in_area + (uint32_t)sizeof(run) + run.len_bytes;
}

static void sw_serve_run__partly_placed_message(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 11, 100, 1000);
    memset(rig->bytes, 'p', 2000); /* the peer's part of the work */
    struct sw_record *record = rig_request(rig, SW_REC_SEND_PARTLY);
    record->len_bytes = 900;
    record->bounce_at = 51;
    const uint32_t end = put_run(rig, put_run(rig, 51, 0, "head"), 895, "tail.");
    record->total_bytes = end - 51;
    record->bounce_end = end;
    assert_true(rig_serve(rig, record));
    struct ibv_wc wc = rig_wc(rig);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.byte_len, 900);
    assert_memory_equal(rig->bytes + 99, "pheadp", 6);
    assert_memory_equal(rig->bytes + 994, "ptail.p", 7);
    assert_int_equal(rig->d->serve.acks_due, 0); /* its sender has completed it */
    assert_int_equal(rig->d->serve.bounce_end, end);
}

/* What a peer says of the runs: none reaches past the message, nor past what came with it. */
static void sw_serve_run__partly_placed_message_that_lies(void **state)
{
    static const struct {
        uint32_t at, len_bytes;               /* of the run */
        uint32_t message, total_bytes, where; /* of the record */
    } cases[] = {
        {98, 3, 100, 11, 0},         {101, 0, 100, 8, 0},
        {UINT32_MAX, 2, 100, 10, 0}, {0, UINT32_MAX, 100, 100, 0},
        {0, 3, 100, 10, 0},          {0, 3, 100, 7, 0},
        {0, 3, 100, 12, 0},          {0, 3, 1001, 11, 0},
        {0, 3, UINT32_MAX, 11, 0},   {0, 3, 100, SW_BOUNCE_CHUNK + 1, 0},
        {0, 3, 100, UINT32_MAX, 0},  {0, 3, 100, 11, SW_REQUEST_BOUNCE - 10},
        {0, 3, 100, 11, UINT32_MAX},
    };
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        rig_recv(rig, 11, 0, 1000);
        struct sw_record *record = rig_request(rig, SW_REC_SEND_PARTLY);
        const struct sw_record_run run = {cases[i].at, cases[i].len_bytes};
        memcpy(rig->block->request_bounce, &run, sizeof(run));
        record->len_bytes = cases[i].message;
        record->total_bytes = cases[i].total_bytes;
        record->bounce_at = cases[i].where;
        assert_true(rig_serve(rig, record));
        rig_is_dead(rig, IBV_EVENT_QP_REQ_ERR);
        assert_int_not_equal(rig_wc(rig).status, IBV_WC_SUCCESS);
        rig_drop(rig);
        rig_connect(rig, 0);
        atomic_store(&rig->events, 0);
    }
}

/* The peer completes such messages without an answer. It hears of the room all the same, in time
 * for the next one, whatever that skips at the end of the area. */
static void sw_serve_run__partly_placed_messages_give_room_back(void **state)
{
    struct rig *rig = *state;
    uint32_t position = 0, consumed = 0;
    for (uint32_t i = 0; i < 100; i++) {
        const uint32_t len_bytes = 1 + i * 2741 % (SW_BOUNCE_CHUNK - 8);
        const uint32_t along = len_bytes + (uint32_t)sizeof(struct sw_record_run);
        uint32_t end = 0;
        rig_recv(rig, i, 0, RIG_BYTES);
        const int64_t at = sw_area_reserve(position, consumed, SW_REQUEST_BOUNCE, along, &end);
        assert_true(at >= 0);
        const struct sw_record_run run = {0, len_bytes};
        memcpy(rig->block->request_bounce + at, &run, sizeof(run));
        struct sw_record *record = rig_request(rig, SW_REC_SEND_PARTLY);
        record->len_bytes = len_bytes;
        record->total_bytes = along;
        record->bounce_at = (uint32_t)at;
        record->bounce_end = position = end;
        assert_true(rig_serve(rig, record));
        assert_int_equal(rig_wc(rig).status, IBV_WC_SUCCESS);
        consumed = atomic_load(&rig->out->request_bounce_consumed);
    }
    assert_true(position > 4 * SW_REQUEST_BOUNCE);
    assert_int_equal(rig->d->serve.answer_at, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_serve_run__partly_placed_message),
        rig_test(sw_serve_run__partly_placed_message_that_lies),
        rig_test(sw_serve_run__partly_placed_messages_give_room_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
