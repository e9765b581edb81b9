/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The faults of a SEND in each combination, on each kind of connection: there is no receive, the
 * message is longer than it, its memory is not there, the key to invalidate is not the sender's.
 * Whichever packet or segment shows one first: what both sides are told is that of the first, in
 * this order (device/serve/execute.h), and what is left of the receives follows from it.
 *
 *   receives [--seed N] [--trace]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/sim/iwarp_end.h"

#define MS 1000000ull
enum { A, B }; /* the hosts: who sends, and who receives */
enum {
    MESSAGES = 2,
    MTU_BYTES = 1024,
    RECEIVE_BYTES = 4000, /* more than any message */
    SHORT_BYTES = 50,     /* less than the first packet of any but the last message */
    PARTLY_BYTES = 2500,  /* less than a long message, more than its first packet */
    PAGE_BYTES = 1500,    /* of a receive whose memory is there at its start only */
    LAST_BYTES = 10,
    RECEIVE_AT = 16384,
    WINDOW_AT = 4 * 16384,
    MEMORY_BYTES = 5 * 16384,
    EARLY_SLOTS = 64,
};
enum way { RC, UC, IWARP, WAYS };
enum fault { NO_RECEIVE = 1, TOO_LONG = 2, NO_MEMORY = 4, BAD_KEY = 8, COMBINATIONS = 16 };

struct trial {
    enum way way;
    bool shares_receives;
    uint32_t faults; /* enum fault */
    bool is_long;    /* the first message has several packets */
    bool is_late;    /* what is wrong with the first receive shows behind the first packet */
    bool invalidates;
};

struct end {
    enum ibv_wc_status status;
    uint64_t id;
    uint32_t len_bytes;
};

struct log {
    struct end ends[8];
    uint32_t count;
};

struct world {
    struct sw_sim_world sim;
    struct sw_sim_net net;
    struct sw_sim_host hosts[2];
    struct sw_sim_qp *qps[2];
    struct sw_sim_iwarp iwarp[2];
    struct sw_sim_pipe pipes[2];
    struct log sends, receives;
    uint32_t window, wrong_key;
};

/* ---- what must come of a trial ---- */

struct outcome {
    struct log sends, receives;
    enum sw_verdict verdict; /* of the message that is refused */
    uint32_t left;           /* receives that stay posted */
};

struct place {
    uint32_t room_bytes, memory_bytes;
};

static uint32_t len_of(const struct trial *t, uint32_t message)
{
    if (message == MESSAGES - 1)
        return LAST_BYTES;
    return t->is_long ? 3000 : 100;
}

/* The first receive is the one that faults are about. */
static struct place place_of(const struct trial *t, uint32_t receive)
{
    struct place place = {RECEIVE_BYTES, RECEIVE_BYTES};
    if (receive == 0 && t->faults & TOO_LONG)
        place.room_bytes = t->is_late ? PARTLY_BYTES : SHORT_BYTES;
    if (receive == 0 && t->faults & NO_MEMORY)
        place.memory_bytes = t->is_late ? PAGE_BYTES : 0;
    return place;
}

static enum sw_verdict judge_message(const struct trial *t, uint32_t message, uint32_t receive,
                                     bool is_bound)
{
    const struct place place = place_of(t, receive);
    const uint32_t len = len_of(t, message);
    if (t->faults & NO_RECEIVE)
        return SW_RNR;
    for (uint32_t end = 0; end < len;) {
        end = len - end > MTU_BYTES ? end + MTU_BYTES : len;
        if (end > place.room_bytes)
            return SW_NAK_INVALID;
        if (end > place.memory_bytes)
            return SW_NAK_OPERATIONAL;
    }
    return t->invalidates && (t->faults & BAD_KEY || !is_bound) ? SW_NAK_ACCESS : SW_ACK;
}

static void note(struct log *log, uint64_t id, enum ibv_wc_status status, uint32_t len_bytes)
{
    if (log->count < sizeof(log->ends) / sizeof(*log->ends))
        log->ends[log->count] = (struct end){status, id, len_bytes};
    log->count++;
}

/* What its receiver is told of a refusal; SUCCESS: nothing. */
static enum ibv_wc_status told_receiver(const struct trial *t, enum sw_verdict verdict)
{
    if (verdict == SW_NAK_OPERATIONAL)
        return IBV_WC_LOC_PROT_ERR;
    if (verdict == SW_NAK_INVALID)
        return t->way == UC && !t->shares_receives ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
    return verdict == SW_NAK_ACCESS ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;
}

