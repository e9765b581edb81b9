/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COUNTERS 64u /* bytes at the window's start: words for atomics */

__attribute__((format(printf, 3, 4))) static void blame(struct stream *stream, const char *fault,
                                                        const char *format, ...)
{
    if (stream->fault)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(stream->detail, sizeof(stream->detail), format, args);
    va_end(args);
    stream->fault = fault;
}

void stream_fill(uint8_t *bytes, uint32_t len_bytes, uint32_t pattern)
{
    for (uint32_t i = 0; i < len_bytes; i++)
        bytes[i] = (uint8_t)(pattern * 131 + i * 7 + (i >> 8));
}

static bool is_filled(const uint8_t *bytes, uint32_t len_bytes, uint32_t pattern)
{
    for (uint32_t i = 0; i < len_bytes; i++)
        if (bytes[i] != (uint8_t)(pattern * 131 + i * 7 + (i >> 8)))
            return false;
    return true;
}

static uint32_t below(struct stream *stream, uint32_t limit)
{
    return sw_sim_below(stream->world, limit);
}

static uint8_t *local_at(struct stream *stream, uint64_t id)
{
    return sw_sim_host_at(stream->from->host, stream->local + id % STREAM_SLOTS * STREAM_LEN_MAX);
}

/* Mostly short, at times long, at the borders of packets, or empty. */
static uint32_t draw_len(struct stream *stream)
{
    uint32_t mtu = stream->from->requester.config.mtu_bytes, len = 0;
    switch (below(stream, 6)) {
    case 0:
        len = below(stream, stream->len_max);
        break;
    case 1:
        len = mtu * (1 + below(stream, 4)) + below(stream, 3) - 1;
        break;
    case 2:
        break;
    default:
        len = below(stream, 300);
        break;
    }
    return len > stream->len_max ? stream->len_max : len;
}

void stream_post_receives(struct stream *stream)
{
    while (sw_sim_receive_count(stream->to) < STREAM_SLOTS - 1) {
        uint32_t slot = stream->receive_next % STREAM_SLOTS;
        struct sw_sim_receive receive = {.id = stream->receive_next,
                                         .addr = stream->receives + slot * STREAM_LEN_MAX,
                                         .len_bytes = STREAM_LEN_MAX,
                                         .cut_bytes = below(stream, 4000)};
        if (!sw_sim_post_receive(stream->to, &receive))
            return;
        stream->receive_next++;
    }
}

void stream_begin(struct stream *stream)
{
    struct sw_sim_host *target = stream->to->host;
    memset(sw_sim_host_at(target, stream->window - STREAM_GUARD), 0xa5,
           STREAM_WINDOW + 2 * STREAM_GUARD);
    memset(stream->shadow, 0xa5, sizeof(stream->shadow));
    memset(stream->shadow, 0, COUNTERS);
    memset(sw_sim_host_at(target, stream->window), 0, COUNTERS);
    stream_post_receives(stream);
}

/* ---- drawing requests ---- */

static void to_window(struct stream *stream, struct sw_request *request, uint32_t len)
{
    request->len_bytes = len;
    request->rkey = stream->window_key;
    request->remote_addr =
        stream->window + COUNTERS + below(stream, STREAM_WINDOW - COUNTERS - len + 1);
}

static uint8_t *shadow_at(struct stream *stream, uint64_t addr)
{
    return stream->shadow + (addr - stream->window);
}

static void expect_message(struct stream *stream, const struct stream_op *op, bool is_write)
{
    stream->messages[stream->message_tail++ % STREAM_MESSAGES] =
        (struct stream_message){.len_bytes = op->request.len_bytes,
                                .pattern = op->pattern,
                                .imm = op->request.imm_or_key,
                                .has_imm = op->request.flags & SW_REQUEST_IMM,
                                .is_write = is_write};
}

