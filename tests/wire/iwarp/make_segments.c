/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * make_segments: a connection of iWARP as we encode it, start frames and FPDUs of every opcode,
 * each as a line: who sends (0, 1), its bytes, and what they mean. See
 * tests/wire/iwarp/test_tshark.py.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/iwarp/crc32c.h"
#include "wire/iwarp/fpdu.h"
#include "wire/iwarp/mpa.h"
#include "wire/iwarp/terminate.h"

enum { PAYLOAD_MAX = 64 };

static void print_line(int from, const uint8_t *bytes, size_t len, const char *meaning)
{
    printf("%d\t", from);
    for (size_t i = 0; i < len; i++)
        printf("%02x", bytes[i]);
    printf("\t%s\n", meaning);
}

static void print_start(bool is_reply)
{
    uint8_t bytes[SW_MPA_FRAME_MAX];
    char meaning[128];
    const struct sw_mpa_frame frame = {.is_reply = is_reply,
                                       .flags = SW_MPA_CRC | SW_MPA_ENHANCED,
                                       .revision = 2,
                                       .peer_to_peer = true,
                                       .rtr = SW_MPA_RTR_WRITE,
                                       .ird = 16,
                                       .ord = 8,
                                       .private_len = 5,
                                       .private_data = (const uint8_t *)"words"};
    const size_t len = sw_mpa_encode(&frame, bytes);
    snprintf(meaning, sizeof(meaning),
             "iwarp_mpa.rev=2 iwarp_mpa.pdlength=9 iwarp_mpa.crc_flag=1 iwarp_mpa.marker_flag=0");
    print_line(is_reply, bytes, len, meaning);
}

/* The body behind the header; what it means is added. */
static uint32_t write_body(uint8_t kind, uint32_t pad, uint8_t *to, char *meaning, size_t room)
{
    const struct sw_rdmap_read read = {0x5151, 600, 0x8888, 0x7000, 0x3000};
    const struct sw_rdmap_atomic atomic = {
        .kind = SW_RDMAP_FETCH_ADD, .id = 99, .stag = 0x1234, .to = 0x4000, .data = 5};
    switch ((enum sw_rdmap_kind)kind) {
    case SW_RDMAP_READ_REQUEST:
        sw_rdmap_read_encode(&read, to);
        snprintf(meaning, room,
                 " iwarp_rdma.sinkstag=%u iwarp_rdma.sinkto=%" PRIu64
                 " iwarp_rdma.rdmardsz=%u iwarp_rdma.srcstag=%u iwarp_rdma.srcto=%" PRIu64,
                 read.sink_stag, read.sink_to, read.len_bytes, read.source_stag, read.source_to);
        return SW_RDMAP_READ_BYTES;
    case SW_RDMAP_ATOMIC_REQUEST:
        sw_rdmap_atomic_encode(&atomic, to);
        snprintf(meaning, room,
                 " iwarp_rdma.atomic.opcode=0 iwarp_rdma.atomic.request_identifier=99"
                 " iwarp_rdma.atomic.remote_stag=%u iwarp_rdma.atomic.add_data=5",
                 atomic.stag);
        return SW_RDMAP_ATOMIC_REQUEST_BYTES;
    case SW_RDMAP_ATOMIC_RESPONSE:
        sw_rdmap_original_encode(&(struct sw_rdmap_original){99, 1234}, to);
        snprintf(meaning, room,
                 " iwarp_rdma.atomic.original_request_identifier=99"
                 " iwarp_rdma.atomic.original_remote_data_value=1234");
        return SW_RDMAP_ATOMIC_RESPONSE_BYTES;
    case SW_RDMAP_TERMINATE: {
        static const uint8_t about[SW_DDP_TAGGED_BYTES] = {0xc1, 0x40};
        const struct sw_terminate terminate =
            sw_terminate_about(SW_TERMINATE_BOUNDS, about, sizeof(about));
        snprintf(meaning, room,
                 " iwarp_rdma.term_layer=1 iwarp_rdma.term_etype_ddp=1"
                 " iwarp_rdma.term_errcode_ddp_tagged=1 iwarp_rdma.hdrct_d=1");
        return sw_terminate_encode(&terminate, to);
    }
    case SW_RDMAP_IMMEDIATE:
    case SW_RDMAP_IMMEDIATE_SE:
        memset(to, 0x11, SW_RDMAP_IMMEDIATE_BYTES);
        return SW_RDMAP_IMMEDIATE_BYTES;
    case SW_RDMAP_FLUSH: /* ours: tshark does not know it */
    case SW_RDMAP_WRITE:
    case SW_RDMAP_READ_RESPONSE:
    case SW_RDMAP_SEND:
    case SW_RDMAP_SEND_INV:
    case SW_RDMAP_SEND_SE:
    case SW_RDMAP_SEND_SE_INV:
    case SW_RDMAP_KINDS:
        break;
    }
    memset(to, 0x22, 40 + pad);
    return 40 + pad;
}

static void print_segment(uint8_t kind, uint32_t round, uint32_t msn)
{
    uint8_t bytes[SW_FPDU_LENGTH_BYTES + SW_DDP_HEADER_MAX + PAYLOAD_MAX + SW_FPDU_TRAILER_MAX];
    char meaning[512];
    const struct sw_rdmap_opcode *opcode = sw_rdmap_opcode_of(kind);
    const struct sw_ddp_segment segment = {
        .opcode = opcode, .last = true, .stag = 0x1000 + round, .to = 0x20000 + round, .msn = msn};
    uint8_t *at = bytes + SW_FPDU_LENGTH_BYTES;
    at += sw_ddp_encode(&segment, at);
    int said = snprintf(meaning, sizeof(meaning), "iwarp_rdma.opcode=%u iwarp_ddp.last_flag=1",
                        opcode->number);
    if (opcode->is_tagged)
        said += snprintf(meaning + said, sizeof(meaning) - (size_t)said,
                         " iwarp_ddp.stag=%u iwarp_ddp.tagged_offset=%" PRIu64, segment.stag,
                         segment.to);
    else
        said += snprintf(meaning + said, sizeof(meaning) - (size_t)said,
                         " iwarp_ddp.qn=%u iwarp_ddp.msn=%u iwarp_ddp.mo=0", opcode->queue, msn);
    at += write_body(kind, round, at, meaning + said, sizeof(meaning) - (size_t)said);
    const uint32_t covered = (uint32_t)(at - bytes), ulpdu_len = covered - SW_FPDU_LENGTH_BYTES;
    sw_be16_store(bytes, (uint16_t)ulpdu_len);
    at += sw_fpdu_finish(sw_crc32c_add(0, bytes, covered), ulpdu_len, true, at);
    print_line(0, bytes, (size_t)(at - bytes), meaning);
}

int main(void)
{
    uint32_t msn[SW_DDP_QUEUES] = {1, 1, 1, 1};
    print_start(false);
    print_start(true);
    for (uint32_t round = 0; round < 4; round++)
        for (uint8_t kind = 0; kind < SW_RDMAP_KINDS; kind++) {
            const struct sw_rdmap_opcode *opcode = sw_rdmap_opcode_of(kind);
            if (kind != SW_RDMAP_FLUSH && (kind != SW_RDMAP_TERMINATE || round == 3))
                print_segment(kind, round, opcode->is_tagged ? 0 : msn[opcode->queue]++);
        }
    return 0;
}
