/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: receivers that are not ready, peers that are gone, connecting in any order, loopback, many
 * QPs. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sem.h"

#define RNR_TIMER_10MS 20 /* encodes 10.24 ms (IBTA Vol1 table 45) */
#define GONE_MS 20000     /* a dead peer is reported by then, on a busy machine, too */

/* rnr_retry 0..6: so many tries more after the first, each after the receiver's timer at least. */
static void rnr_a(int sock, int param)
{
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.rnr_retry = (uint8_t)param;
    struct rig rig;
    rig_open(&rig, sock, &attr);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 64);
    struct vu_send after = rig_send(&rig, IBV_WR_SEND, 2, 0, 64);
    uint64_t start = vu_now_ms();
    rig_post(&rig, &send);
    VU_EQ(vu_post_send(rig.ep.qp, &after), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    uint64_t took_ms = vu_now_ms() - start;
    VU_CHECK((int)took_ms >= param * 10 - 1, "gave up after %llu ms", (unsigned long long)took_ms);
    vu_expect(rig.ep.scq, 2, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void rnr_b(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.min_rnr_timer = RNR_TIMER_10MS;
    struct rig rig;
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS); /* RNR is no error of the receiver */
    rig_close(&rig);
}

/* rnr_retry 7 waits for ever; what follows waits behind it, and the order is kept. param: opcode.
 */
static void rnr_forever_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    memset(rig.buf, 0xa1, 64);
    memset(rig.buf + 4096, 0xa2, 64);
    struct vu_send first = rig_send(&rig, (enum ibv_wr_opcode)param, 1, 0, 64);
    struct vu_send second = rig_send(&rig, IBV_WR_RDMA_WRITE, 2, 4096, 64);
    rig_post(&rig, &first);
    rig_post(&rig, &second);
    vu_expect_none(rig.ep.scq, 300);
    vu_barrier(sock);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void rnr_forever_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    rig_bytes(&rig, 4096, 64, 0); /* a WRITE does not overtake a SEND without receive */
    rig_recv(&rig, 10, param == IBV_WR_SEND ? 0 : 8192, 64);
    vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 64, 0xa1);
    rig_bytes(&rig, 4096, 64, 0xa2);
    rig_close(&rig);
}

enum gone { GONE_EXIT, GONE_QP_DESTROYED, GONE_RESET, GONE_ERR, GONE_CONTEXT_CLOSED };

static void gone_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 64);
    uint64_t last_ms = vu_now_ms();
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    vu_sleep_ms(20); /* the other side does what it does after the barrier */
    uint64_t start = vu_now_ms();
    /* Until the peer's end is noticed requests may still succeed against memory that is still
     * there; then one fails, finally. */
    struct ibv_wc wc;
    bool is_late; /* an idle QP fails by itself 100 ms after its peer's death */
    do {
        const uint64_t before_ms = vu_now_ms();
        rig_post(&rig, &send);
        is_late = param == GONE_EXIT && vu_now_ms() - last_ms >= 100;
        last_ms = before_ms;
        VU_EQ(vu_poll(rig.ep.scq, &wc, 1, GONE_MS), 1);
    } while (wc.status == IBV_WC_SUCCESS && vu_now_ms() - start < GONE_MS);
    VU_TRUE(wc.status == IBV_WC_RETRY_EXC_ERR || (is_late && wc.status == IBV_WC_WR_FLUSH_ERR));
    VU_CHECK(vu_now_ms() - start < GONE_MS, "noticed after %llu ms",
             (unsigned long long)(vu_now_ms() - start));
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    rig_recv(&rig, 9, 0, 64);
    vu_expect(rig.ep.rcq, 9, IBV_WC_WR_FLUSH_ERR);
    rig_close(&rig);
}

static void gone_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    if (param == GONE_EXIT)
        _exit(0);
    if (param == GONE_RESET || param == GONE_ERR)
        vu_ep_to(&rig.ep, param == GONE_RESET ? IBV_QPS_RESET : IBV_QPS_ERR);
    else if (param == GONE_QP_DESTROYED)
        vu_ep_destroy(&rig.ep);
    else
        rig_close(&rig);
    char done;
    while (read(sock, &done, 1) > 0)
        continue; /* stay until the other side has ended */
}

/* A program that ends as soon as it has its last message, and destroys nothing. There are some
 * before it, by which two processes that share a port find out who gets what. */
#define MESSAGES 20

static void last_message_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, i, 0, 64);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    }
    rig_close(&rig);
}

static void last_message_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++)
        rig_recv(&rig, i, 0, 64);
    vu_barrier(sock);
    for (uint64_t i = 0; i < MESSAGES; i++)
        vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS);
    exit(0);
}

