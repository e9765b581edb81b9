/* SPDX-License-Identifier: BSD-2-Clause */
#include "scenario.h"

#include <sidewire/flush.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define MS 1000000ull
#define HOSTS_MAX 4u
#define CONNECTIONS_MAX 4u
#define PLAIN_BYTES 65536u
#define SECRET_BYTES 4096u
#define EARLY_SLOTS 512u
#define UC_LATE_NS (MS / 5)
#define HEAL_NS (40 * MS)
/* After the path is whole again: the longest back-off of a timer, and then some. */
#define LIVE_NS (30000 * MS)

struct side { /* of a connection: a QP */
    struct stream *out, *in;
};

struct scenario {
    struct sw_sim_world world;
    struct sw_sim_net net;
    uint32_t hosts, connections;
    struct sw_sim_host host[HOSTS_MAX];
    struct stream_common common[HOSTS_MAX];
    uint64_t used[HOSTS_MAX]; /* of a host's memory */
    struct stream streams[2 * CONNECTIONS_MAX];
    struct side sides[2 * CONNECTIONS_MAX];
    bool selective;
    uint32_t doomed_host; /* or HOSTS_MAX */
};

static uint32_t below(struct scenario *s, uint32_t limit)
{
    return sw_sim_below(&s->world, limit);
}

/* A part of a host's memory. */
static uint64_t carve(struct scenario *s, uint32_t host, uint64_t len_bytes)
{
    uint64_t addr = s->host[host].base + s->used[host];
    s->used[host] += (len_bytes + 63) / 64 * 64;
    if (s->used[host] > s->host[host].len_bytes)
        abort();
    return addr;
}

static void on_packet(void *user, const struct sw_sim_packet *packet)
{
    struct scenario *s = user;
    sw_sim_host_receive(&s->host[packet->to], packet);
}

static void kick(void *who, void *what)
{
    struct stream *stream = what;
    (void)who;
    stream_post(stream);
    sw_sim_host_pump(stream->from->host);
}

static void on_completion(struct sw_sim_qp *qp, const struct sw_sim_completion *wc)
{
    struct side *side = qp->user;
    struct sw_sim_world *world = qp->host->net->world;
    sw_sim_trace(world, wc->is_receive ? "received" : "done", qp->qpn,
                 wc->id << 8 | (uint64_t)wc->status);
    if (wc->is_receive) {
        stream_received(side->in, wc);
        return;
    }
    stream_sent(side->out, wc);
    sw_sim_at(world, world->now_ns + sw_sim_below(world, 3000), kick, NULL, side->out);
}

/* ---- drawing a world ---- */

static uint32_t often(struct scenario *s, uint32_t most_ppm)
{
    return below(s, 2) ? sw_sim_ppm(below(s, most_ppm)) : 0;
}

static void make_net(struct scenario *s)
{
    static const uint64_t speeds[] = {1000000000, 10000000000, 100000000000};
    struct sw_sim_net_config config = {
        .hosts = s->hosts,
        .bits_per_s = speeds[below(s, 3)],
        .delay_ns = 500 + below(s, 50000),
        .buffer_bytes = 50000 + below(s, 1000000),
        .loss = often(s, 100000),
        .dup = often(s, 50000),
        .corrupt = often(s, 20000),
        .reorder = often(s, 200000),
        .reorder_ns = 1000 + below(s, 200000),
    };
    if (below(s, 2)) {
        config.mark_from = config.buffer_bytes / 8;
        config.mark_all = config.buffer_bytes / 2;
    }
    sw_sim_net_init(&s->net, &s->world, &config, on_packet, s);
}

