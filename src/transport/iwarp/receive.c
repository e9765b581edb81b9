/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes: whether it is in its place, what it asks for, and what is said where it is not. */
#include <assert.h>
#include <string.h>

#include "transport/iwarp/iwarp_impl.h"
#include "wire/aeth.h"
#include "wire/bytes.h"
#include "wire/iwarp/mpa.h"

struct arrival {
    struct sw_ddp_segment segment;
    const uint8_t *ulpdu;
    uint32_t len;
};

static enum sw_iwarp_step refuse_arrival(struct sw_iwarp *w, enum sw_terminate_cause cause,
                                         const struct arrival *arrival)
{
    sw_iwarp_refuse_ulpdu(w, (uint16_t)cause, arrival->ulpdu, arrival->len);
    return SW_IWARP_NOTHING;
}

static enum sw_iwarp_step ask_user(struct sw_iwarp *w, const struct arrival *arrival)
{
    w->admitted = arrival->ulpdu;
    w->admitted_len = arrival->len;
    return SW_IWARP_DEMAND;
}

static bool does_wrap(uint64_t addr, uint64_t len_bytes)
{
    return len_bytes && addr + (len_bytes - 1) < addr;
}

/* ---- one-sided ---- */

static enum sw_iwarp_step admit_write(struct sw_iwarp *w, const struct arrival *arrival,
                                      struct sw_demand *demand)
{
    const struct sw_ddp_segment *segment = &arrival->segment;
    const bool is_first = !w->in_write;
    if (does_wrap(segment->to, segment->payload_len))
        return refuse_arrival(w, SW_TERMINATE_WRAP, arrival);
    w->written = (is_first ? 0 : w->written) + segment->payload_len;
    w->in_write = !segment->last;
    if (segment->payload_len == 0 && !w->config.is_paired)
        return SW_IWARP_NOTHING; /* neither its STag nor its rights are looked at */
    *demand = (struct sw_demand){
        .kind = SW_DEMAND_WRITE,
        .first = is_first,
        .last = segment->last,
        .rkey = segment->stag,
        .addr = segment->to,
        .offset = w->written - segment->payload_len,
        .total = w->written,
        .payload = segment->payload,
        .len_bytes = segment->payload_len,
        .pieces = 1,
    };
    return ask_user(w, arrival);
}

static void receive_add_answer(struct sw_iwarp *w, const struct sw_iwarp_answer *answer)
{
    assert(w->answer_count < SW_IWARP_ANSWERS);
    w->answers[(w->answer_head + w->answer_count++) % SW_IWARP_ANSWERS] = *answer;
    w->owes_rtr |= answer->is_rtr;
}

static bool has_room_for_answer(const struct sw_iwarp *w, bool is_rtr)
{
    return is_rtr || w->answer_count - w->owes_rtr < w->config.ird;
}

static enum sw_iwarp_step admit_read(struct sw_iwarp *w, const struct arrival *arrival, bool is_rtr,
                                     struct sw_demand *demand)
{
    struct sw_rdmap_read read;
    sw_rdmap_read_decode(arrival->segment.payload, &read);
    is_rtr = is_rtr && read.len_bytes == 0;
    if (!has_room_for_answer(w, is_rtr))
        return refuse_arrival(w, SW_TERMINATE_STREAM, arrival);
    if (does_wrap(read.source_to, read.len_bytes))
        return refuse_arrival(w, SW_TERMINATE_READ_WRAP, arrival);
    w->wanted = (struct sw_iwarp_answer){
        .is_rtr = is_rtr,
        .sink_stag = read.sink_stag,
        .rkey = read.source_stag,
        .len_bytes = read.len_bytes,
        .sink_to = read.sink_to,
        .addr = read.source_to,
    };
    if (read.len_bytes == 0 && !w->config.is_paired) {
        receive_add_answer(w, &w->wanted);
        return SW_IWARP_NOTHING;
    }
    *demand = (struct sw_demand){
        .kind = SW_DEMAND_READ,
        .first = true,
        .last = true,
        .rkey = read.source_stag,
        .addr = read.source_to,
        .total = read.len_bytes,
        .pieces = 1,
    };
    return ask_user(w, arrival);
}

