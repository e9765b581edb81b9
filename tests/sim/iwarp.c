/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends of an iWARP connection in virtual time: each runs a program of SENDs, WRITEs, READs and
 * atomics drawn from the seed, over a stream that is cut, joined, stalled, damaged, reset or
 * closed. Looked at from outside: order and number of completions, each byte of memory, what a
 * Terminate says.
 *
 *   iwarp --seed N [--seeds COUNT] [--seconds S] [--trace] [--twice]
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "link/sim/iwarp_end.h"

#define MS 1000000ull
/* A host's memory. */
enum {
    STATIC_AT = 0, /* never written: READs */
    STATIC_BYTES = 16384,
    WRITTEN_AT = STATIC_AT + STATIC_BYTES, /* each byte at most once */
    WRITTEN_BYTES = 65536,
    COUNTER_AT = WRITTEN_AT + WRITTEN_BYTES,
    RECEIVE_AT = COUNTER_AT + 64,
    RECEIVE_BYTES = 6144,
    SOURCE_AT = RECEIVE_AT + (int)SW_SIM_RECEIVES * RECEIVE_BYTES,
    SOURCE_BYTES = 16384,
    SINK_AT = SOURCE_AT + SOURCE_BYTES,
    SINK_BYTES = 4096,
    OPS_MAX = 60,
    MEMORY_BYTES = SINK_AT + OPS_MAX * SINK_BYTES,
};

enum mode { CLEAN, RESET, CLOSED, FLIPS_CRC, FLIPS, TRESPASS, REJECTED, MODES };

struct op {
    struct sw_request request;
    uint64_t local;
    const uint8_t *expected; /* READ: what comes */
    uint64_t original;       /* atomic */
};

struct message {
    bool has_imm;
    uint32_t len_bytes, imm;
    const uint8_t *bytes; /* NULL: of a WRITE */
};

struct side {
    struct world *world;
    int number;
    struct sw_sim_host host;
    uint32_t key_static, key_written, key_counter;
    uint8_t expected[WRITTEN_BYTES]; /* what the peer writes here */
    struct op ops[OPS_MAX];
    uint32_t op_count, posted, completed, succeeded, received;
    struct message messages[OPS_MAX]; /* that it sends */
    uint32_t message_count;
};

struct world {
    struct sw_sim_world sim;
    struct sw_sim_net net;
    struct side sides[2];
    struct sw_sim_iwarp ends[2];
    struct sw_sim_pipe pipes[2];
    enum mode mode;
    uint16_t trespass_cause;
    uint32_t flip;
    uint64_t seed;
    bool failed;
};

static void fault(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "seed %llu, mode %d: ", (unsigned long long)w->seed, (int)w->mode);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    w->failed = true;
}

static uint32_t below(struct world *w, uint32_t limit)
{
    return sw_sim_below(&w->sim, limit);
}

static uint8_t *at(struct side *side, uint64_t offset)
{
    return side->host.memory + offset;
}

/* What is believed of the bytes: without a CRC damage shows. */
static bool trusts_bytes(const struct world *w)
{
    return w->mode != FLIPS;
}

/* ---- what a program sees ---- */

static void check_receive(struct side *side, const struct sw_sim_completion *wc)
{
    struct world *w = side->world;
    const struct side *peer = &w->sides[1 - side->number];
    if (wc->status != IBV_WC_SUCCESS || !trusts_bytes(w))
        return;
    const uint32_t index = side->received++;
    if (wc->id != index || index >= peer->message_count) {
        fault(w, "receive %llu completes instead of %u", (unsigned long long)wc->id, index);
        return;
    }
    const struct message *message = &peer->messages[index];
    const uint8_t *bytes = at(side, RECEIVE_AT + index * RECEIVE_BYTES);
    if (wc->byte_len != message->len_bytes || wc->has_imm != message->has_imm ||
        (wc->has_imm && wc->imm != message->imm))
        fault(w, "receive %u: %u bytes instead of %u", index, wc->byte_len, message->len_bytes);
    else if (message->bytes && memcmp(bytes, message->bytes, message->len_bytes) != 0)
        fault(w, "receive %u: other bytes", index);
}

