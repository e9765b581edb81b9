/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections between two hosts (VU_HOSTS) and a stranger who forges packets to them (forge.h):
 *   forger [--seed N] [--seconds N] [--rate PACKETS_A_SECOND] [--ratio R]
 * One connection is busy with WRITEs, atomics, messages and READs, of which every byte is looked
 * at; one says something now and then; one says nothing until the end. None may end. With --ratio
 * the stranger takes turns with silence, and the busy one must move at least R times what it moves
 * in silence.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "forge.h"
#include "verbs_util/pair.h"

#define SLOTS 16u
#define CHUNK_BYTES (64u << 10)
#define READ_EVERY 8u /* rounds of a slot */
#define MESSAGE_BYTES 16u
#define CALL_MS 20u /* between words of the connection that is quiet */
#define STUCK_MS 20000u
#define TURN_MS 400u   /* of the stranger, with --ratio */
#define SETTLE_MS 100u /* of a turn, before it is measured */
#define BURST 32u

enum { BUSY, QUIET, SILENT, QPS };
static_assert((int)QPS == (int)FORGE_QPS, "all are aimed at");

/* What a completion is of; a slot's number stands beside it in the wr_id. */
enum work { WORK_WRITE, WORK_ADD, WORK_SEND, WORK_READ, WORK_RECEIVE };

struct side_offer {
    struct forge_side known; /* to the stranger */
    uint32_t psns[QPS];      /* not to him */
    union ibv_gid gid;
};

static struct board {
    atomic_bool is_over, stranger_is_gone;
    struct side_offer sides[2];
    atomic_int offered; /* sides */
    _Atomic uint64_t bytes;
    uint64_t seed, forged;
    int seconds;
    uint32_t rate;
    double ratio; /* 0: the stranger is always there */
} * board;

struct message {
    uint64_t slot, round;
};

struct side {
    bool is_a;
    struct vu_dev dev;
    struct ibv_cq *cq;
    struct vu_ep eps[QPS];
    uint8_t *memory;
    struct ibv_mr *mr;
    const struct side_offer *peer;
    struct {
        uint64_t round;
        uint32_t waits; /* completions */
    } slots[SLOTS];
    uint64_t added, checked_adds; /* atomics posted, and completed */
    uint64_t calls, answers;      /* of the quiet connection */
    uint64_t moved_ms, called_ms;
    bool ends, has_said; /* the silent one has */
};

/* --- the memory: the same on both sides --- */

enum { WORDS = SLOTS * 8, MESSAGES = QPS * 2 * SLOTS };

static size_t memory_bytes(void)
{
    return 2 * SLOTS * CHUNK_BYTES + WORDS * 2 + 2 * MESSAGES * MESSAGE_BYTES;
}

static uint8_t *chunk_of(const struct side *side, uint32_t slot)
{
    return side->memory + (size_t)slot * CHUNK_BYTES;
}

/* Where a READ brings it. */
static uint8_t *copy_of(const struct side *side, uint32_t slot)
{
    return side->memory + (size_t)(SLOTS + slot) * CHUNK_BYTES;
}

static uint64_t *found_of(const struct side *side, uint64_t add)
{
    return (uint64_t *)(side->memory + 2 * SLOTS * CHUNK_BYTES) + add % SLOTS;
}

static uint64_t *counter_of(const struct side *side)
{
    return (uint64_t *)(side->memory + 2 * SLOTS * CHUNK_BYTES + WORDS);
}

static uint8_t *message_of(const struct side *side, int qp, bool receives, uint32_t slot)
{
    const uint32_t index = (uint32_t)qp * 2 * SLOTS + receives * SLOTS + slot % SLOTS;
    return side->memory + 2 * SLOTS * CHUNK_BYTES + 2 * WORDS + index * MESSAGE_BYTES;
}

static uint64_t pattern_of(uint32_t slot, uint64_t round)
{
    return board->seed * 0x9e3779b97f4a7c15ull + round * 0xbf58476d1ce4e5b9ull + slot;
}

