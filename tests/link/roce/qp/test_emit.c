/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that leave together with an ACK that waits (link/roce/qp/emit.c); in a network namespace
 * of their own. */
#include <stdlib.h>
#include <string.h>

#include "../port/port_rig.h"
#include "base/clock.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "link/roce/port/path.h"
#include "link/roce/qp/emit.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"
#include "wire/bytes.h"

enum { SEND_FIRST = 0x00, SEND_LAST = 0x02 };
enum { MTU = 4096, ENTRIES = 4, BYTES_MAX = 3 * MTU, PACKETS_MAX = 8 };
enum { OWN_PSN = 100, PEER_SLOT = 6, SHORT = 64, WIDE = 16384 };

static struct sw_qp qp;
static struct sw_cq cq;
static struct sw_roce_qp r;
static struct sw_request ring[ENTRIES];
static struct sw_wqe wqes[ENTRIES];
static uint8_t inline_bytes[ENTRIES][BYTES_MAX];
static struct sw_port peer_port;

/* The packets that came, in their order. */
static struct {
    uint32_t count, bytes;
    uint8_t opcodes[PACKETS_MAX];
} came;

static bool note_arrival(void *arg, const struct sw_arrival *arrival)
{
    (void)arg;
    for (uint32_t i = 0; i < arrival->count; i++) {
        struct sw_packet packet;
        assert_int_equal(sw_packet_decode(arrival->bytes + (size_t)i * arrival->len_bytes,
                                          arrival->len_bytes, &packet),
                         SW_PACKET_FAULT_NONE);
        for (uint32_t b = 0; b < packet.payload_len; b++)
            assert_int_equal(packet.payload[b], (uint8_t)(7 * came.bytes++));
        came.opcodes[came.count++ % PACKETS_MAX] = packet.bth.opcode;
    }
    return true;
}

/* A connection with one of ours that owes it an ACK, and whose interface takes so much at once. */
static int start(void **state)
{
    const struct sw_responder_config responder = {
        .mtu_bytes = MTU, .service = SW_SERVICE_RC, .offer_selective = true};
    const struct sw_requester_config requester = {.first_psn = OWN_PSN,
                                                  .mtu_bytes = MTU,
                                                  .dest_qpn = sw_qpn_make(PEER_SLOT, 9),
                                                  .service = SW_SERVICE_RC,
                                                  .timeout = 14,
                                                  .retry_cnt = 7,
                                                  .offer_selective = true};
    (void)state;
    memset(&came, 0, sizeof(came));
    memset(&r, 0, sizeof(r));
    memset(&peer_port, 0, sizeof(peer_port));
    assert_int_equal(sw_port_open(&sw_roce.port, SW_ROCE_PORT, 5, note_arrival, NULL), 0);
    assert_int_equal(sw_port_open(&peer_port, SW_ROCE_PORT, PEER_SLOT, note_arrival, NULL), 0);
    sw_lock_acquire(&sw_roce.port.rx_lock);
    sw_lock_acquire(&peer_port.rx_lock);
    qp = (struct sw_qp){.qpn = 0x1007,
                        .index = 7,
                        .type = IBV_QPT_RC,
                        .state = IBV_QPS_RTS,
                        .send_cq = &cq,
                        .recv_cq = &cq,
                        .sq = {.wqes = wqes,
                               .inline_bytes = inline_bytes[0],
                               .inline_max = BYTES_MAX,
                               .mask = ENTRIES - 1}};
    qp.lock.held = 1;
    r.qp = &qp;
    r.ring = ring;
    r.receives = true;
    r.path = path_to(&sw_roce.port, lo_v4, lo_v4);
    r.path.datagram_max = WIDE;
    sw_requester_init(&r.requester, &requester, ring, ENTRIES);
    sw_responder_init(&r.responder, &responder, NULL);
    r.requester.peer_selective = r.responder.peer_selective = r.responder.peer_piggybacks = true;
    r.responder.config.dest_qpn = requester.dest_qpn;
    r.responder.remark = SW_REMARK_ACK;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    sw_port_close(&sw_roce.port);
    sw_port_close(&peer_port);
    memset(&sw_roce.port, 0, sizeof(sw_roce.port));
    return 0;
}

static void post_send(uint32_t len_bytes)
{
    const uint32_t position = qp.sq.tail++;
    wqes[position % ENTRIES] =
        (struct sw_wqe){.opcode = IBV_WR_SEND, .flags = SW_WQE_INLINE, .len_bytes = len_bytes};
    const struct sw_request request = {.kind = SW_REQUEST_SEND, .len_bytes = len_bytes};
    for (uint32_t i = 0; i < len_bytes; i++)
        inline_bytes[position % ENTRIES][i] = (uint8_t)(7 * i);
    assert_true(sw_requester_post(&r.requester, &request));
    r.posted = qp.sq.tail;
}

