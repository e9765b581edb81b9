/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/early.h"

#include <assert.h>
#include <string.h>

enum { NO_SLOT = 0xffff };

void sw_early_pool_init(struct sw_early_pool *pool, struct sw_early_slot *slots,
                        struct sw_early_copy *copies, uint16_t count)
{
    assert(count < NO_SLOT);
    *pool = (struct sw_early_pool){.slots = slots,
                                   .copies = copies,
                                   .count = count,
                                   .free_count = count,
                                   .free_head = count ? 0 : NO_SLOT};
    for (uint16_t i = 0; i < count; i++)
        slots[i].next = i + 1 < count ? (uint16_t)(i + 1) : NO_SLOT;
}

static void early_give_back(struct sw_early_pool *pool, uint16_t slot)
{
    struct sw_hold *hold = pool->slots[slot].packet.hold;
    if (hold)
        hold->users--;
    pool->slots[slot].next = pool->free_head;
    pool->free_head = slot;
    pool->free_count++;
}

static bool has_packet(const struct sw_early *early, uint32_t seq)
{
    return early->kept[seq % SW_FLIGHT_PACKETS / 64] >> seq % 64 & 1;
}

void sw_early_init(struct sw_early *early, struct sw_early_pool *pool)
{
    memset(early, 0, sizeof(*early));
    early->pool = pool;
    early->lent = NO_SLOT;
}

/* Makes the payload of what is kept in a slot stay. */
static void hold_or_copy(struct sw_packet *packet, struct sw_early_copy *copy)
{
    if (packet->hold && packet->payload_len >= SW_EARLY_HOLD_MIN) {
        packet->hold->users++;
        return;
    }
    if (packet->payload_len)
        memcpy(copy->payload, packet->payload, packet->payload_len);
    packet->payload = copy->payload;
    packet->hold = NULL;
}

/* Nobody holds more than is left for the others: so late ones, however many they are, each find
 * some (the dynamic thresholds of shared switch buffers). */
static bool has_share(const struct sw_early *early)
{
    return early->count < early->pool->free_count;
}

bool sw_early_keep(struct sw_early *early, uint32_t base, uint32_t seq,
                   const struct sw_packet *packet)
{
    struct sw_early_pool *pool = early->pool;
    if (!pool || !has_share(early) || seq - base >= SW_FLIGHT_PACKETS || has_packet(early, seq) ||
        packet->payload_len > SW_EARLY_PAYLOAD_MAX)
        return false;
    uint16_t at = pool->free_head;
    struct sw_early_slot *slot = &pool->slots[at];
    pool->free_head = slot->next;
    pool->free_count--;
    slot->packet = *packet;
    hold_or_copy(&slot->packet, &pool->copies[at]);
    early->slots[seq % SW_FLIGHT_PACKETS] = at;
    early->kept[seq % SW_FLIGHT_PACKETS / 64] |= 1ull << seq % 64;
    if (early->count++ == 0 || sw_seq_is_before(early->end, seq + 1))
        early->end = seq + 1;
    return true;
}

bool sw_early_has(const struct sw_early *early, uint32_t base, uint32_t seq)
{
    return early->count && seq - base < SW_FLIGHT_PACKETS && has_packet(early, seq);
}

uint32_t sw_early_first(const struct sw_early *early, uint32_t base)
{
    assert(early->count);
    while (!has_packet(early, base))
        base++;
    return base;
}

static void return_lent(struct sw_early *early)
{
    if (early->lent != NO_SLOT)
        early_give_back(early->pool, early->lent);
    early->lent = NO_SLOT;
}

static uint16_t remove_at(struct sw_early *early, uint32_t seq)
{
    early->kept[seq % SW_FLIGHT_PACKETS / 64] &= ~(1ull << seq % 64);
    early->count--;
    return early->slots[seq % SW_FLIGHT_PACKETS];
}

bool sw_early_take(struct sw_early *early, uint32_t seq, struct sw_packet *out)
{
    return_lent(early);
    if (early->count == 0 || !has_packet(early, seq))
        return false;
    early->lent = remove_at(early, seq);
    *out = early->pool->slots[early->lent].packet;
    return true;
}

/* NULL: it is not there, or not held. */
static const struct sw_packet *held_at(const struct sw_early *early, uint32_t seq)
{
    if (!has_packet(early, seq))
        return NULL;
    const struct sw_packet *packet =
        &early->pool->slots[early->slots[seq % SW_FLIGHT_PACKETS]].packet;
    return packet->hold ? packet : NULL;
}

/* Whether a packet is the one with this index in a run. */
static bool continues_message(const struct sw_packet *first, uint32_t index,
                              const struct sw_packet *packet)
{
    const size_t stride = sw_packet_len(first->opcode, first->payload_len);
    return packet->opcode == first->opcode && packet->hold == first->hold &&
           packet->payload == first->payload + index * stride &&
           packet->payload_len == first->payload_len && packet->srq_num == first->srq_num &&
           packet->reth.rkey == first->reth.rkey &&
           packet->reth.len_bytes == first->reth.len_bytes &&
           packet->reth.addr == first->reth.addr + (first->opcode->headers & SW_HEADER_RETH
                                                        ? (uint64_t)index * first->payload_len
                                                        : 0);
}

bool sw_early_run(const struct sw_early *early, uint32_t seq, struct sw_packet_run *out)
{
    const struct sw_packet *first = early->count < 2 ? NULL : held_at(early, seq), *next = first;
    if (!first || !sw_opcode_makes_runs(first->opcode))
        return false;
    bool asks = false;
    uint32_t count = 0;
    while (next && continues_message(first, count, next)) {
        asks |= next->bth.ack_req;
        next = held_at(early, seq + ++count);
    }
    *out = (struct sw_packet_run){.first = *first,
                                  .count = count,
                                  .stride_bytes =
                                      (uint32_t)sw_packet_len(first->opcode, first->payload_len),
                                  .ack_req = asks};
    return count > 1;
}

void sw_early_drop(struct sw_early *early, uint32_t from, uint32_t to)
{
    for (uint32_t seq = from; early->count && seq != to; seq++)
        if (has_packet(early, seq))
            early_give_back(early->pool, remove_at(early, seq));
}

void sw_early_clear(struct sw_early *early)
{
    if (!early->pool)
        return;
    return_lent(early);
    sw_early_drop(early, early->end - SW_FLIGHT_PACKETS, early->end);
}

uint32_t sw_early_bitmap(const struct sw_early *early, uint32_t base,
                         uint8_t bytes[SW_EMISSION_BYTES])
{
    if (early->count == 0)
        return 0;
    uint32_t bits = early->end - base - 1, len = (bits + 31) / 32 * 4;
    memset(bytes, 0, len);
    for (uint32_t i = 0; i < bits; i++)
        if (has_packet(early, base + 1 + i))
            bytes[i / 8] |= (uint8_t)(1 << i % 8);
    return len;
}
