/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that follow each other are one demand, and nobody can tell: two responders get the same
 * datagrams, one of them as runs, the other one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "transport/rig.h"

enum { MTU = 512, PACKETS = 300, LIVES = 300, SLOTS = 30, MEMORY = 1 << 16, RECEIVE = 8 * MTU };
enum { MAX_BYTES = SW_HEADERS_MAX + MTU + 8 + SW_TRAILER_MAX, BURST = 24, BATCH = 20 };
#define BASE 0x10000ull

static uint64_t dice_state;

static uint32_t dice(uint32_t sides) /* xorshift64*, Vigna 2016 */
{
    dice_state ^= dice_state >> 12;
    dice_state ^= dice_state << 25;
    dice_state ^= dice_state >> 27;
    return (uint32_t)(dice_state * 0x2545f4914f6cdd1dull >> 33) % sides;
}

struct side {
    struct sw_responder r;
    struct sw_early_pool pool;
    struct sw_early_slot slots[SLOTS];
    struct sw_early_copy copies[SLOTS];
    struct sw_hold holds[(PACKETS + 64) / BATCH + 1];
    uint8_t memory[MEMORY], receive[RECEIVE];
    bool claimed;
    uint32_t received, writes; /* messages */
};

static struct side whole, single;
static uint32_t runs, in_vain; /* taken as one; and that turned out not to be possible */
static uint32_t kept_runs, early_runs;

/* ---- what is sent in a life ---- */

enum { SENT_MAX = PACKETS + 64 };
static struct {
    uint8_t *bytes;
    uint32_t len;
} sent[SENT_MAX];
static uint8_t wire[SENT_MAX * MAX_BYTES]; /* one behind the other */
static uint32_t sent_count, first_psn, held_batches;
static enum sw_service service;
static bool selective;

static struct sw_packet *next_packet(enum sw_packet_kind kind, enum sw_position position)
{
    static struct sw_packet packet;
    const struct sw_opcode *opcode = sw_opcode_find(service, kind, position, 0);
    packet = (struct sw_packet){
        .opcode = opcode,
        .bth = {.opcode = opcode->number,
                .psn = sw_psn_add(first_psn, sent_count),
                .ack_req = dice(10) == 0,
                .reserved7 = selective && dice(500) ? SW_SELECTIVE_MARK : 0},
        .reth = {.rkey = 7},
        .srq_num = 3,
        .payload_len = MTU,
    };
    return &packet;
}

static void put(const struct sw_packet *packet)
{
    if (sent_count == SENT_MAX)
        return;
    uint8_t *bytes = sent_count ? sent[sent_count - 1].bytes + sent[sent_count - 1].len : wire;
    sent[sent_count].bytes = bytes;
    const size_t headers = sw_packet_encode_headers(packet, bytes, MAX_BYTES);
    sent[sent_count].len = (uint32_t)sw_packet_len(packet->opcode, packet->payload_len);
    for (uint32_t i = 0; i < packet->payload_len; i++)
        bytes[headers + i] = (uint8_t)(sent_count * 31 + i);
    sent_count++;
}

static uint32_t some_place(void)
{
    return dice(40) ? dice(MEMORY / 2) : MEMORY - dice(10 * MTU); /* or near the end */
}

static void put_onlys(void)
{
    uint64_t addr = BASE + some_place();
    const uint32_t len = dice(3) ? MTU : dice(MTU + 1);
    for (uint32_t n = 1 + dice(20); n; n--) {
        struct sw_packet *packet = next_packet(SW_PACKET_WRITE, SW_ONLY);
        packet->payload_len = packet->reth.len_bytes = len;
        packet->reth.addr = addr;
        packet->reth.len_bytes += dice(400) == 0; /* a lie */
        put(packet);
        addr += len + (dice(30) == 0);
    }
}