static enum sw_iwarp_step admit_atomic_write(struct sw_iwarp *w, const struct arrival *arrival,
                                             const struct sw_rdmap_atomic *atomic,
                                             struct sw_demand *demand)
{
    if (does_wrap(atomic->to, sizeof(uint64_t)))
        return refuse_arrival(w, SW_TERMINATE_READ_WRAP, arrival);
    w->wanted = (struct sw_iwarp_answer){.is_atomic = true, .sink_stag = atomic->id};
    *demand = (struct sw_demand){
        .kind = SW_DEMAND_ATOMIC_WRITE,
        .first = true,
        .last = true,
        .rkey = atomic->stag,
        .addr = atomic->to,
        .total = sizeof(uint64_t),
        .pieces = 1,
    };
    sw_be64_store((uint8_t *)&demand->compare_add, atomic->data);
    return ask_user(w, arrival);
}

static enum sw_iwarp_step admit_flush(struct sw_iwarp *w, const struct arrival *arrival,
                                      struct sw_demand *demand)
{
    struct sw_rdmap_flush flush;
    sw_rdmap_flush_decode(arrival->segment.payload, &flush);
    if (!has_room_for_answer(w, false))
        return refuse_arrival(w, SW_TERMINATE_STREAM, arrival);
    w->wanted = (struct sw_iwarp_answer){.is_atomic = true, .sink_stag = flush.id};
    *demand = (struct sw_demand){
        .kind = SW_DEMAND_FLUSH,
        .first = true,
        .last = true,
        .rkey = flush.stag,
        .flush_type = flush.type,
        .addr = flush.to,
        .total = flush.len_bytes,
        .pieces = 1,
    };
    return ask_user(w, arrival);
}

static enum sw_iwarp_step admit_atomic(struct sw_iwarp *w, const struct arrival *arrival,
                                       struct sw_demand *demand)
{
    struct sw_rdmap_atomic atomic;
    sw_rdmap_atomic_decode(arrival->segment.payload, &atomic);
    const bool swaps = atomic.kind == SW_RDMAP_CMP_SWAP;
    if (!has_room_for_answer(w, false))
        return refuse_arrival(w, SW_TERMINATE_STREAM, arrival);
    if (atomic.kind == SW_RDMAP_ATOMIC_WRITE && w->config.is_paired)
        return admit_atomic_write(w, arrival, &atomic, demand);
    if (!swaps && atomic.kind != SW_RDMAP_FETCH_ADD)
        return refuse_arrival(w, SW_TERMINATE_OPCODE, arrival);
    /* Verbs have no masks. */
    if (swaps ? (atomic.data_mask & atomic.compare_mask) != UINT64_MAX : atomic.data_mask != 0)
        return refuse_arrival(w, SW_TERMINATE_UNSPECIFIED, arrival);
    if (does_wrap(atomic.to, sizeof(uint64_t)))
        return refuse_arrival(w, SW_TERMINATE_READ_WRAP, arrival);
    w->wanted = (struct sw_iwarp_answer){.is_atomic = true, .sink_stag = atomic.id};
    *demand = (struct sw_demand){
        .kind = swaps ? SW_DEMAND_CMP_SWAP : SW_DEMAND_FETCH_ADD,
        .first = true,
        .last = true,
        .rkey = atomic.stag,
        .addr = atomic.to,
        .total = sizeof(uint64_t),
        .pieces = 1,
        .compare_add = swaps ? atomic.compare : atomic.data,
        .swap = atomic.data,
    };
    return ask_user(w, arrival);
}

/* ---- SENDs ---- */

