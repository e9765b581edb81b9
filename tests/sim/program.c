/* SPDX-License-Identifier: BSD-2-Clause */
#include "program.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void program_fault(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "seed %llu, mode %d: ", (unsigned long long)w->seed, (int)w->mode);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    w->failed = true;
}

static struct side *peer_of(const struct side *side)
{
    return &side->conn->sides[1 - side->number];
}

/* What is believed of the bytes: without a CRC damage shows. */
static bool trusts_bytes(const struct world *w)
{
    return w->mode != FLIPS;
}

/* ---- what a program sees ---- */

static void check_receive(struct side *side, const struct sw_sim_completion *wc)
{
    struct world *w = side->conn->world;
    const struct side *peer = peer_of(side);
    if (wc->status != IBV_WC_SUCCESS || !trusts_bytes(w))
        return;
    const uint32_t index = side->received++;
    if (wc->id != index || index >= peer->message_count) {
        program_fault(w, "receive %llu completes instead of %u", (unsigned long long)wc->id, index);
        return;
    }
    const struct message *message = &peer->messages[index];
    const uint8_t *bytes = at(side, RECEIVE_AT + index * RECEIVE_BYTES);
    if (wc->byte_len != message->len_bytes || wc->has_imm != message->has_imm ||
        (wc->has_imm && wc->imm != message->imm))
        program_fault(w, "receive %u: %u bytes instead of %u", index, wc->byte_len,
                      message->len_bytes);
    else if (message->bytes && memcmp(bytes, message->bytes, message->len_bytes) != 0)
        program_fault(w, "receive %u: other bytes", index);
}

static void check_send(struct side *side, const struct sw_sim_completion *wc)
{
    struct world *w = side->conn->world;
    const uint32_t index = side->completed++;
    if (wc->id != index) {
        program_fault(w, "request %llu completes instead of %u", (unsigned long long)wc->id, index);
        return;
    }
    if (wc->status != IBV_WC_SUCCESS)
        return;
    if (side->succeeded++ != index)
        program_fault(w, "request %u succeeds behind one that failed", index);
    const struct op *op = &side->ops[index];
    if (!trusts_bytes(w))
        return;
    if (op->request.kind == SW_REQUEST_READ &&
        memcmp(at(side, op->local - side->base), op->expected, op->request.len_bytes) != 0)
        program_fault(w, "READ %u: other bytes", index);
    if (op->request.kind == SW_REQUEST_FETCH_ADD && wc->original != op->original)
        program_fault(w, "atomic %u: %llu instead of %llu", index, (unsigned long long)wc->original,
                      (unsigned long long)op->original);
}

void program_complete(struct sw_sim_qp *qp, const struct sw_sim_completion *wc)
{
    struct side *side = qp->user;
    sw_sim_trace(&side->conn->world->sim, wc->is_receive ? "receive" : "complete",
                 (uint64_t)side->number << 32 | wc->id, wc->status);
    if (wc->is_receive)
        check_receive(side, wc);
    else
        check_send(side, wc);
}

/* ---- the program of a side ---- */

static void draw_send(struct world *w, struct side *side, struct op *op)
{
    const uint32_t len = below(w, 4) ? below(w, 300) : below(w, RECEIVE_BYTES);
    const uint32_t from = below(w, SOURCE_BYTES - len);
    op->request.kind = SW_REQUEST_SEND;
    op->request.len_bytes = len;
    op->request.flags |= below(w, 4) ? 0 : SW_REQUEST_SOLICITED;
    op->local = side->base + SOURCE_AT + from;
    side->messages[side->message_count++] =
        (struct message){.len_bytes = len, .bytes = at(side, SOURCE_AT + from)};
}

static void draw_write(struct world *w, struct side *side, struct op *op, uint32_t *written)
{
    struct side *peer = peer_of(side);
    uint32_t len = below(w, 3) ? below(w, 200) : below(w, 4000);
    if (len > WRITTEN_BYTES - *written)
        len = WRITTEN_BYTES - *written;
    const uint32_t from = below(w, SOURCE_BYTES - len);
    op->request.kind = SW_REQUEST_WRITE;
    op->request.len_bytes = len;
    op->request.rkey = peer->key_written;
    op->request.remote_addr = peer->base + WRITTEN_AT + *written;
    op->local = side->base + SOURCE_AT + from;
    memcpy(peer->expected + *written, at(side, SOURCE_AT + from), len);
    *written += len;
    if (below(w, 4))
        return;
    op->request.flags |= SW_REQUEST_IMM;
    op->request.imm_or_key = below(w, UINT32_MAX);
    side->messages[side->message_count++] =
        (struct message){.has_imm = true, .len_bytes = len, .imm = op->request.imm_or_key};
}

