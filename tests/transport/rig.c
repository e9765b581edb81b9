/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct sw_requester_config rig_requester_config(void)
{
    return (struct sw_requester_config){.qpn = 17,
                                        .dest_qpn = 18,
                                        .first_psn = RIG_PSN,
                                        .mtu_bytes = RIG_MTU,
                                        .pkey = 0xffff,
                                        .service = SW_SERVICE_RC,
                                        .timeout = 14,
                                        .retry_cnt = 2,
                                        .rnr_retry = 2,
                                        .max_rd_atomic = 2,
                                        .offer_selective = true};
}

struct sw_responder_config rig_responder_config(void)
{
    return (struct sw_responder_config){.qpn = 18,
                                        .dest_qpn = 17,
                                        .first_psn = RIG_PSN,
                                        .mtu_bytes = RIG_MTU,
                                        .pkey = 0xffff,
                                        .service = SW_SERVICE_RC,
                                        .min_rnr_timer = 12,
                                        .max_dest_rd_atomic = 2,
                                        .offer_selective = true};
}

void rig_start(struct rig *rig, const struct sw_requester_config *requester,
               const struct sw_responder_config *responder)
{
    struct sw_requester_config default_requester = rig_requester_config();
    struct sw_responder_config default_responder = rig_responder_config();
    memset(rig, 0, sizeof(*rig));
    rig->now_ns = 5000000;
    sw_requester_init(&rig->r, requester ? requester : &default_requester, rig->ring, RIG_ENTRIES);
    sw_early_pool_init(&rig->pool, rig->slots, rig->copies, RIG_SLOTS);
    sw_responder_init(&rig->p, responder ? responder : &default_responder, &rig->pool);
}

void rig_start_requester(struct rig *rig, bool selective)
{
    struct sw_requester_config config = rig_requester_config();
    config.offer_selective = selective;
    rig_start(rig, &config, NULL);
}

