/* SPDX-License-Identifier: BSD-2-Clause */
/* Which packets are believed to be the peer's, see link/roce/qp/identity.c. */
#include <netinet/in.h>
#include <string.h>

#include "link/roce/port/arrival.h"
#include "link/roce/qp/identity.h"
#include "link/roce/qp/qp.h"
#include "link_rig.h"

enum { ENTRIES = 64, MTU = 1024, OWN_PSN = 500, PEER_PSN = 100, FLIGHT = 20, MS = 1000000 };
enum { SEND_FIRST = 0, SEND_ONLY = 4, ACK = 0x11, UC_SEND_ONLY = 0x24, UC_SEND_MIDDLE = 0x21 };
enum { PORT = 0xc123, OTHER_PORT = 0xd456, LIFE = 5 };

static struct sw_qp qp;
static struct sw_roce_qp r;
static struct sw_request ring[ENTRIES];
static uint64_t now_ns;

/* A connection from which so many packets are on their way, and nothing was heard yet. */
static void start(enum ibv_qp_type type, uint32_t flight)
{
    const uint8_t service = type == IBV_QPT_UC ? SW_SERVICE_UC : SW_SERVICE_RC;
    const bool selective = type != IBV_QPT_UC;
    const struct sw_responder_config responder = {.first_psn = PEER_PSN,
                                                  .mtu_bytes = MTU,
                                                  .service = service,
                                                  .max_dest_rd_atomic = 4,
                                                  .offer_selective = selective};
    const struct sw_requester_config requester = {.first_psn = OWN_PSN,
                                                  .mtu_bytes = MTU,
                                                  .service = service,
                                                  .timeout = 14,
                                                  .retry_cnt = 7,
                                                  .max_rd_atomic = 4,
                                                  .offer_selective = selective};
    const struct sw_request request = {.kind = SW_REQUEST_SEND, .len_bytes = 8};
    struct sw_emission out;
    now_ns = 1000ull * MS;
    qp = (struct sw_qp){.qpn = 0x1007, .dest_qpn = 0x2009, .index = 7, .type = type};
    memset(&r, 0, sizeof(r));
    r.qp = &qp;
    qp.lock.held = 1;
    r.ring = ring;
    r.receives = true;
    sw_requester_init(&r.requester, &requester, ring, ENTRIES);
    sw_responder_init(&r.responder, &responder, NULL);
    for (uint32_t i = 0; i < flight; i++) {
        assert_true(sw_requester_post(&r.requester, &request));
        assert_true(sw_requester_next(&r.requester, now_ns, &out));
    }
}

static bool is_believed(uint8_t opcode, uint32_t psn, uint16_t port, uint8_t mark)
{
    const struct sw_arrival arrival = {.source_port = port};
    const struct sw_packet packet = {
        .opcode = sw_opcode_of(opcode),
        .bth = {.opcode = opcode, .psn = psn & SW_PSN_MASK, .reserved7 = mark}};
    return sw_roce_is_of_peer(&r, &arrival, &packet, now_ns);
}

static uint8_t life(int number)
{
    return sw_selective_mark(true, (uint8_t)number);
}

/* The peer is heard: its first request. */
static void meet(uint8_t mark)
{
    assert_true(is_believed(SEND_ONLY, PEER_PSN, PORT, mark));
    assert_true(r.peer.is_known);
    r.responder.expected++;
}

static void is_known_by(uint16_t port, uint8_t mark)
{
    assert_true(r.peer.is_known);
    assert_int_equal(r.peer.ports[1], port + 1);
    assert_int_equal(r.life.peer_mark, mark);
}

/* The mark of another life used to be believed by itself, and the peer's own were stale then. */
static void identify__a_mark_alone_ends_no_life(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    meet(life(LIFE));
    for (int number = 0; number <= (int)SW_SELECTIVE_LIFE; number++)
        for (uint32_t psn = 0; psn < 1u << 24; psn += 65521) {
            if (number != LIFE)
                assert_false(is_believed(ACK, psn, PORT, life(number)));
            assert_false(is_believed(ACK, psn, OTHER_PORT, life(number)));
            assert_false(is_believed(SEND_ONLY, psn + 3 * PEER_PSN, OTHER_PORT, life(number)));
        }
    is_known_by(PORT, life(LIFE));
    assert_true(is_believed(SEND_ONLY, PEER_PSN + 1, PORT, life(LIFE)));
}

