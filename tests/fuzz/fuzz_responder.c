/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A responder that is sent anything, at any time, and whose memory and queues answer anything. Its
 * demands must stay within what the packet said, responses within what was asked, and every slot of
 * the pool must come back.
 */
#include "fuzz.h"
#include "transport/responder.h"
#include "transport_feed.h"

enum { SLOTS = 5, STEPS_MAX = 400, RUN_MAX = 17, LATE_NS = 50 };

static struct sw_responder r;
static struct sw_early_pool pool;
static struct sw_early_slot slots[SLOTS];
static struct sw_early_copy copies[SLOTS];
static struct sw_hold hold;
static uint64_t now;

static void start(struct feed *feed)
{
    static const uint8_t services[] = {SW_SERVICE_RC, SW_SERVICE_RC, SW_SERVICE_UC, SW_SERVICE_XRC};
    uint8_t flags = feed_u8(feed);
    const struct sw_responder_config config = {.first_psn = flags & 1 ? 0xfffffe : 100,
                                               .mtu_bytes = 256,
                                               .service = services[flags >> 1 & 3],
                                               .max_dest_rd_atomic = flags >> 4 & 3,
                                               .offer_selective = flags & 8,
                                               .late_ns = flags & 8 ? LATE_NS : 0};
    now = 1000000;
    hold.users = 0;
    sw_early_pool_init(&pool, slots, copies, SLOTS);
    sw_responder_init(&r, &config, &pool);
}

static void check(const struct sw_demand *d)
{
    feed_needs(d->len_bytes <= r.config.mtu_bytes);
    if (d->kind == SW_DEMAND_WRITE)
        feed_needs(d->offset + (uint64_t)d->len_bytes * (d->last ? 1 : d->pieces) <= d->total);
    if (d->kind == SW_DEMAND_WRITE || d->kind == SW_DEMAND_READ)
        feed_needs(d->total <= 1ull << 31);
    if (d->kind == SW_DEMAND_WRITE)
        feed_needs(d->addr - d->offset - 0x1000 <= RUN_MAX * 256); /* that far into a run */
    if (d->kind == SW_DEMAND_SEND)
        feed_needs(d->first == (d->offset == 0));
    feed_needs(!d->duplicate || d->kind == SW_DEMAND_READ || d->kind == SW_DEMAND_FLUSH);
}

/* Packets that came early, taken as one. */
static void early_run(struct feed *feed)
{
    const struct sw_outcome ack = {.syndrome = 0x1f};
    struct sw_demand demand;
    const uint32_t expected = r.expected, kept = r.early.count;
    if (!sw_responder_admit_early_run(&r, &demand))
        return;
    check(&demand);
    feed_needs(demand.pieces > 1 && demand.pieces <= kept && !demand.duplicate && !r.dead);
    if (feed_u8(feed) % 4 == 0)
        return; /* it cannot be carried out as a whole */
    sw_responder_conclude(&r, &demand, &ack);
    feed_needs(r.expected == expected + demand.pieces && r.early.count == kept - demand.pieces);
}

/* Early packets have their turn; `packet`: before them, or NULL. */
static void take(struct feed *feed, struct sw_packet *packet)
{
    struct sw_demand demand;
    struct sw_packet early;
    if (!packet && !sw_responder_early(&r, &early))
        return;
    packet = packet ? packet : &early;
    do {
        const bool was_dead = r.dead;
        if (sw_responder_admit(&r, packet, now, &demand)) {
            feed_needs(!was_dead || (demand.duplicate && demand.kind == SW_DEMAND_READ));
            static const uint8_t syndromes[] = {0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0x20, 0x62};
            struct sw_outcome outcome = {.syndrome = syndromes[feed_u8(feed) % 8]};
            outcome.dead = outcome.syndrome == 0x62 && r.config.service != SW_SERVICE_UC;
            check(&demand);
            sw_responder_conclude(&r, &demand, &outcome);
        }
        if (feed_u8(feed) % 4)
            early_run(feed);
    } while (sw_responder_early(&r, packet));
    feed_needs(r.outstanding <= r.config.max_dest_rd_atomic || r.outstanding <= r.answer_count);
    feed_needs(r.early.count + pool.free_count == SLOTS);
}

static void pass_time(struct feed *feed)
{
    const uint64_t due_ns = sw_responder_due_ns(&r);
    if (r.config.service != SW_SERVICE_UC || due_ns == UINT64_MAX)
        return;
    now = due_ns > now ? due_ns : now;
    sw_responder_tick(&r, now);
    take(feed, NULL);
    feed_needs(sw_responder_due_ns(&r) > now);
}