/* Draws a READ of bytes that never change, or that WRITEs before it have brought. */
static void draw_read(struct world *w, struct side *side, struct op *op, uint32_t index,
                      uint32_t written)
{
    struct side *peer = peer_of(side);
    const bool is_static = written == 0 || below(w, 2);
    uint32_t len = below(w, 8) ? below(w, SINK_BYTES) : 0;
    const uint32_t most = is_static ? STATIC_BYTES : written;
    len = len > most ? most : len;
    const uint32_t from = below(w, most - len + 1);
    op->request.kind = SW_REQUEST_READ;
    op->request.len_bytes = len;
    op->request.rkey = is_static ? peer->key_static : peer->key_written;
    op->request.remote_addr = peer->base + (is_static ? STATIC_AT : WRITTEN_AT) + from;
    op->local = side->base + SINK_AT + index * SINK_BYTES;
    op->expected = is_static ? at(peer, STATIC_AT + from) : peer->expected + from;
}

void program_draw(struct side *side)
{
    struct world *w = side->conn->world;
    uint32_t written = 0;
    uint64_t adds = 0;
    side->op_count = 10 + below(w, OPS_MAX - 10);
    for (uint32_t i = 0; i < side->op_count; i++) {
        struct op *op = &side->ops[i];
        op->request.flags = below(w, 8) ? 0 : SW_REQUEST_FENCE;
        const uint32_t kind = below(w, 11);
        if (kind == 10) {
            op->request.kind = SW_REQUEST_LOCAL;
        } else if (kind < 3) {
            draw_send(w, side, op);
        } else if (kind < 6) {
            draw_write(w, side, op, &written);
        } else if (kind < 9) {
            draw_read(w, side, op, i, written);
        } else {
            struct side *peer = peer_of(side);
            op->request.kind = SW_REQUEST_FETCH_ADD;
            op->request.rkey = peer->key_counter;
            op->request.remote_addr = peer->base + COUNTER_AT;
            op->request.compare_add = 1 + below(w, 1000);
            op->original = adds;
            adds += op->request.compare_add;
        }
    }
}

/* One request of one side that its peer does not admit, and what is to be said of it. */
void program_trespass(struct connection *conn)
{
    struct world *w = conn->world;
    static const struct {
        uint8_t kind;
        uint16_t cause;
    } ways[] = {
        {SW_REQUEST_WRITE, SW_TERMINATE_STAG},       {SW_REQUEST_WRITE, SW_TERMINATE_BOUNDS},
        {SW_REQUEST_WRITE, SW_TERMINATE_RIGHTS},     {SW_REQUEST_READ, SW_TERMINATE_READ_STAG},
        {SW_REQUEST_READ, SW_TERMINATE_READ_BOUNDS}, {SW_REQUEST_READ, SW_TERMINATE_RIGHTS},
        {SW_REQUEST_SEND, SW_TERMINATE_TOO_LONG},    {SW_REQUEST_SEND, SW_TERMINATE_INVALIDATE},
        {SW_REQUEST_WRITE, SW_TERMINATE_WRAP},       {SW_REQUEST_READ, SW_TERMINATE_READ_WRAP},
        {SW_REQUEST_FETCH_ADD, SW_TERMINATE_RIGHTS},
    };
    struct side *side = &conn->sides[0], *peer = &conn->sides[1];
    struct op *op = &side->ops[side->op_count - 1];
    const uint32_t way = below(w, sizeof(ways) / sizeof(*ways));
    const bool wraps =
        ways[way].cause == SW_TERMINATE_WRAP || ways[way].cause == SW_TERMINATE_READ_WRAP;
    const bool misses =
        ways[way].cause == SW_TERMINATE_BOUNDS || ways[way].cause == SW_TERMINATE_READ_BOUNDS;
    w->trespass_cause = ways[way].cause;
    *op = (struct op){.local = side->base + SOURCE_AT};
    op->request.kind = ways[way].kind;
    op->request.len_bytes = 100;
    op->request.rkey = ways[way].kind == SW_REQUEST_READ ? peer->key_static : peer->key_written;
    op->request.remote_addr = peer->base + (misses ? COUNTER_AT - 50 : COUNTER_AT);
    if (ways[way].cause == SW_TERMINATE_STAG || ways[way].cause == SW_TERMINATE_READ_STAG)
        op->request.rkey += 0x10000;
    if (ways[way].cause == SW_TERMINATE_RIGHTS) /* the counter admits atomics alone */
        op->request.rkey =
            ways[way].kind == SW_REQUEST_FETCH_ADD ? peer->key_static : peer->key_counter;
    if (wraps)
        op->request.remote_addr = UINT64_MAX - 50;
    if (ways[way].kind == SW_REQUEST_SEND) {
        op->request.len_bytes = RECEIVE_BYTES + 1;
        if (w->trespass_cause == SW_TERMINATE_INVALIDATE) {
            op->request.len_bytes = 10;
            op->request.flags = SW_REQUEST_INV;
            op->request.imm_or_key = peer->key_written; /* a region, not a window */
        }
    }
}