static void put_message(enum sw_packet_kind kind)
{
    const uint32_t middles = dice(kind == SW_PACKET_SEND ? RECEIVE / MTU - 1 : 14), at = sent_count;
    struct sw_packet *packet = next_packet(kind, SW_FIRST);
    packet->reth.addr = BASE + some_place();
    packet->reth.len_bytes = (middles + 2) * MTU - dice(MTU) - (dice(60) ? 0 : dice(3 * MTU));
    const uint32_t last = (packet->reth.len_bytes - 1) % MTU + 1;
    put(packet);
    for (uint32_t n = middles + (dice(60) == 0); n; n--) {
        packet = next_packet(kind, SW_MIDDLE);
        packet->payload_len -= dice(400) == 0;
        put(packet);
    }
    packet = next_packet(kind, SW_LAST);
    packet->payload_len = last;
    if (sent_count > at && dice(100))
        put(packet);
}

static void put_read(void)
{
    struct sw_packet *packet = next_packet(SW_PACKET_READ_REQUEST, SW_ONLY);
    packet->payload_len = 0;
    packet->reth.addr = BASE;
    packet->reth.len_bytes = 1 + dice(MTU); /* takes one PSN */
    put(packet);
}

static void make_life(void)
{
    sent_count = 0;
    while (sent_count < PACKETS)
        switch (dice(8)) {
        case 0:
            put_read();
            break;
        case 1:
        case 2:
            put_message(SW_PACKET_SEND);
            break;
        case 3:
        case 4:
            put_message(SW_PACKET_WRITE);
            break;
        default:
            put_onlys();
        }
}

/* ---- who receives it ---- */

static void start(struct side *side, bool keeps, uint16_t slots)
{
    struct sw_responder_config config = rig_responder_config();
    config.mtu_bytes = MTU;
    config.first_psn = first_psn;
    config.service = (uint8_t)service;
    config.offer_selective = selective;
    config.max_dest_rd_atomic = 16;
    memset(side, 0, sizeof(*side));
    sw_early_pool_init(&side->pool, side->slots, side->copies, slots);
    sw_responder_init(&side->r, &config, keeps ? &side->pool : NULL);
}

/* 0x1f: done. `rnr_salt`: which SENDs find no receive. */
static uint8_t carry_out(struct side *side, const struct sw_demand *d, uint32_t rnr_salt)
{
    const uint64_t len = (uint64_t)d->len_bytes * d->pieces, at = d->addr - BASE;
    uint8_t *to = side->receive + d->offset;
    assert_true(d->pieces == 1 || !d->duplicate);
    if (d->kind == SW_DEMAND_READ)
        return 0x1f;
    if (d->kind == SW_DEMAND_SEND && d->first && (d->seq * 2654435761u ^ rnr_salt) >> 28 == 0)
        return 0x20;
    if (d->kind == SW_DEMAND_SEND && d->offset + len > RECEIVE)
        return RIG_NAK_INVALID;
    if (d->kind == SW_DEMAND_WRITE) {
        if (len && (d->addr < BASE || at > MEMORY || len > MEMORY - at))
            return RIG_NAK_ACCESS;
        to = side->memory + at;
    }
    for (uint32_t i = 0; i < d->pieces && len; i++)
        memcpy(to + (size_t)i * d->len_bytes, d->payload + (size_t)i * d->stride_bytes,
               d->len_bytes);
    side->received += d->kind == SW_DEMAND_SEND && d->last;
    side->writes += d->kind == SW_DEMAND_WRITE && d->last ? d->pieces : 0;
    return 0x1f;
}

static bool conclude(struct side *side, const struct sw_demand *demand, uint32_t rnr_salt)
{
    const uint8_t syndrome = carry_out(side, demand, rnr_salt);
    const struct sw_outcome outcome = {.syndrome = syndrome, .dead = syndrome >= RIG_NAK_PSN};
    if (demand->pieces > 1 && syndrome != 0x1f)
        return false;
    sw_responder_conclude(&side->r, demand, &outcome);
    return true;
}