static void never_was_a(int sock, int param)
{
    (void)sock;
    (void)param;
    struct vu_dev dev;
    struct vu_ep ep;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    struct vu_peer nobody = {.qpn = ep.qp->qp_num ^ 0x1555, .gid = dev.gid};
    vu_ep_init(&ep, &vu_conn_default);
    vu_ep_rtr(&ep, &nobody, &vu_conn_default);
    vu_ep_rts(&ep, &vu_conn_default);
    struct vu_send send = {.opcode = IBV_WR_SEND, .wr_id = 1, .flags = IBV_SEND_SIGNALED};
    VU_EQ(vu_post_send(ep.qp, &send), 0);
    vu_expect(ep.scq, 1, IBV_WC_RETRY_EXC_ERR);
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
}

static void never_was_b(int sock, int param)
{
    (void)sock;
    (void)param;
}

enum order { A_SENDS_TO_INIT, A_SENDS_TO_RTR, B_STAYS_RTR };

/* A is in RTS and sends before B has got that far: the retries cover it. */
static void order_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    struct vu_peer peer = rig_trade(&rig);
    vu_barrier(sock); /* B is in INIT or RTR */
    struct vu_conn conn = vu_conn_default;
    conn.timeout = 19; /* retries for 17 s: B may have to wait for a processor before it goes on */
    rig_rts(&rig, &peer, &conn);
    memset(rig.buf, 0xa1, 512);
    struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 512);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 2, 0, 512);
    rig_post(&rig, &write);
    rig_post(&rig, &send);
    if (param == A_SENDS_TO_INIT)
        vu_expect_none(rig.ep.scq, 100);
    vu_barrier(sock);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    vu_barrier(sock);
    if (param != B_STAYS_RTR) {
        rig_recv(&rig, 9, 4096, 64);
        vu_expect(rig.ep.rcq, 9, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void order_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    struct vu_peer peer = rig_trade(&rig);
    vu_ep_init(&rig.ep, &vu_conn_default);
    rig_recv(&rig, 10, 4096, 512);
    if (param != A_SENDS_TO_INIT)
        vu_ep_rtr(&rig.ep, &peer, &vu_conn_default);
    vu_barrier(sock);
    vu_barrier(sock);
    if (param == A_SENDS_TO_INIT)
        vu_ep_rtr(&rig.ep, &peer, &vu_conn_default);
    vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    rig_bytes(&rig, 0, 512, 0xa1);
    rig_bytes(&rig, 4096, 512, 0xa1);
    if (param != B_STAYS_RTR)
        vu_ep_rts(&rig.ep, &vu_conn_default);
    vu_barrier(sock);
    if (param != B_STAYS_RTR) {
        struct vu_send back = rig_send(&rig, IBV_WR_SEND, 3, 0, 64);
        rig_post(&rig, &back);
        vu_expect(rig.ep.scq, 3, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

/* A QP connected to itself: what it sends it receives. */
static void self_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    struct vu_peer self = vu_ep_self(&rig.ep);
    rig_rts(&rig, &self, &vu_conn_default);
    rig.peer = (struct vu_key){(uintptr_t)rig.buf, RIG_BYTES, rig.mr->rkey};
    memset(rig.buf, 0x5e, 4096);
    rig_recv(&rig, 10, 8192, 4096);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 4096);
    rig_post(&rig, &send);
    struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 2, 0, 4096);
    write.remote += 65536;
    rig_post(&rig, &write);
    struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 3, 32768, 4096);
    read.remote = (uintptr_t)rig.buf + 65536;
    rig_post(&rig, &read);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 3, IBV_WC_SUCCESS);
    vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    rig_bytes(&rig, 8192, 4096, 0x5e);
    rig_bytes(&rig, 65536, 4096, 0x5e);
    rig_bytes(&rig, 32768, 4096, 0x5e);
    rig_close(&rig);
}

#define MANY_MAX 512

