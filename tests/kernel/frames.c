/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * frames OWN GUEST CAPTURE [new]: sends single packets to rdma_rxe of the guest, where `rping -s
 * -P` listens, and checks what comes back. Every packet is made and read by src/wire; CAPTURE has a
 * REQ between addresses of the same family. Prints a line for each case; the status is 1 if one
 * failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"
#include "expect.h"
#include "wire/aeth.h"
#include "wire/bytes.h"
#include "wire/psn.h"

enum { RPING_PORT = 7174, CLOSED_PORT = 9999, SILENCE_MS = 700, ANSWER_MS = 20000 };
enum { BAD_KEY = 0xdead, RPING_INFO_BYTES = 16 };

static struct peer peer;
static struct received received;
static bool is_new; /* the guest knows FLUSH and ATOMIC WRITE */

/* ---- datagrams: connection management ---- */

static bool request_is_answered(void)
{
    struct connection c;
    EXPECT(cm_connect(&peer, RPING_PORT, &c)); /* confirmed: rping gives up otherwise */
    EXPECT(c.remote_qpn > 1 && c.remote_id != 0);
    return true;
}

static bool request_to_a_closed_port_is_rejected(void)
{
    struct connection c;
    struct sw_packet request = cm_request(&peer, CLOSED_PORT, &c);
    peer_send(&peer, &request);
    EXPECT(cm_answer(&peer, &c, ANSWER_MS) == CM_REJ);
    return true;
}

static bool both_segments_are_answered(void)
{
    struct connection first, second;
    static uint8_t datagrams[2 * PEER_DATAGRAM_MAX];
    struct sw_packet request = cm_request(&peer, CLOSED_PORT, &first);
    size_t len = peer_encode(&peer, &request, 0, datagrams);
    request = cm_request(&peer, CLOSED_PORT, &second);
    size_t both = len + peer_encode(&peer, &request, 1, datagrams + len);
    peer_send_segments(&peer, datagrams, both, len);
    EXPECT(cm_answer(&peer, &first, ANSWER_MS) == CM_REJ);
    EXPECT(cm_answer(&peer, &second, ANSWER_MS) == CM_REJ);
    return true;
}

/* A REQ that would be answered but for one change: before the ICRC is made, or after. */
static bool is_dropped(void (*change)(struct sw_packet *), void (*damage)(uint8_t *, size_t))
{
    struct connection c;
    uint8_t datagram[PEER_DATAGRAM_MAX];
    struct sw_packet request = cm_request(&peer, CLOSED_PORT, &c);
    if (change)
        change(&request);
    size_t len = peer_encode(&peer, &request, 0, datagram);
    if (damage)
        damage(datagram, len);
    peer_send_bytes(&peer, datagram, len);
    EXPECT(cm_answer(&peer, &c, SILENCE_MS) == 0);
    return true;
}

static void damage_icrc(uint8_t *datagram, size_t len)
{
    datagram[len - 1] ^= 1;
}

static void damage_payload(uint8_t *datagram, size_t len)
{
    datagram[len / 2] ^= 0x10;
}

static void change_version(struct sw_packet *packet)
{
    packet->bth.version = 1;
}

static void change_pkey(struct sw_packet *packet)
{
    packet->bth.pkey = 0x1234;
}

static void change_qkey(struct sw_packet *packet)
{
    packet->deth.qkey = 1;
}

static bool wrong_icrc_is_dropped(void)
{
    return is_dropped(NULL, damage_icrc) && is_dropped(NULL, damage_payload);
}

static bool other_version_is_dropped(void)
{
    return is_dropped(change_version, NULL);
}

static bool foreign_pkey_is_dropped(void)
{
    return is_dropped(change_pkey, NULL);
}

static bool wrong_qkey_is_dropped(void)
{
    return is_dropped(change_qkey, NULL);
}

/* Routers may set FECN: byte 4 of the BTH is not covered. */
static void mark_congestion(uint8_t *datagram, size_t len)
{
    (void)len;
    datagram[4] |= 0xc0;
}