static void check_send(struct side *side, const struct sw_sim_completion *wc)
{
    struct world *w = side->world;
    const uint32_t index = side->completed++;
    if (wc->id != index) {
        fault(w, "request %llu completes instead of %u", (unsigned long long)wc->id, index);
        return;
    }
    if (wc->status != IBV_WC_SUCCESS)
        return;
    if (side->succeeded++ != index)
        fault(w, "request %u succeeds behind one that failed", index);
    const struct op *op = &side->ops[index];
    if (!trusts_bytes(w))
        return;
    if (op->request.kind == SW_REQUEST_READ &&
        memcmp(at(side, op->local - side->host.base), op->expected, op->request.len_bytes) != 0)
        fault(w, "READ %u: other bytes", index);
    if (op->request.kind == SW_REQUEST_FETCH_ADD && wc->original != op->original)
        fault(w, "atomic %u: %llu instead of %llu", index, (unsigned long long)wc->original,
              (unsigned long long)op->original);
}

static void on_complete(struct sw_sim_qp *qp, const struct sw_sim_completion *wc)
{
    struct side *side = qp->user;
    sw_sim_trace(&side->world->sim, wc->is_receive ? "receive" : "complete",
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
    op->local = side->host.base + SOURCE_AT + from;
    side->messages[side->message_count++] =
        (struct message){.len_bytes = len, .bytes = at(side, SOURCE_AT + from)};
}

static void draw_write(struct world *w, struct side *side, struct op *op, uint32_t *written)
{
    struct side *peer = &w->sides[1 - side->number];
    uint32_t len = below(w, 3) ? below(w, 200) : below(w, 4000);
    if (len > WRITTEN_BYTES - *written)
        len = WRITTEN_BYTES - *written;
    const uint32_t from = below(w, SOURCE_BYTES - len);
    op->request.kind = SW_REQUEST_WRITE;
    op->request.len_bytes = len;
    op->request.rkey = peer->key_written;
    op->request.remote_addr = peer->host.base + WRITTEN_AT + *written;
    op->local = side->host.base + SOURCE_AT + from;
    memcpy(peer->expected + *written, at(side, SOURCE_AT + from), len);
    *written += len;
    if (below(w, 4))
        return;
    op->request.flags |= SW_REQUEST_IMM;
    op->request.imm_or_key = below(w, UINT32_MAX);
    side->messages[side->message_count++] =
        (struct message){.has_imm = true, .len_bytes = len, .imm = op->request.imm_or_key};
}

/* Of bytes that never change, or that WRITEs before it have brought. */
static void draw_read(struct world *w, struct side *side, struct op *op, uint32_t index,
                      uint32_t written)
{
    struct side *peer = &w->sides[1 - side->number];
    const bool is_static = written == 0 || below(w, 2);
    uint32_t len = below(w, 8) ? below(w, SINK_BYTES) : 0;
    const uint32_t most = is_static ? STATIC_BYTES : written;
    len = len > most ? most : len;
    const uint32_t from = below(w, most - len + 1);
    op->request.kind = SW_REQUEST_READ;
    op->request.len_bytes = len;
    op->request.rkey = is_static ? peer->key_static : peer->key_written;
    op->request.remote_addr = peer->host.base + (is_static ? STATIC_AT : WRITTEN_AT) + from;
    op->local = side->host.base + SINK_AT + index * SINK_BYTES;
    op->expected = is_static ? at(peer, STATIC_AT + from) : peer->expected + from;
}

static void draw_ops(struct world *w, struct side *side)
{
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
            struct side *peer = &w->sides[1 - side->number];
            op->request.kind = SW_REQUEST_FETCH_ADD;
            op->request.rkey = peer->key_counter;
            op->request.remote_addr = peer->host.base + COUNTER_AT;
            op->request.compare_add = 1 + below(w, 1000);
            op->original = adds;
            adds += op->request.compare_add;
        }
    }
}

