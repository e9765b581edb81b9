/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_golden FOLDER: the streams between two siw hosts (tests/golden) are start frames and FPDUs,
 * each of which decodes and encodes to the same bytes; also when the stream comes byte by byte. The
 * pad is left out of that: siw leaves in it what was there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../capture.h"
#include "transport/iwarp/stream.h"
#include "wire/bytes.h"
#include "wire/iwarp/crc32c.h"
#include "wire/iwarp/ddp.h"
#include "wire/iwarp/mpa.h"

enum { STREAMS_MAX = 8, STREAM_BYTES = 1 << 18 };
enum { IP_AT = 14, TCP_AT = IP_AT + 20, IPPROTO_OF_TCP = 6, SYN = 2 };

static const char *folder;

struct golden {
    const char *name;
    int fpdus; /* counted by tshark */
    bool crc;
};
static const struct golden files[] = {
    {"siw-crc-rping", 21, true},   {"siw-crc-write", 47, true}, {"siw-rping", 21, false},
    {"siw-read", 52, false},       {"siw-send", 34, false},     {"siw-write", 47, false},
    {"siw-nvme-rdma", 196, false},
};

/* One direction of a TCP connection. */
struct direction {
    uint8_t name[12]; /* addresses and ports */
    uint32_t seq, len;
    uint8_t bytes[STREAM_BYTES];
};
static struct direction directions[STREAMS_MAX];
static int direction_count;

static struct direction *direction_of(const uint8_t *frame)
{
    uint8_t name[12];
    memcpy(name, frame + IP_AT + 12, 8);
    memcpy(name + 8, frame + TCP_AT, 4);
    for (int i = 0; i < direction_count; i++)
        if (memcmp(directions[i].name, name, sizeof(name)) == 0)
            return &directions[i];
    assert_true(direction_count < STREAMS_MAX);
    struct direction *direction = &directions[direction_count++];
    memcpy(direction->name, name, sizeof(name));
    direction->len = 0;
    return direction;
}

static void take_frame(const uint8_t *frame, size_t len)
{
    if (len < TCP_AT + 20 || sw_be16_load(frame + 12) != 0x0800 ||
        frame[IP_AT + 9] != IPPROTO_OF_TCP)
        return;
    struct direction *direction = direction_of(frame);
    const uint32_t seq = sw_be32_load(frame + TCP_AT + 4);
    const uint32_t head = TCP_AT + 4u * (frame[TCP_AT + 12] >> 4);
    const uint32_t end = IP_AT + sw_be16_load(frame + IP_AT + 2);
    if (frame[TCP_AT + 13] & SYN) {
        direction->seq = seq + 1;
        return;
    }
    if (head == end)
        return;
    assert_int_equal(seq, direction->seq); /* nothing was lost or sent twice */
    assert_true(end <= len && direction->len + (end - head) <= STREAM_BYTES);
    memcpy(direction->bytes + direction->len, frame + head, end - head);
    direction->len += end - head;
    direction->seq += end - head;
}

static void read_capture(const char *name)
{
    static uint8_t frame[CAPTURE_FRAME_MAX];
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s.pcap", folder, name);
    FILE *capture = capture_open(path);
    direction_count = 0;
    for (size_t len; (len = capture_read(capture, frame)) > 0;)
        take_frame(frame, len);
    fclose(capture);
}

/* Returns its length. */
static size_t check_start(const struct direction *direction, bool crc)
{
    uint8_t again[SW_MPA_FRAME_MAX];
    struct sw_mpa_frame frame;
    const bool is_reply = direction->bytes[9] == 'p';
    assert_int_equal(sw_mpa_check(direction->bytes, direction->len, is_reply), SW_MPA_FAULT_NONE);
    const size_t len = sw_mpa_decode(direction->bytes, &frame);
    assert_int_equal(frame.is_reply, is_reply);
    assert_int_equal(!!(frame.flags & SW_MPA_CRC), crc);
    assert_true(sw_mpa_is_enhanced(&frame));
    assert_int_equal(sw_mpa_encode(&frame, again), len);
    assert_memory_equal(again, direction->bytes, len);
    return len;
}

