/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One UDP port for many: sharing [--seed N] [--seconds N] [--processes N]
 * Two hosts (VU_HOSTS), so many processes on each, a connection from each of the first host to each
 * of the second. Processes are killed with SIGKILL at random and started again; the others see
 * their connections fail and make new ones. Every message and every WRITE is looked at. In the end
 * nobody is killed any more, and all connections must go on.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "verbs_util/pair.h"

#define PROCESSES_MAX 16
#define MESSAGE_BYTES 6000u
#define STUCK_MS 1500 /* a caller gives up a connection on which nothing comes */
#define LIVENESS_MS 40000
#define LIVENESS_ROUNDS 5
#define TIMEOUT 13 /* 34 ms */

/* What the two ends of a connection tell each other. The caller offers a queue pair under a new
 * serial, the answerer connects one to it. 0: being written. */
struct offer {
    _Atomic uint32_t serial;
    uint32_t qpn, psn, rkey;
    uint64_t addr;
    union ibv_gid gid;
};

struct link {
    struct offer call, answer;
    uint32_t last_serial; /* the caller's, of all its lives */
    _Atomic uint32_t rounds, connections;
};

static struct board {
    atomic_bool stop;
    int processes;
    uint64_t seed;
    struct link links[PROCESSES_MAX][PROCESSES_MAX]; /* caller, answerer */
} * board;

/* One end of a connection, in its process. */
struct end {
    struct link *link;
    struct vu_ep ep;
    bool exists, runs;
    uint32_t serial, round, psn;
    struct offer peer;
    uint64_t moved_ms;
    uint8_t *sent, *received, *written; /* MESSAGE_BYTES each */
};

struct process {
    bool calls;
    int index;
    struct vu_dev dev;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    uint8_t *memory;
    struct ibv_mr *mr;
    struct end ends[PROCESSES_MAX];
    struct vu_random random;
};

static void publish(struct offer *offer, uint32_t serial, const struct process *process,
                    const struct end *end)
{
    atomic_store(&offer->serial, 0);
    offer->qpn = end->ep.qp->qp_num;
    offer->psn = end->psn;
    offer->rkey = process->mr->rkey;
    offer->addr = (uintptr_t)end->written;
    offer->gid = process->dev.gid;
    atomic_store(&offer->serial, serial);
}

/* A copy of the offer; false: there is none, or it is just being changed. */
static bool look(const struct offer *offer, struct offer *out)
{
    uint32_t serial = atomic_load(&offer->serial);
    memcpy(out, offer, sizeof(*out));
    atomic_thread_fence(memory_order_seq_cst);
    return serial && serial == atomic_load(&offer->serial);
}

static void end_close(struct end *end)
{
    if (end->exists)
        vu_ep_destroy(&end->ep);
    end->exists = end->runs = false;
}

static void end_open(struct process *process, struct end *end)
{
    const struct vu_ep_attr attr = {
        .send_wr = 4, .recv_wr = 2, .send_cq = process->cq, .recv_cq = process->cq};
    vu_ep_create(&process->dev, &attr, &end->ep);
    vu_ep_init(&end->ep, &vu_conn_default);
    end->psn = (uint32_t)vu_random(&process->random) & 0xffffff;
    end->exists = true;
    end->round = 0;
    end->moved_ms = vu_now_ms();
}

static void receive(struct end *end, const struct process *process)
{
    VU_EQ(vu_post_recv(end->ep.qp, (uintptr_t)end, end->received, MESSAGE_BYTES, process->mr->lkey),
          0);
}

static void end_connect(struct process *process, struct end *end)
{
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = end->peer.qpn,
                              .rq_psn = end->peer.psn,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 5,
                              .ah_attr = {.is_global = 1,
                                          .port_num = 1,
                                          .grh = {.dgid = end->peer.gid,
                                                  .sgid_index = (uint8_t)process->dev.gid_index,
                                                  .hop_limit = 64}}};
    VU_EQ(ibv_modify_qp(end->ep.qp, &rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          0);
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .timeout = TIMEOUT,
                              .retry_cnt = 4,
                              .rnr_retry = 7,
                              .sq_psn = end->psn,
                              .max_rd_atomic = 1};
    receive(end, process);
    VU_EQ(ibv_modify_qp(end->ep.qp, &rts,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
          0);
    end->runs = true;
    end->moved_ms = vu_now_ms();
    atomic_fetch_add(&end->link->connections, 1);
}