static void draw_send(struct stream *stream, struct stream_op *op)
{
    op->request.kind = SW_REQUEST_SEND;
    op->request.len_bytes = draw_len(stream);
    if (!stream->reliable || below(stream, 3) == 0)
        op->request.flags |= SW_REQUEST_IMM; /* tells which one it is, where some are lost */
    stream_fill(local_at(stream, op->id), op->request.len_bytes, op->pattern);
    expect_message(stream, op, false);
}

static void draw_write(struct stream *stream, struct stream_op *op)
{
    op->request.kind = SW_REQUEST_WRITE;
    to_window(stream, &op->request, draw_len(stream));
    uint32_t len = op->request.len_bytes;
    stream_fill(local_at(stream, op->id), len, op->pattern);
    stream_fill(shadow_at(stream, op->request.remote_addr), len, op->pattern);
    if (below(stream, 4) == 0) {
        op->request.flags |= SW_REQUEST_IMM;
        expect_message(stream, op, true);
    }
}

static void draw_read(struct stream *stream, struct stream_op *op)
{
    struct sw_request *request = &op->request;
    uint8_t *expected = stream->expected[op->id % STREAM_SLOTS];
    uint32_t len = draw_len(stream);
    request->kind = SW_REQUEST_READ;
    if (below(stream, 2)) {
        request->rkey = stream->common->plain_key;
        request->len_bytes = len;
        request->remote_addr =
            stream->common->plain + below(stream, stream->common->plain_len - len + 1);
        memcpy(expected, sw_sim_host_at(stream->to->host, request->remote_addr), len);
    } else {
        to_window(stream, request, len);
        memcpy(expected, shadow_at(stream, request->remote_addr), len);
        stream->fence_next = true; /* what comes later must not change it before it is read */
    }
}

static void draw_atomic(struct stream *stream, struct stream_op *op)
{
    struct sw_request *request = &op->request;
    uint32_t which = below(stream, 4);
    request->len_bytes = 8;
    request->rkey = stream->window_key;
    request->remote_addr = stream->window + 8 * which;
    uint64_t *word = (uint64_t *)(void *)shadow_at(stream, request->remote_addr);
    op->original = *word;
    request->compare_add = sw_sim_random(stream->world);
    request->swap = sw_sim_random(stream->world);
    switch (which) {
    case 0:
        request->kind = SW_REQUEST_FETCH_ADD;
        *word += request->compare_add;
        break;
    case 1:
        request->kind = SW_REQUEST_CMP_SWAP;
        if (below(stream, 2))
            request->compare_add = *word;
        *word = *word == request->compare_add ? request->swap : *word;
        break;
    case 2:
        request->kind = SW_REQUEST_ATOMIC_WRITE;
        *word = request->compare_add;
        break;
    default:
        request->kind = SW_REQUEST_FETCH_ADD;
        request->rkey = stream->common->counter_key;
        request->remote_addr = stream->common->counter;
        request->compare_add = 1;
        op->shared = true;
        break;
    }
}

/* Asks for what it has no right to, in one of several ways. */
static void draw_trespass(struct stream *stream, struct stream_op *op)
{
    struct sw_request *request = &op->request;
    request->kind = below(stream, 2) ? SW_REQUEST_WRITE : SW_REQUEST_READ;
    to_window(stream, request, 1 + below(stream, 5000));
    stream_fill(local_at(stream, op->id), request->len_bytes, op->pattern);
    switch (below(stream, 4)) {
    case 0:
        request->rkey ^= 1u << below(stream, 24);
        break;
    case 1:
        request->rkey = stream->common->secret_key;
        request->remote_addr = stream->common->secret;
        break;
    case 2: /* past the end */
        request->remote_addr = stream->window + STREAM_WINDOW - request->len_bytes + 1;
        break;
    default: /* around the end of the address space */
        request->remote_addr = UINT64_MAX - below(stream, 100);
        break;
    }
}

static void draw_flush(struct stream *stream, struct stream_op *op)
{
    op->request.kind = SW_REQUEST_FLUSH;
    op->request.flush_type = SW_FLUSH_VISIBLE;
    to_window(stream, &op->request, below(stream, 1000));
}

