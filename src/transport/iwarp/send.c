/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What leaves: the empty message of a start, requests and answers, a Terminate. A message is
 * finished before the next one begins, since a peer (siw) takes no segments of two tagged messages
 * in turn; requests and answers take turns between messages.
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "transport/iwarp/iwarp_impl.h"
#include "wire/bytes.h"
#include "wire/iwarp/mpa.h"

/* Chelsio's NICs drop a connection on STag 0, even where it does not matter: siw writes 1. */
#define STAG_OF_NOTHING 1u

/* ---- the head of an FPDU ---- */

/* The body of `body_len` bytes lies behind the header already. */
static void write_head(struct sw_iwarp_emission *out, const struct sw_ddp_segment *segment,
                       uint32_t body_len)
{
    const uint32_t header_len = sw_ddp_encode(segment, out->head + SW_FPDU_LENGTH_BYTES);
    out->head_len = (uint8_t)(SW_FPDU_LENGTH_BYTES + header_len + body_len);
    out->payload_len = segment->payload_len;
    sw_be16_store(out->head, (uint16_t)sw_iwarp_ulpdu_len(out));
}

uint8_t *sw_iwarp_body_at(struct sw_iwarp_emission *out)
{
    return out->head + SW_FPDU_LENGTH_BYTES + SW_DDP_UNTAGGED_BYTES;
}

/* An untagged message that is one segment, its body written. */
void sw_iwarp_write_single(struct sw_iwarp *w, enum sw_rdmap_kind kind, uint32_t body_len,
                           struct sw_iwarp_emission *out)
{
    const struct sw_rdmap_opcode *opcode = sw_rdmap_opcode_of((uint8_t)kind);
    const struct sw_ddp_segment segment = {
        .opcode = opcode, .last = true, .msn = w->msn_out[opcode->queue]++};
    write_head(out, &segment, body_len);
}

static void write_empty(enum sw_rdmap_kind kind, uint32_t stag, uint64_t to,
                        struct sw_iwarp_emission *out)
{
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of((uint8_t)kind), .last = true, .stag = stag, .to = to};
    write_head(out, &segment, 0);
}

/* ---- READs and atomics of ours ---- */

/* Never 0, and different from those that are outstanding. */
static uint32_t make_token(struct sw_iwarp *w)
{
    uint32_t token;
    do
        token = w->config.token_seed + w->tokens++ * 0x9e3779b1u;
    while (token == 0);
    return token;
}

static struct sw_iwarp_read *add_read(struct sw_iwarp *w, uint32_t len_bytes, bool is_atomic)
{
    assert(w->read_count < SW_IWARP_DEPTH_MAX);
    const uint32_t at = (w->read_head + w->read_count++) % SW_IWARP_DEPTH_MAX;
    w->reads[at] = (struct sw_iwarp_read){.position = w->sent,
                                          .token = make_token(w),
                                          .len_bytes = len_bytes,
                                          .is_atomic = is_atomic,
                                          .has_sink = true};
    return &w->reads[at];
}

static void emit_read(struct sw_iwarp *w, const struct sw_request *request,
                      struct sw_iwarp_emission *out)
{
    const struct sw_iwarp_read *entry = add_read(w, request->len_bytes, false);
    const bool is_empty = request->len_bytes == 0;
    const struct sw_rdmap_read read = {
        .sink_stag = entry->token,
        .len_bytes = request->len_bytes,
        .source_stag = is_empty ? STAG_OF_NOTHING : request->rkey,
        .source_to = request->remote_addr,
    };
    sw_rdmap_read_encode(&read, sw_iwarp_body_at(out));
    sw_iwarp_write_single(w, SW_RDMAP_READ_REQUEST, SW_RDMAP_READ_BYTES, out);
}