static bool congestion_mark_does_not_matter(void)
{
    struct connection c;
    uint8_t datagram[PEER_DATAGRAM_MAX];
    struct sw_packet request = cm_request(&peer, CLOSED_PORT, &c);
    size_t len = peer_encode(&peer, &request, 0, datagram);
    mark_congestion(datagram, len);
    peer_send_bytes(&peer, datagram, len);
    EXPECT(cm_answer(&peer, &c, ANSWER_MS) == CM_REJ);
    return true;
}

/* ---- a reliable connection ---- */

static struct sw_packet packet_of(const struct connection *c, enum sw_packet_kind kind,
                                  enum sw_position position)
{
    const struct sw_opcode *opcode = sw_opcode_find(SW_SERVICE_RC, kind, position, 0);
    return (struct sw_packet){.bth = {.opcode = opcode->number,
                                      .pkey = SW_PKEY_DEFAULT,
                                      .ack_req = opcode->is_request,
                                      .dest_qpn = c->remote_qpn,
                                      .psn = c->send_psn}};
}

/* What rping's client says of its buffer, in network byte order. */
static struct sw_packet rping_info(const struct connection *c, const struct sw_reth *memory)
{
    static uint8_t info[RPING_INFO_BYTES];
    struct sw_packet packet = packet_of(c, SW_PACKET_SEND, SW_ONLY);
    sw_be64_store(info, memory->addr);
    sw_be32_store(info + 8, memory->rkey);
    sw_be32_store(info + 12, memory->len_bytes);
    packet.payload = info;
    packet.payload_len = sizeof(info);
    return packet;
}

/* The next packet of this kind for our QP; others (repeated MADs, say) are passed over. */
static bool await_within(const struct connection *c, enum sw_packet_kind kind, int timeout_ms)
{
    for (int i = 0; i < 20 && peer_receive(&peer, &received, timeout_ms); i++)
        if (received.packet.bth.dest_qpn == c->qpn && received.packet.opcode->kind == kind)
            return true;
    return false;
}

static bool await(const struct connection *c, enum sw_packet_kind kind)
{
    if (await_within(c, kind, ANSWER_MS))
        return true;
    printf("    no packet of kind %d came\n", (int)kind);
    return false;
}

static bool await_ack(const struct connection *c, uint32_t psn, uint8_t syndrome)
{
    if (!await(c, SW_PACKET_ACK))
        return false;
    if (received.packet.bth.psn == psn && received.packet.aeth.syndrome == syndrome)
        return true;
    printf("    PSN %06x, syndrome %02x came; expected %06x, %02x\n", received.packet.bth.psn,
           received.packet.aeth.syndrome, psn, syndrome);
    return false;
}

static void acknowledge(struct connection *c, uint32_t msn)
{
    struct sw_packet packet = packet_of(c, SW_PACKET_ACK, SW_ONLY);
    packet.bth.psn = c->receive_psn;
    packet.aeth =
        (struct sw_aeth){.syndrome = sw_aeth_syndrome(SW_AETH_ACK, SW_AETH_NO_CREDITS), .msn = msn};
    c->receive_psn = sw_psn_add(c->receive_psn, 1);
    peer_send(&peer, &packet);
}

/* One round as rping's client would: the server reads our text, and writes it back to where we say.
 */
static const char text[64] = "rdma-ping-0: from user space, by hand";
static const struct sw_reth source = {.addr = 0x7000, .rkey = 0x1234, .len_bytes = sizeof(text)};
static const struct sw_reth sink = {.addr = 0x8000, .rkey = 0x5678, .len_bytes = sizeof(text)};

static bool names(const struct sw_packet *packet, const struct sw_reth *memory)
{
    return packet->reth.addr == memory->addr && packet->reth.rkey == memory->rkey;
}

static bool tell(struct connection *c, const struct sw_reth *memory, uint32_t msn)
{
    struct sw_packet packet = rping_info(c, memory);
    peer_send(&peer, &packet);
    EXPECT(await_ack(c, c->send_psn, sw_aeth_syndrome(SW_AETH_ACK, SW_AETH_NO_CREDITS)));
    EXPECT(received.packet.aeth.msn == msn);
    c->send_psn = sw_psn_add(c->send_psn, 1);
    return true;
}