static uint8_t base_of(uint8_t service)
{
    static const uint8_t bases[] = {
        [SW_SERVICE_RC] = 0, [SW_SERVICE_UC] = 0x20, [SW_SERVICE_XRC] = 0xa0};
    return bases[service];
}

static void request(struct feed *feed)
{
    uint8_t opcode = (uint8_t)(base_of(r.config.service) | (feed_u8(feed) % 32));
    if (!sw_opcode_of(opcode))
        return;
    struct sw_packet packet;
    feed_packet(feed, opcode, r.expected, &packet);
    packet.hold = feed_u8(feed) % 2 ? &hold : NULL;
    take(feed, &packet);
}

static const uint8_t batch[RUN_MAX * 512];

static void lie_in_batch(struct sw_packet_run *run)
{
    run->ack_req = run->first.bth.ack_req;
    run->first.bth.ack_req = false;
    run->first.reth.len_bytes = run->first.payload_len;
    run->stride_bytes = (uint32_t)sw_packet_len(run->first.opcode, run->first.payload_len);
    run->first.payload = batch;
    run->first.hold = &hold;
}

/* WRITEs behind a gap, which is then filled, or nearly. */
static void gap(struct feed *feed)
{
    struct sw_packet packet;
    struct sw_packet_run run = {.count = 2 + feed_u8(feed) % 4};
    feed_packet(feed, (uint8_t)(base_of(r.config.service) | 0x0a), r.expected, &packet);
    packet.payload_len = packet.reth.len_bytes = 256;
    packet.bth.psn = sw_seq_psn(r.expected);
    packet.bth.reserved7 = SW_SELECTIVE_MARK;
    run.first = packet;
    run.first.bth.psn = sw_seq_psn(r.expected + 1 + feed_u8(feed) % 4 / 3);
    lie_in_batch(&run);
    (void)sw_responder_keep_run(&r, &run);
    take(feed, &packet);
}

/* Packets that follow each other, as far as a link could have found. */
static void request_run(struct feed *feed)
{
    static const uint8_t opcodes[] = {0x01, 0x07, 0x0a, 0xa1, 0xa7, 0xaa};
    const struct sw_outcome ack = {.syndrome = 0x1f};
    struct sw_packet_run run = {.count = 2 + feed_u8(feed) % 16};
    struct sw_demand demand;
    feed_packet(feed, opcodes[feed_u8(feed) % 6], r.expected, &run.first);
    lie_in_batch(&run);
    if (run.first.payload_len == 0)
        return;
    if (!sw_responder_admit_run(&r, &run, &demand)) {
        const uint32_t kept = sw_responder_keep_run(&r, &run);
        feed_needs(kept == 0 || kept == run.count);
        return;
    }
    check(&demand);
    feed_needs(demand.pieces == run.count && !demand.duplicate && !r.dead);
    const uint32_t expected = r.expected;
    if (feed_u8(feed) % 4 == 0)
        return; /* it cannot be carried out as a whole */
    sw_responder_conclude(&r, &demand, &ack);
    feed_needs(r.expected == expected + run.count);
}

static void answer(struct feed *feed)
{
    struct sw_emission out;
    for (int i = feed_u8(feed); i >= 0 && sw_responder_next(&r, now, &out); i--) {
        feed_needs(!out.packet.opcode->is_request);
        feed_needs(out.packet.payload_len <= r.config.mtu_bytes);
        if (out.source == SW_PAYLOAD_MEMORY && i == 0 && feed_u8(feed) == 7)
            (void)sw_responder_unreadable(&r, 0x62, &out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    start(&feed);
    for (int i = 0; i < STEPS_MAX && feed.left; i++) {
        uint8_t what = feed_u8(&feed);
        now += what;
        if (what < 180)
            request(&feed);
        else if (what < 200)
            request_run(&feed);
        else if (what < 240)
            answer(&feed);
        else if (what < 247)
            sw_responder_congested(&r, now);
        else if (what == 247)
            sw_responder_forget(&r);
        else if (what < 252)
            gap(&feed);
        else if (what < 254)
            sw_responder_cnp(&r, now);
        else
            pass_time(&feed);
    }
    sw_responder_release(&r);
    feed_needs(pool.free_count == SLOTS && hold.users == 0);
    return 0;
}
