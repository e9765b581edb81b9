/* SPDX-License-Identifier: BSD-2-Clause */
#include "hostile_caller.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_util/pair.h"
#include "wire/bytes.h"
#include "wire/iwarp/crc32c.h"
#include "wire/iwarp/fpdu.h"
#include "wire/iwarp/mpa.h"
#include "wire/iwarp/rdmap.h"

enum {
    KEPT = 320, /* connections that stay open, silent */
    BURST = 64, /* of these, that come at once */
    ADDRESSES = 8,
    FPDUS_MAX = 24,
    PAYLOAD_MAX = 3000,
    FPDU_ROOM = PAYLOAD_MAX + 64,
    REPLY_MS = 20
};

struct hostile {
    struct vu_random random;
    uint16_t port;
    int fd, kept[KEPT];
    bool has_crc;
    struct hostile_offer offer; /* len_bytes 0: none */
    uint32_t msn[4];
};

static bool one_in(struct hostile *h, uint32_t count)
{
    return vu_random_below(&h->random, count) == 0;
}

static uint32_t any_below(struct hostile *h, uint32_t bound)
{
    return vu_random_below(&h->random, bound);
}

/* In pieces, sometimes, or not whole. */
static void say_bytes(struct hostile *h, const uint8_t *bytes, uint32_t len)
{
    if (one_in(h, 20))
        len = any_below(h, len + 1);
    while (len) {
        const uint32_t part = one_in(h, 4) ? 1 + any_below(h, len) : len;
        if (send(h->fd, bytes, part, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)part)
            return;
        bytes += part;
        len -= part;
    }
}

static void damage(struct hostile *h, uint8_t *bytes, uint32_t len)
{
    for (uint32_t flips = 1 + any_below(h, 4); len && flips; flips--)
        bytes[any_below(h, len)] ^= (uint8_t)(1u << any_below(h, 8));
}

/* ---- the start ---- */

static void say_start(struct hostile *h)
{
    uint8_t bytes[SW_MPA_FRAME_MAX] = {0}, data[SW_MPA_PRIVATE_MAX] = {0};
    const bool is_usual = !one_in(h, 4);
    h->has_crc = one_in(h, 3);
    const struct sw_mpa_frame frame = {
        .flags = (uint8_t)(is_usual ? SW_MPA_ENHANCED : any_below(h, 256)) |
                 (h->has_crc ? SW_MPA_CRC : 0),
        .revision = is_usual ? 2 : (uint8_t)any_below(h, 4),
        .peer_to_peer = one_in(h, 2),
        .rtr = (uint8_t)any_below(h, 8),
        .ird = (uint16_t)any_below(h, is_usual ? 8 : SW_MPA_DEPTH_OPEN + 1u),
        .ord = (uint16_t)any_below(h, is_usual ? 8 : SW_MPA_DEPTH_OPEN + 1u),
        .private_len = (uint16_t)any_below(h, is_usual ? 200 : SW_MPA_PRIVATE_MAX - 4),
        .private_data = data};
    uint32_t len = (uint32_t)sw_mpa_encode(&frame, bytes);
    if (one_in(h, 8))
        damage(h, bytes, len);
    if (one_in(h, 16))
        vu_random_fill(&h->random, bytes, sizeof(bytes));
    if (one_in(h, 16))
        len = sizeof(bytes);
    say_bytes(h, bytes, len);
}

/* Learns what it may reach, where it is accepted and looks. */
static void hear_reply(struct hostile *h)
{
    uint8_t bytes[SW_MPA_FRAME_MAX];
    struct sw_mpa_frame frame;
    struct pollfd answered = {.fd = h->fd, .events = POLLIN};
    if (one_in(h, 4) || poll(&answered, 1, REPLY_MS) != 1)
        return;
    const ssize_t got = recv(h->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got <= 0 || sw_mpa_check(bytes, (size_t)got, true) != SW_MPA_FAULT_NONE)
        return;
    sw_mpa_decode(bytes, &frame);
    if (frame.private_len >= sizeof(h->offer))
        memcpy(&h->offer, frame.private_data, sizeof(h->offer));
    h->has_crc = frame.flags & SW_MPA_CRC;
}

/* ---- FPDUs ---- */

static uint32_t any_key(struct hostile *h)
{
    const uint32_t near = h->offer.rkey ^ (1u << any_below(h, 32));
    return one_in(h, 4) ? (one_in(h, 2) ? near : (uint32_t)vu_random(&h->random)) : h->offer.rkey;
}

static uint64_t any_address(struct hostile *h)
{
    const uint64_t within = h->offer.addr + any_below(h, h->offer.len_bytes + 1);
    if (!one_in(h, 4))
        return within;
    return one_in(h, 2) ? within - 4096 : 0 - (uint64_t)any_below(h, 64);
}

static uint32_t any_length(struct hostile *h)
{
    return one_in(h, 8) ? (uint32_t)vu_random(&h->random) : any_below(h, 4096);
}