static void identify__not_by_what_is_only_near(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    meet(life(LIFE));
    for (int i = -100; i < 2 * (int)SW_FLIGHT_PACKETS; i++) {
        if (i != 1)
            assert_false(is_believed(SEND_ONLY, (uint32_t)(PEER_PSN + i), OTHER_PORT, life(LIFE)));
        assert_false(is_believed(ACK, (uint32_t)(OWN_PSN + i), OTHER_PORT, life(LIFE)));
        assert_false(is_believed(ACK, (uint32_t)(OWN_PSN + i), OTHER_PORT, life(LIFE + 1)));
    }
    is_known_by(PORT, life(LIFE));
}

/* Nothing is known at the beginning of a life but the PSNs that were agreed upon. */
static void identify__a_new_life_by_its_psns(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    for (uint32_t i = 1; i < 100; i++) {
        assert_false(is_believed(SEND_ONLY, PEER_PSN - i, OTHER_PORT, life(LIFE)));
        assert_false(is_believed(ACK, OWN_PSN - i, OTHER_PORT, life(LIFE)));
        assert_false(is_believed(ACK, OWN_PSN + FLIGHT - 1 + i, OTHER_PORT, life(LIFE)));
        (void)is_believed(SEND_ONLY, PEER_PSN + i, OTHER_PORT, life(LIFE)); /* a gap, if it is */
    }
    assert_false(r.peer.is_known);
    assert_true(is_believed(ACK, OWN_PSN + 3, PORT, life(LIFE)));
    is_known_by(PORT, life(LIFE));
    assert_true(is_believed(SEND_ONLY, PEER_PSN + 3, PORT, life(LIFE)));
}

/* The first packet was a remnant of a life that nothing else was heard of. */
static void identify__a_newer_life_by_the_expected_psn(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    assert_true(is_believed(ACK, OWN_PSN, PORT, life(LIFE)));
    assert_true(is_believed(SEND_ONLY, PEER_PSN, OTHER_PORT, life(LIFE + 1)));
    is_known_by(OTHER_PORT, life(LIFE + 1));
    assert_false(is_believed(SEND_ONLY, PEER_PSN, PORT, life(LIFE)));
    assert_false(is_believed(ACK, OWN_PSN, PORT, life(LIFE)));
}

static void identify__a_peer_that_tries_another_port(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    meet(life(LIFE));
    assert_true(is_believed(SEND_ONLY, PEER_PSN + 1, OTHER_PORT, life(LIFE)));
    is_known_by(OTHER_PORT, life(LIFE));
    /* Its requests had come, and the answers to them were lost. */
    assert_false(is_believed(SEND_ONLY, PEER_PSN, PORT, life(LIFE)));
    now_ns += 16ull * MS;
    assert_true(is_believed(SEND_ONLY, PEER_PSN, PORT, life(LIFE)));
    is_known_by(OTHER_PORT, life(LIFE));
}

static void identify__answers_from_another_port_when_they_are_missed(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    meet(life(LIFE));
    now_ns += 100ull * MS; /* silent, but nothing has timed out */
    assert_false(is_believed(ACK, OWN_PSN, OTHER_PORT, life(LIFE)));
    r.requester.retry.backoff = 2;
    assert_false(is_believed(ACK, OWN_PSN, OTHER_PORT, life(LIFE)));
    assert_false(is_believed(ACK, OWN_PSN + 1, OTHER_PORT, life(LIFE))); /* at once */
    assert_false(is_believed(ACK, OWN_PSN + FLIGHT, OTHER_PORT, life(LIFE)));
    now_ns += 8ull * MS;
    assert_false(is_believed(ACK, OWN_PSN, OTHER_PORT + 1, life(LIFE)));
    assert_false(is_believed(ACK, OWN_PSN, OTHER_PORT, life(LIFE)));
    now_ns += 8ull * MS;
    assert_true(is_believed(ACK, OWN_PSN, OTHER_PORT, life(LIFE)));
    is_known_by(OTHER_PORT, life(LIFE));
}

/* The last answer of a peer that ends is not said twice. */
static void identify__the_only_answer_from_another_port(void **state)
{
    (void)state;
    start(IBV_QPT_RC, 4);
    meet(life(LIFE));
    now_ns += 100ull * MS;
    assert_false(is_believed(ACK, OWN_PSN, OTHER_PORT, life(LIFE))); /* nothing has timed out */
    r.requester.retry.backoff = 2;
    assert_false(is_believed(ACK, OWN_PSN + 4, OTHER_PORT, life(LIFE)));
    assert_true(is_believed(ACK, OWN_PSN + 3, OTHER_PORT, life(LIFE)));
}