/* Sends a message of so many bytes, which leaves in so many of the kernel's, and has these packets
 * come, in this order, in so many of UDP. */
static void send_message(uint32_t len_bytes, uint32_t messages, uint32_t datagrams, uint32_t count,
                         const uint8_t *opcodes)
{
    post_send(len_bytes);
    assert_int_equal(sw_roce_emit(&r, sw_clock_ns()), SW_ROCE_ALIVE);
    const uint64_t limit_ns = sw_clock_ns() + 5 * SW_NS_PER_S;
    while (came.count < count && sw_clock_ns() < limit_ns) {
        sw_port_receive(&sw_roce.port, sw_clock_ns(), true);
        sw_port_receive(&peer_port, sw_clock_ns(), true);
    }
    assert_int_equal(came.count, count);
    assert_int_equal(came.bytes, len_bytes);
    assert_memory_equal(came.opcodes, opcodes, count);
    assert_int_equal(sw_port_counter(&sw_roce.port, SW_PORT_TX_BATCHES), messages);
    assert_int_equal(sw_port_counter(&sw_roce.port, SW_PORT_TX_PACKETS), datagrams);
    assert_int_equal(r.responder.remark, SW_REMARK_NONE);
}
#define SEND_MESSAGE(len_bytes, messages, datagrams, ...)                                \
    send_message(len_bytes, messages, datagrams, sizeof((const uint8_t[]){__VA_ARGS__}), \
                 (const uint8_t[]){__VA_ARGS__})

/* An NVMe host's write. */
static void end__leaves_in_one_packet_with_the_ack_and_the_rest(void **state)
{
    (void)state;
    SEND_MESSAGE(MTU + SHORT, 1, 1, SEND_FIRST, ACK, SEND_LAST);
}

static void end__leaves_in_the_last_segment_where_the_interface_has_no_room(void **state)
{
    (void)state;
    r.path.datagram_max = MTU + SHORT;
    SEND_MESSAGE(MTU + SHORT, 1, 2, SEND_FIRST, ACK, SEND_LAST);
}

static void end__leaves_in_the_last_segment_behind_several(void **state)
{
    (void)state;
    SEND_MESSAGE(2 * MTU + SHORT, 1, 3, SEND_FIRST, SEND_MIDDLE, ACK, SEND_LAST);
}

/* A router may have less room than the interface. */
static void end__leaves_in_the_last_segment_after_a_loss(void **state)
{
    (void)state;
    r.unjoined = 5;
    SEND_MESSAGE(MTU + SHORT, 1, 2, SEND_FIRST, ACK, SEND_LAST);
}

static void end__of_one_byte(void **state)
{
    (void)state;
    SEND_MESSAGE(MTU + 1, 1, 1, SEND_FIRST, ACK, SEND_LAST);
}

/* The ACK is the short one there. */
static void end__as_long_as_the_rest_goes_before_the_ack(void **state)
{
    (void)state;
    SEND_MESSAGE(2 * MTU, 1, 3, ACK, SEND_FIRST, SEND_LAST);
}

static void end__with_no_room_for_an_ack_leaves_behind_it(void **state)
{
    (void)state;
    r.unjoined = 5;
    SEND_MESSAGE(2 * MTU - 8, 2, 3, ACK, SEND_FIRST, SEND_LAST);
}

/* The kernel and hardware get plain packets, and the ACK no later than the end. */
static void end__leaves_behind_the_ack_to_plain_peers(void **state)
{
    (void)state;
    r.responder.peer_piggybacks = false;
    SEND_MESSAGE(MTU + SHORT, 2, 3, ACK, SEND_FIRST, SEND_LAST);
}

static void end__leaves_with_the_rest_where_no_ack_waits(void **state)
{
    (void)state;
    r.responder.remark = SW_REMARK_NONE;
    SEND_MESSAGE(MTU + SHORT, 1, 1, SEND_FIRST, SEND_LAST);
}

#define emit_test(function) cmocka_unit_test_setup_teardown(function, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        emit_test(end__leaves_in_one_packet_with_the_ack_and_the_rest),
        emit_test(end__leaves_in_the_last_segment_where_the_interface_has_no_room),
        emit_test(end__leaves_in_the_last_segment_behind_several),
        emit_test(end__leaves_in_the_last_segment_after_a_loss),
        emit_test(end__of_one_byte),
        emit_test(end__as_long_as_the_rest_goes_before_the_ack),
        emit_test(end__with_no_room_for_an_ack_leaves_behind_it),
        emit_test(end__leaves_behind_the_ack_to_plain_peers),
        emit_test(end__leaves_with_the_rest_where_no_ack_waits),
    };
    const int skip = enter_port_namespace();
    if (!skip)
        lo_set(IFF_UP, 65536);
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
