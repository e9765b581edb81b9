/* SPDX-License-Identifier: BSD-2-Clause */
/* Short packets that leave and come as one; in a network namespace of their own. */
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/rules/pub.h"
#include "link/roce/port/path.h"
#include "port_rig.h"
#include "wire/bytes.h"
#include "wire/joint.h"

enum { LONG = 2048, SHORT = 16, LONGS = 5, SHORTS = 7, OTHER_QP = 8 };

/* What a packet of SHORT bytes takes in a joint one. */
enum { EACH = SW_JOINT_EACH_BYTES + SW_BTH_BYTES + SHORT };

/* Packet n, short, of which `joint_bytes` are to come in all, or 0; then it may `pair` with one. */
static void add_short(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t n,
                      uint32_t joint_bytes, bool pairs)
{
    struct sw_packet packet = {
        .bth = {.opcode = SEND_ONLY,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = sw_qpn_make(6, packet_qp),
                .psn = n},
        .payload_len = SHORT,
    };
    uint8_t header[SW_HEADERS_MAX];
    const struct iovec piece = {pattern + n, SHORT};
    const struct sw_outgoing out = {
        .path = path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
        .pieces = &piece,
        .piece_count = 1,
        .payload_bytes = SHORT,
        .damage = packet_damage,
        .joins = true,
        .begins_message = joint_bytes,
        .joint_bytes = joint_bytes,
        .pairs = pairs,
    };
    sw_batch_add(batch, &out);
}

static void add_joining(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t n,
                        uint32_t joint_bytes)
{
    add_short(batch, path, n, joint_bytes, false);
}

/* Long packets and then short ones, announced with that many bytes. */
static void exchange(struct pair *pair, uint32_t joint_bytes)
{
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    for (uint32_t n = 0; n < LONGS; n++)
        add(batch, &path, 6, n, LONG);
    for (uint32_t n = 0; n < SHORTS; n++)
        add_joining(batch, &path, LONGS + n, n ? 0 : joint_bytes);
    sw_batch_close(batch);
    receive(pair, LONGS + SHORTS);
    came_in_order(LONGS + SHORTS);
    for (uint32_t n = 0; n < LONGS + SHORTS; n++)
        assert_int_equal(seen.lens[n], n < LONGS ? LONG : SHORT);
}

static uint64_t sent(const struct pair *pair, enum sw_port_counter what)
{
    return sw_port_counter(&pair->one, what);
}

static void joint__is_the_last_packet_of_a_message(void **state)
{
    struct pair *pair = *state;
    exchange(pair, SHORTS * EACH);
    assert_int_equal(sent(pair, SW_PORT_TX_BATCHES), 1);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), LONGS + 1);
}

/* Longer than the others it cannot be. */
static void joint__is_not_begun_where_it_will_not_fit(void **state)
{
    struct pair *pair = *state;
    exchange(pair, LONG + 1);
    assert_int_equal(sent(pair, SW_PORT_TX_BATCHES), 2);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), LONGS + SHORTS);
}

static void joint__not_without_segmentation(void **state)
{
    struct pair *pair = *state;
    atomic_store(&pair->one.no_gso, true);
    exchange(pair, SHORTS * EACH);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), LONGS + SHORTS);
}

/* More than was announced goes in as long as there is room, then in messages of its own. */
static void joint__what_finds_no_room_leaves_behind_it(void **state)
{
    struct pair *pair = *state;
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    const uint32_t fit = LONG / EACH, count = 1 + fit + 3; /* all it takes */
    struct sw_batch *batch = sw_batch_open(&pair->one);
    add(batch, &path, 6, 0, LONG);
    for (uint32_t n = 1; n < count; n++)
        add_joining(batch, &path, n, n == 1 ? EACH : 0);
    sw_batch_close(batch);
    receive(pair, count);
    came_in_order(count);
    assert_int_equal(sent(pair, SW_PORT_TX_BATCHES), 2);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 2 + 3);
}

static void joint__not_with_packets_of_another_queue_pair(void **state)
{
    struct pair *pair = *state;
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    const uint32_t qp = packet_qp;
    struct sw_batch *batch = sw_batch_open(&pair->one);
    add(batch, &path, 6, 0, LONG);
    add_joining(batch, &path, 1, 2 * EACH);
    packet_qp = OTHER_QP;
    add_joining(batch, &path, 2, 0);
    packet_qp = qp;
    sw_batch_close(batch);
    receive(pair, 3);
    came_in_order(3);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 3);
}