static enum sw_iwarp_step admit_send(struct sw_iwarp *w, const struct arrival *arrival, bool is_rtr,
                                     struct sw_demand *demand)
{
    const struct sw_ddp_segment *segment = &arrival->segment;
    if (w->in_send && w->send_kind != segment->opcode->number)
        return refuse_arrival(w, SW_TERMINATE_OPCODE, arrival);
    if ((uint64_t)w->send_mo + segment->payload_len > UINT32_MAX)
        return refuse_arrival(w, SW_TERMINATE_TOO_LONG, arrival);
    const bool is_first = !w->in_send;
    w->in_send = !segment->last;
    w->send_kind = segment->opcode->number;
    w->send_mo = segment->last ? 0 : segment->mo + segment->payload_len;
    w->msn_in[SW_DDP_QUEUE_SEND] += segment->last;
    if (is_rtr && segment->last && segment->payload_len == 0)
        return SW_IWARP_NOTHING;
    *demand = (struct sw_demand){
        .kind = SW_DEMAND_SEND,
        .first = is_first,
        .last = segment->last,
        .has_imm = w->paired.has_imm,
        .imm_be = w->paired.imm_be,
        .has_inv = segment->opcode->invalidates,
        .solicited = segment->opcode->solicited,
        .inv_rkey = segment->opcode->invalidates ? segment->stag : 0,
        .offset = segment->mo,
        .payload = segment->payload,
        .len_bytes = segment->payload_len,
        .pieces = 1,
    };
    return ask_user(w, arrival);
}

/* It is told as the end of the WRITE before it, which is what it was for its sender. */
static enum sw_iwarp_step admit_immediate(struct sw_iwarp *w, const struct arrival *arrival,
                                          struct sw_demand *demand)
{
    const struct sw_ddp_segment *segment = &arrival->segment;
    if (w->in_send)
        return refuse_arrival(w, SW_TERMINATE_OPCODE, arrival);
    w->msn_in[SW_DDP_QUEUE_SEND]++;
    if (w->config.is_paired && segment->payload[0]) {
        if (!sw_iwarp_paired_take(w, segment->payload))
            refuse_arrival(w, SW_TERMINATE_UNSPECIFIED, arrival);
        return SW_IWARP_NOTHING;
    }
    *demand = (struct sw_demand){
        .kind = SW_DEMAND_WRITE,
        .first = true,
        .last = true,
        .has_imm = true,
        .solicited = segment->opcode->solicited,
        .total = w->written,
        .payload = segment->payload,
        .pieces = 1,
    };
    memcpy(&demand->imm_be, segment->payload + 4, sizeof(demand->imm_be));
    return ask_user(w, arrival);
}

/* ---- answers to what was asked here ---- */

static void receive_end_read(struct sw_iwarp *w, uint32_t position)
{
    sw_iwarp_request_at(w, position)->count = 1;
    w->read_head = (w->read_head + 1) % SW_IWARP_DEPTH_MAX;
    w->read_count--;
    sw_iwarp_advance(w);
}

static enum sw_iwarp_step admit_response(struct sw_iwarp *w, const struct arrival *arrival,
                                         struct sw_iwarp_input *out)
{
    const struct sw_ddp_segment *segment = &arrival->segment;
    if (w->awaits_rtr_response && segment->payload_len == 0 && segment->last) {
        w->awaits_rtr_response = false;
        return SW_IWARP_NOTHING;
    }
    struct sw_iwarp_read *read = sw_iwarp_oldest_read(w);
    if (!w->read_count || read->is_atomic || w->awaits_rtr_response)
        return refuse_arrival(w, SW_TERMINATE_STAG, arrival);
    /* A READ of nothing is only looked at for its order: a peer may leave out even the token. */
    if (read->len_bytes && segment->stag != read->token)
        return refuse_arrival(w, SW_TERMINATE_STAG, arrival);
    if (segment->payload_len > read->len_bytes - read->got_bytes ||
        (read->len_bytes && segment->to != read->got_bytes))
        return refuse_arrival(w, SW_TERMINATE_BOUNDS, arrival);
    const uint32_t offset = read->got_bytes;
    read->got_bytes += segment->payload_len;
    if (segment->last != (read->got_bytes == read->len_bytes))
        return refuse_arrival(w, SW_TERMINATE_BOUNDS, arrival);
    out->position = read->position;
    out->offset = offset;
    out->bytes = segment->payload;
    out->len_bytes = segment->payload_len;
    if (segment->last)
        receive_end_read(w, read->position);
    return SW_IWARP_PLACE;
}