static void emit_atomic(struct sw_iwarp *w, const struct sw_request *request,
                        struct sw_iwarp_emission *out)
{
    const bool swaps = request->kind == SW_REQUEST_CMP_SWAP;
    const struct sw_rdmap_atomic atomic = {
        .kind = swaps ? SW_RDMAP_CMP_SWAP : SW_RDMAP_FETCH_ADD,
        .id = add_read(w, sizeof(uint64_t), true)->token,
        .stag = request->rkey,
        .to = request->remote_addr,
        .data = swaps ? request->swap : request->compare_add,
        .data_mask = swaps ? UINT64_MAX : 0, /* the whole word is stored; carries go all the way */
        .compare = swaps ? request->compare_add : 0,
        .compare_mask = swaps ? UINT64_MAX : 0,
    };
    sw_rdmap_atomic_encode(&atomic, sw_iwarp_body_at(out));
    sw_iwarp_write_single(w, SW_RDMAP_ATOMIC_REQUEST, SW_RDMAP_ATOMIC_REQUEST_BYTES, out);
}

/* The eight bytes go as they lie in memory. */
static void emit_atomic_write(struct sw_iwarp *w, const struct sw_request *request,
                              struct sw_iwarp_emission *out)
{
    struct sw_iwarp_read *entry = add_read(w, sizeof(uint64_t), true);
    const struct sw_rdmap_atomic atomic = {
        .kind = SW_RDMAP_ATOMIC_WRITE,
        .id = entry->token,
        .stag = request->rkey,
        .to = request->remote_addr,
        .data = sw_be64_load((const uint8_t *)&request->compare_add),
        .data_mask = UINT64_MAX,
    };
    entry->has_sink = false;
    sw_rdmap_atomic_encode(&atomic, sw_iwarp_body_at(out));
    sw_iwarp_write_single(w, SW_RDMAP_ATOMIC_REQUEST, SW_RDMAP_ATOMIC_REQUEST_BYTES, out);
}

static void emit_flush(struct sw_iwarp *w, const struct sw_request *request,
                       struct sw_iwarp_emission *out)
{
    struct sw_iwarp_read *entry = add_read(w, sizeof(uint64_t), true);
    const struct sw_rdmap_flush flush = {
        .type = request->flush_type,
        .id = entry->token,
        .stag = request->rkey,
        .len_bytes = request->len_bytes,
        .to = request->remote_addr,
    };
    entry->has_sink = false;
    sw_rdmap_flush_encode(&flush, sw_iwarp_body_at(out));
    sw_iwarp_write_single(w, SW_RDMAP_FLUSH, SW_RDMAP_FLUSH_BYTES, out);
}

/* ---- SENDs and WRITEs ---- */

static uint8_t send_kind_of(const struct sw_request *request)
{
    const bool invalidates = request->flags & SW_REQUEST_INV;
    if (request->flags & SW_REQUEST_SOLICITED)
        return invalidates ? SW_RDMAP_SEND_SE_INV : SW_RDMAP_SEND_SE;
    return invalidates ? SW_RDMAP_SEND_INV : SW_RDMAP_SEND;
}

/* The next segment of the request's data; whether it was the last. */
static bool emit_segment(struct sw_iwarp *w, const struct sw_request *request, uint8_t kind,
                         struct sw_iwarp_emission *out)
{
    const struct sw_rdmap_opcode *opcode = sw_rdmap_opcode_of(kind);
    const uint32_t left = request->len_bytes - w->sent_bytes;
    /* Words of eight bytes stay whole. */
    const uint32_t room = (w->ulpdu_max - sw_ddp_header_len(opcode)) & ~7u;
    struct sw_ddp_segment segment = {.opcode = opcode,
                                     .last = left <= room,
                                     .msn = w->msn_out[opcode->queue],
                                     .mo = w->sent_bytes,
                                     .payload_len = sw_min_u32(left, room)};
    if (opcode->is_tagged) {
        segment.stag = request->len_bytes ? request->rkey : STAG_OF_NOTHING;
        segment.to = request->remote_addr + w->sent_bytes;
    } else if (opcode->invalidates) {
        segment.stag = request->imm_or_key;
    }
    out->source = segment.payload_len ? SW_PAYLOAD_REQUEST : SW_PAYLOAD_NONE;
    out->position = w->sent;
    out->offset = w->sent_bytes;
    write_head(out, &segment, 0);
    w->sent_bytes += segment.payload_len;
    w->paired.out += segment.last;
    if (segment.last && !opcode->is_tagged)
        w->msn_out[opcode->queue]++;
    return segment.last;
}

