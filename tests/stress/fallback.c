/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs whose packets find no answer: fallback HOW, between two hosts (VU_HOSTS).
 *   moves    nothing passes by UDP: what was posted before is executed in order and once, by both
 *            sides, on a queue pair that never sends, too; and again by the same queue pairs anew
 *   answers  only what side b sends is lost: requests are executed once, and end as on a wire
 *   stopped  UDP passes, and side b is stopped for two seconds before anything came to it: it is
 *            waited for
 *   crossed  nothing passes by UDP, and side b is stopped until side a has given up some calls: b
 *            takes one of these, and calls a itself
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_util/pair.h"

enum {
    COUNT = 24,
    LEN_BYTES = 3000,
    PATIENCE_MS = 20000,
    STOPPED_MS = 2000,
    CALLED_MS = 900, /* that side b is stopped for while it is called */
    CONNECTIONS = 3,
    TIMEOUT_S = 60
};

static struct vu_conn conn = {.access = VU_ACCESS_REMOTE,
                              .rd_atomic = 4,
                              .dest_rd_atomic = 4,
                              .timeout = 14,
                              .retry_cnt = 7,
                              .rnr_retry = 7,
                              .min_rnr_timer = 12};

/* What the other side reaches. */
struct memory {
    uint64_t word; /* counts */
    uint8_t from[LEN_BYTES], written[COUNT][LEN_BYTES], received[COUNT][LEN_BYTES];
};

struct side {
    struct vu_dev dev;
    struct vu_ep ep;
    struct memory memory;
    uint8_t own[COUNT][LEN_BYTES], read[LEN_BYTES];
    uint64_t before;
    struct ibv_mr *mr, *own_mr;
    struct vu_key key;
};

/* The fallbacks of all the processes of this host. */
static unsigned long count_fallbacks(const struct vu_dev *dev)
{
    char path[256];
    unsigned long count = 0;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/tcp_fallbacks",
             ibv_get_device_name(dev->ctx->device));
    FILE *file = fopen(path, "re");
    VU_TRUE(file);
    VU_EQ(fscanf(file, "%lu", &count), 1);
    fclose(file);
    return count;
}

static void open_side(struct side *s, int sock)
{
    const struct vu_ep_attr attr = {.send_wr = 4 * COUNT, .recv_wr = 2 * COUNT};
    vu_dev_open(&s->dev);
    vu_ep_create(&s->dev, &attr, &s->ep);
    s->mr = vu_reg(&s->dev, &s->memory, sizeof(s->memory), VU_ACCESS_ALL);
    s->own_mr = vu_reg(&s->dev, s->own, sizeof(*s) - offsetof(struct side, own), VU_ACCESS_ALL);
    s->key = vu_trade_keys(sock, s->mr);
}

static void close_side(struct side *s)
{
    vu_ep_destroy(&s->ep);
    VU_EQ(ibv_dereg_mr(s->mr), 0);
    VU_EQ(ibv_dereg_mr(s->own_mr), 0);
    vu_dev_close(&s->dev);
}

/* One that only receives stays in RTR. */
static void connect_side(struct side *s, int sock, bool sends)
{
    struct vu_peer own = vu_ep_self(&s->ep), other;
    vu_put(sock, &own, sizeof(own));
    vu_get(sock, &other, sizeof(other));
    vu_ep_init(&s->ep, &conn);
    for (uint32_t i = 0; i < COUNT; i++)
        VU_EQ(vu_post_recv(s->ep.qp, 1000 + i, s->memory.received[i], LEN_BYTES, s->mr->lkey), 0);
    vu_ep_rtr(&s->ep, &other, &conn);
    if (sends)
        vu_ep_rts(&s->ep, &conn);
    vu_barrier(sock);
}

static void post_add(struct side *s, uint64_t wr_id)
{
    const struct vu_send add = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                .wr_id = wr_id,
                                .flags = IBV_SEND_SIGNALED,
                                .addr = &s->before,
                                .len_bytes = sizeof(s->before),
                                .lkey = s->own_mr->lkey,
                                .remote = s->key.addr + offsetof(struct memory, word),
                                .rkey = s->key.rkey,
                                .compare_add = 1};
    VU_EQ(vu_post_send(s->ep.qp, &add), 0);
}

/* A SEND, a WRITE and an atomic each, and a READ at the end; none complete before the last is
 * posted. */
static void post_all(struct side *s, uint8_t round)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        memset(s->own[i], (int)(round * COUNT + i), LEN_BYTES);
        struct vu_send send = {.opcode = IBV_WR_SEND_WITH_IMM,
                               .wr_id = 3 * i,
                               .flags = IBV_SEND_SIGNALED,
                               .addr = s->own[i],
                               .len_bytes = LEN_BYTES,
                               .lkey = s->own_mr->lkey,
                               .imm = i};
        VU_EQ(vu_post_send(s->ep.qp, &send), 0);
        send.opcode = IBV_WR_RDMA_WRITE;
        send.wr_id++;
        send.remote = s->key.addr + offsetof(struct memory, written) + i * LEN_BYTES;
        send.rkey = s->key.rkey;
        VU_EQ(vu_post_send(s->ep.qp, &send), 0);
        post_add(s, 3 * i + 2);
    }
    const struct vu_send read = {.opcode = IBV_WR_RDMA_READ,
                                 .wr_id = 3 * COUNT,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = s->read,
                                 .len_bytes = LEN_BYTES,
                                 .lkey = s->own_mr->lkey,
                                 .remote = s->key.addr + offsetof(struct memory, from),
                                 .rkey = s->key.rkey};
    VU_EQ(vu_post_send(s->ep.qp, &read), 0);
}