/* The header of DDP and RDMAP; returns its length. */
static uint32_t put_header(struct hostile *h, uint8_t *to)
{
    const uint32_t opcode = one_in(h, 8) ? any_below(h, 16) : any_below(h, 6);
    const bool is_tagged = opcode == 0 || opcode == 2;
    const uint32_t queue = one_in(h, 8) ? any_below(h, 6) : (opcode == 1 ? 1 : opcode == 7 ? 2 : 0);
    const uint8_t last = one_in(h, 5) ? 0 : 0x40;
    to[0] = (uint8_t)(1 | last | (is_tagged != one_in(h, 16) ? 0x80 : 0));
    to[1] = (uint8_t)(0x40 | opcode);
    sw_be32_store(to + 2, any_key(h));
    if (is_tagged) {
        sw_be64_store(to + 6, any_address(h));
        return 14;
    }
    sw_be32_store(to + 6, queue);
    sw_be32_store(to + 10, one_in(h, 8) ? any_below(h, 9) : ++h->msn[queue & 3]);
    sw_be32_store(to + 14, one_in(h, 8) ? any_length(h) : 0);
    if (opcode != 1)
        return 18;
    const struct sw_rdmap_read read = {.sink_stag = (uint32_t)vu_random(&h->random),
                                       .sink_to = vu_random(&h->random),
                                       .len_bytes = any_length(h),
                                       .source_stag = any_key(h),
                                       .source_to = any_address(h)};
    sw_rdmap_read_encode(&read, to + 18);
    return 18 + SW_RDMAP_READ_BYTES;
}

static void say_fpdu(struct hostile *h)
{
    uint8_t bytes[FPDU_ROOM];
    uint32_t len = put_header(h, bytes + 2);
    const uint32_t payload = one_in(h, 3) ? 0 : any_below(h, one_in(h, 4) ? PAYLOAD_MAX : 65);
    vu_random_fill(&h->random, bytes + 2 + len, payload);
    len += payload;
    sw_be16_store(bytes, (uint16_t)len);
    const uint32_t crc = sw_crc32c_add(0, bytes, 2 + len);
    uint32_t whole = 2 + len + sw_fpdu_finish(crc, len, h->has_crc, bytes + 2 + len);
    if (one_in(h, 12))
        damage(h, bytes, one_in(h, 2) ? 2 : whole);
    if (one_in(h, 24))
        whole = any_below(h, whole);
    say_bytes(h, bytes, whole);
}

/* ---- connections ---- */

static bool open_call(struct hostile *h)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(h->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr =
                                         htonl(INADDR_LOOPBACK + 256 + any_below(h, ADDRESSES))};
    h->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    VU_TRUE(h->fd >= 0);
    VU_EQ(bind(h->fd, (const struct sockaddr *)&from, sizeof(from)), 0);
    struct pollfd open = {.fd = h->fd, .events = POLLOUT};
    (void)!connect(h->fd, (const struct sockaddr *)&to, sizeof(to));
    return poll(&open, 1, REPLY_MS) == 1;
}

/* It stays open, silent, in the place of another one, which is closed. */
static void keep_open(struct hostile *h)
{
    int *kept = &h->kept[any_below(h, KEPT)];
    const int before = *kept;
    *kept = h->fd;
    h->fd = before;
}

static void end_call(struct hostile *h)
{
    const struct linger at_once = {.l_onoff = 1};
    switch (any_below(h, 4)) {
    case 0:
        setsockopt(h->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        break;
    case 1:
        keep_open(h);
        break;
    case 2:
        shutdown(h->fd, SHUT_WR);
        break;
    default:
        break;
    }
    if (h->fd >= 0)
        close(h->fd);
}

/* Many at once that never ask. */
static void call_silently(struct hostile *h)
{
    for (int i = 0; i < BURST; i++) {
        open_call(h);
        keep_open(h);
        if (h->fd >= 0)
            close(h->fd);
    }
}

static void call_once(struct hostile *h)
{
    h->offer = (struct hostile_offer){0};
    memset(h->msn, 0, sizeof(h->msn));
    if (open_call(h) && !one_in(h, 16)) {
        say_start(h);
        hear_reply(h);
        for (uint32_t left = any_below(h, FPDUS_MAX); left; left--)
            say_fpdu(h);
    }
    end_call(h);
}

uint32_t hostile_call(uint16_t port, uint64_t seed, int seconds)
{
    struct hostile h = {.random = {seed}, .port = port};
    const uint64_t until_ms = vu_now_ms() + (uint64_t)seconds * 1000;
    uint32_t calls = 0;
    memset(h.kept, -1, sizeof(h.kept));
    while (vu_now_ms() < until_ms) {
        if (one_in(&h, 2 * BURST))
            call_silently(&h);
        call_once(&h);
        calls++;
    }
    return calls;
}