static bool answer_read(struct connection *c)
{
    EXPECT(await(c, SW_PACKET_READ_REQUEST));
    EXPECT(received.packet.bth.psn == c->receive_psn);
    EXPECT(names(&received.packet, &source));
    EXPECT(received.packet.reth.len_bytes == sizeof(text));
    struct sw_packet packet = packet_of(c, SW_PACKET_READ_RESPONSE, SW_ONLY);
    packet.bth.psn = c->receive_psn;
    packet.aeth =
        (struct sw_aeth){.syndrome = sw_aeth_syndrome(SW_AETH_ACK, SW_AETH_NO_CREDITS), .msn = 1};
    packet.payload = (const uint8_t *)text;
    packet.payload_len = sizeof(text);
    peer_send(&peer, &packet);
    c->receive_psn = sw_psn_add(c->receive_psn, 1);
    return true;
}

static bool rping_round(void)
{
    struct connection c;
    EXPECT(cm_connect(&peer, RPING_PORT, &c));
    EXPECT(tell(&c, &source, 1));
    EXPECT(peer.out.is_ipv6 || received.ip_id.dont_fragment);
    EXPECT(answer_read(&c));
    EXPECT(await(&c, SW_PACKET_SEND)); /* go ahead */
    EXPECT(received.packet.bth.psn == c.receive_psn);
    acknowledge(&c, 2);
    EXPECT(tell(&c, &sink, 2));
    EXPECT(await(&c, SW_PACKET_WRITE));
    EXPECT(received.packet.bth.psn == c.receive_psn);
    EXPECT(received.packet.opcode->position == SW_ONLY);
    EXPECT(names(&received.packet, &sink));
    EXPECT(received.packet.payload_len == strlen(text) + 1); /* it writes a string */
    EXPECT(memcmp(received.packet.payload, text, strlen(text) + 1) == 0);
    acknowledge(&c, 3);
    EXPECT(await(&c, SW_PACKET_SEND)); /* done */
    acknowledge(&c, 4);
    return true;
}

static bool gap_is_refused_once(void)
{
    struct connection c;
    EXPECT(cm_connect(&peer, RPING_PORT, &c));
    struct sw_packet packet = rping_info(&c, &source);
    packet.bth.psn = sw_psn_add(c.send_psn, 5);
    peer_send(&peer, &packet);
    EXPECT(await_ack(&c, c.send_psn, sw_aeth_syndrome(SW_AETH_NAK, SW_NAK_CODE_PSN)));
    peer_send(&peer, &packet);
    EXPECT(!await_within(&c, SW_PACKET_ACK, SILENCE_MS));
    return true;
}

/* A connection of its own for each: the refusal ends it. */
static bool is_refused(struct sw_packet packet, struct connection *c, uint8_t syndrome)
{
    packet.bth.dest_qpn = c->remote_qpn;
    packet.bth.psn = c->send_psn;
    peer_send(&peer, &packet);
    return await_ack(c, c->send_psn, syndrome);
}

static bool keys_are_read_where_we_write_them(const enum sw_packet_kind *kinds, size_t count)
{
    static const uint8_t data[8] = "8 bytes";
    for (size_t i = 0; i < count; i++) {
        struct connection c;
        EXPECT(cm_connect(&peer, RPING_PORT, &c));
        struct sw_packet packet = packet_of(&c, kinds[i], SW_ONLY);
        packet.reth = (struct sw_reth){.addr = 0x1000, .rkey = BAD_KEY, .len_bytes = sizeof(data)};
        packet.atomic = (struct sw_atomic_eth){.addr = 0x1000, .rkey = BAD_KEY};
        if (sw_opcode_of(packet.bth.opcode)->has_payload) {
            packet.payload = data;
            packet.payload_len = sizeof(data);
        }
        printf("    %s\n", sw_opcode_of(packet.bth.opcode)->name);
        EXPECT(is_refused(packet, &c, sw_aeth_syndrome(SW_AETH_NAK, SW_NAK_CODE_ACCESS)));
    }
    return true;
}