static void fill(uint8_t *chunk, uint32_t slot, uint64_t round)
{
    uint64_t *words = (uint64_t *)chunk, pattern = pattern_of(slot, round);
    for (uint32_t i = 0; i < CHUNK_BYTES / sizeof(*words); i++)
        words[i] = pattern + i;
}

static void check(const uint8_t *chunk, uint32_t slot, uint64_t round)
{
    const uint64_t *words = (const uint64_t *)chunk, pattern = pattern_of(slot, round);
    uint64_t differs = 0;
    for (uint32_t i = 0; i < CHUNK_BYTES / sizeof(*words); i++)
        differs |= words[i] ^ (pattern + i);
    VU_CHECK(!differs, "slot %u, round %llu: other bytes than were sent", slot,
             (unsigned long long)round);
}

/* --- connections --- */

static void receive(struct side *side, int qp, uint32_t slot)
{
    const uint64_t wr_id = (uint64_t)WORK_RECEIVE << 32 | slot;
    VU_EQ(vu_post_recv(side->eps[qp].qp, wr_id, message_of(side, qp, true, slot), MESSAGE_BYTES,
                       side->mr->lkey),
          0);
}

static void send_message(struct side *side, int qp, uint32_t slot, uint64_t round)
{
    uint8_t *at = message_of(side, qp, false, slot);
    const struct message message = {slot, round};
    memcpy(at, &message, sizeof(message));
    const struct vu_send send = {.opcode = IBV_WR_SEND,
                                 .wr_id = (uint64_t)WORK_SEND << 32 | slot,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = at,
                                 .len_bytes = sizeof(message),
                                 .lkey = side->mr->lkey};
    VU_EQ(vu_post_send(side->eps[qp].qp, &send), 0);
}

static void set_up(struct side *side)
{
    vu_dev_open(&side->dev);
    side->cq = ibv_create_cq(side->dev.ctx, 1024, NULL, NULL, 0);
    side->memory = aligned_alloc(4096, (memory_bytes() + 4095) & ~4095ul);
    VU_TRUE(side->cq && side->memory);
    memset(side->memory, 0, memory_bytes());
    side->mr = vu_reg(&side->dev, side->memory, memory_bytes(), VU_ACCESS_ALL);
    const struct vu_ep_attr attr = {
        .send_wr = 8 * SLOTS, .recv_wr = SLOTS, .send_cq = side->cq, .recv_cq = side->cq};
    struct side_offer *own = &board->sides[!side->is_a];
    struct vu_random random = {board->seed ^ (side->is_a ? 1 : 2)};
    *own = (struct side_offer){.known = {.rkey = side->mr->rkey,
                                         .addr = (uintptr_t)side->memory,
                                         .len_bytes = memory_bytes()},
                               .gid = side->dev.gid};
    memcpy(own->known.address, side->dev.gid.raw + 12, 4);
    for (int i = 0; i < QPS; i++) {
        vu_ep_create(&side->dev, &attr, &side->eps[i]);
        vu_ep_init(&side->eps[i], &vu_conn_default);
        own->known.qpns[i] = side->eps[i].qp->qp_num;
        own->psns[i] = vu_random_below(&random, 1u << 24);
    }
    atomic_fetch_add(&board->offered, 1);
}

static void connect_qp(struct side *side, int i)
{
    const struct side_offer *own = &board->sides[!side->is_a];
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = side->dev.mtu,
                              .dest_qp_num = side->peer->known.qpns[i],
                              .rq_psn = side->peer->psns[i],
                              .max_dest_rd_atomic = 8,
                              .min_rnr_timer = 5,
                              .ah_attr = {.is_global = 1,
                                          .port_num = 1,
                                          .grh = {.dgid = side->peer->gid,
                                                  .sgid_index = (uint8_t)side->dev.gid_index,
                                                  .hop_limit = 64}}};
    VU_EQ(ibv_modify_qp(side->eps[i].qp, &rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          0);
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .timeout = 17,
                              .retry_cnt = 7,
                              .rnr_retry = 7,
                              .sq_psn = own->psns[i],
                              .max_rd_atomic = 8};
    VU_EQ(ibv_modify_qp(side->eps[i].qp, &rts,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
          0);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        receive(side, i, slot);
}