static void draw(struct stream *stream, struct stream_op *op)
{
    *op = (struct stream_op){.id = stream->next_id, .pattern = (uint32_t)stream->next_id + 1};
    op->request.imm_or_key = (uint32_t)op->id;
    if (below(stream, 10) == 0 || stream->fence_next)
        op->request.flags = SW_REQUEST_FENCE;
    stream->fence_next = false;
    uint32_t kind = below(stream, stream->reliable ? 12 : 6);
    if (stream->mood == STREAM_ROGUE && stream->ops_left == 1)
        draw_trespass(stream, op);
    else if (kind < 3)
        draw_send(stream, op);
    else if (kind < 6)
        draw_write(stream, op);
    else if (kind < 9)
        draw_read(stream, op);
    else if (kind < 11)
        draw_atomic(stream, op);
    else
        draw_flush(stream, op);
}

void stream_post(struct stream *stream)
{
    while (stream->ops_left && !stream->failed &&
           stream->next_id - stream->done_id < STREAM_SLOTS &&
           stream->message_tail - stream->message_head < STREAM_MESSAGES - 1) {
        struct stream_op *op = &stream->ops[stream->next_id % STREAM_SLOTS];
        if (stream->from->dead)
            return;
        draw(stream, op);
        uint64_t local = stream->local + op->id % STREAM_SLOTS * STREAM_LEN_MAX;
        if (!sw_sim_post_send(stream->from, &op->request, op->id, local)) {
            blame(stream, "a request was refused", "id %llu", (unsigned long long)op->id);
            return;
        }
        stream->next_id++;
        stream->ops_left--;
    }
}

/* ---- what must come of them ---- */

static void check_atomic(struct stream *stream, const struct stream_op *op, uint64_t original)
{
    struct stream_common *common = stream->common;
    if (!op->shared) {
        if (op->request.kind != SW_REQUEST_ATOMIC_WRITE && original != op->original)
            blame(stream, "an atomic returned another value", "id %llu: %llx instead of %llx",
                  (unsigned long long)op->id, (unsigned long long)original,
                  (unsigned long long)op->original);
        return;
    }
    common->added++;
    if (original >= sizeof(common->seen) * 8 || common->seen[original / 8] >> original % 8 & 1)
        blame(stream, "a shared counter gave out a value twice", "%llu",
              (unsigned long long)original);
    else
        common->seen[original / 8] |= (uint8_t)(1u << original % 8);
}

static void check_success(struct stream *stream, const struct stream_op *op, uint64_t original)
{
    const struct sw_request *request = &op->request;
    if (stream->mood == STREAM_ROGUE && stream->ops_left == 0 && op->id + 1 == stream->next_id)
        blame(stream, "a trespass succeeded", "id %llu", (unsigned long long)op->id);
    if (request->kind == SW_REQUEST_READ &&
        memcmp(local_at(stream, op->id), stream->expected[op->id % STREAM_SLOTS],
               request->len_bytes))
        blame(stream, "a READ brought other bytes", "id %llu, %u bytes from %llx",
              (unsigned long long)op->id, request->len_bytes,
              (unsigned long long)request->remote_addr);
    if (request->kind == SW_REQUEST_CMP_SWAP || request->kind == SW_REQUEST_FETCH_ADD)
        check_atomic(stream, op, original);
}

