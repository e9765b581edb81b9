/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer may write anything into the inbox we keep for it: records, bytes, counters. Read by the
 * responder and, for requests of ours that it executes, by the requester. The QP is connected with
 * itself, so that what it says in turn lands in the same block, to be misread as well.
 */
#include <string.h>

#include "fuzz.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/requester.h"
#include "link/direct/serve/responder.h"
#include "link_harness.h"

enum { STEPS_MAX = 256 };

static void write_request(struct feed *feed)
{
    const uint64_t addresses[] = {(uintptr_t)harness.open,
                                  (uintptr_t)harness.open + HARNESS_OPEN_BYTES,
                                  (uintptr_t)harness.local, (uintptr_t)harness.open - 1};
    const uint64_t keys[] = {sw_mr_key(harness.open_mr), sw_mr_key(harness.local_mr), 0};
    const uint64_t lens[] = {0,         8, 48, SW_INLINE_BYTES, SW_BOUNCE_CHUNK, HARNESS_OPEN_BYTES,
                             UINT32_MAX};
    const uint64_t places[] = {0, SW_REQUEST_BOUNCE, SW_REQUEST_BOUNCE - SW_BOUNCE_CHUNK};
    uint32_t position = harness.d->serve.at + feed_u8(feed) % 4;
    struct sw_record *record = &harness.block->requests[position % SW_REQUEST_SLOTS];
    record->kind = feed_u8(feed);
    record->flags = feed_u8(feed);
    record->slots = feed_u8(feed);
    record->verdict = feed_u8(feed);
    record->len_bytes = (uint32_t)feed_value(feed, lens, 7);
    record->remote_addr = feed_value(feed, addresses, 4);
    record->rkey = (uint32_t)feed_value(feed, keys, 3);
    record->total_bytes = (uint32_t)feed_value(feed, lens, 7);
    record->bounce_at = (uint32_t)feed_value(feed, places, 3);
    record->bounce_end = feed_u32(feed);
    record->opcode = feed_u8(feed);
    record->rnr_retry = feed_u8(feed);
    atomic_store(&record->seq, position + 1);
}

static void write_response(struct feed *feed)
{
    const uint64_t lens[] = {0, 1, 8, 100, SW_BOUNCE_CHUNK, SW_RESPONSE_BOUNCE, UINT32_MAX};
    uint32_t position = harness.d->send.response_at + feed_u8(feed) % 4;
    struct sw_record *record = &harness.block->responses[position % SW_RESPONSE_SLOTS];
    record->kind = feed_u8(feed);
    record->verdict = feed_u8(feed);
    record->len_bytes = (uint32_t)feed_value(feed, lens, 7);
    record->bounce_at = (uint32_t)feed_value(feed, lens, 7);
    record->bounce_end = feed_u32(feed);
    record->compare_add = feed_u64(feed);
    record->imm = harness.d->send.acknowledged;
    atomic_store(&record->seq, position + 1);
}

static void write_counter(struct feed *feed)
{
    _Atomic uint32_t *counters[] = {&harness.block->requests_consumed,
                                    &harness.block->request_bounce_consumed,
                                    &harness.block->responses_consumed,
                                    &harness.block->response_bounce_consumed,
                                    (_Atomic uint32_t *)&harness.block->tenancy,
                                    &harness.block->acknowledged,
                                    &harness.block->awaits_posted};
    _Atomic uint32_t *counter = counters[feed_u8(feed) % 7];
    const uint64_t values[] = {0,
                               atomic_load(counter),
                               UINT32_MAX,
                               harness.d->send.request_at,
                               harness.d->serve.answer_at,
                               atomic_load(counter) + 1};
    atomic_store(counter, (uint32_t)feed_value(feed, values, 6));
}

static void write_anything(struct feed *feed)
{
    /* But not access_seq: when it is odd, ending the QP waits for a whole second. */
    const size_t first = offsetof(struct sw_block, requests_consumed);
    size_t at = first + feed_u32(feed) % (sizeof(struct sw_block) - first);
    size_t len = feed_u8(feed);
    if (len > sizeof(struct sw_block) - at)
        len = sizeof(struct sw_block) - at;
    feed_bytes(feed, (uint8_t *)harness.block + at, len);
}

/* A request of ours, executed by the target. */
static void ask(struct feed *feed)
{
    static const enum ibv_wr_opcode opcodes[] = {
        IBV_WR_RDMA_READ,          IBV_WR_RDMA_WRITE,         IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,      IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_RDMA_WRITE_WITH_IMM};
    struct ibv_send_wr wr = {.opcode = opcodes[feed_u8(feed) % 7],
                             .send_flags = feed_u8(feed) & IBV_SEND_SIGNALED};
    bool atomic =
        wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    uint32_t len = atomic ? 8 : feed_u16(feed) % HARNESS_OPEN_BYTES;
    struct ibv_sge sge = {(uintptr_t)harness.open, len, sw_mr_key(harness.open_mr)};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    struct sw_sq *sq = &harness.qp->sq;
    if (sq->next != sq->tail || sw_sq_append(sq, &wr) || !sw_bind_enter(harness.qp, harness.d))
        return;
    struct sw_wqe *wqe = sw_sq_at(sq, sq->next);
    enum sw_step step = sw_bounce_start(harness.qp, harness.d, wqe, sq->next);
    sw_bind_leave(harness.d);
    harness_needs(step == SW_STEP_SENT || step == SW_STEP_BLOCKED);
    if (step == SW_STEP_SENT) {
        wqe->state = SW_WQE_SENT;
        sq->next++;
    }
}

static void step(struct feed *feed)
{
    switch (feed_u8(feed) % 8) {
    case 0:
        harness_post_recv(feed_u16(feed) % 2048, feed_u16(feed) % 2048);
        break;
    case 1:
        ask(feed);
        break;
    case 2:
        write_request(feed);
        break;
    case 3:
        write_response(feed);
        break;
    case 4:
        write_counter(feed);
        break;
    case 5:
        write_anything(feed);
        break;
    case 6:
        harness_run(sw_serve_run);
        break;
    default:
        harness_run(sw_direct_send_run);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    harness_start();
    memset(harness.open, 0, HARNESS_OPEN_BYTES);
    harness_connect(0, feed_u8(&feed) & 1);
    uint32_t start = feed_u8(&feed) & 1 ? UINT32_MAX - 3 : 0; /* positions near their wrap */
    harness.d->serve.at = harness.d->send.response_at = harness.d->serve.answer_at = start;
    atomic_store(&harness.block->responses_consumed, start);
    for (int i = 0; i < STEPS_MAX && feed.left && harness_alive(); i++) {
        step(&feed);
        harness_poll();
    }
    if (harness_alive())
        harness_run(sw_serve_run);
    if (harness_alive())
        harness_run(sw_direct_send_run);
    harness_finish();
    return 0;
}