/* Faults on purpose are a packet's own. */
static void joint__not_with_a_packet_that_is_to_be_damaged(void **state)
{
    struct pair *pair = *state;
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    add(batch, &path, 6, 0, LONG);
    add_joining(batch, &path, 1, 2 * EACH);
    packet_damage = 8 * (SW_BTH_BYTES + 1);
    add_joining(batch, &path, 99, 0);
    packet_damage = 0;
    sw_batch_close(batch);
    receive(pair, 2);
    came_in_order(2);
    for (int i = 0; i < 50 && !sw_port_counter(&pair->two, SW_PORT_RX_BAD_ICRC) &&
                    !sw_port_counter(&pair->one, SW_PORT_RX_BAD_ICRC);
         i++) {
        sw_port_receive(&pair->one, sw_clock_ns(), true);
        sw_port_receive(&pair->two, sw_clock_ns(), true);
    }
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_RX_BAD_ICRC) +
                         sw_port_counter(&pair->two, SW_PORT_RX_BAD_ICRC),
                     1);
    assert_int_equal(seen.count, 2);
}

/* One that is not sound is dropped as a whole, though its ICRC is right and its first packet
 * good. */
static void joint__that_is_not_sound_is_dropped(void **state)
{
    struct pair *pair = *state;
    const struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_packet packet = {.bth = {.opcode = SEND_ONLY,
                                       .pkey = SW_PKEY_DEFAULT,
                                       .dest_qpn = sw_qpn_make(6, packet_qp)}};
    uint8_t header[SW_HEADERS_MAX], rest[2 * (SW_JOINT_EACH_BYTES + SW_BTH_BYTES)];
    sw_packet_encode_headers(&packet, header, sizeof(header));
    for (uint32_t n = 0; n < 2; n++) {
        uint8_t *to = rest + n * (SW_JOINT_EACH_BYTES + SW_BTH_BYTES);
        sw_joint_announce(to, SW_BTH_BYTES + 4 * n); /* the second is too long */
        memcpy(to + SW_JOINT_EACH_BYTES, header, SW_BTH_BYTES);
    }
    sw_joint_begin(header, header);
    const struct iovec piece = {rest, sizeof(rest)};
    const struct sw_outgoing out = {.path = &path,
                                    .header = header,
                                    .header_bytes = SW_BTH_BYTES,
                                    .pieces = &piece,
                                    .piece_count = 1,
                                    .payload_bytes = sizeof(rest)};
    struct sw_batch *batch = sw_batch_open(&pair->one);
    sw_batch_add(batch, &out);
    add(batch, &path, 6, 0, SHORT);
    sw_batch_close(batch);
    receive(pair, 1);
    assert_int_equal(sw_port_counter(&pair->one, SW_PORT_RX_MALFORMED) +
                         sw_port_counter(&pair->two, SW_PORT_RX_MALFORMED),
                     1);
}

/* Long packets and then short ones, by an interface that takes so many bytes in one. */
static void exchange_pairs(struct pair *pair, uint32_t longs, uint32_t shorts,
                           uint32_t datagram_max)
{
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    path.datagram_max = datagram_max;
    for (uint32_t n = 0; n < longs + shorts; n++)
        if (n < longs)
            add(batch, &path, 6, n, LONG);
        else
            add_short(batch, &path, n, 0, true);
    sw_batch_close(batch);
}

static void came_as(struct pair *pair, uint32_t longs, uint32_t shorts)
{
    receive(pair, longs + shorts);
    came_in_order(longs + shorts);
    for (uint32_t n = 0; n < longs + shorts; n++)
        assert_int_equal(seen.lens[n], n < longs ? LONG : SHORT);
}

enum { LONG_PACKET = SW_BTH_BYTES + LONG + SW_ICRC_BYTES };
enum { PAIR = SW_BTH_BYTES + SW_JOINT_EACH_BYTES + LONG_PACKET + EACH };

static void pair__is_one_packet(void **state)
{
    struct pair *pair = *state;
    exchange_pairs(pair, 1, 1, PAIR);
    came_as(pair, 1, 1);
    assert_int_equal(sent(pair, SW_PORT_TX_BATCHES), 1);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 1);
}

static void pair__takes_more_where_there_is_room(void **state)
{
    struct pair *pair = *state;
    exchange_pairs(pair, 1, 4, PAIR + 2 * EACH);
    came_as(pair, 1, 4);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 2);
}