void program_post(void *who, void *what)
{
    struct side *side = who;
    struct world *w = side->conn->world;
    struct sw_sim_iwarp *end = &side->conn->ends[side->number];
    (void)what;
    for (uint32_t burst = 1 + below(w, 8); burst && side->posted < side->op_count; burst--) {
        const struct op *op = &side->ops[side->posted];
        if (!sw_sim_iwarp_post(end, &op->request, side->posted, op->local))
            break;
        side->posted++;
    }
    sw_sim_iwarp_pump(end);
    if (side->posted < side->op_count && !end->is_over)
        sw_sim_at(&w->sim, w->sim.now_ns + below(w, 100000), program_post, side, NULL);
}

/* ---- memory ---- */

void program_init(struct connection *conn, int number, uint64_t offset)
{
    struct world *w = conn->world;
    struct side *side = &conn->sides[number];
    side->conn = conn;
    side->number = number;
    side->host = &w->hosts[number];
    side->base = side->host->base + offset;
    for (uint32_t i = 0; i < STATIC_BYTES; i++)
        *at(side, STATIC_AT + i) = (uint8_t)below(w, 256);
    for (uint32_t i = 0; i < SOURCE_BYTES; i++)
        *at(side, SOURCE_AT + i) = (uint8_t)below(w, 256);
    memcpy(side->fixed, at(side, STATIC_AT), STATIC_BYTES);
    memcpy(side->fixed + STATIC_BYTES, at(side, SOURCE_AT), SOURCE_BYTES);
    const uint64_t base = side->base;
    side->key_static =
        sw_sim_host_register(side->host, base + STATIC_AT, STATIC_BYTES, IBV_ACCESS_REMOTE_READ);
    side->key_written = sw_sim_host_register(side->host, base + WRITTEN_AT, WRITTEN_BYTES,
                                             IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    side->key_counter =
        sw_sim_host_register(side->host, base + COUNTER_AT, 64, IBV_ACCESS_REMOTE_ATOMIC);
}

void program_ended(struct sw_sim_iwarp *end)
{
    struct side *side = end->config.user;
    side->has_ended = true;
    memcpy(side->left, at(side, 0), MEMORY_BYTES);
}

static void check_written(struct side *side, bool is_whole)
{
    const uint8_t *bytes = at(side, WRITTEN_AT);
    for (uint32_t i = 0; i < WRITTEN_BYTES; i++)
        if (bytes[i] != side->expected[i] && (is_whole || bytes[i] != 0)) {
            program_fault(side->conn->world, "byte %u of side %d is %02x, not %02x", i,
                          side->number, bytes[i], side->expected[i]);
            return;
        }
}

void program_check_whole(struct connection *conn)
{
    for (int i = 0; i < 2; i++) {
        struct side *side = &conn->sides[i], *peer = &conn->sides[1 - i];
        if (side->succeeded != side->op_count)
            program_fault(conn->world, "side %d: %u of %u requests succeeded, cause %04x", i,
                          side->succeeded, side->op_count, conn->ends[i].machine.terminate.cause);
        if (peer->received != side->message_count)
            program_fault(conn->world, "side %d received %u of %u messages", 1 - i, peer->received,
                          side->message_count);
        check_written(side, true);
    }
}

/* The counter has what some of the peer's atomics have added, the first ones. */
static bool is_counter_right(const struct side *side)
{
    const struct side *peer = peer_of(side);
    static const uint8_t zeros[56];
    uint64_t value, sum = 0;
    memcpy(&value, at(side, COUNTER_AT), sizeof(value));
    for (uint32_t i = 0; i < peer->op_count && sum != value; i++)
        if (peer->ops[i].request.kind == SW_REQUEST_FETCH_ADD)
            sum += peer->ops[i].request.compare_add;
    return sum == value && memcmp(at(side, COUNTER_AT + 8), zeros, sizeof(zeros)) == 0;
}

/* Behind the message that comes no receive was used. */
static bool are_receives_untouched(const struct side *side)
{
    for (uint32_t i = (side->received + 1) * RECEIVE_BYTES; i < SW_SIM_RECEIVES * RECEIVE_BYTES;
         i++)
        if (*at(side, RECEIVE_AT + i))
            return false;
    return true;
}

void program_check_memory(struct side *side)
{
    struct world *w = side->conn->world;
    if (side->has_ended && memcmp(side->left, at(side, 0), MEMORY_BYTES) != 0)
        program_fault(w, "side %d: memory changes once its connection has ended", side->number);
    if (memcmp(side->fixed, at(side, STATIC_AT), STATIC_BYTES) != 0 ||
        memcmp(side->fixed + STATIC_BYTES, at(side, SOURCE_AT), SOURCE_BYTES) != 0)
        program_fault(w, "side %d: memory changes that nobody may write", side->number);
    if (!trusts_bytes(w))
        return;
    check_written(side, false);
    if (w->mode != TRESPASS && !is_counter_right(side))
        program_fault(w, "side %d: the counter has what nobody has added", side->number);
    if (!are_receives_untouched(side))
        program_fault(w, "side %d: a receive that is not used has changed", side->number);
}