void stream_sent(struct stream *stream, const struct sw_sim_completion *wc)
{
    const struct stream_op *op = &stream->ops[stream->done_id % STREAM_SLOTS];
    if (stream->done_id == stream->next_id || wc->id != op->id) {
        blame(stream, "completions out of order", "id %llu after %llu", (unsigned long long)wc->id,
              (unsigned long long)stream->done_id);
        return;
    }
    stream->done_id++;
    if (wc->status == IBV_WC_SUCCESS) {
        if (stream->failed)
            blame(stream, "success after an error", "id %llu", (unsigned long long)wc->id);
        check_success(stream, op, wc->original);
        return;
    }
    stream->flushed++;
    if (stream->mood == STREAM_TRUE)
        blame(stream, "a request failed", "id %llu, kind %u: status %d", (unsigned long long)wc->id,
              op->request.kind, wc->status);
    if (stream->mood == STREAM_ROGUE && wc->status != IBV_WC_WR_FLUSH_ERR &&
        (wc->status != IBV_WC_REM_ACCESS_ERR || op->id + 1 != stream->next_id))
        blame(stream, "a trespass failed otherwise", "id %llu: status %d",
              (unsigned long long)wc->id, wc->status);
    if (stream->mood == STREAM_DOOMED && wc->status != IBV_WC_WR_FLUSH_ERR &&
        wc->status != IBV_WC_RETRY_EXC_ERR)
        blame(stream, "a cut path failed otherwise", "id %llu: status %d",
              (unsigned long long)wc->id, wc->status);
    stream->failed = true;
}

/* The message that a completion tells of; where some are lost those before it are. */
static const struct stream_message *match(struct stream *stream, const struct sw_sim_completion *wc)
{
    while (stream->message_head != stream->message_tail) {
        const struct stream_message *next =
            &stream->messages[stream->message_head++ % STREAM_MESSAGES];
        if (stream->reliable || (wc->has_imm && wc->imm == next->imm))
            return next;
        stream->lost++;
    }
    return NULL;
}

void stream_received(struct stream *stream, const struct sw_sim_completion *wc)
{
    if (wc->status == IBV_WC_WR_FLUSH_ERR) {
        if (stream->mood == STREAM_TRUE)
            blame(stream, "a receive was flushed", "id %llu", (unsigned long long)wc->id);
        return;
    }
    const struct stream_message *message = match(stream, wc);
    if (!message) {
        blame(stream, "a message that nobody sent", "receive %llu, %u bytes",
              (unsigned long long)wc->id, wc->byte_len);
        return;
    }
    stream->delivered++;
    uint8_t *bytes =
        sw_sim_host_at(stream->to->host, stream->receives + wc->id % STREAM_SLOTS * STREAM_LEN_MAX);
    if (wc->byte_len != message->len_bytes || wc->has_imm != message->has_imm ||
        (wc->has_imm && wc->imm != message->imm))
        blame(stream, "a message of another shape", "%u bytes instead of %u", wc->byte_len,
              message->len_bytes);
    else if (!message->is_write && !is_filled(bytes, wc->byte_len, message->pattern))
        blame(stream, "a message of other bytes", "receive %llu, %u bytes",
              (unsigned long long)wc->id, wc->byte_len);
    if (sw_sim_below(stream->world, 4)) /* else later, so that there is none at times */
        stream_post_receives(stream);
}

bool stream_is_over(const struct stream *stream)
{
    return stream->done_id == stream->next_id &&
           (stream->failed || stream->ops_left == 0 || stream->from->dead);
}

static bool is_untouched(const uint8_t *bytes, uint32_t len_bytes)
{
    for (uint32_t i = 0; i < len_bytes; i++)
        if (bytes[i] != 0xa5)
            return false;
    return true;
}

void stream_check(struct stream *stream)
{
    const uint8_t *window = sw_sim_host_at(stream->to->host, stream->window);
    if (!is_untouched(window - STREAM_GUARD, STREAM_GUARD) ||
        !is_untouched(window + STREAM_WINDOW, STREAM_GUARD))
        blame(stream, "bytes beside the window changed", "%s", "");
    if (stream->mood == STREAM_TRUE && stream->reliable) {
        for (uint32_t i = 0; i < STREAM_WINDOW; i++) {
            if (window[i] != stream->shadow[i]) {
                blame(stream, "the window holds other bytes", "at %u: %02x instead of %02x", i,
                      window[i], stream->shadow[i]);
                break;
            }
        }
        if (stream->message_head != stream->message_tail)
            blame(stream, "messages were not delivered", "%u of them",
                  stream->message_tail - stream->message_head);
    }
}