static void wait_for_offers(void)
{
    while (atomic_load(&board->offered) < 2)
        vu_sleep_ms(1);
}

/* --- what they say to each other --- */

static uint64_t remote_of(const struct side *side, const void *own)
{
    return side->peer->known.addr + (uint64_t)((const uint8_t *)own - side->memory);
}

static void begin_round(struct side *side, uint32_t slot)
{
    struct ibv_qp *qp = side->eps[BUSY].qp;
    const uint64_t round = ++side->slots[slot].round;
    fill(chunk_of(side, slot), slot, round);
    const struct vu_send write = {.opcode = IBV_WR_RDMA_WRITE,
                                  .wr_id = (uint64_t)WORK_WRITE << 32 | slot,
                                  .flags = IBV_SEND_SIGNALED,
                                  .addr = chunk_of(side, slot),
                                  .len_bytes = CHUNK_BYTES,
                                  .lkey = side->mr->lkey,
                                  .remote = remote_of(side, chunk_of(side, slot)),
                                  .rkey = side->peer->known.rkey};
    const struct vu_send add = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                .wr_id = (uint64_t)WORK_ADD << 32 | slot,
                                .flags = IBV_SEND_SIGNALED,
                                .addr = found_of(side, side->added++),
                                .len_bytes = sizeof(uint64_t),
                                .lkey = side->mr->lkey,
                                .remote = remote_of(side, counter_of(side)),
                                .rkey = side->peer->known.rkey,
                                .compare_add = 1};
    VU_EQ(vu_post_send(qp, &write), 0);
    VU_EQ(vu_post_send(qp, &add), 0);
    send_message(side, BUSY, slot, round);
    side->slots[slot].waits = 4; /* with the answer */
}

static void read_back(struct side *side, uint32_t slot)
{
    const struct vu_send read = {.opcode = IBV_WR_RDMA_READ,
                                 .wr_id = (uint64_t)WORK_READ << 32 | slot,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = copy_of(side, slot),
                                 .len_bytes = CHUNK_BYTES,
                                 .lkey = side->mr->lkey,
                                 .remote = remote_of(side, chunk_of(side, slot)),
                                 .rkey = side->peer->known.rkey};
    VU_EQ(vu_post_send(side->eps[BUSY].qp, &read), 0);
    side->slots[slot].waits = 1;
}

/* One of those that a round waits for; after the last the next begins. */
static void advance(struct side *side, uint32_t slot, bool was_read)
{
    side->moved_ms = vu_now_ms();
    if (--side->slots[slot].waits)
        return;
    if (!was_read) {
        atomic_fetch_add(&board->bytes, CHUNK_BYTES);
        if (side->slots[slot].round % READ_EVERY == 0) {
            read_back(side, slot);
            return;
        }
    }
    if (!side->ends)
        begin_round(side, slot);
}

static void a_message_came(struct side *side, int qp, const struct message *message)
{
    VU_TRUE(message->slot < SLOTS);
    if (qp != BUSY) {
        VU_EQ(message->round, ++side->answers);
    } else {
        VU_EQ(message->round, side->slots[message->slot].round);
        advance(side, (uint32_t)message->slot, false);
    }
}

static void b_message_came(struct side *side, int qp, const struct message *message)
{
    VU_TRUE(message->slot < SLOTS);
    const uint32_t slot = (uint32_t)message->slot;
    if (qp == BUSY) {
        VU_EQ(message->round, ++side->slots[slot].round);
        check(chunk_of(side, slot), slot, message->round);
    }
    send_message(side, qp, slot, message->round);
}