static void await_all(struct side *s)
{
    for (uint32_t i = 0; i <= 3 * COUNT; i++)
        vu_expect(s->ep.scq, i, IBV_WC_SUCCESS);
    VU_EQ(s->read[LEN_BYTES - 1], 0x5a);
}

static void expect_all(struct side *s, uint8_t round)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct ibv_wc wc = vu_expect(s->ep.rcq, 1000 + i, IBV_WC_SUCCESS);
        VU_EQ(ntohl(wc.imm_data), i);
        VU_EQ(s->memory.received[i][LEN_BYTES - 1], (uint8_t)(round * COUNT + i));
    }
}

static void check_memory(const struct side *s, uint8_t round)
{
    VU_EQ(s->memory.word, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        VU_EQ(s->memory.written[i][LEN_BYTES - 1], (uint8_t)(round * COUNT + i));
}

/* In the last connection side b sends nothing, and is not in RTS. */
static void move_over(struct side *s, int sock, bool is_a)
{
    for (uint8_t round = 0; round < CONNECTIONS; round++) {
        const bool b_sends = round + 1 < CONNECTIONS;
        memset(&s->memory, 0, sizeof(s->memory));
        memset(s->memory.from, 0x5a, LEN_BYTES);
        connect_side(s, sock, is_a || b_sends);
        if (is_a || b_sends)
            post_all(s, round);
        if (!is_a || b_sends)
            expect_all(s, round);
        if (is_a || b_sends)
            await_all(s);
        vu_barrier(sock);
        if (!is_a || b_sends)
            check_memory(s, round);
        VU_EQ(count_fallbacks(&s->dev), round + 1u);
        vu_expect_none(s->ep.scq, 20);
        vu_expect_none(s->ep.rcq, 20);
        vu_barrier(sock);
        vu_ep_to(&s->ep, IBV_QPS_RESET);
    }
}

/* The requests have come and were executed; their answers are lost. */
static void lose_answers(struct side *s, int sock, bool is_a)
{
    connect_side(s, sock, true);
    if (is_a) {
        post_add(s, 1);
        vu_expect(s->ep.scq, 1, IBV_WC_RETRY_EXC_ERR);
    }
    vu_barrier(sock);
    if (!is_a)
        VU_EQ(s->memory.word, 1);
    VU_EQ(count_fallbacks(&s->dev), 0);
    vu_barrier(sock);
}

static void stop_oneself(uint32_t for_ms)
{
    const pid_t stopped = getpid(), waker = fork();
    VU_TRUE(waker >= 0);
    if (waker == 0) {
        vu_sleep_ms(for_ms);
        kill(stopped, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

static void wait_for_stopped(struct side *s, int sock, bool is_a, bool passes)
{
    if (passes)
        conn.timeout = 17; /* else a peer of whom nothing is known would be given up */
    connect_side(s, sock, true);
    if (is_a) {
        vu_sleep_ms(200); /* it has stopped itself */
        post_add(s, 1);
        vu_expect(s->ep.scq, 1, IBV_WC_SUCCESS);
    } else {
        stop_oneself(passes ? STOPPED_MS : CALLED_MS);
    }
    vu_barrier(sock);
    if (!is_a)
        VU_EQ(s->memory.word, 1);
    VU_EQ(count_fallbacks(&s->dev), passes ? 0 : 1);
    vu_barrier(sock);
}

static void run_side(int sock, const char *how, bool is_a)
{
    struct side *s = calloc(1, sizeof(*s));
    VU_TRUE(s);
    open_side(s, sock);
    if (!strcmp(how, "moves"))
        move_over(s, sock, is_a);
    else if (!strcmp(how, "answers"))
        lose_answers(s, sock, is_a);
    else
        wait_for_stopped(s, sock, is_a, !strcmp(how, "stopped"));
    close_side(s);
    free(s);
}

static void side_a(int sock, void *arg)
{
    run_side(sock, arg, true);
}

static void side_b(int sock, void *arg)
{
    run_side(sock, arg, false);
}

int main(int argc, char **argv)
{
    VU_CHECK(argc == 2, "usage: fallback moves|answers|stopped|crossed");
    if (!getenv("VU_HOSTS"))
        vu_skip("VU_HOSTS must name two hosts");
    return vu_run_pair(VU_PROCESSES, side_a, side_b, argv[1], TIMEOUT_S);
}
