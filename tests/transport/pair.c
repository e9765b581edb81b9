/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/pair.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const struct sw_requester_config pair_requester_config = {
    .qpn = 17,
    .dest_qpn = 18,
    .first_psn = 0xfffff0, /* wraps soon */
    .mtu_bytes = 1024,
    .pkey = 0xffff,
    .service = SW_SERVICE_RC,
    .timeout = 14,
    .retry_cnt = 7,
    .rnr_retry = 7,
    .max_rd_atomic = 8,
};
const struct sw_responder_config pair_responder_config = {
    .qpn = 18,
    .dest_qpn = 17,
    .first_psn = 0xfffff0,
    .mtu_bytes = 1024,
    .pkey = 0xffff,
    .service = SW_SERVICE_RC,
    .min_rnr_timer = 1,
    .max_dest_rd_atomic = 8,
};

uint32_t pair_random(struct pair *p) /* xorshift64*, Vigna 2016 */
{
    p->random ^= p->random >> 12;
    p->random ^= p->random << 25;
    p->random ^= p->random >> 27;
    return (uint32_t)(p->random * 0x2545f4914f6cdd1dull >> 32);
}

struct pair *pair_new(const struct sw_requester_config *requester,
                      const struct sw_responder_config *responder, uint64_t seed)
{
    struct pair *p = calloc(1, sizeof(*p));
    assert(p);
    p->random = seed * 2 + 1;
    p->now_ns = 1000000;
    p->receives = UINT32_MAX;
    p->faults.delay_ns = 10000;
    sw_early_pool_init(&p->pool, p->slots, p->copies, PAIR_POOL);
    sw_requester_init(&p->requester, requester ? requester : &pair_requester_config, p->ring,
                      PAIR_ENTRIES);
    sw_responder_init(&p->responder, responder ? responder : &pair_responder_config, &p->pool);
    return p;
}

void pair_free(struct pair *p)
{
    sw_responder_release(&p->responder);
    assert(p->pool.free_count == PAIR_POOL);
    for (uint32_t i = 0; i < p->heap_count; i++)
        free(p->heap[i]);
    for (uint32_t i = 0; i < PAIR_ENTRIES; i++)
        free(p->local[i]);
    free(p);
}

uint8_t pair_byte(uint8_t fill, uint32_t i)
{
    return (uint8_t)(fill + i * 7 + (i >> 8));
}

uint32_t pair_post(struct pair *p, enum sw_request_kind kind, uint32_t offset, uint32_t len,
                   uint8_t fill, uint8_t flags)
{
    uint32_t position = p->requester.tail, slot = position % PAIR_ENTRIES;
    struct sw_request request = {.kind = (uint8_t)kind,
                                 .flags = flags,
                                 .remote_addr = PAIR_BASE + offset,
                                 .rkey = PAIR_RKEY,
                                 .len_bytes = len,
                                 .imm_or_key = fill,
                                 .compare_add = fill,
                                 .flush_type = SW_FLUSH_VISIBLE};
    free(p->local[slot]);
    p->local[slot] = malloc(len ? len : 1);
    assert(p->local[slot]);
    for (uint32_t i = 0; i < len; i++)
        p->local[slot][i] = pair_byte(fill, i);
    bool posted = sw_requester_post(&p->requester, &request);
    assert(posted);
    return position;
}

static bool sooner(const struct pair_packet *a, const struct pair_packet *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static void heap_push(struct pair *p, struct pair_packet *packet)
{
    assert(p->heap_count < PAIR_QUEUE);
    uint32_t at = p->heap_count++;
    for (; at && sooner(packet, p->heap[(at - 1) / 2]); at = (at - 1) / 2)
        p->heap[at] = p->heap[(at - 1) / 2];
    p->heap[at] = packet;
}

static struct pair_packet *heap_pop(struct pair *p)
{
    struct pair_packet *top = p->heap[0], *last = p->heap[--p->heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= p->heap_count)
            break;
        if (child + 1 < p->heap_count && sooner(p->heap[child + 1], p->heap[child]))
            child++;
        if (!sooner(p->heap[child], last))
            break;
        p->heap[at] = p->heap[child];
        at = child;
    }
    p->heap[at] = last;
    return top;
}

static bool happens(struct pair *p, uint32_t share)
{
    return share && (pair_random(p) & 0xffff) < share;
}

