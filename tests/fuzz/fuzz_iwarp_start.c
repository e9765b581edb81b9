/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The start of an iWARP connection: whatever comes, in pieces of any length, the machine takes no
 * more than a frame, ends where it says, and both sides' terms are within what was asked for.
 * Input: what kind of machine, how long the pieces are, then the stream.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "transport/iwarp/start.h"

enum { CHOICES = 4, SECOND_NS = 1000000000 };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check_terms(const struct sw_iwarp_start *s)
{
    demand(s->terms.ird <= s->config.ird && s->terms.ord <= s->config.ord);
    demand((s->terms.rtr & (s->terms.rtr - 1)) == 0 && (s->terms.rtr & ~s->config.rtr) == 0);
    demand(s->terms.crc || !s->config.wants_crc);
}

static void check_private(const struct sw_iwarp_start *s)
{
    uint8_t sum = 0;
    demand(s->peer.private_len <= SW_MPA_PRIVATE_MAX);
    for (uint16_t i = 0; i < s->peer.private_len; i++)
        sum ^= s->peer.private_data[i]; /* it can be read */
    demand(sum || !sum);
}

static void answer(struct sw_iwarp_start *s, uint8_t choice)
{
    struct sw_mpa_frame reply;
    check_private(s);
    if (choice & 1) {
        sw_iwarp_start_reject(s, (const uint8_t *)"no", 2);
    } else {
        const struct sw_iwarp_start_config config = s->config;
        sw_iwarp_start_accept(s, &config, SECOND_NS);
        check_terms(s);
    }
    demand(sw_mpa_check(s->out, s->out_len, true) == SW_MPA_FAULT_NONE);
    demand(sw_mpa_decode(s->out, &reply) == s->out_len);
    demand(!(reply.flags & SW_MPA_MARKERS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_iwarp_start s;
    if (size < CHOICES)
        return 0;
    const struct sw_iwarp_start_config config = {
        .revision = data[0] & 1 ? 1 : 2,
        .wants_crc = data[0] & 2,
        .is_peer_to_peer = data[0] & 4,
        .rtr = data[0] >> 3 & 7,
        .ird = data[1],
        .ord = data[1] >> 2,
        .ord_least = data[1] & 3,
    };
    const bool asks = data[0] & 0x40;
    const size_t piece = data[2] ? data[2] : size;
    const uint8_t choice = data[3];
    data += CHOICES;
    size -= CHOICES;
    if (asks)
        sw_iwarp_start_connect(&s, &config, 0);
    else
        sw_iwarp_start_listen(&s, &config, 0);
    size_t taken = 0;
    for (size_t at = 0; at < size; at += piece) {
        const size_t len = size - at < piece ? size - at : piece;
        const size_t used = sw_iwarp_start_take(&s, data + at, len);
        demand(used <= len);
        taken += used;
        if (s.state == SW_IWARP_REQUESTED && at + len == size)
            answer(&s, choice);
    }
    demand(taken <= SW_MPA_FRAME_MAX);
    if (s.state == SW_IWARP_OPEN || s.state == SW_IWARP_REJECTED)
        check_private(&s);
    if (s.state == SW_IWARP_OPEN)
        check_terms(&s);
    demand((s.state == SW_IWARP_FAILED) == (s.failure != SW_IWARP_FAILURE_NONE));
    if (choice & 2)
        sw_iwarp_start_closed(&s);
    sw_iwarp_start_tick(&s, s.due_ns == UINT64_MAX ? SECOND_NS : s.due_ns);
    demand(s.state != SW_IWARP_ASKED && s.state != SW_IWARP_AWAITED);
    return 0;
}
