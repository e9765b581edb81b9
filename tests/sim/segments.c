/* SPDX-License-Identifier: BSD-2-Clause */
/* Segments that are forged, and what RFC 5040 s7, RFC 5041 s7 and RFC 5044 s8 say of each. */
#include <string.h>

#include "forge.h"
#include "wire/bytes.h"

enum { TAGGED = 0x80, LAST = 0x40, DDP = 1, RDMAP = 0x40 };
enum { FAR_KEY = 0x10000, PAYLOAD_BYTES = 40 };

typedef uint32_t (*segment_fn)(struct forge *f, uint8_t *ulpdu);

/* ---- what the attacker's side knows ---- */

static uint32_t draw_below(const struct forge *f, uint32_t limit)
{
    return below(f->conn->world, limit);
}

static const struct sw_iwarp *machine_of(const struct forge *f)
{
    return &forge_attacker(f)->machine;
}

/* A SEND of it is under way. */
static bool is_in_send(const struct forge *f)
{
    const struct sw_iwarp *w = machine_of(f);
    return w->is_begun && w->ring[w->sent & w->mask].kind == SW_REQUEST_SEND;
}

/* It is the first message, where the start has agreed on one. */
static bool is_first(const struct forge *f, uint8_t rtr)
{
    const struct sw_iwarp *w = machine_of(f);
    return w->is_rtr_due && w->config.rtr != rtr;
}

static uint32_t unknown_key(const struct forge *f)
{
    return forge_victim(f)->key_written + FAR_KEY * (1 + draw_below(f, 1000));
}

/* ---- writing it ---- */

static uint32_t write_tagged(uint8_t *at, uint8_t kind, uint32_t stag, uint64_t to, uint32_t len)
{
    at[0] = TAGGED | LAST | DDP;
    at[1] = (uint8_t)(RDMAP | kind);
    sw_be32_store(at + 2, stag);
    sw_be64_store(at + 6, to);
    memset(at + SW_DDP_TAGGED_BYTES, 0xee, len);
    return SW_DDP_TAGGED_BYTES + len;
}

static uint32_t write_untagged(const struct forge *f, uint8_t *at, uint8_t kind, uint32_t len)
{
    const struct sw_rdmap_opcode *opcode = sw_rdmap_opcode_of(kind);
    const struct sw_iwarp *w = machine_of(f);
    at[0] = LAST | DDP;
    at[1] = (uint8_t)(RDMAP | kind);
    sw_be32_store(at + 2, 0);
    sw_be32_store(at + 6, opcode->queue);
    sw_be32_store(at + 10, w->msn_out[opcode->queue]);
    sw_be32_store(at + 14, opcode->queue == SW_DDP_QUEUE_SEND && is_in_send(f) ? w->sent_bytes : 0);
    memset(at + SW_DDP_UNTAGGED_BYTES, 0xee, len);
    return SW_DDP_UNTAGGED_BYTES + len;
}

static uint32_t write_empty(const struct forge *f, uint8_t *at)
{
    return write_tagged(at, SW_RDMAP_WRITE, unknown_key(f), draw_below(f, UINT32_MAX), 0);
}

/* These segments are as they must be and ask for what they may not: as the first message they are
 * refused for that. */
static void told_of_message(struct forge *f, uint16_t cause, uint8_t rtr)
{
    if (is_first(f, rtr))
        cause = SW_TERMINATE_RTR;
    forge_told(f, cause);
}

/* READs and atomics are also refused for their number. */
static void told_of_request(struct forge *f, uint16_t cause, uint8_t rtr)
{
    const struct sw_iwarp *w = machine_of(f);
    const uint32_t may_wait = w->read_count + w->awaits_rtr_response;
    told_of_message(f, cause, rtr);
    if (may_wait >= f->conn->ends[1 - f->from].machine.config.ird)
        forge_told(f, SW_TERMINATE_STREAM);
}

/* ---- frames ---- */

static uint32_t forge_short(struct forge *f, uint8_t *at)
{
    write_empty(f, at);
    forge_told(f, SW_TERMINATE_FRAME);
    return draw_below(f, SW_DDP_TAGGED_BYTES);
}

static uint32_t forge_long(struct forge *f, uint8_t *at)
{
    f->end = ENDS_ANYHOW;
    f->too_much = (uint16_t)(8 + draw_below(f, 60000));
    return write_tagged(at, SW_RDMAP_WRITE, unknown_key(f), forge_victim(f)->base + WRITTEN_AT,
                        PAYLOAD_BYTES);
}

