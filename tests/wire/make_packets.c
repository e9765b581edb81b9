/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * make_packets FILE: writes a capture with packets of every opcode that we can encode, over IPv4
 * and IPv6 and with every pad, and prints for each a line of what it holds: see
 * tests/wire/test_tshark.py.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "wire/icrc.h"
#include "wire/packet.h"

static uint32_t psn;

static struct sw_packet packet_of(const struct sw_opcode *opcode, const uint8_t *payload,
                                  uint32_t payload_len)
{
    psn++;
    bool is_cnp = opcode->kind == SW_PACKET_CNP;
    return (struct sw_packet){
        .opcode = opcode,
        .bth = {.opcode = opcode->number,
                .becn = is_cnp,
                .ack_req = opcode->is_request,
                .solicited = psn % 2,
                .mig_req = psn % 3 == 0,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = 0x123400 + psn % 0x100,
                .psn = is_cnp ? 0 : 0xfffff0 + psn % 0x10},
        .reth = {.addr = 0x7f0012345000 + psn, .rkey = 0x8000 + psn, .len_bytes = payload_len},
        .atomic = {.addr = 0x7f0012345000 + 8 * psn,
                   .rkey = 0x8000 + psn,
                   .swap_add = 0x1111222233330000 + psn,
                   .compare = 0x4444555566660000 + psn},
        .original = 0x7777888899990000 + psn,
        .aeth = {.syndrome = (const uint8_t[]){0x1f, 0x0a, 0x2c, 0x60, 0x63}[psn % 5],
                 .msn = 0xabc000 + psn},
        .deth = {.qkey = 0x80010000, .src_qpn = 0x432100 + psn % 0x100},
        .imm_be = 0x01020304,
        .inv_rkey = 0x9000 + psn,
        .srq_num = 0x5000 + psn,
        .flush_type = SW_FLUSH_VISIBLE,
        .payload = payload,
        .payload_len = payload_len,
    };
}

static void number(bool is_there, uint64_t value)
{
    if (is_there)
        printf("\t%" PRIu64, value);
    else
        printf("\t-");
}

/* The columns of test_tshark.py. */
static void describe(const struct sw_packet *packet)
{
    uint16_t headers = packet->opcode->headers;
    bool has_addr = headers & (SW_HEADER_RETH | SW_HEADER_ATOMIC),
         is_atomic = headers & SW_HEADER_ATOMIC;
    printf("%s\t%u\t%u\t%u", packet->opcode->name, packet->bth.opcode, packet->bth.solicited,
           packet->bth.mig_req);
    printf("\t%u\t%u\t%u\t%u\t%u", sw_packet_pad(packet->payload_len), packet->bth.pkey,
           packet->bth.dest_qpn, packet->bth.ack_req, packet->bth.psn);
    number(has_addr, is_atomic ? packet->atomic.addr : packet->reth.addr);
    number(has_addr, is_atomic ? packet->atomic.rkey : packet->reth.rkey);
    number(headers & SW_HEADER_RETH, packet->reth.len_bytes);
    number(is_atomic, packet->atomic.swap_add);
    number(is_atomic, packet->atomic.compare);
    number(headers & SW_HEADER_AETH, packet->aeth.syndrome);
    number(headers & SW_HEADER_AETH, packet->aeth.msn);
    number(headers & SW_HEADER_ATOMIC_ACK, packet->original);
    number(headers & SW_HEADER_DETH, packet->deth.qkey);
    number(headers & SW_HEADER_DETH, packet->deth.src_qpn);
    number(headers & SW_HEADER_IMM, __builtin_bswap32(packet->imm_be));
    number(headers & SW_HEADER_IETH, packet->inv_rkey);
    putchar('\n');
}

static void write_packet(FILE *capture, const struct sw_flow *flow, const struct sw_packet *packet)
{
    static uint8_t datagram[CAPTURE_FRAME_MAX], frame[CAPTURE_FRAME_MAX];
    struct sw_icrc_flow prepared;
    sw_icrc_flow_init(&prepared, flow);
    size_t len = datagram_build(&prepared, flow->ip_id, packet, datagram);
    capture_write(capture, frame, frame_build(flow, datagram, len, frame));
    describe(packet);
}

int main(int argc, char **argv)
{
    /* No SEND without payload: tshark 4.0 calls it malformed. */
    static const uint32_t lengths[] = {8, 1021, 1022, 1023, 1024, 4096};
    struct sw_flow v4 = {.dont_fragment = true,
                         .ttl = 64,
                         .tos = 2,
                         .src_port = 49152,
                         .dst_port = SW_ROCE_PORT,
                         .src = {10, 77, 0, 1},
                         .dst = {10, 77, 0, 12}};
    struct sw_flow v6 = {.is_ipv6 = true,
                         .ttl = 64,
                         .tos = 2,
                         .src_port = 49153,
                         .dst_port = SW_ROCE_PORT,
                         .src = {0xfd, 0x77, [15] = 1},
                         .dst = {0xfd, 0x77, [15] = 12}};
    static uint8_t payload[4096];
    if (argc != 2)
        return EXIT_FAILURE;
    memset(payload, 0xee, sizeof(payload));
    FILE *capture = capture_create(argv[1]);
    for (unsigned n = 0; n < 256; n++) {
        const struct sw_opcode *opcode = sw_opcode_of((uint8_t)n);
        for (size_t i = 0; opcode && i < (opcode->has_payload ? 6 : 1); i++) {
            uint32_t payload_len = opcode->has_payload ? lengths[i] : 0;
            struct sw_packet packet = packet_of(opcode, payload, payload_len);
            write_packet(capture, n % 3 ? &v4 : &v6, &packet);
            v4.ip_id++;
        }
    }
    return fclose(capture) ? EXIT_FAILURE : EXIT_SUCCESS;
}