bool sw_iwarp_awaits(const struct sw_iwarp *w, const struct sw_ddp_segment *segment,
                     uint32_t *position, uint64_t *offset)
{
    const struct sw_iwarp_read *read = &w->reads[w->read_head];
    if (w->over || w->awaits_rtr_response || !w->read_count || read->is_atomic ||
        segment->stag != read->token || segment->to != read->got_bytes ||
        segment->payload_len > read->len_bytes - read->got_bytes)
        return false;
    *position = read->position;
    *offset = read->got_bytes;
    return true;
}

static enum sw_iwarp_step admit_original(struct sw_iwarp *w, const struct arrival *arrival,
                                         struct sw_iwarp_input *out)
{
    struct sw_rdmap_original original;
    const struct sw_iwarp_read *read = sw_iwarp_oldest_read(w);
    sw_rdmap_original_decode(arrival->segment.payload, &original);
    if (!w->read_count || !read->is_atomic)
        return refuse_arrival(w, SW_TERMINATE_NO_RECEIVE, arrival);
    if (original.id != read->token)
        return refuse_arrival(w, SW_TERMINATE_UNSPECIFIED, arrival);
    out->position = read->position;
    out->value = original.value;
    out->len_bytes = sizeof(uint64_t);
    const bool has_sink = read->has_sink;
    receive_end_read(w, read->position);
    return has_sink ? SW_IWARP_PLACE : SW_IWARP_NOTHING;
}

static enum sw_iwarp_step take_terminate(struct sw_iwarp *w, const struct arrival *arrival)
{
    const struct sw_ddp_segment *segment = &arrival->segment;
    w->over = w->by_peer = true;
    w->terminate = (struct sw_terminate){.cause = SW_TERMINATE_UNSPECIFIED};
    if (sw_terminate_check(segment->payload, segment->payload_len))
        sw_terminate_decode(segment->payload, segment->payload_len, &w->terminate);
    return SW_IWARP_NOTHING;
}

/* ---- the order ---- */

/* Untagged messages come by number, and their parts by offset. */
static bool is_in_place(struct sw_iwarp *w, const struct arrival *arrival)
{
    const struct sw_ddp_segment *segment = &arrival->segment;
    if (segment->opcode->is_tagged || segment->queue == SW_DDP_QUEUE_TERMINATE)
        return true;
    const bool sends = segment->queue == SW_DDP_QUEUE_SEND;
    if (segment->msn != w->msn_in[segment->queue]) {
        refuse_arrival(w, SW_TERMINATE_MSN, arrival);
        return false;
    }
    if (segment->mo != (sends ? w->send_mo : 0)) {
        refuse_arrival(w, SW_TERMINATE_MO, arrival);
        return false;
    }
    if (!sends)
        w->msn_in[segment->queue]++;
    return true;
}

static uint16_t cause_of_fault(enum sw_ddp_fault fault)
{
    static const uint16_t causes[SW_DDP_FAULT_COUNT] = {
        [SW_DDP_FAULT_SHORT] = SW_TERMINATE_FRAME,
        [SW_DDP_FAULT_VERSION] = SW_TERMINATE_VERSION,
        [SW_DDP_FAULT_VERSION_QUEUE] = SW_TERMINATE_VERSION_QUEUE,
        [SW_DDP_FAULT_QUEUE] = SW_TERMINATE_QUEUE,
        [SW_DDP_FAULT_RDMAP_VERSION] = SW_TERMINATE_RDMAP_VERSION,
        [SW_DDP_FAULT_OPCODE] = SW_TERMINATE_OPCODE,
        [SW_DDP_FAULT_LENGTH] = SW_TERMINATE_UNSPECIFIED,
    };
    return causes[fault];
}