/* One request of one side that its peer does not admit, and what is to be said of it. */
static void draw_trespass(struct world *w)
{
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
    struct side *side = &w->sides[0], *peer = &w->sides[1];
    struct op *op = &side->ops[side->op_count - 1];
    const uint32_t way = below(w, sizeof(ways) / sizeof(*ways));
    const bool wraps =
        ways[way].cause == SW_TERMINATE_WRAP || ways[way].cause == SW_TERMINATE_READ_WRAP;
    const bool misses =
        ways[way].cause == SW_TERMINATE_BOUNDS || ways[way].cause == SW_TERMINATE_READ_BOUNDS;
    w->trespass_cause = ways[way].cause;
    *op = (struct op){.local = side->host.base + SOURCE_AT};
    op->request.kind = ways[way].kind;
    op->request.len_bytes = 100;
    op->request.rkey = ways[way].kind == SW_REQUEST_READ ? peer->key_static : peer->key_written;
    op->request.remote_addr = peer->host.base + (misses ? COUNTER_AT - 50 : COUNTER_AT);
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

static void post_ops(void *who, void *what)
{
    struct side *side = who;
    struct world *w = side->world;
    struct sw_sim_iwarp *end = &w->ends[side->number];
    (void)what;
    for (uint32_t burst = 1 + below(w, 8); burst && side->posted < side->op_count; burst--) {
        const struct op *op = &side->ops[side->posted];
        if (!sw_sim_iwarp_post(end, &op->request, side->posted, op->local))
            break;
        side->posted++;
    }
    sw_sim_iwarp_pump(end);
    if (side->posted < side->op_count && !end->is_over)
        sw_sim_at(&w->sim, w->sim.now_ns + below(w, 100000), post_ops, side, NULL);
}

/* ---- a world ---- */

static void init_side(struct world *w, int number)
{
    struct side *side = &w->sides[number];
    const struct sw_sim_host_config config = {
        .number = (uint32_t)number, .len_bytes = MEMORY_BYTES, .early_slots = 1};
    side->world = w;
    side->number = number;
    sw_sim_host_init(&side->host, &w->net, &config);
    for (uint32_t i = 0; i < STATIC_BYTES; i++)
        *at(side, STATIC_AT + i) = (uint8_t)below(w, 256);
    for (uint32_t i = 0; i < SOURCE_BYTES; i++)
        *at(side, SOURCE_AT + i) = (uint8_t)below(w, 256);
    const uint64_t base = side->host.base;
    side->key_static =
        sw_sim_host_register(&side->host, base + STATIC_AT, STATIC_BYTES, IBV_ACCESS_REMOTE_READ);
    side->key_written = sw_sim_host_register(&side->host, base + WRITTEN_AT, WRITTEN_BYTES,
                                             IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    side->key_counter =
        sw_sim_host_register(&side->host, base + COUNTER_AT, 64, IBV_ACCESS_REMOTE_ATOMIC);
}

static void connect_sides(struct world *w)
{
    const struct sw_sim_pipe_config path = {
        .room_bytes = 1 + below(w, below(w, 2) ? 400 : SW_SIM_PIPE_BYTES),
        .piece_max = 1 + below(w, below(w, 2) ? 40 : 4096),
        .delay_ns = 1000 + below(w, 20000),
        .stall = sw_sim_ppm(below(w, 20000)),
        .stall_ns = below(w, 3) * MS,
        .flip = w->mode == FLIPS_CRC || w->mode == FLIPS ? sw_sim_ppm(500 + below(w, 20000)) : 0,
    };
    const uint16_t depth = (uint16_t)(1 + below(w, 8));
    struct sw_sim_iwarp_config configs[2];
    for (int i = 0; i < 2; i++)
        configs[i] = (struct sw_sim_iwarp_config){
            .host = &w->sides[i].host,
            .is_initiator = i == 0,
            .rejects = w->mode == REJECTED,
            .start = {.revision = 2,
                      .wants_crc = w->mode == FLIPS_CRC || (w->mode != FLIPS && below(w, 2)),
                      .is_peer_to_peer = below(w, 2),
                      .rtr = (uint8_t)(1 + below(w, 7)),
                      .ird = depth,
                      .ord = (uint16_t)(1 + below(w, 8))},
            .fpdu_max = 256 + below(w, 2000),
            .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
            .complete = on_complete,
            .user = &w->sides[i],
        };
    configs[0].start.revision = below(w, 4) ? 2 : 1;
    configs[1].start.rtr = SW_MPA_RTR_SEND | SW_MPA_RTR_WRITE | SW_MPA_RTR_READ;
    if (configs[0].start.revision == 1) /* nothing is negotiated: both are told */
        configs[0].start.ord = configs[1].start.ord = depth;
    sw_sim_iwarp_connect(w->ends, configs, w->pipes, &path);
    w->flip = path.flip;
    if (w->mode == FLIPS_CRC) /* what is said at the start has no CRC */
        w->pipes[0].config.flip = w->pipes[1].config.flip = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t j = 0; j < SW_SIM_RECEIVES; j++)
            sw_sim_post_receive(
                w->ends[i].qp, &(struct sw_sim_receive){.id = j,
                                                        .addr = w->sides[i].host.base + RECEIVE_AT +
                                                                j * (uint64_t)RECEIVE_BYTES,
                                                        .len_bytes = RECEIVE_BYTES});
}

static void begin_posting(void *who, void *what)
{
    struct side *side = who;
    struct world *w = side->world;
    const bool are_open =
        w->ends[0].start.state == SW_IWARP_OPEN && w->ends[1].start.state == SW_IWARP_OPEN;
    if (are_open || (w->ends[side->number].is_open && !side->number)) {
        if (are_open)
            w->pipes[0].config.flip = w->pipes[1].config.flip = w->flip;
        post_ops(side, what);
    } else if (!w->ends[side->number].is_over)
        sw_sim_at(&w->sim, w->sim.now_ns + 10000, begin_posting, side, NULL);
}

static void reset_both(void *who, void *what)
{
    struct world *w = who;
    (void)what;
    sw_sim_pipe_reset(&w->pipes[0]);
    sw_sim_pipe_reset(&w->pipes[1]);
}

static void close_one(void *who, void *what)
{
    struct world *w = who;
    (void)what;
    sw_sim_pipe_close(&w->pipes[below(w, 2)]);
}

static void run_until_quiet(struct world *w, uint64_t until_ns)
{
    uint32_t steps = 0;
    while (sw_sim_step(&w->sim, until_ns))
        if (++steps > 20000000) {
            fault(w, "it goes on for ever");
            return;
        }
}

/* ---- what is to hold ---- */

static void check_memory(struct world *w, struct side *side, bool is_whole)
{
    const uint8_t *bytes = at(side, WRITTEN_AT);
    for (uint32_t i = 0; i < WRITTEN_BYTES; i++)
        if (bytes[i] != side->expected[i] && (is_whole || bytes[i] != 0)) {
            fault(w, "byte %u of side %d is %02x, not %02x", i, side->number, bytes[i],
                  side->expected[i]);
            return;
        }
}

static void check_clean(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        struct side *side = &w->sides[i], *peer = &w->sides[1 - i];
        if (side->succeeded != side->op_count)
            fault(w, "side %d: %u of %u requests succeeded, cause %04x", i, side->succeeded,
                  side->op_count, w->ends[i].machine.terminate.cause);
        if (peer->received != side->message_count)
            fault(w, "side %d received %u of %u messages", 1 - i, peer->received,
                  side->message_count);
        check_memory(w, side, true);
    }
}