static void many(int sock, int count, bool is_a)
{
    struct rig rig;
    static __thread struct vu_ep eps[MANY_MAX];
    rig_open(&rig, sock, NULL);
    struct vu_ep_attr attr = {
        .send_cq = rig.ep.scq, .recv_cq = rig.ep.rcq, .send_wr = 4, .recv_wr = 4};
    for (int i = 0; i < count; i++) {
        vu_ep_create(&rig.dev, &attr, &eps[i]);
        vu_connect(&eps[i], sock, NULL);
        VU_EQ(vu_post_recv(eps[i].qp, 1000u + (unsigned int)i, rig.buf + i * 64, 64, rig.mr->lkey),
              0);
    }
    vu_barrier(sock);
    memset(rig.buf + 128 * 1024, is_a ? 0xaa : 0xbb, 64);
    bool got[MANY_MAX] = {false};
    for (int i = 0; i < count; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_SEND_WITH_IMM, (uint64_t)i, 128 * 1024, 64);
        send.imm = (uint32_t)i;
        VU_EQ(vu_post_send(eps[i].qp, &send), 0);
        vu_expect(rig.ep.scq, (uint64_t)i, IBV_WC_SUCCESS);
        /* The other side may be ahead, and between queue pairs completions have no order. */
        while (!got[i]) {
            struct ibv_wc wc;
            VU_EQ(vu_poll(rig.ep.rcq, &wc, 1, 20000), 1);
            VU_EQ(wc.status, IBV_WC_SUCCESS);
            VU_EQ(wc.wr_id >= 1000 && wc.wr_id < 1000 + (uint64_t)count, true);
            VU_EQ(wc.qp_num, eps[wc.wr_id - 1000].qp->qp_num);
            VU_EQ(got[wc.wr_id - 1000], false);
            got[wc.wr_id - 1000] = true;
        }
        rig_bytes(&rig, (uint32_t)i * 64, 64, is_a ? 0xbb : 0xaa);
    }
    vu_barrier(sock);
    for (int i = 0; i < count; i++)
        vu_ep_destroy(&eps[i]);
    rig_close(&rig);
}

static void many_a(int sock, int param)
{
    many(sock, param, true);
}

static void many_b(int sock, int param)
{
    many(sock, param, false);
}

/* The peer's process lives on, but its QP goes while requests of ours are out: nobody answers, and
 * the retries run out. */
enum how { DESTROYED, RESET, FAILED };
enum { SHARED_QUEUE = 1 << 4, READ_BEHIND = 1 << 5 };

static void qp_gone_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.timeout = 10;
    attr.conn.retry_cnt = 1;
    rig_open(&rig, sock, &attr);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 64);
    struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 2, 4096, 8192);
    vu_barrier(sock);
    rig_post(&rig, &send); /* there is no receive for it */
    if (param & READ_BEHIND)
        rig_post(&rig, &read);
    vu_expect_none(rig.ep.scq, 100);
    vu_barrier(sock);
    vu_expect(rig.ep.scq, 1, IBV_WC_RETRY_EXC_ERR);
    if (param & READ_BEHIND)
        vu_expect(rig.ep.scq, 2, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void qp_gone_b(int sock, int param)
{
    struct rig rig;
    struct vu_ep own;
    struct ibv_srq *srq = NULL;
    enum how how = (enum how)(param & 15);
    rig_prepare(&rig, sock, &(struct rig_attr){.fill = 0});
    own = rig.ep;
    if (param & SHARED_QUEUE) {
        struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
        srq = ibv_create_srq(rig.dev.pd, &init);
        VU_TRUE(srq);
        vu_ep_create(&rig.dev, &(struct vu_ep_attr){.srq = srq}, &rig.ep);
    }
    rig_connect(&rig, NULL);
    vu_barrier(sock);
    vu_barrier(sock);
    if (how == RESET)
        vu_ep_to(&rig.ep, IBV_QPS_RESET);
    if (how == FAILED)
        vu_ep_to(&rig.ep, IBV_QPS_ERR);
    if (how == DESTROYED)
        VU_EQ(ibv_destroy_qp(rig.ep.qp), 0);
    vu_barrier(sock);
    if (how == DESTROYED) /* another one, which rig_close() can destroy */
        rig.ep.qp = ibv_create_qp(rig.dev.pd, &(struct ibv_qp_init_attr){.send_cq = rig.ep.scq,
                                                                         .recv_cq = rig.ep.rcq,
                                                                         .qp_type = IBV_QPT_RC});
    VU_TRUE(rig.ep.qp);
    if (srq) {
        vu_ep_destroy(&rig.ep);
        VU_EQ(ibv_destroy_srq(srq), 0);
        rig.ep = own;
    }
    rig_close(&rig);
}

/* --- a third process --- */

/* Has a device and a QP, and is stopped. */
static pid_t stopped_neighbour(void)
{
    int told[2];
    char c = 0;
    VU_EQ(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* or a failed case stands in the way of the others */
        struct vu_dev dev;
        struct vu_ep ep;
        vu_dev_open(&dev);
        vu_ep_create(&dev, NULL, &ep);
        struct vu_peer self = vu_ep_self(&ep);
        vu_ep_init(&ep, &vu_conn_default);
        vu_ep_rtr(&ep, &self, &vu_conn_default);
        if (write(told[1], &c, 1) == 1)
            raise(SIGSTOP);
        _exit(0);
    }
    VU_TRUE(pid > 0);
    VU_EQ(read(told[0], &c, 1), 1);
    close(told[0]);
    close(told[1]);
    int status;
    VU_TRUE(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    return pid;
}

#define NEIGHBOUR_ROUNDS 8
#define NEIGHBOURS_MAX 8
#define LIFELINE_US 200000

static void one_send_a(int sock)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock); /* a receive is posted */
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 64);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void one_send_b(int sock)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    rig_recv(&rig, 10, 0, 64);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