void rig_start_with_peer(struct rig *rig)
{
    rig_start(rig, NULL, NULL);
    rig_post(rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(rig, 0x04, 100);
    rig->now_ns += 100000;
    struct sw_packet ack = rig_packet(0x11, 100, 0);
    ack.aeth.syndrome = RIG_ACK;
    sw_requester_receive(&rig->r, &ack, rig->now_ns, &rig->progress);
    rig_done(rig, 1);
    assert_true(rig->r.peer_selective);
}

void rig_start_responder(struct rig *rig, bool selective)
{
    struct sw_responder_config config = rig_responder_config();
    config.offer_selective = selective;
    rig_start(rig, NULL, &config);
}

void rig_post(struct rig *rig, enum sw_request_kind kind, uint32_t len, uint8_t flags)
{
    const struct sw_request request = {.kind = (uint8_t)kind,
                                       .flags = flags,
                                       .remote_addr = 0x1000,
                                       .rkey = 7,
                                       .len_bytes = len,
                                       .imm_or_key = 0x12345678,
                                       .compare_add = 3,
                                       .swap = 4,
                                       .flush_type = SW_FLUSH_PERSISTENT};
    assert_true(sw_requester_post(&rig->r, &request));
}

void rig_sends(struct rig *rig, uint8_t opcode, uint32_t psn)
{
    assert_true(sw_requester_next(&rig->r, rig->now_ns, &rig->out));
    assert_int_equal(rig->out.packet.bth.opcode, opcode);
    assert_int_equal(rig->out.packet.bth.psn, psn);
}

void rig_sends_nothing(struct rig *rig)
{
    assert_false(sw_requester_next(&rig->r, rig->now_ns, &rig->out));
}

uint32_t rig_drain(struct rig *rig)
{
    uint32_t count = 0;
    while (sw_requester_next(&rig->r, rig->now_ns, &rig->out))
        count++;
    return count;
}

void rig_answer(struct rig *rig, uint8_t opcode, uint32_t psn, uint8_t syndrome, uint32_t len)
{
    struct sw_packet packet = rig_packet(opcode, psn, len);
    packet.aeth.syndrome = syndrome;
    packet.original = 0x55;
    packet.bth.reserved7 = 0;
    sw_requester_receive(&rig->r, &packet, rig->now_ns, &rig->progress);
}

void rig_ack(struct rig *rig, uint32_t psn)
{
    rig_answer(rig, 0x11, psn, RIG_ACK, 0);
}

void rig_hint(struct rig *rig, uint32_t psn, uint8_t bits)
{
    struct sw_packet packet = rig_packet(0x10, psn, 4);
    packet.aeth.syndrome = RIG_NAK_PSN;
    memset(rig->bytes, 0, 4);
    rig->bytes[0] = bits;
    packet.payload = rig->bytes;
    sw_requester_receive(&rig->r, &packet, rig->now_ns, &rig->progress);
}

void rig_tick(struct rig *rig)
{
    uint64_t due = sw_requester_due_ns(&rig->r);
    assert_true(due != UINT64_MAX);
    if (due > rig->now_ns)
        rig->now_ns = due;
    sw_requester_tick(&rig->r, rig->now_ns, &rig->progress);
}

void rig_done(struct rig *rig, uint32_t done)
{
    assert_int_equal(rig->progress.failure, SW_FAILURE_NONE);
    assert_int_equal(rig->progress.done, done);
}

void rig_failed(struct rig *rig, enum sw_failure failure, uint8_t syndrome)
{
    assert_int_equal(rig->progress.failure, failure);
    assert_int_equal(rig->progress.syndrome, syndrome);
    rig_sends_nothing(rig);
    assert_true(sw_requester_due_ns(&rig->r) == UINT64_MAX);
}

struct sw_packet rig_packet(uint8_t opcode, uint32_t psn, uint32_t len)
{
    static const uint8_t zeros[4096];
    const struct sw_opcode *row = sw_opcode_of(opcode);
    assert_non_null(row);
    return (struct sw_packet){
        .opcode = row,
        .bth = {.opcode = opcode, .psn = psn, .ack_req = true, .reserved7 = SW_SELECTIVE_MARK},
        .reth = {.addr = 0x1000, .rkey = 7, .len_bytes = len},
        .atomic = {.addr = 0x1000, .rkey = 7, .compare = 3, .swap_add = 4},
        .payload = zeros,
        .payload_len = len,
    };
}

bool rig_admits(struct rig *rig, const struct sw_packet *packet)
{
    return sw_responder_admit(&rig->p, packet, rig->now_ns, &rig->demand);
}

void rig_request(struct rig *rig, const struct sw_packet *packet, uint8_t syndrome)
{
    const struct sw_outcome outcome = {
        .syndrome = syndrome, .dead = syndrome >= RIG_NAK_PSN, .original = 0x77};
    assert_true(rig_admits(rig, packet));
    sw_responder_conclude(&rig->p, &rig->demand, &outcome);
}

void rig_send(struct rig *rig, uint32_t psn)
{
    struct sw_packet packet = rig_packet(0x04, psn, 8);
    rig_request(rig, &packet, RIG_ACK);
}

void rig_responds(struct rig *rig, uint8_t opcode, uint32_t psn)
{
    assert_true(sw_responder_next(&rig->p, rig->now_ns, &rig->out));
    assert_int_equal(rig->out.packet.bth.opcode, opcode);
    assert_int_equal(rig->out.packet.bth.psn, psn);
}

void rig_acks(struct rig *rig, uint32_t psn, uint8_t syndrome)
{
    rig_responds(rig, 0x11, psn);
    assert_int_equal(rig->out.packet.aeth.syndrome, syndrome);
}

void rig_is_silent(struct rig *rig)
{
    assert_false(sw_responder_next(&rig->p, rig->now_ns, &rig->out));
}