/* Others have no mark, and may answer from another port than they ask from. */
static void identify__a_plain_peer(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    meet(0);
    assert_false(is_believed(SEND_ONLY, PEER_PSN + 1, OTHER_PORT, life(LIFE)));
    assert_false(is_believed(SEND_ONLY, PEER_PSN + 1, PORT, life(LIFE)));
    assert_false(is_believed(ACK, OWN_PSN, PORT, life(LIFE)));
    assert_true(is_believed(ACK, OWN_PSN, OTHER_PORT, 0));
    assert_true(is_believed(SEND_ONLY, PEER_PSN + 1, PORT, 0));
    assert_true(is_believed(SEND_ONLY, PEER_PSN + 1, PORT, 1)); /* of no meaning */
    for (int i = 2; i < 100; i++)
        assert_false(is_believed(SEND_ONLY, (uint32_t)(PEER_PSN + i), PORT - 1, 0));
    assert_int_equal(r.life.peer_mark, 0);
}

static void identify__a_sidewire_peer_always_says_so(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    meet(life(LIFE));
    assert_false(is_believed(SEND_ONLY, PEER_PSN + 1, PORT, 0));
    assert_false(is_believed(ACK, OWN_PSN, PORT, 0));
    now_ns += 1000ull * MS;
    assert_false(is_believed(SEND_ONLY, PEER_PSN, OTHER_PORT, 0));
}

static void identify__over_uc(void **state)
{
    (void)state;
    start(IBV_QPT_UC, 0);
    assert_false(is_believed(UC_SEND_MIDDLE, PEER_PSN + 7, PORT, 0));
    assert_true(is_believed(UC_SEND_ONLY, PEER_PSN + 7, PORT, 0)); /* those before it were lost */
    r.responder.expected = PEER_PSN + 8;
    for (uint32_t i = 9; i < 1u << 24; i += 65521)
        assert_false(is_believed(UC_SEND_ONLY, PEER_PSN + i, OTHER_PORT, 0));
    assert_true(is_believed(UC_SEND_ONLY, PEER_PSN + 1000, PORT, 0));
    is_known_by(PORT, 0);
    assert_true(is_believed(UC_SEND_ONLY, PEER_PSN, OTHER_PORT, 0)); /* it was connected again */
    is_known_by(OTHER_PORT, 0);
    assert_int_equal(r.responder.expected, PEER_PSN);
    assert_false(is_believed(UC_SEND_ONLY, PEER_PSN + 9, PORT, 0));
    now_ns += 16ull * MS;
    assert_true(is_believed(UC_SEND_ONLY, PEER_PSN + 9, PORT, 0));
}

static bool is_notified(uint16_t port)
{
    const struct sw_arrival arrival = {.source_port = port};
    return sw_roce_is_notified(&r, &arrival);
}

static void is_notified__of_congestion_by_the_peer_alone(void **state)
{
    (void)state;
    start(IBV_QPT_RC, FLIGHT);
    assert_false(is_notified(PORT));
    meet(life(LIFE));
    assert_true(is_notified(PORT));
    for (uint32_t port = 0; port <= UINT16_MAX; port++)
        assert_int_equal(is_notified((uint16_t)port), port == PORT);
    start(IBV_QPT_RC, FLIGHT);
    meet(0);
    assert_true(is_notified(OTHER_PORT)); /* hardware has them come from any */
    start(IBV_QPT_UC, 0);
    assert_true(is_notified(PORT)); /* nothing else comes from it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identify__a_mark_alone_ends_no_life),
        cmocka_unit_test(identify__not_by_what_is_only_near),
        cmocka_unit_test(identify__a_new_life_by_its_psns),
        cmocka_unit_test(identify__a_newer_life_by_the_expected_psn),
        cmocka_unit_test(identify__a_peer_that_tries_another_port),
        cmocka_unit_test(identify__answers_from_another_port_when_they_are_missed),
        cmocka_unit_test(identify__the_only_answer_from_another_port),
        cmocka_unit_test(identify__a_plain_peer),
        cmocka_unit_test(identify__a_sidewire_peer_always_says_so),
        cmocka_unit_test(identify__over_uc),
        cmocka_unit_test(is_notified__of_congestion_by_the_peer_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