static enum ibv_wc_status told_sender(const struct trial *t, enum sw_verdict verdict)
{
    static const enum ibv_wc_status statuses[] = {
        [SW_ACK] = IBV_WC_SUCCESS,
        [SW_RNR] = IBV_WC_RNR_RETRY_EXC_ERR,
        [SW_NAK_ACCESS] = IBV_WC_REM_ACCESS_ERR,
        [SW_NAK_INVALID] = IBV_WC_REM_INV_REQ_ERR,
        [SW_NAK_OPERATIONAL] = IBV_WC_REM_OP_ERR,
    };
    return t->way == UC ? IBV_WC_SUCCESS : statuses[verdict];
}

/* Whether the receiver's queue pair fails. Where there is no receive the sender gives up, but an
 * iWARP connection ends. */
static bool is_fatal(const struct trial *t, enum sw_verdict verdict)
{
    if (t->way == UC)
        return verdict == SW_NAK_OPERATIONAL;
    return verdict != SW_ACK && (verdict != SW_RNR || t->way == IWARP);
}

static struct outcome foresee(const struct trial *t)
{
    struct outcome out = {.verdict = SW_ACK};
    const uint32_t posted = t->faults & NO_RECEIVE ? 0 : MESSAGES;
    uint32_t used = 0;
    bool is_failed = false, is_bound = true, is_heard = true;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (is_failed) {
            note(&out.sends, i, IBV_WC_WR_FLUSH_ERR, 0);
            continue;
        }
        if (!is_heard) { /* an unreliable sender goes on */
            note(&out.sends, i, IBV_WC_SUCCESS, 0);
            continue;
        }
        const enum sw_verdict verdict = judge_message(t, i, used, is_bound);
        const enum ibv_wc_status told = told_receiver(t, verdict);
        note(&out.sends, i, told_sender(t, verdict), 0);
        if (verdict == SW_ACK)
            note(&out.receives, used++, IBV_WC_SUCCESS, len_of(t, i));
        else if (told != IBV_WC_SUCCESS)
            note(&out.receives, used++, told, 0);
        is_bound = false;
        if (verdict == SW_ACK)
            continue;
        out.verdict = out.verdict == SW_ACK ? verdict : out.verdict;
        is_failed = t->way != UC;
        is_heard = !is_fatal(t, verdict);
        while (is_fatal(t, verdict) && !t->shares_receives && used < posted)
            note(&out.receives, used++, IBV_WC_WR_FLUSH_ERR, 0);
    }
    out.left = posted - used;
    return out;
}

/* ---- the world ---- */

static void on_completion(struct sw_sim_qp *qp, const struct sw_sim_completion *wc)
{
    struct world *w = qp->user;
    note(wc->is_receive ? &w->receives : &w->sends, wc->id, wc->status,
         wc->status == IBV_WC_SUCCESS ? wc->byte_len : 0);
}

static void on_packet(void *user, const struct sw_sim_packet *packet)
{
    struct world *w = user;
    sw_sim_host_receive(&w->hosts[packet->to], packet);
}

static void connect_roce(struct world *w, const struct trial *t)
{
    for (int i = A; i <= B; i++) {
        const uint8_t service = t->way == UC ? SW_SERVICE_UC : SW_SERVICE_RC;
        const uint32_t own = sw_sim_host_next_qpn(&w->hosts[i]);
        const uint32_t peer = i == A ? sw_sim_host_next_qpn(&w->hosts[B]) : w->qps[A]->qpn;
        const struct sw_sim_qp_config config = {
            .requester = {.qpn = own,
                          .dest_qpn = peer,
                          .mtu_bytes = MTU_BYTES,
                          .pkey = SW_PKEY_DEFAULT,
                          .service = service,
                          .timeout = 12,
                          .retry_cnt = 7,
                          .rnr_retry = 2,
                          .max_rd_atomic = 1},
            .responder = {.qpn = own,
                          .dest_qpn = peer,
                          .mtu_bytes = MTU_BYTES,
                          .pkey = SW_PKEY_DEFAULT,
                          .service = service,
                          .min_rnr_timer = 1,
                          .max_dest_rd_atomic = 1},
            .peer_host = (uint32_t)!i,
            .shares_receives = t->shares_receives,
            .complete = on_completion,
            .user = w,
        };
        w->qps[i] = sw_sim_qp_create(&w->hosts[i], &config);
    }
}

static void connect_iwarp(struct world *w, const struct trial *t)
{
    const struct sw_sim_pipe_config path = {
        .room_bytes = 20000, .piece_max = 1 + sw_sim_below(&w->sim, 3000), .delay_ns = 1000};
    struct sw_sim_iwarp_config configs[2];
    for (int i = A; i <= B; i++)
        configs[i] = (struct sw_sim_iwarp_config){
            .host = &w->hosts[i],
            .is_initiator = i == A,
            .start = {.revision = 2, .ird = 1, .ord = 1},
            .fpdu_max = 256 + sw_sim_below(&w->sim, MTU_BYTES - 256),
            .shares_receives = t->shares_receives,
            .complete = on_completion,
            .user = w,
        };
    sw_sim_iwarp_connect(w->iwarp, configs, w->pipes, &path);
    for (int i = A; i <= B; i++)
        w->qps[i] = w->iwarp[i].qp;
    while (sw_sim_step(&w->sim, 10 * MS)) {
    }
}