/* Whether it is the message that was agreed on for the start, or one that ends it. */
static bool is_ready_message(const struct sw_ddp_segment *segment, uint8_t rtr)
{
    const uint8_t kind = segment->opcode->number;
    if (kind == SW_RDMAP_TERMINATE)
        return true;
    if (rtr == SW_MPA_RTR_READ)
        return kind == SW_RDMAP_READ_REQUEST;
    const uint8_t wanted = rtr == SW_MPA_RTR_SEND ? SW_RDMAP_SEND : SW_RDMAP_WRITE;
    return kind == wanted && segment->last && segment->payload_len == 0;
}

static enum sw_iwarp_step admit_arrival(struct sw_iwarp *w, const struct arrival *arrival,
                                        bool is_first, struct sw_iwarp_input *out)
{
    const uint8_t rtr = is_first && !w->config.is_initiator ? w->config.rtr : 0;
    if (rtr && !is_ready_message(&arrival->segment, rtr))
        return refuse_arrival(w, SW_TERMINATE_RTR, arrival);
    switch ((enum sw_rdmap_kind)arrival->segment.opcode->number) {
    case SW_RDMAP_WRITE:
        return admit_write(w, arrival, &out->demand);
    case SW_RDMAP_READ_REQUEST:
        return admit_read(w, arrival, rtr == SW_MPA_RTR_READ, &out->demand);
    case SW_RDMAP_READ_RESPONSE:
        return admit_response(w, arrival, out);
    case SW_RDMAP_SEND:
    case SW_RDMAP_SEND_INV:
    case SW_RDMAP_SEND_SE:
    case SW_RDMAP_SEND_SE_INV:
        return admit_send(w, arrival, rtr == SW_MPA_RTR_SEND, &out->demand);
    case SW_RDMAP_TERMINATE:
        return take_terminate(w, arrival);
    case SW_RDMAP_IMMEDIATE:
    case SW_RDMAP_IMMEDIATE_SE:
        return admit_immediate(w, arrival, &out->demand);
    case SW_RDMAP_ATOMIC_REQUEST:
        return admit_atomic(w, arrival, &out->demand);
    case SW_RDMAP_ATOMIC_RESPONSE:
        return admit_original(w, arrival, out);
    case SW_RDMAP_FLUSH:
        return admit_flush(w, arrival, &out->demand);
    case SW_RDMAP_KINDS:
        break;
    }
    return SW_IWARP_NOTHING;
}

/* Requests that are dropped are looked at only as far as their order goes. */
static enum sw_iwarp_step admit_paired(struct sw_iwarp *w, const struct arrival *arrival,
                                       struct sw_iwarp_input *out)
{
    const struct sw_ddp_segment *segment = &arrival->segment;
    const bool is_unit = sw_iwarp_paired_is_unit(segment);
    w->paired.ends_unit = is_unit && segment->last;
    enum sw_iwarp_step step = SW_IWARP_NOTHING;
    if (!(w->paired.drops && segment->queue == SW_DDP_QUEUE_REQUEST && is_unit &&
          !segment->opcode->is_tagged))
        step = admit_arrival(w, arrival, false, out);
    if (w->paired.drops && is_unit) {
        step = SW_IWARP_NOTHING;
        w->admitted = NULL;
        w->paired.has_imm = false;
    }
    if (step != SW_IWARP_DEMAND && !w->over)
        sw_iwarp_paired_count(w);
    return step;
}

enum sw_iwarp_step sw_iwarp_admit(struct sw_iwarp *w, const uint8_t *ulpdu, uint32_t len,
                                  struct sw_iwarp_input *out)
{
    struct arrival arrival = {.ulpdu = ulpdu, .len = len};
    if (w->over)
        return SW_IWARP_NOTHING;
    assert(!w->admitted);
    const bool is_first = w->awaits_first;
    w->awaits_first = w->is_held = false;
    const enum sw_ddp_fault fault = sw_ddp_check(ulpdu, len);
    if (fault != SW_DDP_FAULT_NONE) {
        sw_iwarp_refuse_ulpdu(w, cause_of_fault(fault), ulpdu, len);
        return SW_IWARP_NOTHING;
    }
    sw_ddp_decode(ulpdu, len, &arrival.segment);
    if (arrival.segment.opcode->number == SW_RDMAP_FLUSH && !w->config.is_paired)
        return refuse_arrival(w, SW_TERMINATE_OPCODE, &arrival);
    if (w->paired.is_void && arrival.segment.opcode->number != SW_RDMAP_TERMINATE)
        return SW_IWARP_NOTHING;
    if (!is_in_place(w, &arrival))
        return SW_IWARP_NOTHING;
    return w->config.is_paired ? admit_paired(w, &arrival, out)
                               : admit_arrival(w, &arrival, is_first, out);
}