/* What came before its turn. */
static void take_early(struct side *side, uint32_t rnr_salt)
{
    struct sw_packet next;
    struct sw_demand demand;
    for (;;) {
        if (side == &whole && sw_responder_admit_early_run(&side->r, &demand)) {
            const bool is_done = conclude(side, &demand, rnr_salt);
            early_runs += is_done;
            in_vain += !is_done;
            if (is_done)
                continue;
        }
        if (!sw_responder_early(&side->r, &next))
            return;
        if (sw_responder_admit(&side->r, &next, 5000000, &demand))
            conclude(side, &demand, rnr_salt);
    }
}

static void take_one(struct side *side, const struct sw_packet *packet, uint32_t rnr_salt)
{
    struct sw_demand demand;
    if (sw_responder_admit(&side->r, packet, 5000000, &demand))
        conclude(side, &demand, rnr_salt);
    take_early(side, rnr_salt);
}

/* Returns how many of its packets were taken. */
static uint32_t take_at_once(struct side *side, const struct sw_packet_run *run, uint32_t rnr_salt)
{
    struct sw_demand demand;
    if (run->count < 2)
        return 0;
    if (sw_responder_admit_run(&side->r, run, &demand)) {
        const uint32_t taken = conclude(side, &demand, rnr_salt) ? run->count : 0;
        runs += taken != 0;
        in_vain += taken == 0;
        return taken;
    }
    const uint32_t kept = sw_responder_keep_run(&side->r, run);
    kept_runs += kept != 0;
    if (kept)
        take_early(side, rnr_salt);
    return kept;
}

static void take_run(struct side *side, struct sw_packet_run *run, uint32_t rnr_salt)
{
    while (run->count) {
        uint32_t taken = take_at_once(side, run, rnr_salt);
        if (!taken) {
            take_one(side, &run->first, rnr_salt);
            taken = 1;
        }
        sw_packet_run_skip(run, taken);
    }
}

/* Some batches can be held. */
static struct sw_packet decode(struct side *side, uint32_t index)
{
    struct sw_packet packet;
    assert_int_equal(sw_packet_decode(sent[index].bytes, sent[index].len, &packet),
                     SW_PACKET_FAULT_NONE);
    assert_null(packet.hold);
    if (held_batches >> index / BATCH & 1)
        packet.hold = &side->holds[index / BATCH];
    return packet;
}

static bool follows(uint32_t before, uint32_t after)
{
    return after == before + 1 && after % BATCH && sent[before].len == sent[after].len &&
           sw_packet_follows(sent[before].bytes, sent[after].bytes, sent[after].len);
}

static void deliver(const uint32_t *indices, uint32_t count)
{
    const uint32_t rnr_salt = dice(1 << 30);
    for (uint32_t i = 0; i < count; i++) {
        const struct sw_packet packet = decode(&single, indices[i]);
        take_one(&single, &packet, rnr_salt);
    }
    for (uint32_t from = 0, to; from < count; from = to) {
        struct sw_packet_run run = {.first = decode(&whole, indices[from]),
                                    .stride_bytes = sent[indices[from]].len};
        for (to = from + 1; to < count && follows(indices[to - 1], indices[to]);)
            to++;
        run.count = to - from;
        run.ack_req = decode(&whole, indices[to - 1]).bth.ack_req;
        take_run(&whole, &run, rnr_salt);
    }
}

/* ---- whether they can be told apart ---- */

static void are_silent_alike(void)
{
    struct sw_emission a, b;
    for (;;) {
        const bool says = sw_responder_next(&single.r, 5000000, &b);
        assert_int_equal(sw_responder_next(&whole.r, 5000000, &a), says);
        if (!says)
            return;
        assert_int_equal(a.packet.bth.opcode, b.packet.bth.opcode);
        assert_int_equal(a.packet.bth.psn, b.packet.bth.psn);
        assert_int_equal(a.packet.aeth.syndrome, b.packet.aeth.syndrome);
        assert_int_equal(a.packet.aeth.msn, b.packet.aeth.msn);
        assert_int_equal(a.packet.payload_len, b.packet.payload_len);
        assert_int_equal(a.addr, b.addr);
        assert_int_equal(a.source, b.source);
        if (a.source == SW_PAYLOAD_BYTES)
            assert_memory_equal(a.bytes, b.bytes, a.packet.payload_len);
    }
}