/* What round `round` of a connection says; `kind` tells its two messages and its WRITE apart. */
static uint32_t compose(const struct end *end, uint32_t kind, uint8_t *out)
{
    struct vu_random random = {board->seed ^
                               ((uint64_t)(end->link - board->links[0]) << 48 |
                                (uint64_t)end->serial << 24 | end->round << 2 | kind)};
    uint32_t len_bytes = 1 + vu_random_below(&random, MESSAGE_BYTES);
    vu_random_fill(&random, out, len_bytes);
    return len_bytes;
}

enum { CALL, ANSWER, WRITTEN };

static void check(const struct end *end, uint32_t kind, const uint8_t *seen, uint32_t len_bytes)
{
    static uint8_t wanted[MESSAGE_BYTES];
    VU_EQ(len_bytes, compose(end, kind, wanted));
    VU_CHECK(memcmp(seen, wanted, len_bytes) == 0,
             "kind %u of serial %u, round %u: other bytes than were sent", kind, end->serial,
             end->round);
}

/* The call of a round: a WRITE, then a message that says it is there. */
static void call(struct end *end, const struct process *process)
{
    uint8_t *from = end->sent;
    uint32_t len_bytes = compose(end, WRITTEN, from);
    struct vu_send write = {.opcode = IBV_WR_RDMA_WRITE,
                            .wr_id = (uintptr_t)end | 1,
                            .addr = from,
                            .len_bytes = len_bytes,
                            .lkey = process->mr->lkey,
                            .remote = end->peer.addr,
                            .rkey = end->peer.rkey};
    VU_EQ(vu_post_send(end->ep.qp, &write), 0);
    from += MESSAGE_BYTES;
    struct vu_send send = {.opcode = IBV_WR_SEND,
                           .wr_id = (uintptr_t)end | 1,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = from,
                           .len_bytes = compose(end, CALL, from),
                           .lkey = process->mr->lkey};
    VU_EQ(vu_post_send(end->ep.qp, &send), 0);
}

static void answer(struct end *end, const struct process *process)
{
    struct vu_send send = {.opcode = IBV_WR_SEND,
                           .wr_id = (uintptr_t)end | 1,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = end->sent,
                           .len_bytes = compose(end, ANSWER, end->sent),
                           .lkey = process->mr->lkey};
    VU_EQ(vu_post_send(end->ep.qp, &send), 0);
}

static void message_came(struct process *process, struct end *end, uint32_t len_bytes)
{
    check(end, process->calls ? ANSWER : CALL, end->received, len_bytes);
    end->moved_ms = vu_now_ms();
    if (process->calls) {
        atomic_fetch_add(&end->link->rounds, 1);
        end->round++;
        receive(end, process);
        call(end, process);
        return;
    }
    static uint8_t wanted[MESSAGE_BYTES];
    check(end, WRITTEN, end->written, compose(end, WRITTEN, wanted));
    receive(end, process);
    answer(end, process);
    end->round++;
}

static void complete(struct process *process, const struct ibv_wc *wc)
{
    struct end *end = (struct end *)(uintptr_t)(wc->wr_id & ~(uint64_t)1);
    if (!end->exists || wc->qp_num != end->ep.qp->qp_num)
        return; /* of one that was given up */
    if (wc->status != IBV_WC_SUCCESS)
        end_close(end);
    else if (!(wc->wr_id & 1))
        message_came(process, end, wc->byte_len);
}