/* The immediate is the lower word of eight bytes. */
static void emit_immediate(struct sw_iwarp *w, const struct sw_request *request,
                           struct sw_iwarp_emission *out)
{
    const bool solicited = request->flags & SW_REQUEST_SOLICITED;
    w->paired.out++;
    memset(sw_iwarp_body_at(out), 0, SW_RDMAP_IMMEDIATE_BYTES);
    memcpy(sw_iwarp_body_at(out) + 4, &request->imm_or_key, sizeof(request->imm_or_key));
    sw_iwarp_write_single(w, solicited ? SW_RDMAP_IMMEDIATE_SE : SW_RDMAP_IMMEDIATE,
                          SW_RDMAP_IMMEDIATE_BYTES, out);
}

/* Whether the WRITE is out as a whole. */
static bool emit_write(struct sw_iwarp *w, const struct sw_request *request,
                       struct sw_iwarp_emission *out)
{
    const bool has_imm = request->flags & SW_REQUEST_IMM;
    if (w->is_begun && w->sent_bytes == request->len_bytes) {
        emit_immediate(w, request, out);
        return true;
    }
    return emit_segment(w, request, SW_RDMAP_WRITE, out) && !has_imm;
}

static bool send_may_begin(const struct sw_iwarp *w, const struct sw_request *request)
{
    if (request->kind == SW_REQUEST_LOCAL)
        return false; /* the user's turn, once all before it is complete */
    if ((request->flags & SW_REQUEST_FENCE) && w->read_count)
        return false;
    /* A peer may count the READ of the start as one of those agreed on. */
    return !sw_request_is_answered(request) ||
           w->read_count + w->awaits_rtr_response < w->config.ord;
}

static void emit_answered(struct sw_iwarp *w, const struct sw_request *request,
                          struct sw_iwarp_emission *out)
{
    switch ((enum sw_request_kind)request->kind) {
    case SW_REQUEST_READ:
        emit_read(w, request, out);
        break;
    case SW_REQUEST_CMP_SWAP:
    case SW_REQUEST_FETCH_ADD:
        emit_atomic(w, request, out);
        break;
    case SW_REQUEST_ATOMIC_WRITE:
        emit_atomic_write(w, request, out);
        break;
    case SW_REQUEST_FLUSH:
        emit_flush(w, request, out);
        break;
    case SW_REQUEST_SEND:
    case SW_REQUEST_WRITE:
    case SW_REQUEST_LOCAL:
        break;
    }
    w->paired.out++;
}

/* Whether the request is out as a whole. */
static bool emit_request(struct sw_iwarp *w, const struct sw_request *request,
                         struct sw_iwarp_emission *out)
{
    if (request->kind == SW_REQUEST_SEND)
        return emit_segment(w, request, send_kind_of(request), out);
    if (request->kind == SW_REQUEST_WRITE)
        return emit_write(w, request, out);
    emit_answered(w, request, out);
    return true;
}

static bool is_to_be_announced(const struct sw_iwarp *w, const struct sw_request *request)
{
    return request->kind == SW_REQUEST_SEND && (request->flags & SW_REQUEST_IMM) && !w->is_begun &&
           !w->paired.is_announced;
}

static bool send_next_request(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    struct sw_request *request = sw_iwarp_request_at(w, w->sent);
    if (w->sent == w->tail || sw_iwarp_paired_holds(w) ||
        (!w->is_begun && !send_may_begin(w, request)))
        return false;
    if (is_to_be_announced(w, request)) {
        sw_iwarp_paired_announce(w, request, out);
        return true;
    }
    const bool is_out = emit_request(w, request, out);
    w->is_begun = !is_out;
    if (is_out) {
        request->seq = w->paired.out;
        w->paired.is_announced = false;
        w->sent++;
        w->sent_bytes = 0;
        sw_iwarp_advance(w);
    }
    return true;
}

/* ---- answers ---- */

static void emit_response(struct sw_iwarp *w, struct sw_iwarp_answer *answer,
                          struct sw_iwarp_emission *out)
{
    const uint32_t left = answer->len_bytes - answer->sent_bytes;
    const uint32_t room = w->ulpdu_max - SW_DDP_TAGGED_BYTES;
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_READ_RESPONSE),
        .last = left <= room,
        .stag = answer->sink_stag,
        .to = answer->sink_to + answer->sent_bytes,
        .payload_len = sw_min_u32(left, room),
    };
    out->source = segment.payload_len ? SW_PAYLOAD_MEMORY : SW_PAYLOAD_NONE;
    out->addr = answer->addr + answer->sent_bytes;
    out->rkey = answer->rkey;
    write_head(out, &segment, 0);
    answer->sent_bytes += segment.payload_len;
}