static void make_host(struct scenario *s, uint32_t number)
{
    struct sw_sim_host *host = &s->host[number];
    struct stream_common *common = &s->common[number];
    struct sw_sim_host_config config = {
        .number = number, .len_bytes = 6u << 20, .early_slots = EARLY_SLOTS};
    sw_sim_host_init(host, &s->net, &config);
    common->counter = carve(s, number, 64);
    common->counter_key = sw_sim_host_register(host, common->counter, 8, IBV_ACCESS_REMOTE_ATOMIC);
    common->plain = carve(s, number, PLAIN_BYTES);
    common->plain_len = PLAIN_BYTES;
    common->plain_key =
        sw_sim_host_register(host, common->plain, PLAIN_BYTES, IBV_ACCESS_REMOTE_READ);
    stream_fill(sw_sim_host_at(host, common->plain), PLAIN_BYTES, number + 77);
    common->secret = carve(s, number, SECRET_BYTES);
    common->secret_key =
        sw_sim_host_register(host, common->secret, SECRET_BYTES, IBV_ACCESS_LOCAL_WRITE);
    stream_fill(sw_sim_host_at(host, common->secret), SECRET_BYTES, number + 99);
}

static struct sw_sim_qp *make_qp(struct scenario *s, const struct sw_sim_qp_config *shape,
                                 uint32_t host, uint32_t peer, const uint32_t psns[2],
                                 struct side *side)
{
    struct sw_sim_qp_config config = *shape;
    config.peer_host = peer;
    config.requester.qpn = config.responder.qpn = sw_sim_host_next_qpn(&s->host[host]);
    config.requester.first_psn = psns[0];
    config.responder.first_psn = psns[1];
    config.user = side;
    return sw_sim_qp_create(&s->host[host], &config);
}

static struct sw_sim_qp_config draw_shape(struct scenario *s, bool reliable)
{
    static const uint32_t mtus[] = {256, 1024, 4096};
    struct sw_sim_qp_config shape = {
        .access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
                  IBV_ACCESS_FLUSH_GLOBAL,
        .complete = on_completion,
    };
    shape.requester = (struct sw_requester_config){
        .mtu_bytes = mtus[below(s, 3)],
        .pkey = SW_PKEY_DEFAULT,
        .service = reliable ? SW_SERVICE_RC : SW_SERVICE_UC,
        .timeout = 16,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .max_rd_atomic = (uint8_t)(1 + below(s, 16)),
        .offer_selective = s->selective,
        .rate_max = s->net.config.bits_per_s / 8,
    };
    shape.responder = (struct sw_responder_config){
        .mtu_bytes = shape.requester.mtu_bytes,
        .pkey = SW_PKEY_DEFAULT,
        .service = shape.requester.service,
        .min_rnr_timer = (uint8_t)(1 + below(s, 14)),
        .max_dest_rd_atomic = 16,
        .offer_selective = s->selective,
        .late_ns = s->selective && !reliable ? UC_LATE_NS : 0,
        .rate_max = shape.requester.rate_max,
    };
    return shape;
}

static void make_stream(struct scenario *s, uint32_t number, struct sw_sim_qp *from,
                        struct sw_sim_qp *to, enum stream_mood mood)
{
    struct stream *stream = &s->streams[number];
    uint32_t source = from->host->number, target = to->host->number;
    stream->world = &s->world;
    stream->from = from;
    stream->to = to;
    stream->common = &s->common[target];
    stream->reliable = from->requester.config.service == SW_SERVICE_RC;
    stream->mood = mood;
    stream->ops_left = 1 + below(s, 60);
    stream->len_max = below(s, 3) ? STREAM_LEN_MAX : 2048;
    stream->local = carve(s, source, STREAM_SLOTS * STREAM_LEN_MAX);
    stream->receives = carve(s, target, STREAM_SLOTS * STREAM_LEN_MAX);
    stream->window = carve(s, target, STREAM_WINDOW + 2 * STREAM_GUARD) + STREAM_GUARD;
    stream->window_key =
        sw_sim_host_register(to->host, stream->window, STREAM_WINDOW,
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL);
}

static enum stream_mood mood_of(struct scenario *s, uint32_t a, uint32_t b, bool reliable)
{
    if (a == s->doomed_host || b == s->doomed_host)
        return STREAM_DOOMED;
    return reliable && below(s, 5) == 0 ? STREAM_ROGUE : STREAM_TRUE;
}