/* Two that are announced, as an ACK and the end of a message, behind a long one. */
static void exchange_announced(struct pair *pair, uint32_t datagram_max)
{
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    struct sw_batch *batch = sw_batch_open(&pair->one);
    path.datagram_max = datagram_max;
    add(batch, &path, 6, 0, LONG);
    add_short(batch, &path, 1, 2 * EACH, true);
    add_short(batch, &path, 2, 0, true);
    sw_batch_close(batch);
    came_as(pair, 1, 2);
    assert_int_equal(sent(pair, SW_PORT_TX_BATCHES), 1);
}

static void pair__takes_all_that_was_announced(void **state)
{
    struct pair *pair = *state;
    exchange_announced(pair, PAIR + EACH);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 1);
}

static void pair__what_was_announced_is_the_last_segment_otherwise(void **state)
{
    struct pair *pair = *state;
    exchange_announced(pair, PAIR + EACH - 1);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 2);
}

static void pair__not_where_the_interface_has_no_room(void **state)
{
    struct pair *pair = *state;
    exchange_pairs(pair, 1, 1, PAIR - 1);
    came_as(pair, 1, 1);
    assert_int_equal(sent(pair, SW_PORT_TX_BATCHES), 1);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 2);
}

/* Packets that are alike leave in one message anyway. */
static void pair__not_behind_several(void **state)
{
    struct pair *pair = *state;
    exchange_pairs(pair, 2, 1, 4 * PAIR);
    came_as(pair, 2, 1);
    assert_int_equal(sent(pair, SW_PORT_TX_BATCHES), 1);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 3);
}

static void pair__not_of_packets_that_are_alike(void **state)
{
    struct pair *pair = *state;
    exchange_pairs(pair, 0, 3, 4 * PAIR);
    came_as(pair, 0, 3);
    assert_int_equal(sent(pair, SW_PORT_TX_BATCHES), 1);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 3);
}

static void pair__not_with_packets_of_another_queue_pair(void **state)
{
    struct pair *pair = *state;
    struct sw_roce_path path = path_to(&pair->one, lo_v4, lo_v4);
    const uint32_t qp = packet_qp;
    struct sw_batch *batch = sw_batch_open(&pair->one);
    path.datagram_max = PAIR;
    add(batch, &path, 6, 0, LONG);
    packet_qp = OTHER_QP;
    add_short(batch, &path, 1, 0, true);
    packet_qp = qp;
    sw_batch_close(batch);
    came_as(pair, 1, 1);
    assert_int_equal(sent(pair, SW_PORT_TX_PACKETS), 2);
}

/* It is lost then, and what is sent next goes as it fits. Nobody is told of a wrong path MTU. */
static void pair__ends_where_the_interface_takes_less_than_it_said(void **state)
{
    struct pair *pair = *state;
    lo_set(IFF_UP, (int)(SW_IPV4_BYTES + SW_UDP_BYTES) + (int)PAIR - 4);
    exchange_pairs(pair, 1, 1, PAIR);
    assert_int_equal(sent(pair, SW_PORT_TX_DROPPED), 1);
    assert_int_equal(sent(pair, SW_PORT_TX_TOO_LONG), 0);
    exchange_pairs(pair, 1, 1, PAIR);
    came_as(pair, 1, 1);
    assert_int_equal(sent(pair, SW_PORT_TX_DROPPED), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PAIR(joint__is_the_last_packet_of_a_message),
        WITH_PAIR(joint__is_not_begun_where_it_will_not_fit),
        WITH_PAIR(joint__not_without_segmentation),
        WITH_PAIR(joint__what_finds_no_room_leaves_behind_it),
        WITH_PAIR(joint__not_with_packets_of_another_queue_pair),
        WITH_PAIR(joint__not_with_a_packet_that_is_to_be_damaged),
        WITH_PAIR(joint__that_is_not_sound_is_dropped),
        WITH_PAIR(pair__is_one_packet),
        WITH_PAIR(pair__takes_more_where_there_is_room),
        WITH_PAIR(pair__takes_all_that_was_announced),
        WITH_PAIR(pair__what_was_announced_is_the_last_segment_otherwise),
        WITH_PAIR(pair__not_where_the_interface_has_no_room),
        WITH_PAIR(pair__not_behind_several),
        WITH_PAIR(pair__not_of_packets_that_are_alike),
        WITH_PAIR(pair__not_with_packets_of_another_queue_pair),
        WITH_PAIR(pair__ends_where_the_interface_takes_less_than_it_said),
    };
    const int skip = enter_port_namespace();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