static uint32_t forge_marker(struct forge *f, uint8_t *at)
{
    f->is_raw = true;
    sw_be16_store(at, 0);
    sw_be16_store(at + 2, (uint16_t)draw_below(f, 512));
    forge_told(f, SW_TERMINATE_FRAME);
    return 4;
}

static uint32_t forge_crc(struct forge *f, uint8_t *at)
{
    f->spoils_crc = true;
    if (forge_attacker(f)->start.terms.crc)
        forge_told(f, SW_TERMINATE_CRC);
    else if (is_first(f, SW_MPA_RTR_WRITE))
        forge_told(f, SW_TERMINATE_RTR);
    return write_empty(f, at);
}

/* ---- headers ---- */

static uint32_t forge_version(struct forge *f, uint8_t *at)
{
    static const uint8_t wrong[] = {0, 2, 3};
    const bool is_tagged = draw_below(f, 2);
    const uint32_t len =
        is_tagged ? write_empty(f, at) : write_untagged(f, at, SW_RDMAP_SEND, PAYLOAD_BYTES);
    at[0] = (uint8_t)((at[0] & ~3) | wrong[draw_below(f, sizeof(wrong))]);
    forge_told(f, is_tagged ? SW_TERMINATE_VERSION : SW_TERMINATE_VERSION_QUEUE);
    return len;
}

static uint32_t forge_rdmap_version(struct forge *f, uint8_t *at)
{
    static const uint8_t wrong[] = {0x00, 0x80, 0xc0};
    const uint32_t len =
        draw_below(f, 2) ? write_empty(f, at) : write_untagged(f, at, SW_RDMAP_SEND, PAYLOAD_BYTES);
    at[1] = (uint8_t)((at[1] & 0x3f) | wrong[draw_below(f, sizeof(wrong))]);
    forge_told(f, SW_TERMINATE_RDMAP_VERSION);
    return len;
}

/* Unknown, or known in a segment of the other kind or for another queue. */
static uint32_t forge_opcode(struct forge *f, uint8_t *at)
{
    static const uint8_t untagged[] = {SW_RDMAP_READ_REQUEST, SW_RDMAP_SEND, SW_RDMAP_TERMINATE,
                                       SW_RDMAP_IMMEDIATE, SW_RDMAP_ATOMIC_RESPONSE};
    uint32_t len = write_empty(f, at);
    uint8_t kind = (uint8_t)(SW_RDMAP_KINDS + draw_below(f, 16 - SW_RDMAP_KINDS));
    const uint32_t way = draw_below(f, 4);
    if (way == 0) {
        kind = untagged[draw_below(f, sizeof(untagged))];
    } else if (way == 1) {
        len = write_untagged(f, at, SW_RDMAP_SEND, PAYLOAD_BYTES);
        kind = draw_below(f, 2) ? SW_RDMAP_WRITE : SW_RDMAP_READ_RESPONSE;
    } else if (way == 2) {
        len = write_untagged(f, at, SW_RDMAP_READ_REQUEST, SW_RDMAP_READ_BYTES);
        kind = SW_RDMAP_SEND;
    }
    at[1] = (uint8_t)(RDMAP | kind);
    forge_told(f, SW_TERMINATE_OPCODE);
    return len;
}

static uint32_t forge_queue(struct forge *f, uint8_t *at)
{
    const uint32_t len = write_untagged(f, at, SW_RDMAP_SEND, PAYLOAD_BYTES);
    sw_be32_store(at + 6, draw_below(f, 2) ? SW_DDP_QUEUES : UINT32_MAX - draw_below(f, 1000));
    forge_told(f, SW_TERMINATE_QUEUE);
    return len;
}

/* A body that is too short, too long, or not all there. */
static uint32_t forge_body(struct forge *f, uint8_t *at)
{
    static const uint8_t kinds[] = {SW_RDMAP_READ_REQUEST, SW_RDMAP_IMMEDIATE,
                                    SW_RDMAP_ATOMIC_REQUEST, SW_RDMAP_ATOMIC_RESPONSE};
    const uint8_t kind = kinds[draw_below(f, sizeof(kinds))];
    const uint32_t right = sw_rdmap_opcode_of(kind)->body_len;
    const uint32_t way = draw_below(f, 3);
    const uint32_t wrong = way == 0 ? draw_below(f, right) : right + 1 + draw_below(f, 200);
    const uint32_t len = write_untagged(f, at, kind, way == 2 ? right : wrong);
    if (way == 2)
        at[0] &= (uint8_t)~LAST;
    forge_told(f, SW_TERMINATE_UNSPECIFIED);
    return len;
}