static void check_trespass(struct world *w)
{
    const struct sw_iwarp *bad = &w->ends[0].machine, *good = &w->ends[1].machine;
    if (!good->over || good->by_peer || good->terminate.cause != w->trespass_cause)
        fault(w, "cause %04x instead of %04x", good->terminate.cause, w->trespass_cause);
    else if (!bad->by_peer || bad->terminate.cause != w->trespass_cause)
        fault(w, "the peer hears of %04x instead of %04x", bad->terminate.cause, w->trespass_cause);
}

static void check_world(struct world *w)
{
    if (w->mode == CLEAN)
        check_clean(w);
    if (w->mode == TRESPASS)
        check_trespass(w);
    if (w->mode == REJECTED && w->ends[0].start.state != SW_IWARP_REJECTED)
        fault(w, "the initiator is not told of a rejection");
    if (w->mode == REJECTED && memcmp(w->ends[0].start.peer.private_data, "no", 3) != 0)
        fault(w, "the initiator has other private data");
    reset_both(w, NULL);
    run_until_quiet(w, w->sim.now_ns + 100 * MS);
    for (int i = 0; i < 2; i++) {
        struct side *side = &w->sides[i];
        if (side->completed != side->posted)
            fault(w, "side %d: %u of %u requests completed", i, side->completed, side->posted);
        if (trusts_bytes(w))
            check_memory(w, side, false);
    }
    const uint64_t flips = w->pipes[0].flips + w->pipes[1].flips;
    for (int i = 0; i < 2; i++)
        if (w->ends[i].is_torn && w->mode != CLOSED && flips == 0)
            fault(w, "an FPDU is not whole");
    const bool ended = w->ends[0].machine.over || w->ends[1].machine.over;
    if (w->mode == FLIPS_CRC && flips == 0 && ended)
        fault(w, "a connection ended without damage");
}