static void complete(struct side *side, const struct ibv_wc *wc)
{
    const uint32_t slot = (uint32_t)wc->wr_id;
    int qp = 0;
    while (qp < QPS && side->eps[qp].qp->qp_num != wc->qp_num)
        qp++;
    VU_TRUE(qp < QPS);
    VU_CHECK(wc->status == IBV_WC_SUCCESS, "connection %d: %s", qp, ibv_wc_status_str(wc->status));
    const bool is_round = side->is_a && qp == BUSY;
    struct message message;
    switch ((enum work)(wc->wr_id >> 32)) {
    case WORK_RECEIVE:
        VU_EQ(wc->byte_len, sizeof(message));
        memcpy(&message, message_of(side, qp, true, slot), sizeof(message));
        receive(side, qp, slot);
        (side->is_a ? a_message_came : b_message_came)(side, qp, &message);
        return;
    case WORK_READ:
        check(copy_of(side, slot), slot, side->slots[slot].round);
        advance(side, slot, true);
        return;
    case WORK_ADD:
        VU_EQ(*found_of(side, side->checked_adds), side->checked_adds);
        side->checked_adds++;
        break;
    case WORK_WRITE:
    case WORK_SEND:
        break;
    }
    if (is_round)
        advance(side, slot, false);
}

static void poll_all(struct side *side)
{
    struct ibv_wc wc[16];
    const int count = ibv_poll_cq(side->cq, 16, wc);
    VU_TRUE(count >= 0);
    for (int i = 0; i < count; i++)
        complete(side, &wc[i]);
}

static bool is_done(const struct side *side)
{
    bool waits = side->answers != side->calls;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        waits |= side->slots[slot].waits != 0;
    return !waits;
}

static void call(struct side *side, int qp)
{
    side->called_ms = vu_now_ms();
    send_message(side, qp, (uint32_t)side->calls % SLOTS, side->calls + 1);
    side->calls++;
}

static void lead(struct side *side)
{
    const uint64_t end_ms = vu_now_ms() + (uint64_t)board->seconds * 1000;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        begin_round(side, slot);
    side->moved_ms = vu_now_ms();
    while (!side->ends || !is_done(side)) {
        poll_all(side);
        const uint64_t now_ms = vu_now_ms();
        side->ends = now_ms >= end_ms;
        if (!side->ends && side->answers == side->calls && now_ms - side->called_ms >= CALL_MS)
            call(side, QUIET);
        if (side->ends && is_done(side) && !side->has_said) {
            side->has_said = true;
            call(side, SILENT);
        }
        VU_CHECK(now_ms - side->moved_ms < STUCK_MS || side->ends, "nothing moves");
        VU_CHECK(now_ms < end_ms + STUCK_MS, "it does not end");
    }
    atomic_store(&board->is_over, true);
}

static uint64_t read_dropped(const struct side *side)
{
    char path[160], text[32] = "";
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/rx_drop_astray",
             ibv_get_device_name(side->dev.ctx->device));
    FILE *file = fopen(path, "r");
    VU_CHECK(file && fgets(text, sizeof(text), file), "%s cannot be read", path);
    fclose(file);
    return strtoull(text, NULL, 10);
}

static void run_side(int sock, struct side *side)
{
    set_up(side);
    wait_for_offers();
    side->peer = &board->sides[side->is_a];
    for (int i = 0; i < QPS; i++)
        connect_qp(side, i);
    vu_barrier(sock);
    if (side->is_a)
        lead(side);
    while (!atomic_load(&board->is_over) || !atomic_load(&board->stranger_is_gone))
        poll_all(side);
    for (int i = 0; i < QPS; i++)
        VU_EQ(vu_ep_state(&side->eps[i]), IBV_QPS_RTS);
    if (!side->is_a)
        VU_TRUE(*counter_of(side) > 0);
    VU_TRUE(read_dropped(side) > 0); /* they did come */
    vu_barrier(sock);
    for (int i = 0; i < QPS; i++)
        vu_ep_destroy(&side->eps[i]);
    VU_EQ(ibv_dereg_mr(side->mr), 0);
    VU_EQ(ibv_destroy_cq(side->cq), 0);
    vu_dev_close(&side->dev);
    free(side->memory);
}

static void side_a(int sock, void *arg)
{
    (void)arg;
    static struct side side = {.is_a = true};
    run_side(sock, &side);
}