static uint32_t forge_half_header(struct forge *f, uint8_t *at)
{
    write_untagged(f, at, SW_RDMAP_SEND, 0);
    forge_told(f, SW_TERMINATE_FRAME);
    return SW_DDP_TAGGED_BYTES + draw_below(f, SW_DDP_UNTAGGED_BYTES - SW_DDP_TAGGED_BYTES);
}

/* ---- the order ---- */

static uint32_t write_any(struct forge *f, uint8_t *at)
{
    static const uint8_t kinds[] = {SW_RDMAP_SEND,           SW_RDMAP_SEND_SE_INV,
                                    SW_RDMAP_READ_REQUEST,   SW_RDMAP_IMMEDIATE,
                                    SW_RDMAP_ATOMIC_REQUEST, SW_RDMAP_ATOMIC_RESPONSE};
    const uint8_t kind = kinds[draw_below(f, sizeof(kinds))];
    const uint32_t body_len = sw_rdmap_opcode_of(kind)->body_len;
    return write_untagged(f, at, kind, body_len ? body_len : PAYLOAD_BYTES);
}

static uint32_t forge_msn(struct forge *f, uint8_t *at)
{
    const uint32_t len = write_any(f, at), right = sw_be32_load(at + 10);
    const uint32_t wrong[] = {0, right - 1, right + 1, UINT32_MAX, right ^ 0x80000000u};
    sw_be32_store(at + 10, wrong[draw_below(f, 5)]);
    forge_told(f, SW_TERMINATE_MSN);
    return len;
}

static uint32_t forge_mo(struct forge *f, uint8_t *at)
{
    const uint32_t len = write_any(f, at), right = sw_be32_load(at + 14);
    const uint32_t wrong[] = {right - 1, right + 1, UINT32_MAX, right ^ 0x80000000u};
    sw_be32_store(at + 14, wrong[draw_below(f, 4)]);
    forge_told(f, SW_TERMINATE_MO);
    return len;
}

/* ---- memory ---- */

struct target {
    uint32_t key;
    uint64_t addr, len_bytes;
    enum sw_access_fault why; /* NONE: the address wraps */
};

/* What its key does not open. `most`: bytes of one request. */
static struct target draw_target(struct forge *f, bool reads, uint64_t most)
{
    const struct side *side = forge_victim(f);
    const uint64_t from = side->base + (reads ? STATIC_AT : WRITTEN_AT);
    const uint64_t end = from + (reads ? STATIC_BYTES : WRITTEN_BYTES);
    const uint32_t key = reads ? side->key_static : side->key_written;
    const uint64_t len = 2 + draw_below(f, (uint32_t)(most < 200 ? most : 200) - 1);
    switch (draw_below(f, 7)) {
    case 0:
        return (struct target){unknown_key(f), from, len, SW_ACCESS_FAULT_KEY};
    case 1:
        return (struct target){UINT32_MAX, from, len, SW_ACCESS_FAULT_KEY};
    case 2:
        return (struct target){key, from - 1, len, SW_ACCESS_FAULT_BOUNDS};
    case 3:
        return (struct target){key, end - len + 1, len, SW_ACCESS_FAULT_BOUNDS};
    case 4:
        return (struct target){key, from, most, SW_ACCESS_FAULT_BOUNDS};
    case 5:
        return (struct target){key, UINT64_MAX - draw_below(f, 1), len, SW_ACCESS_FAULT_NONE};
    default:
        return (struct target){side->key_counter, side->base + COUNTER_AT, 8,
                               SW_ACCESS_FAULT_RIGHTS};
    }
}

static uint32_t forge_write(struct forge *f, uint8_t *at)
{
    static const uint16_t causes[] = {
        [SW_ACCESS_FAULT_NONE] = SW_TERMINATE_WRAP,
        [SW_ACCESS_FAULT_KEY] = SW_TERMINATE_STAG,
        [SW_ACCESS_FAULT_RIGHTS] = SW_TERMINATE_RIGHTS,
        [SW_ACCESS_FAULT_BOUNDS] = SW_TERMINATE_BOUNDS,
    };
    struct target target = draw_target(f, false, SW_FPDU_ULPDU_MAX - SW_DDP_TAGGED_BYTES);
    if (target.len_bytes > 60000) /* as long as a segment may be: it begins near the end */
        target.addr += WRITTEN_BYTES - 1000;
    told_of_message(f, causes[target.why], 0);
    return write_tagged(at, SW_RDMAP_WRITE, target.key, target.addr, (uint32_t)target.len_bytes);
}