/* Returns the hash over all that happened; 0 if something was wrong. */
static uint64_t run_seed(uint64_t seed, bool prints)
{
    struct world *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    w->seed = seed;
    sw_sim_world_init(&w->sim, seed);
    w->sim.prints = prints;
    w->mode = (enum mode)(seed % MODES);
    sw_sim_net_init(&w->net, &w->sim, &(struct sw_sim_net_config){.hosts = 2}, NULL, NULL);
    for (int i = 0; i < 2; i++)
        init_side(w, i);
    for (int i = 0; i < 2; i++)
        draw_ops(w, &w->sides[i]);
    if (w->mode == TRESPASS)
        draw_trespass(w);
    connect_sides(w);
    for (int i = 0; i < 2; i++)
        sw_sim_at(&w->sim, below(w, 100000), begin_posting, &w->sides[i], NULL);
    if (w->mode == RESET)
        sw_sim_at(&w->sim, below(w, 20 * MS), reset_both, w, NULL);
    if (w->mode == CLOSED)
        sw_sim_at(&w->sim, below(w, 20 * MS), close_one, w, NULL);
    run_until_quiet(w, 60000 * MS);
    check_world(w);
    const uint64_t hash = w->failed ? 0 : w->sim.hash;
    for (int i = 0; i < 2; i++)
        sw_sim_host_fini(&w->sides[i].host);
    sw_sim_net_fini(&w->net);
    sw_sim_world_fini(&w->sim);
    free(w);
    return hash;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, seeds = 1;
    double seconds = 3600;
    bool prints = false, twice = false;
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--trace") == 0)
            prints = true;
        else if (strcmp(argv[i], "--twice") == 0)
            twice = true;
        else if (strcmp(argv[i], "--seed") == 0 && has_value)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seeds") == 0 && has_value)
            seeds = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0 && has_value)
            seconds = strtod(argv[++i], NULL);
        else
            return EXIT_FAILURE;
    }
    const clock_t begun = clock();
    uint64_t done = 0, failed = 0;
    for (; done < seeds && (double)(clock() - begun) / CLOCKS_PER_SEC < seconds; done++) {
        const uint64_t hash = run_seed(seed + done, prints);
        failed += hash == 0;
        if (twice && run_seed(seed + done, false) != hash) {
            fprintf(stderr, "seed %llu: two runs differ\n", (unsigned long long)(seed + done));
            failed++;
        }
    }
    printf("%llu seeds, %llu failed\n", (unsigned long long)done, (unsigned long long)failed);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