static void are_alike(void)
{
    static struct sw_responder a, b;
    memcpy(&a, &whole.r, sizeof(a));
    memcpy(&b, &single.r, sizeof(b));
    a.early.pool = b.early.pool = NULL;
    if (a.remark == b.remark && a.remark <= SW_REMARK_ACK) /* an ACK is of all there is by then */
        a.remark_seq = b.remark_seq;
    memset(a.early.slots, 0, sizeof(a.early.slots)); /* whichever they are */
    memset(b.early.slots, 0, sizeof(b.early.slots));
    memset(a.answers, 0, sizeof(a.answers)); /* told apart by what is sent of them */
    memset(b.answers, 0, sizeof(b.answers));
    memset(&a.congestion, 0, sizeof(a.congestion));
    memset(&b.congestion, 0, sizeof(b.congestion));
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(whole.pool.free_count, single.pool.free_count);
    assert_memory_equal(whole.holds, single.holds, sizeof(whole.holds));
    assert_memory_equal(whole.memory, single.memory, MEMORY);
    assert_memory_equal(whole.receive, single.receive, RECEIVE);
    assert_int_equal(whole.received, single.received);
    assert_int_equal(whole.writes, single.writes);
}

/* Some packets from `at` on, as a bad path delivers them. */
static uint32_t burst(uint32_t at, uint32_t *indices)
{
    uint32_t count = 0;
    const uint32_t loss = dice(2) ? 1000 : 20;
    for (uint32_t n = 1 + dice(BURST); n && at < sent_count; n--, at++) {
        if (dice(loss) == 0)
            continue;
        if (dice(loss) == 0)
            indices[count++] = dice(at + 1); /* an old one */
        indices[count++] = at;
        if (dice(loss) == 0 && count > 1) {
            uint32_t other = indices[count - 2];
            indices[count - 2] = indices[count - 1];
            indices[count - 1] = other;
        }
    }
    return count;
}

static void live(void)
{
    uint32_t indices[2 * BURST], at = 0;
    const bool keeps = dice(4);
    service = dice(3) ? SW_SERVICE_RC : SW_SERVICE_XRC;
    selective = dice(4);
    first_psn = dice(2) ? 0xffff80 : 100;
    make_life();
    const uint16_t slots = dice(3) ? SLOTS : 6;
    held_batches = dice(4) ? dice(1u << 31) : 0;
    start(&whole, keeps, slots);
    start(&single, keeps, slots);
    for (uint32_t round = 0; round < 4 * PACKETS; round++) {
        const uint32_t count = burst(at, indices);
        deliver(indices, count);
        are_alike();
        if (dice(3))
            are_silent_alike();
        at = at + BURST < sent_count ? indices[count ? count - 1 : 0] + 1 : sent_count;
        const uint32_t expected = single.r.expected - first_psn;
        if ((single.r.dead && dice(6) == 0) || expected == sent_count)
            break;
        if (expected < at || count == 0)
            at = dice(3) ? expected : at; /* goes back, or goes on as if it did not know */
        if (at >= sent_count)
            at = expected;
    }
    are_silent_alike();
    are_alike();
    sw_responder_release(&whole.r);
    sw_responder_release(&single.r);
    for (uint32_t i = 0; i < sizeof(whole.holds) / sizeof(*whole.holds); i++)
        assert_int_equal(whole.holds[i].users | single.holds[i].users, 0);
}