static void connect_pair(struct scenario *s, uint32_t number)
{
    uint32_t a = below(s, s->hosts), b = (a + 1 + below(s, s->hosts - 1)) % s->hosts;
    bool reliable = below(s, 5) != 0;
    struct sw_sim_qp_config shape = draw_shape(s, reliable);
    /* Near the end of the PSNs at times. */
    uint32_t there = below(s, 2) ? 0xffffff - below(s, 100) : below(s, 0x1000000);
    uint32_t back = below(s, 0x1000000);
    uint32_t qpn_a = sw_sim_host_next_qpn(&s->host[a]), qpn_b = sw_sim_host_next_qpn(&s->host[b]);
    struct side *side = &s->sides[2 * number];
    struct stream *streams = &s->streams[2 * number];
    side[0] = (struct side){&streams[0], &streams[1]};
    side[1] = (struct side){&streams[1], &streams[0]};
    shape.requester.dest_qpn = shape.responder.dest_qpn = qpn_b;
    struct sw_sim_qp *one = make_qp(s, &shape, a, b, (const uint32_t[2]){there, back}, &side[0]);
    shape.requester.dest_qpn = shape.responder.dest_qpn = qpn_a;
    struct sw_sim_qp *other = make_qp(s, &shape, b, a, (const uint32_t[2]){back, there}, &side[1]);
    enum stream_mood mood = mood_of(s, a, b, reliable);
    make_stream(s, 2 * number, one, other, mood);
    make_stream(s, 2 * number + 1, other, one, mood);
}

/* ---- time ---- */

static void program_turn(void *who, void *what)
{
    struct scenario *s = who;
    (void)what;
    for (uint32_t i = 0; i < 2 * s->connections; i++)
        stream_post_receives(&s->streams[i]);
    sw_sim_at(&s->world, s->world.now_ns + 200000 + below(s, 400000), program_turn, s, NULL);
}

static void cut_a_host(void *who, void *what)
{
    struct scenario *s = who;
    (void)what;
    if (s->world.now_ns >= HEAL_NS)
        return;
    uint32_t host = below(s, s->hosts);
    if (host != s->doomed_host)
        s->net.cut_until_ns[host] = s->world.now_ns + below(s, 5 * (uint32_t)MS);
    sw_sim_at(&s->world, s->world.now_ns + below(s, 20 * (uint32_t)MS), cut_a_host, s, NULL);
}

static void heal(void *who, void *what)
{
    struct scenario *s = who;
    (void)what;
    sw_sim_net_heal(&s->net);
    if (s->doomed_host < HOSTS_MAX)
        s->net.cut_until_ns[s->doomed_host] = UINT64_MAX;
    sw_sim_trace(&s->world, "heal", 0, 0);
}

static void doom(void *who, void *what)
{
    struct scenario *s = who;
    (void)what;
    s->net.cut_until_ns[s->doomed_host] = UINT64_MAX;
}

static bool is_over(const struct scenario *s)
{
    for (uint32_t i = 0; i < 2 * s->connections; i++)
        if (!stream_is_over(&s->streams[i]))
            return false;
    return true;
}

static const struct stream *faulty(const struct scenario *s)
{
    for (uint32_t i = 0; i < 2 * s->connections; i++)
        if (s->streams[i].fault)
            return &s->streams[i];
    return NULL;
}

static void make(struct scenario *s)
{
    s->hosts = 2 + below(s, HOSTS_MAX - 1);
    s->connections = 1 + below(s, CONNECTIONS_MAX);
    s->selective = below(s, 3) != 0;
    s->doomed_host = below(s, 12) ? HOSTS_MAX : below(s, s->hosts);
    make_net(s);
    for (uint32_t i = 0; i < s->hosts; i++)
        make_host(s, i);
    for (uint32_t i = 0; i < s->connections; i++)
        connect_pair(s, i);
    for (uint32_t i = 0; i < 2 * s->connections; i++)
        stream_begin(&s->streams[i]);
    for (uint32_t i = 0; i < 2 * s->connections; i++)
        sw_sim_at(&s->world, below(s, 100000), kick, NULL, &s->streams[i]);
    sw_sim_at(&s->world, 0, program_turn, s, NULL);
    if (below(s, 3) == 0)
        sw_sim_at(&s->world, below(s, 10 * (uint32_t)MS), cut_a_host, s, NULL);
    if (s->doomed_host < HOSTS_MAX)
        sw_sim_at(&s->world, below(s, 2 * (uint32_t)MS), doom, s, NULL);
    sw_sim_at(&s->world, HEAL_NS, heal, s, NULL);
}