static void side_b(int sock, void *arg)
{
    (void)arg;
    static struct side side;
    run_side(sock, &side);
}

/* --- the stranger --- */

/* Until then, at the rate that was asked for if he `forges`. */
static void pass_time(struct forge *forge, uint64_t until_ms, bool forges)
{
    struct timespec next;
    const long step_ns = (long)(1000000000ull * BURST / board->rate);
    clock_gettime(CLOCK_MONOTONIC, &next);
    while (vu_now_ms() < until_ms && !atomic_load(&board->is_over)) {
        if (forges)
            forge_send(forge, BURST);
        next.tv_nsec += step_ns;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
}

/* A turn; returns the bytes that moved in a second of it. */
static double measure(struct forge *forge, bool forges)
{
    const uint64_t start_ms = vu_now_ms();
    pass_time(forge, start_ms + SETTLE_MS, forges);
    const uint64_t from_ms = vu_now_ms(), from = atomic_load(&board->bytes);
    pass_time(forge, start_ms + TURN_MS, forges);
    const uint64_t ms = vu_now_ms() - from_ms;
    return ms ? (double)(atomic_load(&board->bytes) - from) * 1000 / (double)ms : 0;
}

static void take_turns(struct forge *forge)
{
    double moved[2] = {0, 0};
    uint32_t turns = 0;
    for (; !atomic_load(&board->is_over); turns++)
        for (int forges = 0; forges < 2; forges++) {
            const double one = measure(forge, forges);
            if (!atomic_load(&board->is_over)) /* else it was cut short */
                moved[forges] += one;
        }
    if (turns > 1)
        turns--;
    const double ratio = moved[0] > 0 ? moved[1] / moved[0] : 0;
    printf("%.0f MB/s in silence, %.0f MB/s beside a stranger: ratio %.2f\n",
           moved[0] / 1e6 / turns, moved[1] / 1e6 / turns, ratio);
    VU_CHECK(ratio >= board->ratio, "less than %.2f", board->ratio);
}

static void stranger(int sock, void *arg)
{
    (void)sock;
    (void)arg;
    static struct forge forge;
    struct forge_side sides[2];
    vu_set_side("stranger");
    wait_for_offers();
    for (int i = 0; i < 2; i++)
        sides[i] = board->sides[i].known;
    forge_open(&forge, sides, board->seed);
    if (board->ratio > 0)
        take_turns(&forge);
    else
        pass_time(&forge, UINT64_MAX, true);
    board->forged = forge.sent;
    forge_close(&forge);
    atomic_store(&board->stranger_is_gone, true);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--seed") == 0)
            board->seed = strtoull(value, NULL, 0);
        else if (strcmp(argv[i], "--seconds") == 0)
            board->seconds = atoi(value);
        else if (strcmp(argv[i], "--rate") == 0)
            board->rate = (uint32_t)strtoul(value, NULL, 0);
        else if (strcmp(argv[i], "--ratio") == 0)
            board->ratio = strtod(value, NULL);
        else
            VU_FAIL("unknown option %s", argv[i]);
    }
    VU_TRUE(board->rate >= BURST && board->rate <= 1000000 && board->seconds > 0);
}

int main(int argc, char **argv)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(board != MAP_FAILED);
    board->seed = vu_now_ms();
    board->seconds = 5;
    board->rate = 20000;
    read_options(argc, argv);
    if (!getenv("VU_HOSTS") || geteuid() != 0)
        vu_skip("VU_HOSTS must name two hosts, and root alone may forge addresses");
    printf("forger --seed %llu\n", (unsigned long long)board->seed);
    fflush(stdout);
    const pid_t pid = vu_spawn(stranger, -1, NULL);
    int status = vu_run_pair(VU_PROCESSES, side_a, side_b, NULL, board->seconds + 60);
    if (status)
        atomic_store(&board->is_over, true);
    const int of_stranger = vu_reap(pid, 10);
    printf("%llu packets forged, %llu MB moved\n", (unsigned long long)board->forged,
           (unsigned long long)(atomic_load(&board->bytes) >> 20));
    return status ? status : of_stranger != 0;
}