static uint32_t forge_read(struct forge *f, uint8_t *at)
{
    static const uint16_t causes[] = {
        [SW_ACCESS_FAULT_NONE] = SW_TERMINATE_READ_WRAP,
        [SW_ACCESS_FAULT_KEY] = SW_TERMINATE_READ_STAG,
        [SW_ACCESS_FAULT_RIGHTS] = SW_TERMINATE_RIGHTS,
        [SW_ACCESS_FAULT_BOUNDS] = SW_TERMINATE_READ_BOUNDS,
    };
    const struct target target = draw_target(f, true, UINT32_MAX);
    const uint32_t len = write_untagged(f, at, SW_RDMAP_READ_REQUEST, SW_RDMAP_READ_BYTES);
    uint8_t *body = at + SW_DDP_UNTAGGED_BYTES;
    sw_be32_store(body + 12, (uint32_t)target.len_bytes);
    sw_be32_store(body + 16, target.key);
    sw_be64_store(body + 20, target.addr);
    told_of_request(f, causes[target.why], SW_MPA_RTR_READ);
    return len;
}

static uint32_t forge_atomic(struct forge *f, uint8_t *at)
{
    const struct side *side = forge_victim(f);
    const uint32_t len =
        write_untagged(f, at, SW_RDMAP_ATOMIC_REQUEST, SW_RDMAP_ATOMIC_REQUEST_BYTES);
    struct sw_rdmap_atomic atomic = {.kind = SW_RDMAP_FETCH_ADD,
                                     .id = draw_below(f, UINT32_MAX),
                                     .stag = side->key_counter,
                                     .to = side->base + COUNTER_AT,
                                     .data = 77};
    static const uint16_t causes[] = {SW_TERMINATE_READ_STAG,   SW_TERMINATE_RIGHTS,
                                      SW_TERMINATE_READ_BOUNDS, SW_TERMINATE_READ_WRAP,
                                      SW_TERMINATE_UNSPECIFIED, SW_TERMINATE_UNSPECIFIED,
                                      SW_TERMINATE_OPCODE};
    const uint32_t way = draw_below(f, 7);
    if (way == 0)
        atomic.stag = unknown_key(f);
    else if (way == 1)
        atomic = (struct sw_rdmap_atomic){.stag = side->key_written, .to = side->base + WRITTEN_AT};
    else if (way == 2)
        atomic.to += 64;
    else if (way == 3)
        atomic.to = UINT64_MAX - 3;
    else if (way == 4)
        atomic.to += 1 + draw_below(f, 7); /* not aligned */
    else if (way == 5)
        atomic.data_mask = 1; /* verbs have no masks */
    else
        atomic.kind = (uint8_t)(3 + draw_below(f, 13));
    sw_rdmap_atomic_encode(&atomic, at + SW_DDP_UNTAGGED_BYTES);
    told_of_request(f, causes[way], 0);
    return len;
}

/* ---- answers that nobody waits for ---- */

static uint32_t forge_response(struct forge *f, uint8_t *at)
{
    const struct side *side = forge_victim(f);
    const struct sw_iwarp *w = machine_of(f);
    const struct sw_iwarp_answer *answer = &w->answers[w->answer_head];
    const bool has_answer = w->answer_count && !answer->is_atomic && answer->len_bytes > 1;
    const uint32_t way = has_answer ? draw_below(f, 4) : 0;
    const uint64_t to = answer->sink_to + answer->sent_bytes;
    const uint32_t left = answer->len_bytes - answer->sent_bytes;
    if (way == 0) { /* for a READ of nothing the name is not looked at */
        told_of_message(f, SW_TERMINATE_STAG, 0);
        forge_told(f, SW_TERMINATE_BOUNDS);
        return write_tagged(at, SW_RDMAP_READ_RESPONSE, side->key_written, side->base + WRITTEN_AT,
                            PAYLOAD_BYTES);
    }
    forge_told(f, SW_TERMINATE_BOUNDS);
    if (way == 1)
        return write_tagged(at, SW_RDMAP_READ_RESPONSE, answer->sink_stag, to + 1, 1);
    if (way == 2)
        return write_tagged(at, SW_RDMAP_READ_RESPONSE, answer->sink_stag, to, left + 1);
    return write_tagged(at, SW_RDMAP_READ_RESPONSE, answer->sink_stag, to, left - 1);
}