void sw_iwarp_keep(struct sw_iwarp *w, const uint8_t *ulpdu)
{
    assert(w->admitted);
    w->admitted = ulpdu;
}

/* Its Terminate follows, which says why. */
void sw_iwarp_take_void(struct sw_iwarp *w, const uint8_t *ulpdu, uint32_t len)
{
    struct sw_ddp_segment segment;
    assert(w->config.is_paired);
    if (sw_ddp_check(ulpdu, len) == SW_DDP_FAULT_NONE) {
        sw_ddp_decode(ulpdu, len, &segment);
        w->paired.is_void = segment.opcode->number == SW_RDMAP_READ_RESPONSE;
    }
    if (!w->paired.is_void)
        sw_iwarp_refuse_ulpdu(w, SW_TERMINATE_UNSPECIFIED, ulpdu, len);
}

static uint16_t write_cause(enum sw_access_fault why)
{
    switch (why) {
    case SW_ACCESS_FAULT_KEY:
        return SW_TERMINATE_STAG;
    case SW_ACCESS_FAULT_OWNER:
        return SW_TERMINATE_OWNER;
    case SW_ACCESS_FAULT_RIGHTS:
        return SW_TERMINATE_RIGHTS;
    case SW_ACCESS_FAULT_BOUNDS:
        return SW_TERMINATE_BOUNDS;
    case SW_ACCESS_FAULT_NONE:
        break;
    }
    return SW_TERMINATE_UNSPECIFIED;
}

static uint16_t cause_of(const struct sw_iwarp *w, const struct sw_demand *demand,
                         const struct sw_outcome *outcome)
{
    const uint8_t code = sw_aeth_value_of(outcome->syndrome);
    if (sw_aeth_class_of(outcome->syndrome) == SW_AETH_RNR)
        return SW_TERMINATE_NO_RECEIVE;
    if (code == SW_NAK_CODE_OPERATIONAL)
        return SW_TERMINATE_LOCAL;
    if (w->config.is_paired && code == SW_NAK_CODE_INVALID_REQUEST &&
        demand->kind != SW_DEMAND_SEND)
        return SW_TERMINATE_UNSPECIFIED;
    if (demand->kind == SW_DEMAND_SEND)
        return code == SW_NAK_CODE_ACCESS ? SW_TERMINATE_INVALIDATE : SW_TERMINATE_TOO_LONG;
    if (demand->kind == SW_DEMAND_WRITE)
        return write_cause((enum sw_access_fault)outcome->why);
    return sw_iwarp_read_cause((enum sw_access_fault)outcome->why);
}

void sw_iwarp_conclude(struct sw_iwarp *w, const struct sw_demand *demand,
                       const struct sw_outcome *outcome)
{
    const uint8_t *ulpdu = w->admitted;
    assert(ulpdu);
    w->admitted = NULL;
    if (w->config.is_paired && sw_aeth_class_of(outcome->syndrome) == SW_AETH_RNR) {
        sw_iwarp_paired_put_off(w);
        return;
    }
    if (sw_aeth_class_of(outcome->syndrome) != SW_AETH_ACK) {
        sw_iwarp_refuse_ulpdu(w, cause_of(w, demand, outcome), ulpdu, w->admitted_len);
        return;
    }
    if (demand->kind == SW_DEMAND_SEND && demand->last)
        w->paired.has_imm = false;
    sw_iwarp_paired_count(w);
    if (demand->kind == SW_DEMAND_SEND || demand->kind == SW_DEMAND_WRITE || w->over)
        return;
    w->wanted.original = outcome->original;
    receive_add_answer(w, &w->wanted);
}