static void transmit(struct pair *p, const struct sw_packet *packet, const uint8_t *payload,
                     bool to_responder)
{
    uint32_t copies = happens(p, p->faults.loss) ? 0 : happens(p, p->faults.copy) ? 2 : 1;
    if (p->script)
        copies = p->script(p, packet, to_responder);
    uint64_t leaves_ns = p->now_ns, *busy = &p->busy_ns[to_responder];
    if (p->faults.byte_ns_1024) {
        *busy = *busy > p->now_ns ? *busy : p->now_ns;
        if (*busy - p->now_ns > p->faults.queue_ns) {
            p->dropped++;
            return;
        }
        *busy += (packet->payload_len + 100ull) * p->faults.byte_ns_1024 / 1024;
        leaves_ns = *busy;
    }
    for (; copies; copies--) {
        struct pair_packet *made = malloc(sizeof(*made));
        assert(made);
        size_t headers = sw_packet_encode_headers(packet, made->bytes, sizeof(made->bytes));
        assert(headers && packet->payload_len <= 4096);
        if (packet->payload_len)
            memcpy(made->bytes + headers, payload, packet->payload_len);
        made->len = (uint32_t)sw_packet_len(sw_opcode_of(packet->bth.opcode), packet->payload_len);
        made->to_responder = to_responder;
        made->order = p->sent_count++;
        made->at_ns = leaves_ns + p->faults.delay_ns;
        if (happens(p, p->faults.reorder))
            made->at_ns += pair_random(p) % (p->faults.reorder_ns + 1);
        heap_push(p, made);
    }
}

static void send_requests(struct pair *p)
{
    struct sw_emission e;
    while (sw_requester_next_run(&p->requester, p->now_ns, 1 + pair_random(p) % 8, &e)) {
        const bool asks = e.packet.bth.ack_req;
        const uint8_t *payload = e.bytes;
        if (e.source == SW_PAYLOAD_REQUEST)
            payload = p->local[e.position % PAIR_ENTRIES] + e.offset;
        for (; e.count; sw_emission_step(&e)) {
            e.packet.bth.ack_req = asks && e.count == 1;
            transmit(p, &e.packet, payload, true);
            payload += e.packet.payload_len;
        }
    }
}

static void send_answers(struct pair *p)
{
    struct sw_emission e;
    while (sw_responder_next(&p->responder, p->now_ns, &e)) {
        const uint8_t *payload = e.bytes;
        if (e.source == SW_PAYLOAD_MEMORY) {
            assert(e.rkey == PAIR_RKEY && e.addr >= PAIR_BASE &&
                   e.addr + e.packet.payload_len <= PAIR_BASE + PAIR_MEMORY);
            payload = p->memory + (e.addr - PAIR_BASE);
        }
        transmit(p, &e.packet, payload, false);
    }
}

static void receive_done(struct pair *p, const struct sw_demand *d, uint64_t len, uint64_t sum)
{
    p->receives--;
    if (p->received_count < PAIR_RECEIVED)
        p->received[p->received_count] = (struct pair_received){.len = (uint32_t)len,
                                                                .imm_be = d->imm_be,
                                                                .has_imm = d->has_imm,
                                                                .solicited = d->solicited,
                                                                .sum = sum};
    p->received_count++;
}

static bool covers(const struct sw_demand *d, uint64_t len)
{
    return d->rkey == PAIR_RKEY && d->addr >= PAIR_BASE &&
           d->addr + len <= PAIR_BASE + PAIR_MEMORY && len <= PAIR_MEMORY;
}

static uint64_t atomic(struct pair *p, const struct sw_demand *d)
{
    uint64_t before, after;
    uint8_t *at = p->memory + (d->addr - PAIR_BASE);
    memcpy(&before, at, sizeof(before));
    after = d->kind == SW_DEMAND_FETCH_ADD      ? before + d->compare_add
            : d->kind == SW_DEMAND_ATOMIC_WRITE ? d->compare_add
            : before == d->compare_add          ? d->swap
                                                : before;
    memcpy(at, &after, sizeof(after));
    return before;
}

