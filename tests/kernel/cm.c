/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture.h"
#include "wire/bytes.h"

enum { CM_QPN = 1, MAD_TRANSACTION = 8, MAD_ATTRIBUTE = 16, CM = 24, ANSWER_MS = 20000 };
/* Offsets in a REQ, behind the MAD's header. */
enum {
    REQ_LOCAL_ID = 0,
    REQ_PORT = 14,
    REQ_QPN = 32,
    REQ_PSN = 44,
    REQ_LOCAL_GID = 56,
    REQ_REMOTE_GID = 72,
    REQ_SRC_ADDR = 144, /* of the rdma_cm's own header in the private data */
    REQ_DST_ADDR = 160,
};

static uint8_t patterns[2][CM_MAD_BYTES]; /* IPv4, IPv6 */

static bool is_request(const struct sw_packet *packet)
{
    return packet->opcode->service == SW_SERVICE_UD && packet->bth.dest_qpn == CM_QPN &&
           packet->payload_len == CM_MAD_BYTES &&
           sw_be16_load(packet->payload + MAD_ATTRIBUTE) == CM_REQ;
}

void cm_load(const char *capture_path)
{
    static uint8_t frame[CAPTURE_FRAME_MAX];
    FILE *capture = capture_open(capture_path);
    for (size_t len; (len = capture_read(capture, frame)) > 0;) {
        struct sw_flow flow;
        struct sw_packet packet;
        const uint8_t *datagram;
        size_t datagram_len;
        if (frame_parse(frame, len, &flow, &datagram, &datagram_len) &&
            sw_packet_decode(datagram, datagram_len, &packet) == SW_PACKET_FAULT_NONE &&
            is_request(&packet)) {
            memcpy(patterns[flow.is_ipv6], packet.payload, CM_MAD_BYTES);
            fclose(capture);
            return;
        }
    }
    fprintf(stderr, "%s: no REQ in it\n", capture_path);
    exit(EXIT_FAILURE);
}

/* As a GID, or as rdma_cm writes addresses: IPv4 in the last four bytes of sixteen. */
static void put_address(const struct peer *peer, const uint8_t *address, uint8_t *to)
{
    if (peer->out.is_ipv6)
        memcpy(to, address, 16);
    else
        memcpy(to + 12, address, 4);
}

static struct sw_packet mad_packet(const uint8_t *mad)
{
    return (struct sw_packet){
        .bth = {.opcode = sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_ONLY, 0)->number,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = CM_QPN},
        .deth = {.qkey = CM_QKEY, .src_qpn = CM_QPN},
        .payload = mad,
        .payload_len = CM_MAD_BYTES};
}

struct sw_packet cm_request(const struct peer *peer, uint16_t port, struct connection *connection)
{
    static uint8_t mad[CM_MAD_BYTES];
    static uint32_t serial;
    if (!serial) /* the guest may remember those of an earlier run */
        serial = (uint32_t)time(NULL) << 8;
    serial++;
    *connection = (struct connection){
        .local_id = serial, .qpn = serial & 0xffffff, .receive_psn = serial * 77 & 0xffffff};
    memcpy(mad, patterns[peer->out.is_ipv6], sizeof(mad));
    sw_be32_store(mad + MAD_TRANSACTION + 4, serial);
    sw_be32_store(mad + CM + REQ_LOCAL_ID, connection->local_id);
    sw_be16_store(mad + CM + REQ_PORT, port);
    sw_be24_store(mad + CM + REQ_QPN, connection->qpn);
    sw_be24_store(mad + CM + REQ_PSN, connection->receive_psn);
    put_address(peer, peer->out.src, mad + CM + REQ_LOCAL_GID);
    put_address(peer, peer->out.dst, mad + CM + REQ_REMOTE_GID);
    put_address(peer, peer->out.src, mad + CM + REQ_SRC_ADDR);
    put_address(peer, peer->out.dst, mad + CM + REQ_DST_ADDR);
    return mad_packet(mad);
}

int cm_answer(struct peer *peer, struct connection *connection, int timeout_ms)
{
    static struct received received;
    while (peer_receive(peer, &received, timeout_ms)) {
        const struct sw_packet *packet = &received.packet;
        const uint8_t *cm = packet->payload + CM;
        if (packet->opcode->service != SW_SERVICE_UD || packet->payload_len != CM_MAD_BYTES ||
            packet->deth.qkey != CM_QKEY || sw_be32_load(cm + 4) != connection->local_id)
            continue;
        int message = sw_be16_load(packet->payload + MAD_ATTRIBUTE);
        if (message == CM_REP) {
            connection->remote_id = sw_be32_load(cm);
            connection->remote_qpn = sw_be24_load(cm + 12);
            connection->send_psn = sw_be24_load(cm + 20);
        }
        return message;
    }
    return 0;
}

void cm_confirm(const struct peer *peer, const struct connection *connection)
{
    static uint8_t mad[CM_MAD_BYTES];
    memcpy(mad, patterns[peer->out.is_ipv6], CM); /* the header, and nothing behind it */
    sw_be32_store(mad + MAD_TRANSACTION + 4, connection->local_id);
    sw_be16_store(mad + MAD_ATTRIBUTE, CM_RTU);
    sw_be32_store(mad + CM, connection->local_id);
    sw_be32_store(mad + CM + 4, connection->remote_id);
    struct sw_packet packet = mad_packet(mad);
    peer_send(peer, &packet);
}

bool cm_connect(struct peer *peer, uint16_t port, struct connection *connection)
{
    struct sw_packet request = cm_request(peer, port, connection);
    peer_send(peer, &request);
    if (cm_answer(peer, connection, ANSWER_MS) != CM_REP)
        return false;
    cm_confirm(peer, connection);
    return true;
}
