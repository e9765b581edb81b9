/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many senders into one receiver, in the simulator: how fairly they share the receiver's link, and
 * how long a short message takes meanwhile. One switch, links of 100 Gb/s, ECN marks. Virtual
 * time: the same arguments always print the same JSON object. `--senders 0` is the idle network.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/sim/host.h"
#include "options.h"

#define US 1000ull
#define SENDERS_MAX 28u
#define STREAM_BYTES 65536u
#define STREAM_DEPTH 16u /* messages on their way, of each sender */
#define PROBE_BYTES 64u
#define PROBE_PERIOD_NS (20 * US) /* and up to as much again, by chance */
#define PROBES_MAX 65536u
#define RECEIVER 0u
#define PROBER 1u
#define FIRST_SENDER 2u
#define MEMORY_BYTES (4u << 20)
#define WINDOW_BYTES (1u << 20) /* registered at the receiver */

struct sender {
    struct sw_sim_qp *qp;
    uint64_t next_id, delivered_bytes;
};

struct incast {
    struct sw_sim_world world;
    struct sw_sim_net net;
    uint32_t senders;
    bool marks; /* the switch tells of congestion by ECN */
    uint64_t warm_ns, end_ns;
    struct sw_sim_host host[FIRST_SENDER + SENDERS_MAX];
    struct sender sender[SENDERS_MAX];
    struct sw_sim_qp *prober;
    uint32_t key;
    uint64_t probe_begun_ns[SW_SIM_SENDS];
    uint64_t probe_next;
    uint64_t probe_ns[PROBES_MAX];
    uint32_t probes;
};

static struct incast incast;

static void incast_die(const char *why)
{
    fprintf(stderr, "incast: %s\n", why);
    exit(1);
}

static void on_packet(void *user, const struct sw_sim_packet *packet)
{
    struct incast *in = user;
    sw_sim_host_receive(&in->host[packet->to], packet);
}

static bool write_to_receiver(struct incast *in, struct sw_sim_qp *qp, uint64_t id,
                              uint32_t len_bytes)
{
    struct sw_request request = {.kind = SW_REQUEST_WRITE,
                                 .rkey = in->key,
                                 .remote_addr = in->host[RECEIVER].base,
                                 .len_bytes = len_bytes};
    return sw_sim_post_send(qp, &request, id, qp->host->base);
}

/* ---- the streams ---- */

static void incast_fill(struct incast *in, struct sender *sender)
{
    while (write_to_receiver(in, sender->qp, sender->next_id, STREAM_BYTES)) {
        sender->next_id++;
        if (sender->qp->requester.tail - sender->qp->reported >= STREAM_DEPTH)
            break;
    }
}

static void stream_done(struct sw_sim_qp *qp, const struct sw_sim_completion *wc)
{
    struct incast *in = &incast;
    struct sender *sender = qp->user;
    if (wc->status != IBV_WC_SUCCESS)
        incast_die("a stream failed");
    if (in->world.now_ns >= in->warm_ns && in->world.now_ns < in->end_ns)
        sender->delivered_bytes += STREAM_BYTES;
    incast_fill(in, sender);
}

static void stream_begin(void *who, void *what)
{
    struct sender *sender = what;
    incast_fill(who, sender);
    sw_sim_host_pump(sender->qp->host);
}

/* ---- the short messages ---- */

static void probe_done(struct sw_sim_qp *qp, const struct sw_sim_completion *wc)
{
    struct incast *in = qp->user;
    uint64_t begun_ns = in->probe_begun_ns[wc->id % SW_SIM_SENDS];
    if (wc->status != IBV_WC_SUCCESS)
        incast_die("a short message failed");
    if (begun_ns >= in->warm_ns && in->probes < PROBES_MAX)
        in->probe_ns[in->probes++] = in->world.now_ns - begun_ns;
}

static void incast_probe(void *who, void *what)
{
    struct incast *in = who;
    uint64_t now_ns = in->world.now_ns;
    (void)what;
    in->probe_begun_ns[in->probe_next % SW_SIM_SENDS] = now_ns;
    if (!write_to_receiver(in, in->prober, in->probe_next, PROBE_BYTES))
        incast_die("short messages pile up");
    in->probe_next++;
    sw_sim_host_pump(in->prober->host);
    uint64_t wait_ns = PROBE_PERIOD_NS + sw_sim_below(&in->world, (uint32_t)PROBE_PERIOD_NS);
    if (now_ns + wait_ns < in->end_ns)
        sw_sim_at(&in->world, now_ns + wait_ns, incast_probe, in, NULL);
}

/* ---- the world ---- */