static void make_world(struct world *w, const struct trial *t, uint64_t seed)
{
    sw_sim_world_init(&w->sim, seed);
    struct sw_sim_net_config net = {
        .hosts = 2, .bits_per_s = 10000000000, .delay_ns = 1000, .buffer_bytes = 1000000};
    if (t->way == RC) {
        net.loss = sw_sim_ppm(sw_sim_below(&w->sim, 50000));
        net.dup = sw_sim_ppm(sw_sim_below(&w->sim, 50000));
        net.reorder = sw_sim_ppm(sw_sim_below(&w->sim, 100000));
        net.reorder_ns = 20000;
    }
    sw_sim_net_init(&w->net, &w->sim, &net, on_packet, w);
    for (uint32_t i = A; i <= B; i++)
        sw_sim_host_init(&w->hosts[i], &w->net,
                         &(struct sw_sim_host_config){
                             .number = i, .len_bytes = MEMORY_BYTES, .early_slots = EARLY_SLOTS});
    for (uint32_t i = 0; i < RECEIVE_BYTES; i++)
        w->hosts[A].memory[i] = (uint8_t)(1 + i % 251);
    if (t->way == IWARP)
        connect_iwarp(w, t);
    else
        connect_roce(w, t);
}

/* A key of a region, of another queue pair's window, or of nothing. */
static uint32_t draw_wrong_key(struct world *w)
{
    struct sw_sim_host *host = &w->hosts[B];
    const uint64_t addr = host->base + WINDOW_AT;
    const struct sw_sim_qp_config config = {.requester = {.service = SW_SERVICE_RC},
                                            .responder = {.service = SW_SERVICE_RC}};
    switch (sw_sim_below(&w->sim, 3)) {
    case 0:
        return sw_sim_host_register(host, addr, 64, IBV_ACCESS_REMOTE_WRITE);
    case 1:
        return sw_sim_bind_window(sw_sim_qp_create(host, &config), addr, 64,
                                  IBV_ACCESS_REMOTE_WRITE);
    default:
        return w->window ^ 1u << sw_sim_below(&w->sim, 32);
    }
}

static uint64_t receive_at(const struct world *w, uint32_t index)
{
    return w->hosts[B].base + RECEIVE_AT + index * (uint64_t)RECEIVE_BYTES;
}

static void post_receives(struct world *w, const struct trial *t)
{
    for (uint32_t i = 0; i < MESSAGES && !(t->faults & NO_RECEIVE); i++) {
        const struct place place = place_of(t, i);
        struct sw_sim_receive receive = {
            .id = i, .addr = receive_at(w, i), .len_bytes = place.room_bytes};
        if (place.memory_bytes == 0)
            receive.lkey = sw_sim_host_key(&w->hosts[B]) ^ 0x80;
        else if (place.memory_bytes < RECEIVE_BYTES)
            receive.lkey = sw_sim_host_register(&w->hosts[B], receive.addr, place.memory_bytes,
                                                IBV_ACCESS_LOCAL_WRITE);
        if (place.memory_bytes && place.memory_bytes < place.room_bytes)
            receive.cut_bytes = place.memory_bytes; /* its second element is not there */
        if (!sw_sim_post_receive(w->qps[B], &receive))
            abort();
    }
}

static void post_sends(struct world *w, const struct trial *t)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        struct sw_request request = {.kind = SW_REQUEST_SEND, .len_bytes = len_of(t, i)};
        if (t->invalidates) {
            request.flags = SW_REQUEST_INV;
            request.imm_or_key = t->faults & BAD_KEY ? w->wrong_key : w->window;
        }
        const uint64_t addr = w->hosts[A].base;
        const bool good = t->way == IWARP ? sw_sim_iwarp_post(&w->iwarp[A], &request, i, addr)
                                          : sw_sim_post_send(w->qps[A], &request, i, addr);
        if (!good)
            abort();
    }
    if (t->way == IWARP)
        sw_sim_iwarp_pump(&w->iwarp[A]);
    else
        sw_sim_host_pump(&w->hosts[A]);
}

/* ---- what has come of it ---- */

static const char *differ_logs(const struct log *seen, const struct log *right, const char *what)
{
    if (seen->count != right->count)
        return what;
    for (uint32_t i = 0; i < seen->count; i++)
        if (seen->ends[i].id != right->ends[i].id ||
            seen->ends[i].status != right->ends[i].status ||
            seen->ends[i].len_bytes != right->ends[i].len_bytes)
            return what;
    return NULL;
}