/* The caller's part of making a connection. */
static void advance_call(struct process *process, struct end *end)
{
    struct link *link = end->link;
    if (end->runs && vu_now_ms() - end->moved_ms > STUCK_MS)
        end_close(end);
    if (!end->exists) {
        end_open(process, end);
        end->serial = ++link->last_serial;
        publish(&link->call, end->serial, process, end);
    } else if (!end->runs && look(&link->answer, &end->peer) && end->peer.serial == end->serial) {
        end_connect(process, end);
        call(end, process);
    }
}

static void advance_answer(struct process *process, struct end *end)
{
    struct link *link = end->link;
    struct offer seen;
    if (!look(&link->call, &seen) || seen.serial == end->serial ||
        seen.serial == atomic_load(&link->answer.serial))
        return;
    end_close(end);
    end_open(process, end);
    end->peer = seen;
    end->serial = seen.serial;
    end_connect(process, end);
    publish(&link->answer, end->serial, process, end);
}

static void wait_for_something(struct process *process)
{
    struct pollfd fd = {.fd = process->channel->fd, .events = POLLIN};
    struct ibv_cq *cq;
    void *context;
    if (poll(&fd, 1, 10) <= 0 || ibv_get_cq_event(process->channel, &cq, &context))
        return;
    ibv_ack_cq_events(cq, 1);
    VU_EQ(ibv_req_notify_cq(cq, 0), 0);
}

static void live(struct process *process)
{
    struct ibv_wc wc;
    while (!atomic_load(&board->stop)) {
        for (int i = 0; i < board->processes; i++)
            (process->calls ? advance_call : advance_answer)(process, &process->ends[i]);
        int got;
        while ((got = ibv_poll_cq(process->cq, 1, &wc)) > 0)
            complete(process, &wc);
        VU_EQ(got, 0);
        wait_for_something(process);
    }
}

static void set_up(struct process *process)
{
    const size_t end_bytes = 4 * MESSAGE_BYTES;
    size_t bytes = end_bytes * PROCESSES_MAX;
    vu_dev_open(&process->dev);
    process->channel = ibv_create_comp_channel(process->dev.ctx);
    process->cq = ibv_create_cq(process->dev.ctx, 256, NULL, process->channel, 0);
    VU_TRUE(process->cq && !ibv_req_notify_cq(process->cq, 0));
    process->memory = malloc(bytes);
    VU_TRUE(process->memory);
    process->mr = vu_reg(&process->dev, process->memory, bytes, VU_ACCESS_ALL);
    for (int i = 0; i < board->processes; i++) {
        struct end *end = &process->ends[i];
        uint8_t *at = process->memory + end_bytes * (size_t)i;
        end->link =
            process->calls ? &board->links[process->index][i] : &board->links[i][process->index];
        end->sent = at; /* two of them: what is written lies before what is sent */
        end->received = at + 2 * MESSAGE_BYTES;
        end->written = at + 3 * MESSAGE_BYTES;
    }
}

static void one_process(int number, void *arg)
{
    (void)arg;
    static struct process process;
    char side[32];
    process.calls = number < board->processes;
    process.index = number % board->processes;
    process.random.state = board->seed ^ vu_now_ms() << 20 ^ (uint64_t)number;
    snprintf(side, sizeof(side), "%s %d", process.calls ? "caller" : "answerer", process.index);
    vu_set_side(side);
    vu_enter_host(process.calls);
    set_up(&process);
    live(&process);
    for (int i = 0; i < board->processes; i++)
        end_close(&process.ends[i]);
    VU_EQ(ibv_dereg_mr(process.mr), 0);
    VU_EQ(ibv_destroy_cq(process.cq), 0);
    VU_EQ(ibv_destroy_comp_channel(process.channel), 0);
    vu_dev_close(&process.dev);
    free(process.memory);
}

static pid_t pids[2 * PROCESSES_MAX];

static void start(int number)
{
    pids[number] = vu_spawn(one_process, number, NULL);
}

static bool has_ended(int number, int *status)
{
    return waitpid(pids[number], status, WNOHANG) == pids[number];
}