static uint32_t forge_original(struct forge *f, uint8_t *at)
{
    told_of_message(f, SW_TERMINATE_NO_RECEIVE, 0);
    forge_told(f, SW_TERMINATE_UNSPECIFIED); /* the one that waits has another ID */
    return write_untagged(f, at, SW_RDMAP_ATOMIC_RESPONSE, SW_RDMAP_ATOMIC_RESPONSE_BYTES);
}

/* ---- SENDs ---- */

/* One that goes on as another kind, or as an immediate, is no message: RFC 5040 s5.1. */
static uint32_t forge_send(struct forge *f, uint8_t *at)
{
    const uint32_t way = draw_below(f, 3);
    if (way == 0 && is_in_send(f)) {
        forge_told(f, SW_TERMINATE_OPCODE);
        return draw_below(f, 2) ? write_untagged(f, at, SW_RDMAP_SEND_INV, PAYLOAD_BYTES)
                                : write_untagged(f, at, SW_RDMAP_IMMEDIATE, 8);
    }
    if (way == 1 && !is_in_send(f)) {
        told_of_message(f, SW_TERMINATE_INVALIDATE, 0);
        const uint32_t len = write_untagged(f, at, SW_RDMAP_SEND_INV, 10);
        sw_be32_store(at + 2, draw_below(f, 2) ? forge_victim(f)->key_written : unknown_key(f));
        return len;
    }
    uint8_t kind = SW_RDMAP_SEND;
    const struct sw_iwarp *w = machine_of(f);
    if (is_in_send(f) && (w->ring[w->sent & w->mask].flags & SW_REQUEST_SOLICITED))
        kind = SW_RDMAP_SEND_SE;
    told_of_message(f, SW_TERMINATE_TOO_LONG, 0);
    return write_untagged(f, at, kind, RECEIVE_BYTES + 1 + draw_below(f, 50000));
}

/* ---- the last word, and what is none ---- */

static uint32_t forge_terminate(struct forge *f, uint8_t *at)
{
    static const uint8_t words[][4] = {
        {0x11, 0x01, 0x00, 0}, {0x20, 0x02, 0x00, 0},    {0x12, 0x02, 0xe0, 0}, /* and no headers */
        {0x02, 0x05, 0xc0, 0}, {0x7f, 0xee, 0xff, 0xff},
    };
    const uint32_t way = draw_below(f, 7);
    const uint32_t body_len = way < 5 ? 4 : draw_below(f, 300);
    const uint32_t len = write_untagged(f, at, SW_RDMAP_TERMINATE, body_len);
    f->end = IS_HEARD;
    if (way < 3) {
        f->causes[0] = sw_be16_load(words[way]);
        f->cause_count = 1;
    }
    if (way < 5)
        memcpy(at + SW_DDP_UNTAGGED_BYTES, words[way], 4);
    return len;
}

/* An empty WRITE with any key and address, and bits that nobody looks at. */
static uint32_t forge_nothing(struct forge *f, uint8_t *at)
{
    const uint32_t len = write_empty(f, at);
    at[0] |= (uint8_t)(draw_below(f, 16) << 2);
    at[1] |= (uint8_t)(draw_below(f, 4) << 4);
    if (is_first(f, SW_MPA_RTR_WRITE))
        forge_told(f, SW_TERMINATE_RTR);
    return len;
}

uint32_t forge_segment(struct forge *f, uint8_t *ulpdu)
{
    static const struct {
        const char *name;
        segment_fn write;
    } ways[] = {
        {"frame: short", forge_short},
        {"frame: long", forge_long},
        {"frame: marker", forge_marker},
        {"frame: CRC", forge_crc},
        {"header: version of DDP", forge_version},
        {"header: version of RDMAP", forge_rdmap_version},
        {"header: opcode", forge_opcode},
        {"header: queue", forge_queue},
        {"header: length of the body", forge_body},
        {"header: cut", forge_half_header},
        {"order: MSN", forge_msn},
        {"order: MO", forge_mo},
        {"WRITE", forge_write},
        {"READ", forge_read},
        {"atomic", forge_atomic},
        {"answer to a READ", forge_response},
        {"answer to an atomic", forge_original},
        {"SEND", forge_send},
        {"Terminate", forge_terminate},
        {"empty WRITE", forge_nothing},
    };
    const uint32_t way = draw_below(f, sizeof(ways) / sizeof(*ways));
    f->name = ways[way].name;
    return ways[way].write(f, ulpdu);
}
