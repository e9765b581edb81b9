/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A requester that is answered anything, at any time. It must not place bytes outside of what a
 * request asked for, complete what was never sent, or lose count; and it never waits for nothing.
 */
#include <string.h>

#include "fuzz.h"
#include "transport/requester.h"
#include "transport_feed.h"

enum { ENTRIES = 16, STEPS_MAX = 400 };

static struct sw_requester r;
static struct sw_request ring[ENTRIES];
static uint64_t now;

static void start(struct feed *feed)
{
    uint8_t flags = feed_u8(feed);
    const struct sw_requester_config config = {
        .first_psn = flags & 1 ? 0xfffffe : 100,
        .mtu_bytes = 256,
        .service = flags & 2 ? SW_SERVICE_XRC : SW_SERVICE_RC,
        .timeout = flags & 4 ? 14 : 0,
        .retry_cnt = 3,
        .rnr_retry = flags & 8 ? 7 : 2,
        .max_rd_atomic = 3,
        .offer_selective = flags & 16,
    };
    now = 1000000;
    sw_requester_init(&r, &config, ring, ENTRIES);
}

static void check(const struct sw_progress *progress, uint32_t done_before)
{
    feed_needs(progress->done - done_before <= r.sent - done_before);
    feed_needs(r.tail - r.done <= ENTRIES && r.sent - r.done <= r.tail - r.done);
    feed_needs(r.flight.acked_count + r.flight.lost_count <= r.flight.next - r.flight.una);
    feed_needs(r.flight.next - r.flight.una <= SW_FLIGHT_PACKETS);
    feed_needs(r.reads.count <= r.config.max_rd_atomic);
    if (!progress->places)
        return;
    feed_needs(progress->place_position - done_before < r.tail - done_before);
    const struct sw_request *request = &ring[progress->place_position % ENTRIES];
    uint32_t len = request->kind == SW_REQUEST_READ ? request->len_bytes : 8;
    feed_needs(request->kind >= SW_REQUEST_READ && request->kind <= SW_REQUEST_FETCH_ADD);
    feed_needs(progress->place_offset <= len &&
               progress->place_len <= len - progress->place_offset);
}

static void post(struct feed *feed)
{
    struct sw_request request = {.kind = feed_u8(feed) % (SW_REQUEST_LOCAL + 1),
                                 .flags = feed_u8(feed) % 8,
                                 .len_bytes = feed_u16(feed)};
    if (request.kind != SW_REQUEST_SEND && request.kind != SW_REQUEST_WRITE)
        request.flags &= SW_REQUEST_FENCE;
    sw_requester_post(&r, &request);
}

static void send(struct feed *feed)
{
    struct sw_emission out;
    for (int i = feed_u8(feed); i >= 0 && sw_requester_next(&r, now, &out); i--) {
        feed_needs(out.packet.opcode->is_request);
        feed_needs(out.position - r.done < ENTRIES || r.done == r.tail);
        uint32_t len = ring[out.position % ENTRIES].len_bytes;
        if (out.source == SW_PAYLOAD_REQUEST)
            feed_needs(out.offset <= len && out.packet.payload_len <= len - out.offset &&
                       out.packet.payload_len <= r.config.mtu_bytes);
    }
}

static void answer(struct feed *feed)
{
    static const uint8_t opcodes[] = {0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x11, 0x04};
    uint8_t base = r.config.service == SW_SERVICE_XRC ? 0xa0 : 0;
    struct sw_packet packet;
    feed_packet(feed, (uint8_t)(base | opcodes[feed_u8(feed) % 8]), r.flight.una, &packet);
    struct sw_progress progress;
    uint32_t done = r.done;
    sw_requester_receive(&r, &packet, now, &progress);
    check(&progress, done);
}

static void tick(struct feed *feed)
{
    uint64_t due = sw_requester_due_ns(&r);
    uint8_t how = feed_u8(feed);
    if (how < 128 && due != UINT64_MAX && due > now)
        now = due;
    else
        now += (uint64_t)how << how % 24;
    struct sw_progress progress;
    uint32_t done = r.done;
    sw_requester_tick(&r, now, &progress);
    check(&progress, done);
}

static void step(struct feed *feed)
{
    switch (feed_u8(feed) % 8) {
    case 0:
        post(feed);
        break;
    case 1:
        tick(feed);
        break;
    case 2:
        send(feed);
        break;
    case 3:
        if (sw_requester_is_local(&r))
            sw_requester_local_done(&r);
        else
            sw_requester_pause(&r, feed_u8(feed) & 1);
        break;
    case 4:
        sw_requester_cnp(&r, now);
        break;
    default:
        answer(feed);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    start(&feed);
    for (int i = 0; i < STEPS_MAX && feed.left; i++)
        step(&feed);
    /* Requests on their way will be asked for again, or given up. */
    if (!r.dead && r.flight.next != r.flight.una)
        feed_needs(sw_requester_due_ns(&r) != UINT64_MAX);
    return 0;
}