static const char *check_bytes(const struct world *w, const struct trial *t)
{
    for (uint32_t i = 0; i < w->receives.count; i++) {
        const struct end *end = &w->receives.ends[i];
        const uint8_t *bytes = sw_sim_host_at(&w->hosts[B], receive_at(w, (uint32_t)end->id));
        if (memcmp(bytes, w->hosts[A].memory, end->len_bytes) != 0)
            return "other bytes";
        const struct place place = place_of(t, (uint32_t)end->id);
        uint32_t from = place.room_bytes;
        from = place.memory_bytes < from ? place.memory_bytes : from;
        for (; from < RECEIVE_BYTES; from++)
            if (bytes[from])
                return "bytes where there is no room";
    }
    return NULL;
}

static const char *check_terminate(const struct world *w, const struct outcome *right)
{
    static const uint16_t causes[] = {
        [SW_RNR] = SW_TERMINATE_NO_RECEIVE,
        [SW_NAK_ACCESS] = SW_TERMINATE_INVALIDATE,
        [SW_NAK_INVALID] = SW_TERMINATE_TOO_LONG,
        [SW_NAK_OPERATIONAL] = SW_TERMINATE_LOCAL,
    };
    for (int i = A; i <= B && right->verdict != SW_ACK; i++)
        if (!w->iwarp[i].machine.over ||
            w->iwarp[i].machine.terminate.cause != causes[right->verdict])
            return "another Terminate";
    return right->verdict == SW_ACK && w->iwarp[B].machine.over ? "the connection ended" : NULL;
}

static const char *check_trial(const struct world *w, const struct trial *t)
{
    const struct outcome right = foresee(t);
    const char *fault = differ_logs(&w->receives, &right.receives, "receives end otherwise");
    if (!fault && t->way == IWARP) /* its SENDs are done when they are out */
        fault = check_terminate(w, &right);
    else if (!fault)
        fault = differ_logs(&w->sends, &right.sends, "requests end otherwise");
    if (!fault && sw_sim_receive_count(w->qps[B]) != right.left)
        fault = "other receives are left";
    return fault ? fault : check_bytes(w, t);
}

static void print_log(const char *name, const struct log *log)
{
    fprintf(stderr, "  %s:", name);
    for (uint32_t i = 0; i < log->count && i < 8; i++)
        fprintf(stderr, " %u: status %d, %u bytes;", (unsigned int)log->ends[i].id,
                (int)log->ends[i].status, log->ends[i].len_bytes);
    fputc('\n', stderr);
}

static bool run_trial(const struct trial *t, uint64_t seed, bool prints)
{
    struct world *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    make_world(w, t, seed);
    w->sim.prints = prints;
    w->window =
        sw_sim_bind_window(w->qps[B], w->hosts[B].base + WINDOW_AT, 64, IBV_ACCESS_REMOTE_WRITE);
    w->wrong_key = draw_wrong_key(w);
    post_receives(w, t);
    post_sends(w, t);
    while (sw_sim_step(&w->sim, 20000 * MS)) {
    }
    const char *fault = check_trial(w, t);
    if (fault) {
        const struct outcome right = foresee(t);
        fprintf(stderr, "seed %llu, way %d%s, faults %x%s%s%s: %s\n", (unsigned long long)seed,
                (int)t->way, t->shares_receives ? " with shared receives" : "", t->faults,
                t->is_long ? ", long" : "", t->is_late ? ", late" : "",
                t->invalidates ? ", invalidates" : "", fault);
        print_log("requests", &w->sends);
        print_log("they should be", &right.sends);
        print_log("receives", &w->receives);
        print_log("they should be", &right.receives);
    }
    for (int i = A; i <= B; i++)
        sw_sim_host_fini(&w->hosts[i]);
    sw_sim_net_fini(&w->net);
    sw_sim_world_fini(&w->sim);
    free(w);
    return !fault;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    bool prints = false;
    uint32_t trials = 0, failed = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0)
            prints = true;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            return EXIT_FAILURE;
    }
    for (uint32_t drawn = 0; drawn < WAYS * COMBINATIONS * 16; drawn++) {
        const uint32_t bits = drawn / WAYS;
        const struct trial t = {
            .way = (enum way)(drawn % WAYS),
            .faults = bits % COMBINATIONS,
            .shares_receives = bits / COMBINATIONS & 1,
            .is_long = bits / COMBINATIONS & 2,
            .is_late = bits / COMBINATIONS & 4,
            .invalidates = bits / COMBINATIONS & 8,
        };
        if ((t.way == UC && t.invalidates) || (t.faults & BAD_KEY && !t.invalidates))
            continue; /* there is no such request */
        trials++;
        failed += !run_trial(&t, seed, prints);
    }
    printf("%u trials, %u failed\n", trials, failed);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