static void emit_original(struct sw_iwarp *w, const struct sw_iwarp_answer *answer,
                          struct sw_iwarp_emission *out)
{
    const struct sw_rdmap_original original = {.id = answer->sink_stag, .value = answer->original};
    sw_rdmap_original_encode(&original, sw_iwarp_body_at(out));
    sw_iwarp_write_single(w, SW_RDMAP_ATOMIC_RESPONSE, SW_RDMAP_ATOMIC_RESPONSE_BYTES, out);
}

static bool next_answer(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    if (!w->answer_count)
        return false;
    struct sw_iwarp_answer *answer = sw_iwarp_oldest_answer(w);
    if (answer->is_atomic)
        emit_original(w, answer, out);
    else
        emit_response(w, answer, out);
    if (answer->is_atomic || answer->sent_bytes == answer->len_bytes) {
        w->owes_rtr &= !answer->is_rtr;
        w->answer_head = (w->answer_head + 1) % SW_IWARP_ANSWERS;
        w->answer_count--;
    }
    return true;
}

/* ---- the order ---- */

static void emit_rtr(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    w->is_rtr_due = false;
    if (w->config.rtr == SW_MPA_RTR_WRITE) {
        write_empty(SW_RDMAP_WRITE, STAG_OF_NOTHING, 0, out);
    } else if (w->config.rtr == SW_MPA_RTR_SEND) {
        sw_iwarp_write_single(w, SW_RDMAP_SEND, 0, out);
    } else {
        const struct sw_rdmap_read read = {.sink_stag = STAG_OF_NOTHING,
                                           .source_stag = STAG_OF_NOTHING};
        sw_rdmap_read_encode(&read, sw_iwarp_body_at(out));
        sw_iwarp_write_single(w, SW_RDMAP_READ_REQUEST, SW_RDMAP_READ_BYTES, out);
        w->awaits_rtr_response = true;
    }
}

void sw_iwarp_emit_terminate(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    w->is_due = false;
    sw_iwarp_write_single(w, SW_RDMAP_TERMINATE,
                          sw_terminate_encode(&w->terminate, sw_iwarp_body_at(out)), out);
}

static bool take_turns(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    const bool answers = w->answers_next;
    if (answers ? next_answer(w, out) : send_next_request(w, out)) {
        w->answers_next = !answers;
        return true;
    }
    return answers ? send_next_request(w, out) : next_answer(w, out);
}

/* Between queue pairs the peer hears what became of all that came before a fault. */
static bool next_paired(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    if (w->is_begun)
        return send_next_request(w, out);
    if (w->answer_count && sw_iwarp_oldest_answer(w)->sent_bytes)
        return next_answer(w, out);
    if (!w->over)
        sw_iwarp_paired_rewind(w);
    if (sw_iwarp_paired_say(w, out))
        return true;
    if (!w->over)
        return take_turns(w, out);
    if (!w->is_due)
        return false;
    if (!next_answer(w, out))
        sw_iwarp_emit_terminate(w, out);
    return true;
}

bool sw_iwarp_next(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    *out = (struct sw_iwarp_emission){.source = SW_PAYLOAD_NONE};
    if (w->config.is_paired)
        return next_paired(w, out);
    if (w->is_due) {
        if (w->is_begun || !next_answer(w, out))
            sw_iwarp_emit_terminate(w, out);
        return true;
    }
    if (w->over || w->is_held)
        return false;
    if (w->is_rtr_due) {
        emit_rtr(w, out);
        return true;
    }
    if (w->is_begun)
        return send_next_request(w, out);
    if (w->answer_count && sw_iwarp_oldest_answer(w)->sent_bytes)
        return next_answer(w, out);
    if (w->is_nudge_due) {
        w->is_nudge_due = false;
        write_empty(SW_RDMAP_WRITE, STAG_OF_NOTHING, 0, out);
        return true;
    }
    return take_turns(w, out);
}
