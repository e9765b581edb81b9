/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of MPA's start that are forged: RFC 5044 s7.1, RFC 6581 s9. */
#include <string.h>

#include "forge.h"
#include "wire/bytes.h"
#include "wire/iwarp/mpa.h"

enum { FLAGS_AT = 16, REVISION_AT, LENGTH_AT, NEGOTIATION_AT = 20, ORD_AT = 22 };
enum { BIT_RESERVED = 0x07, BIT_PEER_TO_PEER = 0x80, DEPTH_HIGH = 0x3f };

typedef uint32_t (*alter_fn)(struct forge *f, uint8_t *frame, uint32_t len);

static uint32_t fail_start(struct forge *f, enum sw_iwarp_start_failure why, uint32_t len)
{
    f->end = FAILS;
    f->failures[0] = f->failures[1] = why;
    return len;
}

static uint32_t alter_key(struct forge *f, uint8_t *frame, uint32_t len)
{
    frame[below(f->conn->world, SW_MPA_KEY_BYTES)] ^= (uint8_t)(1u << below(f->conn->world, 8));
    return fail_start(f, SW_IWARP_FAILURE_MALFORMED, len);
}

static uint32_t alter_revision(struct forge *f, uint8_t *frame, uint32_t len)
{
    static const uint8_t wrong[] = {0, 3, 4, 0x80, 0xff};
    frame[REVISION_AT] = wrong[below(f->conn->world, sizeof(wrong))];
    return fail_start(f, SW_IWARP_FAILURE_MALFORMED, len);
}

static uint32_t alter_length(struct forge *f, uint8_t *frame, uint32_t len)
{
    const uint32_t over = SW_MPA_PRIVATE_MAX + 1;
    sw_be16_store(frame + LENGTH_AT, (uint16_t)(over + below(f->conn->world, 65536 - over)));
    return fail_start(f, SW_IWARP_FAILURE_MALFORMED, len);
}

static uint32_t want_markers(struct forge *f, uint8_t *frame, uint32_t len)
{
    frame[FLAGS_AT] |= SW_MPA_MARKERS;
    return fail_start(f, SW_IWARP_FAILURE_MARKERS, len);
}

static uint32_t set_reserved(struct forge *f, uint8_t *frame, uint32_t len)
{
    frame[FLAGS_AT] |= (uint8_t)(1 + below(f->conn->world, BIT_RESERVED));
    f->end = GOES_ON;
    return len;
}

/* The rest never comes: the other side waits for its time, or hears that nobody waits any more. */
static uint32_t cut_short(struct forge *f, uint8_t *frame, uint32_t len)
{
    (void)frame;
    f->end = ENDS_ANYHOW;
    return 1 + below(f->conn->world, len - 1);
}

static uint32_t add_bytes(struct forge *f, uint8_t *frame, uint32_t len)
{
    const uint32_t more = 1 + below(f->conn->world, 64);
    memset(frame + len, 0xee, more);
    f->end = ENDS_ANYHOW; /* those that come later are an FPDU, which is not whole */
    return len + more;
}

static uint32_t reject_all(struct forge *f, uint8_t *frame, uint32_t len)
{
    if (f->from == 0)
        return alter_key(f, frame, len);
    frame[FLAGS_AT] |= SW_MPA_REJECT;
    f->end = IS_REJECTION;
    return len;
}

static bool is_enhanced(const uint8_t *frame)
{
    return frame[REVISION_AT] == 2 && (frame[FLAGS_AT] & SW_MPA_ENHANCED);
}

static uint32_t drop_negotiation(struct forge *f, uint8_t *frame, uint32_t len)
{
    if (!is_enhanced(frame))
        return alter_revision(f, frame, len);
    sw_be16_store(frame + LENGTH_AT, (uint16_t)below(f->conn->world, SW_MPA_NEGOTIATION_BYTES));
    return fail_start(f, SW_IWARP_FAILURE_MALFORMED, len);
}

/* More READs than the initiator takes: RFC 6581 s9.1. */
static uint32_t ask_too_much(struct forge *f, uint8_t *frame, uint32_t len)
{
    if (f->from == 0 || !is_enhanced(frame))
        return alter_length(f, frame, len);
    frame[ORD_AT] |= DEPTH_HIGH;
    forge_told(f, SW_TERMINATE_IRD);
    return len;
}

/* None of the first messages that were offered. */
static uint32_t agree_on_none(struct forge *f, uint8_t *frame, uint32_t len)
{
    if (f->from == 0 || !is_enhanced(frame))
        return alter_key(f, frame, len);
    frame[NEGOTIATION_AT] = (uint8_t)((frame[NEGOTIATION_AT] & DEPTH_HIGH) | BIT_PEER_TO_PEER);
    frame[ORD_AT] &= DEPTH_HIGH;
    forge_told(f, SW_TERMINATE_RTR);
    return len;
}

uint32_t forge_start(struct forge *f, uint8_t *frame, uint32_t len)
{
    static const struct {
        const char *name;
        alter_fn alter;
    } ways[] = {
        {"start: key", alter_key},
        {"start: revision", alter_revision},
        {"start: length", alter_length},
        {"start: markers", want_markers},
        {"start: reserved flags", set_reserved},
        {"start: cut short", cut_short},
        {"start: bytes behind it", add_bytes},
        {"start: rejection", reject_all},
        {"start: no negotiation", drop_negotiation},
        {"start: too many READs", ask_too_much},
        {"start: no first message", agree_on_none},
    };
    const uint32_t way = below(f->conn->world, sizeof(ways) / sizeof(*ways));
    f->name = ways[way].name;
    return ways[way].alter(f, frame, len);
}