/* Returns its length, with what is known of the body encoded again. */
static uint32_t encode_ulpdu(const struct sw_ddp_segment *segment, uint8_t *to)
{
    const uint32_t header_len = sw_ddp_encode(segment, to);
    if (segment->opcode->number == SW_RDMAP_READ_REQUEST) {
        struct sw_rdmap_read read;
        sw_rdmap_read_decode(segment->payload, &read);
        sw_rdmap_read_encode(&read, to + header_len);
    } else {
        memcpy(to + header_len, segment->payload, segment->payload_len);
    }
    return header_len + segment->payload_len;
}

static void check_fpdu(const struct sw_iwarp_fpdu *fpdu, const uint8_t *meant, bool crc)
{
    static uint8_t again[SW_FPDU_MAX];
    struct sw_ddp_segment segment;
    assert_int_equal(sw_ddp_check(fpdu->ulpdu, fpdu->len), SW_DDP_FAULT_NONE);
    sw_ddp_decode(fpdu->ulpdu, fpdu->len, &segment);
    sw_be16_store(again, (uint16_t)fpdu->len);
    assert_int_equal(encode_ulpdu(&segment, again + 2), fpdu->len);
    const uint32_t at = 2 + fpdu->len, pad = sw_fpdu_pad(fpdu->len);
    assert_int_equal(sw_fpdu_finish(sw_crc32c_add(0, again, at), fpdu->len, crc, again + at),
                     pad + SW_FPDU_CRC_BYTES);
    if (memcmp(again + at, meant + at, pad) != 0) {
        assert_true(!crc || sw_fpdu_is_intact(meant, fpdu->len));
        assert_memory_equal(again, meant, at);
        return;
    }
    assert_memory_equal(again, meant, at + pad + SW_FPDU_CRC_BYTES);
}

static int check_direction(const struct direction *direction, bool crc, size_t piece_len)
{
    static uint8_t buffer[SW_FPDU_MAX];
    struct sw_iwarp_stream stream;
    struct sw_iwarp_fpdu fpdu;
    size_t at = check_start(direction, crc), fpdu_at = at;
    int count = 0;
    sw_iwarp_stream_init(&stream, buffer, sizeof(buffer), crc);
    while (at < direction->len) {
        const size_t left = direction->len - at;
        const size_t end = at + (left < piece_len ? left : piece_len);
        for (size_t used; sw_iwarp_stream_take(&stream, direction->bytes + at, end - at, &used,
                                               &fpdu) == SW_IWARP_FPDU;
             at += used, count++) {
            check_fpdu(&fpdu, direction->bytes + fpdu_at, crc);
            fpdu_at += sw_fpdu_len(fpdu.len);
        }
        assert_int_equal(stream.broken, SW_IWARP_MORE);
        at = end;
    }
    assert_true(sw_iwarp_stream_is_between(&stream));
    assert_int_equal(fpdu_at, direction->len);
    return count;
}

static void check_file(void **state)
{
    const struct golden *golden = *state;
    static const size_t pieces[] = {STREAM_BYTES, 1, 3, 7, 1000};
    read_capture(golden->name);
    for (size_t piece = 0; piece < sizeof(pieces) / sizeof(*pieces); piece++) {
        int fpdus = 0;
        for (int i = 0; i < direction_count; i++)
            if (directions[i].len > SW_MPA_HEADER_BYTES &&
                memcmp(directions[i].bytes, "MPA ID Re", 9) == 0)
                fpdus += check_direction(&directions[i], golden->crc, pieces[piece]);
        assert_int_equal(fpdus, golden->fpdus);
    }
}

int main(int argc, char **argv)
{
    enum { COUNT = sizeof(files) / sizeof(files[0]) };
    struct CMUnitTest tests[COUNT];
    if (argc != 2)
        return EXIT_FAILURE;
    folder = argv[1];
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){.name = files[i].name,
                                       .test_func = check_file,
                                       .initial_state = (void *)(uintptr_t)&files[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