/* Nobody ends but those that we kill. */
static bool all_live(void)
{
    int status;
    for (int i = 0; i < 2 * board->processes; i++) {
        if (!has_ended(i, &status))
            continue;
        pids[i] = 0;
        fprintf(stderr, "process %d ended by itself: status 0x%x\n", i, status);
        return false;
    }
    return true;
}

static uint32_t slowest(const uint32_t before[PROCESSES_MAX][PROCESSES_MAX])
{
    uint32_t least = UINT32_MAX;
    for (int i = 0; i < board->processes; i++)
        for (int j = 0; j < board->processes; j++) {
            uint32_t moved = atomic_load(&board->links[i][j].rounds) - before[i][j];
            least = moved < least ? moved : least;
        }
    return least;
}

static bool come_to_life(void)
{
    uint32_t before[PROCESSES_MAX][PROCESSES_MAX];
    for (int i = 0; i < board->processes; i++)
        for (int j = 0; j < board->processes; j++)
            before[i][j] = atomic_load(&board->links[i][j].rounds);
    uint64_t end_ms = vu_now_ms() + LIVENESS_MS;
    while (slowest(before) < LIVENESS_ROUNDS) {
        if (!all_live())
            return false;
        if (vu_now_ms() > end_ms) {
            for (int i = 0; i < board->processes; i++)
                for (int j = 0; j < board->processes; j++)
                    if (atomic_load(&board->links[i][j].rounds) - before[i][j] < LIVENESS_ROUNDS)
                        fprintf(stderr, "nothing goes from caller %d to answerer %d\n", i, j);
            return false;
        }
        vu_sleep_ms(20);
    }
    return true;
}

static bool kill_some(struct vu_random *random, int seconds, uint32_t *kills)
{
    uint64_t end_ms = vu_now_ms() + (uint64_t)seconds * 1000;
    while (vu_now_ms() < end_ms) {
        vu_sleep_ms(50 + vu_random_below(random, 400));
        if (!all_live())
            return false;
        int number = (int)vu_random_below(random, 2 * (uint32_t)board->processes);
        int status;
        kill(pids[number], SIGKILL);
        waitpid(pids[number], &status, 0);
        if (!WIFSIGNALED(status))
            return false;
        ++*kills;
        vu_sleep_ms(vu_random_below(random, 200));
        start(number);
    }
    return true;
}

static bool end_all(bool good)
{
    atomic_store(&board->stop, true);
    for (int i = 0; i < 2 * board->processes; i++) {
        int status = pids[i] ? vu_reap(pids[i], 10) : 0;
        if (status)
            fprintf(stderr, "process %d: status %d\n", i, status);
        good &= status == 0;
    }
    return good;
}

static void report(uint32_t kills)
{
    uint64_t rounds = 0, connections = 0;
    for (int i = 0; i < board->processes; i++)
        for (int j = 0; j < board->processes; j++) {
            rounds += atomic_load(&board->links[i][j].rounds);
            connections += atomic_load(&board->links[i][j].connections);
        }
    printf("%u killed, %llu connections made by their ends, %llu rounds\n", kills,
           (unsigned long long)connections, (unsigned long long)rounds);
}

int main(int argc, char **argv)
{
    int seconds = 5;
    uint32_t kills = 0;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(board != MAP_FAILED);
    board->processes = 8;
    board->seed = vu_now_ms();
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            board->seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--processes") == 0)
            board->processes = atoi(argv[i + 1]);
        else
            VU_FAIL("unknown option %s", argv[i]);
    }
    VU_TRUE(board->processes > 0 && board->processes <= PROCESSES_MAX);
    printf("sharing --seed %llu\n", (unsigned long long)board->seed);
    fflush(stdout);
    struct vu_random random = {board->seed};
    for (int i = 0; i < 2 * board->processes; i++)
        start(i);
    bool good = come_to_life() && kill_some(&random, seconds, &kills) && come_to_life();
    good = end_all(good);
    report(kills);
    return good ? 0 : 1;
}