static bool bad_keys_are_refused(void)
{
    static const enum sw_packet_kind kinds[] = {SW_PACKET_WRITE, SW_PACKET_READ_REQUEST,
                                                SW_PACKET_CMP_SWAP, SW_PACKET_FETCH_ADD};
    return keys_are_read_where_we_write_them(kinds, sizeof(kinds) / sizeof(kinds[0]));
}

/* Since Linux 6.2. */
static bool bad_key_of_atomic_write_is_refused(void)
{
    static const enum sw_packet_kind kind = SW_PACKET_ATOMIC_WRITE;
    return !is_new || keys_are_read_where_we_write_them(&kind, 1);
}

/* rdma_rxe 6.12 lets the ICRC of a FLUSH cover its headers a second time, as a payload that it does
 * not have. By the specification's ICRC the packet is dropped, by that one it is read. */
static bool bad_key_of_flush_is_refused_with_the_icrc_of_rxe(void)
{
    struct connection c;
    uint8_t datagram[PEER_DATAGRAM_MAX];
    if (!is_new)
        return true;
    EXPECT(cm_connect(&peer, RPING_PORT, &c));
    struct sw_packet packet = packet_of(&c, SW_PACKET_FLUSH, SW_ONLY);
    packet.flush_type = SW_FLUSH_VISIBLE;
    packet.reth = (struct sw_reth){.addr = 0x1000, .rkey = BAD_KEY, .len_bytes = 8};
    size_t len = peer_encode(&peer, &packet, 0, datagram), header_len = len - SW_ICRC_BYTES;
    peer_send_bytes(&peer, datagram, len);
    EXPECT(!await_within(&c, SW_PACKET_ACK, SILENCE_MS));
    uint32_t crc = sw_icrc_begin(&peer.out_icrc, 0, datagram, header_len, len);
    sw_icrc_finish(sw_icrc_add(crc, datagram, header_len), 0, datagram + header_len);
    peer_send_bytes(&peer, datagram, len);
    return await_ack(&c, c.send_psn, sw_aeth_syndrome(SW_AETH_NAK, SW_NAK_CODE_ACCESS));
}

static bool middle_without_first_is_refused(void)
{
    static const uint8_t data[1024];
    struct connection c;
    EXPECT(cm_connect(&peer, RPING_PORT, &c));
    struct sw_packet packet = packet_of(&c, SW_PACKET_SEND, SW_MIDDLE);
    packet.payload = data;
    packet.payload_len = sizeof(data);
    EXPECT(is_refused(packet, &c, sw_aeth_syndrome(SW_AETH_NAK, SW_NAK_CODE_INVALID_REQUEST)));
    return true;
}

static bool all_that_came_was_right(void)
{
    EXPECT(peer.bad == 0);
    return true;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        bool (*run)(void);
    } cases[] = {
#define CASE(name) {#name, name}
        CASE(request_is_answered),
        CASE(request_to_a_closed_port_is_rejected),
        CASE(both_segments_are_answered),
        CASE(congestion_mark_does_not_matter),
        CASE(wrong_icrc_is_dropped),
        CASE(other_version_is_dropped),
        CASE(foreign_pkey_is_dropped),
        CASE(wrong_qkey_is_dropped),
        CASE(rping_round),
        CASE(gap_is_refused_once),
        CASE(bad_keys_are_refused),
        CASE(bad_key_of_atomic_write_is_refused),
        CASE(bad_key_of_flush_is_refused_with_the_icrc_of_rxe),
        CASE(middle_without_first_is_refused),
        CASE(all_that_came_was_right),
    };
    int failed = 0;
    if (argc < 4)
        return EXIT_FAILURE;
    is_new = argc > 4 && strcmp(argv[4], "new") == 0;
    setlinebuf(stdout);
    peer_open(&peer, argv[1], argv[2]);
    cm_load(argv[3]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool good = cases[i].run();
        failed += !good;
        printf("%s  %s\n", good ? "ok" : "NOT OK", cases[i].name);
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