/* They are in nobody's way: over packets they get some that are for others. Several of them get
 * most. */
static void neighbours_a(int sock, int count)
{
    pid_t pids[NEIGHBOURS_MAX];
    VU_TRUE(count <= NEIGHBOURS_MAX);
    if (count > 1) { /* the two know each other, and have a lifeline before most is swallowed */
        one_send_a(sock);
        usleep(LIFELINE_US);
    }
    for (int i = 0; i < count; i++)
        pids[i] = stopped_neighbour();
    for (int i = 0; i < NEIGHBOUR_ROUNDS; i++)
        one_send_a(sock);
    for (int i = 0; i < count; i++) {
        VU_EQ(kill(pids[i], SIGKILL), 0);
        VU_EQ(waitpid(pids[i], NULL, 0), pids[i]);
    }
}

static void neighbours_b(int sock, int count)
{
    for (int i = 0; i < NEIGHBOUR_ROUNDS + (count > 1); i++)
        one_send_b(sock);
}

const struct sem_case sem_peers[] = {
    {"rnr_retry__0", rnr_a, rnr_b, 0},
    {"rnr_retry__1", rnr_a, rnr_b, 1},
    {"rnr_retry__2", rnr_a, rnr_b, 2},
    {"rnr_retry__3", rnr_a, rnr_b, 3},
    {"rnr_retry__4", rnr_a, rnr_b, 4},
    {"rnr_retry__5", rnr_a, rnr_b, 5},
    {"rnr_retry__6", rnr_a, rnr_b, 6},
    {"rnr_retry__7_is_for_ever", rnr_forever_a, rnr_forever_b, IBV_WR_SEND},
    {"rnr_retry__7_write_imm", rnr_forever_a, rnr_forever_b, IBV_WR_RDMA_WRITE_WITH_IMM},
    {"peer_gone__exited", gone_a, gone_b, SEM_PROCESSES | GONE_EXIT},
    {"peer_gone__exits_with_its_message", last_message_a, last_message_b, SEM_PROCESSES},
    {"peer_gone__qp_destroyed", gone_a, gone_b, GONE_QP_DESTROYED},
    {"peer_gone__qp_reset", gone_a, gone_b, GONE_RESET},
    {"peer_gone__qp_error", gone_a, gone_b, GONE_ERR},
    {"peer_gone__device_closed", gone_a, gone_b, GONE_CONTEXT_CLOSED},
    {"peer_gone__never_was", never_was_a, never_was_b, 0},
    {"connect__send_before_peer_rtr", order_a, order_b, A_SENDS_TO_INIT},
    {"connect__send_before_peer_rts", order_a, order_b, A_SENDS_TO_RTR},
    {"connect__peer_stays_rtr", order_a, order_b, B_STAYS_RTR},
    {"connect__to_itself", self_a, never_was_b, 0},
    {"connect__many_qps", many_a, many_b, 300},
    {"connect__beside_a_stopped_process", neighbours_a, neighbours_b, SEM_PROCESSES | 1},
    {"connect__among_stopped_processes", neighbours_a, neighbours_b,
     SEM_PROCESSES | NEIGHBOURS_MAX},
    {"peer_qp__destroyed", qp_gone_a, qp_gone_b, DESTROYED},
    {"peer_qp__reset", qp_gone_a, qp_gone_b, RESET},
    {"peer_qp__failed", qp_gone_a, qp_gone_b, FAILED},
    {"peer_qp__destroyed_with_srq", qp_gone_a, qp_gone_b, DESTROYED | SHARED_QUEUE},
    {"peer_qp__reset_with_srq", qp_gone_a, qp_gone_b, RESET | SHARED_QUEUE},
    {"peer_qp__failed_with_srq", qp_gone_a, qp_gone_b, FAILED | SHARED_QUEUE},
    {"peer_qp__reset_before_a_read", qp_gone_a, qp_gone_b, RESET | SHARED_QUEUE | READ_BEHIND},
    {0},
};