/* What a device would make of the demand. */
static struct sw_outcome carry_out(struct pair *p, const struct sw_demand *d)
{
    const struct sw_outcome ack = {.syndrome = 0x1f}, denied = {.syndrome = 0x62, .dead = true},
                            rnr = {.syndrome = 0x20};
    if (p->refuse && !d->duplicate) {
        struct sw_outcome refusal = {.syndrome = p->refuse, .dead = p->refuse >= 0x60};
        if (!p->keep_refusing)
            p->refuse = 0;
        return refusal;
    }
    bool takes = d->kind == SW_DEMAND_SEND ? d->first : d->last && d->has_imm;
    if (takes && (p->receives == 0 || happens(p, p->faults.rnr)))
        return rnr;
    if (d->kind != SW_DEMAND_SEND && d->total &&
        !covers(d, d->kind == SW_DEMAND_WRITE ? d->len_bytes : d->total))
        return denied;
    p->executed[d->kind] += !d->duplicate;
    switch (d->kind) {
    case SW_DEMAND_SEND:
        p->send_sum = d->first ? 0 : p->send_sum;
        for (uint32_t i = 0; i < d->len_bytes; i++)
            p->send_sum += (uint64_t)d->payload[i] * (d->offset + i + 1);
        if (d->last)
            receive_done(p, d, d->offset + d->len_bytes, p->send_sum);
        break;
    case SW_DEMAND_WRITE:
        if (d->len_bytes)
            memcpy(p->memory + (d->addr - PAIR_BASE), d->payload, d->len_bytes);
        if (d->last && d->has_imm)
            receive_done(p, d, d->total, 0);
        break;
    case SW_DEMAND_CMP_SWAP:
    case SW_DEMAND_FETCH_ADD:
    case SW_DEMAND_ATOMIC_WRITE:
        return (struct sw_outcome){.syndrome = 0x1f, .original = atomic(p, d)};
    case SW_DEMAND_READ:
    case SW_DEMAND_FLUSH:
        break;
    }
    return ack;
}

static void to_responder(struct pair *p, const struct sw_packet *packet)
{
    struct sw_packet early = *packet;
    struct sw_demand demand;
    do {
        if (sw_responder_admit(&p->responder, &early, p->now_ns, &demand)) {
            struct sw_outcome outcome = carry_out(p, &demand);
            sw_responder_conclude(&p->responder, &demand, &outcome);
        }
    } while (sw_responder_early(&p->responder, &early));
}

static void progress(struct pair *p, const struct sw_progress *made)
{
    if (made->places) {
        uint32_t slot = made->place_position % PAIR_ENTRIES;
        if (made->place_bytes)
            memcpy(p->local[slot] + made->place_offset, made->place_bytes, made->place_len);
        else
            p->original[slot] = made->value;
    }
    if (made->failure != SW_FAILURE_NONE) {
        p->failure = made->failure;
        p->syndrome = made->syndrome;
    }
}

static void deliver(struct pair *p, struct pair_packet *packet)
{
    struct sw_packet decoded;
    enum sw_packet_fault fault = sw_packet_decode(packet->bytes, packet->len, &decoded);
    assert(fault == SW_PACKET_FAULT_NONE);
    if (packet->to_responder) {
        to_responder(p, &decoded);
    } else {
        struct sw_progress made;
        sw_requester_receive(&p->requester, &decoded, p->now_ns, &made);
        progress(p, &made);
    }
    free(packet);
}

bool pair_step(struct pair *p)
{
    send_requests(p);
    send_answers(p);
    uint64_t due = sw_requester_due_ns(&p->requester), other = sw_responder_due_ns(&p->responder);
    due = due < other ? due : other;
    if (p->heap_count && p->heap[0]->at_ns <= due) {
        p->now_ns = p->heap[0]->at_ns;
        while (p->heap_count && p->heap[0]->at_ns <= p->now_ns)
            deliver(p, heap_pop(p));
        return true;
    }
    if (due == UINT64_MAX)
        return false;
    p->now_ns = due > p->now_ns ? due : p->now_ns + 1;
    struct sw_progress made;
    sw_requester_tick(&p->requester, p->now_ns, &made);
    progress(p, &made);
    return true;
}

bool pair_run(struct pair *p, uint64_t limit_ns)
{
    uint64_t end = p->now_ns + limit_ns;
    while (p->failure == SW_FAILURE_NONE && !sw_requester_is_idle(&p->requester)) {
        if (p->now_ns > end || !pair_step(p))
            return false;
        if (p->requester.config.service == SW_SERVICE_UC && p->heap_count == 0 &&
            sw_requester_is_idle(&p->requester))
            break;
    }
    while (p->heap_count) /* what is still on its way */
        deliver(p, heap_pop(p));
    return true;
}