static void run__is_the_same_as_one_by_one(void **state)
{
    (void)state;
    uint32_t dead = 0, complete = 0;
    for (uint32_t life = 1; life <= LIVES; life++) {
        dice_state = life * 0x9e3779b97f4a7c15ull;
        live();
        dead += whole.r.dead;
        complete += whole.r.expected - first_psn == sent_count;
    }
    assert_true(runs > 1000 && in_vain > 10 && dead > 10 && complete > 10);
    assert_true(kept_runs > 100 && early_runs > 100);
}

static struct sw_packet_run run_of(uint8_t opcode, uint32_t psn, uint32_t count)
{
    struct sw_packet_run run = {
        .first = rig_packet(opcode, psn, RIG_MTU), .count = count, .stride_bytes = 2000};
    run.first.bth.ack_req = false;
    return run;
}

static void run__each_only_is_a_message(void **state)
{
    (void)state;
    static struct rig rig;
    const struct sw_outcome ack = {.syndrome = RIG_ACK};
    rig_start(&rig, NULL, NULL);
    rig_send(&rig, 100);
    rig_acks(&rig, 100, RIG_ACK);
    struct sw_packet_run run = run_of(0x0a, 101, 5);
    run.ack_req = true;
    assert_true(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    assert_int_equal(rig.demand.pieces, 5);
    assert_int_equal(rig.demand.len_bytes, RIG_MTU);
    assert_int_equal(rig.demand.stride_bytes, 2000);
    assert_int_equal(rig.p.expected, 101); /* nothing has happened yet */
    sw_responder_conclude(&rig.p, &rig.demand, &ack);
    rig_acks(&rig, 105, RIG_ACK);
    assert_int_equal(rig.out.packet.aeth.msn, 6);
    assert_int_equal(rig.p.counts.packets, 6);
}

/* A packet that is not plain is for admit() to judge. */
static void run__is_taken_when_nothing_disturbs(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start(&rig, NULL, NULL);
    struct sw_packet_run run = run_of(0x0a, 100, 3);
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand)); /* a peer that is unknown */
    rig_send(&rig, 100);
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand)); /* again */
    run = run_of(0x0a, 102, 3);
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand)); /* early */
    run = run_of(0x07, 101, 3);
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand)); /* of no message */
    run = run_of(0x0a, 101, 3);
    assert_true(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    run.first.opcode = sw_opcode_of(0xaa);
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand)); /* of another service */
    struct sw_packet packet = rig_packet(0x0a, 103, 8);
    assert_false(rig_admits(&rig, &packet)); /* kept: there is a gap now */
    run = run_of(0x0a, 101, 2);
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    rig_send(&rig, 101);
    rig_send(&rig, 102);
    assert_true(sw_responder_early(&rig.p, &packet));
    rig_request(&rig, &packet, RIG_ACK);
    run = run_of(0x0a, 104, 2); /* that what was kept is done has not been said */
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    assert_false(sw_responder_early(&rig.p, &packet));
    assert_true(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    packet = rig_packet(0x0a, 104, 8);
    rig_request(&rig, &packet, RIG_NAK_ACCESS);
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand)); /* dead */
}

static void run__ends_with_the_message(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start(&rig, NULL, NULL);
    struct sw_packet first = rig_packet(0x06, 100, RIG_MTU);
    first.reth.len_bytes = 4 * RIG_MTU;
    rig_request(&rig, &first, RIG_ACK);
    struct sw_packet_run run = run_of(0x07, 101, 4);
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    run = run_of(0x01, 101, 2); /* a SEND */
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    run = run_of(0x0a, 101, 2); /* another message */
    assert_false(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    run = run_of(0x07, 101, 3);
    assert_true(sw_responder_admit_run(&rig.p, &run, &rig.demand));
    assert_int_equal(rig.demand.addr, 0x1000 + RIG_MTU);
    assert_int_equal(rig.demand.offset, RIG_MTU);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run__is_the_same_as_one_by_one),
        cmocka_unit_test(run__each_only_is_a_message),
        cmocka_unit_test(run__is_taken_when_nothing_disturbs),
        cmocka_unit_test(run__ends_with_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