/* ---- the judgement ---- */

static uint64_t flushed(const struct scenario *s)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < 2 * s->connections; i++)
        count += s->streams[i].flushed;
    return count;
}

static void judge_host(const struct scenario *s, uint32_t number, struct scenario_result *out)
{
    const struct sw_sim_host *host = &s->host[number];
    const struct stream_common *common = &s->common[number];
    uint8_t *bytes = malloc(PLAIN_BYTES);
    uint64_t counter;
    if (!bytes)
        abort();
    stream_fill(bytes, PLAIN_BYTES, number + 77);
    if (memcmp(bytes, sw_sim_host_at(host, common->plain), PLAIN_BYTES))
        out->fault = "bytes that were only to be read changed";
    stream_fill(bytes, SECRET_BYTES, number + 99);
    if (memcmp(bytes, sw_sim_host_at(host, common->secret), SECRET_BYTES))
        out->fault = "the secret changed";
    memcpy(&counter, sw_sim_host_at(host, common->counter), 8);
    /* A flushed atomic may have been done: its answer was never seen. */
    if (counter < common->added || counter > common->added + flushed(s))
        out->fault = "the shared counter lost or gained";
    if (host->bad_failures)
        out->fault = "a queue pair failed while it waited for nothing";
    if (out->fault)
        snprintf(out->detail, sizeof(out->detail), "host %u, counter %llu of %llu", number,
                 (unsigned long long)counter, (unsigned long long)common->added);
    free(bytes);
}

static void judge(struct scenario *s, struct scenario_result *out)
{
    if (!faulty(s) && !is_over(s)) {
        out->fault = "not live: requests are still waiting";
        for (uint32_t i = 0; i < 2 * s->connections; i++) {
            const struct stream *stream = &s->streams[i];
            if (!stream_is_over(stream))
                snprintf(out->detail, sizeof(out->detail),
                         "stream %u: %llu of %llu done, %u to post, mood %d", i,
                         (unsigned long long)stream->done_id, (unsigned long long)stream->next_id,
                         stream->ops_left, (int)stream->mood);
        }
        return;
    }
    for (uint32_t i = 0; i < 2 * s->connections && !faulty(s); i++)
        stream_check(&s->streams[i]);
    const struct stream *stream = faulty(s);
    if (stream) {
        out->fault = stream->fault;
        snprintf(out->detail, sizeof(out->detail), "stream %d, QP 0x%x to 0x%x: %s",
                 (int)(stream - s->streams), stream->from->qpn, stream->to->qpn, stream->detail);
        return;
    }
    for (uint32_t i = 0; i < s->hosts && !out->fault; i++)
        judge_host(s, i, out);
}

void scenario_run(uint64_t seed, bool prints, struct scenario_result *out)
{
    struct scenario *s = calloc(1, sizeof(*s));
    *out = (struct scenario_result){0};
    if (!s)
        abort();
    sw_sim_world_init(&s->world, seed);
    s->world.prints = prints;
    make(s);
    while (!faulty(s) && !is_over(s) && sw_sim_step(&s->world, HEAL_NS + LIVE_NS)) {
    }
    /* Packets still on their way must do no harm. */
    uint64_t end_ns = s->world.now_ns + 300 * MS;
    while (!faulty(s) && sw_sim_step(&s->world, end_ns)) {
    }
    judge(s, out);
    out->hash = s->world.hash;
    out->virtual_ns = s->world.now_ns;
    out->packets = s->net.sent;
    out->lost = s->net.lost + s->net.dropped;
    out->marked = s->net.marked;
    for (uint32_t i = 0; i < 2 * s->connections; i++) {
        out->requests += s->streams[i].next_id;
        out->resent += s->streams[i].from->requester.counts.resent;
    }
    sw_sim_net_fini(&s->net);
    sw_sim_world_fini(&s->world);
    for (uint32_t i = 0; i < s->hosts; i++)
        sw_sim_host_fini(&s->host[i]);
    free(s);
}