static struct sw_sim_qp *connect_to_receiver(struct incast *in, uint32_t from,
                                             sw_sim_complete_fn complete, void *user)
{
    struct sw_sim_host *ends[2] = {&in->host[from], &in->host[RECEIVER]};
    uint32_t qpns[2] = {sw_sim_host_next_qpn(ends[0]), sw_sim_host_next_qpn(ends[1])};
    struct sw_sim_qp *qps[2];
    for (int side = 0; side < 2; side++) {
        struct sw_sim_qp_config config = {
            .peer_host = ends[!side]->number,
            .access = IBV_ACCESS_REMOTE_WRITE,
            .complete = complete,
            .user = user,
            .requester = {.qpn = qpns[side],
                          .dest_qpn = qpns[!side],
                          .mtu_bytes = 4096,
                          .pkey = SW_PKEY_DEFAULT,
                          .service = SW_SERVICE_RC,
                          .timeout = 14,
                          .retry_cnt = 7,
                          .rnr_retry = 7,
                          .max_rd_atomic = 16,
                          .offer_selective = true,
                          .rate_max = in->net.config.bits_per_s / 8},
        };
        config.responder = (struct sw_responder_config){.qpn = qpns[side],
                                                        .dest_qpn = qpns[!side],
                                                        .mtu_bytes = 4096,
                                                        .pkey = SW_PKEY_DEFAULT,
                                                        .service = SW_SERVICE_RC,
                                                        .min_rnr_timer = 12,
                                                        .max_dest_rd_atomic = 16,
                                                        .offer_selective = true,
                                                        .rate_max = config.requester.rate_max};
        qps[side] = sw_sim_qp_create(ends[side], &config);
    }
    return qps[0];
}

static void incast_build(struct incast *in, uint64_t seed)
{
    struct sw_sim_net_config config = {.hosts = FIRST_SENDER + in->senders,
                                       .bits_per_s = 100000000000ull,
                                       .delay_ns = 1 * US,
                                       .buffer_bytes = 4u << 20,
                                       .mark_from = in->marks ? 100000 : 0,
                                       .mark_all = 400000};
    sw_sim_world_init(&in->world, seed);
    sw_sim_net_init(&in->net, &in->world, &config, on_packet, in);
    for (uint32_t i = 0; i < config.hosts; i++)
        sw_sim_host_init(&in->host[i], &in->net,
                         &(struct sw_sim_host_config){
                             .number = i, .len_bytes = MEMORY_BYTES, .early_slots = 4096});
    in->key = sw_sim_host_register(&in->host[RECEIVER], in->host[RECEIVER].base, WINDOW_BYTES,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    in->prober = connect_to_receiver(in, PROBER, probe_done, in);
    sw_sim_at(&in->world, 0, incast_probe, in, NULL);
    for (uint32_t i = 0; i < in->senders; i++) {
        struct sender *sender = &in->sender[i];
        sender->qp = connect_to_receiver(in, FIRST_SENDER + i, stream_done, sender);
        sw_sim_at(&in->world, sw_sim_below(&in->world, 10 * US), stream_begin, in, sender);
    }
}

/* ---- what came of it ---- */

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Jain's index of the senders' shares: 1 when they are equal, 1/n when one has all. */
static double incast_fairness(const struct incast *in)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < in->senders; i++) {
        double share = (double)in->sender[i].delivered_bytes;
        sum += share;
        squares += share * share;
    }
    return squares > 0 ? sum * sum / (in->senders * squares) : 1;
}

static void incast_report(struct incast *in)
{
    uint64_t bytes = 0, resent = 0;
    double seconds = (double)(in->end_ns - in->warm_ns) / 1e9;
    if (!in->probes)
        incast_die("no short message came through");
    qsort(in->probe_ns, in->probes, sizeof(in->probe_ns[0]), by_time);
    for (uint32_t i = 0; i < in->senders; i++) {
        bytes += in->sender[i].delivered_bytes;
        resent += in->sender[i].qp->requester.counts.resent;
    }
    printf("{\"senders\": %u, \"jain\": %.5f, \"gbits_per_s\": %.3f, \"short_messages\": %u, "
           "\"p50_ns\": %" PRIu64 ", \"p99_ns\": %" PRIu64 ", \"marked\": %" PRIu64
           ", \"dropped\": %" PRIu64 ", \"resent\": %" PRIu64 "}\n",
           in->senders, incast_fairness(in), (double)bytes * 8 / seconds / 1e9, in->probes,
           in->probe_ns[in->probes / 2], in->probe_ns[(uint64_t)in->probes * 99 / 100],
           in->net.marked, in->net.dropped, resent);
}

int main(int argc, char **argv)
{
    struct incast *in = &incast;
    uint64_t seed = 1, warm_us = 5000, us = 45000;
    bool no_ecn = false;
    in->senders = 16;
    const struct bench_option table[] = {
        BENCH_NUMBER_OPTION("senders", 'n', in->senders), BENCH_NUMBER_OPTION("seed", 's', seed),
        BENCH_NUMBER_OPTION("warm-us", 'w', warm_us),     BENCH_NUMBER_OPTION("us", 't', us),
        BENCH_FLAG_OPTION("no-ecn", 'e', no_ecn),
    };
    if (!bench_parse_options(argc, argv, table, sizeof(table) / sizeof(table[0])))
        incast_die("usage: incast [--senders N] [--seed N] [--warm-us N] [--us N] [--no-ecn]");
    in->marks = !no_ecn;
    if (in->senders > SENDERS_MAX || !us || warm_us > 10000000 || us > 10000000)
        incast_die("up to 28 senders, up to ten virtual seconds");
    in->warm_ns = warm_us * US;
    in->end_ns = in->warm_ns + us * US;
    incast_build(in, seed);
    while (sw_sim_step(&in->world, in->end_ns))
        ;
    incast_report(in);
    sw_sim_net_fini(&in->net);
    for (uint32_t i = 0; i < in->net.config.hosts; i++)
        sw_sim_host_fini(&in->host[i]);
    sw_sim_world_fini(&in->world);
    return 0;
}
