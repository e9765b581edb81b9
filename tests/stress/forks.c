/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork() with registered memory and connected queue pairs: forks. The parent's connection must not
 * notice, parent's and child's memory part at the fork, the child may open the device for itself,
 * and a child that lives on must not hide its parent's death. The same with datagrams, whose rings
 * are the process's.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/namespace.h"
#include "semantics/ud_side.h"
#include "verbs_util/pair.h"

#define BYTES (300u * 1024)
#define PEER_MARK 0x70
#define PARENT_MARK 0x50
#define CHILD_MARK 0x30
#define GONE_MS 20000
#define GRACE_MS 100 /* after a death the queue pairs of the others end (docs/liveness.md) */

/* A side: all of a block but odd edges is its region. */
struct end {
    struct vu_dev dev;
    struct vu_ep ep;
    uint8_t *block;
    struct ibv_mr *mr;
    struct vu_key peer;
};

static void open_end(struct end *end, int sock, uint8_t mark)
{
    memset(end, 0, sizeof(*end));
    vu_dev_open(&end->dev);
    vu_ep_create(&end->dev, NULL, &end->ep);
    end->block = malloc(BYTES);
    VU_TRUE(end->block);
    memset(end->block, mark, BYTES);
    end->mr = vu_reg(&end->dev, end->block + 100, BYTES - 200, VU_ACCESS_ALL);
    end->peer = vu_trade_keys(sock, end->mr);
    vu_connect(&end->ep, sock, NULL);
}

static void close_end(struct end *end)
{
    vu_ep_destroy(&end->ep);
    VU_EQ(ibv_dereg_mr(end->mr), 0);
    vu_dev_close(&end->dev);
    free(end->block);
}

static void expect_all(const uint8_t *at, size_t len_bytes, uint8_t value, const char *what)
{
    for (size_t i = 0; i < len_bytes; i++)
        VU_CHECK(at[i] == value, "%s: byte %zu is 0x%02x, not 0x%02x", what, i, at[i], value);
}

static void one_sided(struct end *end, enum ibv_wr_opcode opcode)
{
    struct vu_send send = {.opcode = opcode,
                           .wr_id = 1,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = end->block + 100,
                           .len_bytes = BYTES - 200,
                           .lkey = end->mr->lkey,
                           .remote = end->peer.addr,
                           .rkey = end->peer.rkey};
    VU_EQ(vu_post_send(end->ep.qp, &send), 0);
    vu_expect(end->ep.scq, 1, IBV_WC_SUCCESS);
}

/* Memory parts at the fork: what peer or parent write later the child does not see, and the other
 * way round. */
static void parts_child(int sock, void *arg)
{
    struct end *end = arg;
    vu_set_side("child");
    expect_all(end->block, BYTES, PARENT_MARK, "as of the fork");
    vu_barrier(sock); /* peer and parent write now */
    vu_barrier(sock);
    expect_all(end->block, BYTES, PARENT_MARK, "after others wrote");
    memset(end->block, CHILD_MARK, BYTES);
    vu_barrier(sock);
    expect_all(end->block, BYTES, CHILD_MARK, "the child's own");
}

static void parts_a(int sock, void *arg)
{
    (void)arg;
    struct end end;
    int socks[2];
    open_end(&end, sock, PARENT_MARK);
    for (int round = 0; round < 10; round++) {
        memset(end.block, PARENT_MARK, BYTES);
        vu_socketpair(socks);
        pid_t pid = vu_spawn(parts_child, socks[1], &end);
        close(socks[1]);
        vu_barrier(socks[0]);
        vu_barrier(sock); /* the peer writes */
        vu_barrier(sock);
        expect_all(end.block + 100, BYTES - 200, PEER_MARK, "the peer's bytes");
        end.block[0] = 0x51;
        vu_barrier(socks[0]);
        vu_barrier(socks[0]); /* the child has written its copy */
        expect_all(end.block + 100, BYTES - 200, PEER_MARK, "after the child wrote");
        VU_EQ(vu_reap(pid, 20), 0);
        close(socks[0]);
        memset(end.block, (uint8_t)round, BYTES);
        one_sided(&end, IBV_WR_RDMA_WRITE); /* registered memory is what it was, also for us */
        vu_barrier(sock);
    }
    close_end(&end);
}

static void parts_b(int sock, void *arg)
{
    (void)arg;
    struct end end;
    open_end(&end, sock, PEER_MARK);
    for (int round = 0; round < 10; round++) {
        vu_barrier(sock);
        memset(end.block, PEER_MARK, BYTES);
        one_sided(&end, IBV_WR_RDMA_WRITE);
        vu_barrier(sock);
        vu_barrier(sock);
        expect_all(end.block + 100, BYTES - 200, (uint8_t)round, "the parent's bytes");
    }
    close_end(&end);
}

/* The child opens the device itself and exchanges memory with its parent, which is connected
 * elsewhere at the same time. */
static void opens_child(int sock, void *arg)
{
    (void)arg;
    struct end end;
    vu_set_side("child");
    open_end(&end, sock, CHILD_MARK);
    one_sided(&end, IBV_WR_RDMA_WRITE);
    vu_barrier(sock);
    vu_barrier(sock);
    one_sided(&end, IBV_WR_RDMA_READ);
    expect_all(end.block + 100, BYTES - 200, 0x77, "read from the parent");
    close_end(&end);
}

static void opens_a(int sock, void *arg)
{
    (void)arg;
    struct end end, to_child;
    open_end(&end, sock, PARENT_MARK);
    for (int round = 0; round < 5; round++) {
        int socks[2];
        vu_socketpair(socks);
        pid_t pid = vu_spawn(opens_child, socks[1], NULL);
        close(socks[1]);
        open_end(&to_child, socks[0], PARENT_MARK);
        vu_barrier(socks[0]);
        expect_all(to_child.block + 100, BYTES - 200, CHILD_MARK, "the child's bytes");
        memset(to_child.block, 0x77, BYTES);
        vu_barrier(socks[0]);
        one_sided(&end, IBV_WR_RDMA_READ);
        expect_all(end.block + 100, BYTES - 200, PEER_MARK, "read from the peer");
        VU_EQ(vu_reap(pid, 20), 0);
        close_end(&to_child);
        close(socks[0]);
    }
    vu_barrier(sock);
    close_end(&end);
}

static void waits_b(int sock, void *arg)
{
    (void)arg;
    struct end end;
    open_end(&end, sock, PEER_MARK);
    vu_barrier(sock);
    close_end(&end);
}

/* The parent is killed; its child lives on with all inherited descriptors. The peer must learn of
 * the death all the same. */
static void orphan_child(int sock, void *arg)
{
    (void)sock;
    (void)arg;
    vu_sleep_ms(2 * GONE_MS);
}

static void dies_a(int sock, void *arg)
{
    (void)arg;
    struct end end;
    open_end(&end, sock, PARENT_MARK);
    pid_t pid = fork(); /* not vu_spawn: it shall outlive us */
    VU_TRUE(pid >= 0);
    if (pid == 0) {
        close(sock);
        orphan_child(-1, NULL);
        _exit(0);
    }
    vu_put(sock, &pid, sizeof(pid));
    vu_barrier(sock);
    _exit(0); /* as sudden to the peer as a kill: nothing is torn down */
}

static void dies_b(int sock, void *arg)
{
    (void)arg;
    struct end end;
    pid_t orphan;
    open_end(&end, sock, PEER_MARK);
    vu_get(sock, &orphan, sizeof(orphan));
    one_sided(&end, IBV_WR_RDMA_WRITE);
    vu_barrier(sock);
    struct ibv_wc wc;
    uint64_t start = vu_now_ms();
    vu_sleep_ms(20);
    do {
        struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                               .wr_id = 2,
                               .flags = IBV_SEND_SIGNALED,
                               .addr = end.block + 100,
                               .len_bytes = 5000,
                               .lkey = end.mr->lkey,
                               .remote = end.peer.addr,
                               .rkey = end.peer.rkey};
        VU_EQ(vu_post_send(end.ep.qp, &send), 0);
        VU_EQ(vu_poll(end.ep.scq, &wc, 1, GONE_MS), 1);
        VU_CHECK(vu_now_ms() - start < GONE_MS, "the death is hidden by a child");
    } while (wc.status == IBV_WC_SUCCESS);
    /* A sender that is late finds a queue pair that the death has ended meanwhile. */
    const bool late = vu_now_ms() - start >= GRACE_MS;
    VU_CHECK(wc.status == IBV_WC_RETRY_EXC_ERR || (late && wc.status == IBV_WC_WR_FLUSH_ERR),
             "the WRITE ended with %s", ibv_wc_status_str(wc.status));
    VU_EQ(kill(orphan, 0), 0); /* it did live all the time */
    kill(orphan, SIGKILL);
    close_end(&end);
}

static atomic_bool stop_hammer;

static void *hammer(void *arg)
{
    struct end *end = arg;
    while (!atomic_load(&stop_hammer))
        one_sided(end, IBV_WR_RDMA_WRITE);
    return NULL;
}

/* Forks, forks with exec, and system() while another thread's requests run. */
static void busy_a(int sock, void *arg)
{
    (void)arg;
    struct end end;
    pthread_t thread;
    open_end(&end, sock, PARENT_MARK);
    atomic_store(&stop_hammer, false);
    VU_EQ(pthread_create(&thread, NULL, hammer, &end), 0);
    for (int i = 0; i < 30; i++) {
        if (i % 3 == 0) {
            VU_EQ(system("true"), 0);
            continue;
        }
        fflush(NULL);
        pid_t pid = fork();
        VU_TRUE(pid >= 0);
        if (pid == 0) {
            if (i % 3 == 1)
                execl("/bin/true", "true", (char *)NULL);
            for (size_t at = 0; at < BYTES; at++)
                if (end.block[at] != PARENT_MARK)
                    _exit(3);
            _exit(0);
        }
        VU_EQ(vu_reap(pid, 20), 0);
    }
    atomic_store(&stop_hammer, true);
    pthread_join(thread, NULL);
    vu_barrier(sock);
    close_end(&end);
}

static void busy_b(int sock, void *arg)
{
    (void)arg;
    struct end end;
    open_end(&end, sock, PEER_MARK);
    vu_barrier(sock);
    expect_all(end.block + 100, BYTES - 200, PARENT_MARK, "written while forking");
    close_end(&end);
}

#define MESSAGE 1000u
#define EXCHANGES 10

/* One datagram each way; message `i` consists of the sender's mark plus i. */
static void exchange(struct ud_side *side, uint64_t i, uint8_t mark, uint8_t theirs)
{
    const struct ud_send send = {.wr_id = 100 + i, .at = UD_BYTES / 2, .len_bytes = MESSAGE};
    memset(side->buf + send.at, (int)(mark + i), MESSAGE);
    ud_recv(side, side->qp, i, UD_SLOT);
    vu_barrier(side->sock);
    ud_send(side, &send);
    vu_expect(side->rcq, i, IBV_WC_SUCCESS);
    ud_check(side, i, MESSAGE, (uint8_t)(theirs + i));
    vu_barrier(side->sock);
}

static void datagrams_child(int sock, void *arg)
{
    const struct ud_side *inherited = arg;
    const struct vu_ep ep = {.qp = inherited->qp};
    struct ud_side own;
    vu_set_side("child");
    VU_EQ(vu_ep_state(&ep), IBV_QPS_ERR);
    ud_open(&own, sock, NULL);
    VU_TRUE(own.qp->qp_num != inherited->qp->qp_num);
    for (uint64_t i = 0; i < EXCHANGES; i++)
        exchange(&own, i, CHILD_MARK, PARENT_MARK);
    ud_close(&own);
}

/* The parent's QP goes on with its peer, before, while and after the child has one of its own. */
static void datagrams_a(int sock, void *arg)
{
    (void)arg;
    struct ud_side side, second;
    int socks[2];
    ud_open(&side, sock, NULL);
    exchange(&side, 0, PARENT_MARK, PEER_MARK);
    vu_socketpair(socks);
    pid_t pid = vu_spawn(datagrams_child, socks[1], &side);
    close(socks[1]);
    exchange(&side, 1, PARENT_MARK, PEER_MARK);
    ud_open(&second, socks[0], NULL);
    for (uint64_t i = 0; i < EXCHANGES; i++) {
        exchange(&side, 2 + i, PARENT_MARK, PEER_MARK);
        exchange(&second, i, PARENT_MARK, CHILD_MARK);
    }
    ud_close(&second);
    VU_EQ(vu_reap(pid, 20), 0);
    close(socks[0]);
    exchange(&side, 2 + EXCHANGES, PARENT_MARK, PEER_MARK);
    vu_expect_none(side.rcq, 20);
    ud_close(&side);
}

static void datagrams_b(int sock, void *arg)
{
    (void)arg;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    for (uint64_t i = 0; i <= 2 + EXCHANGES; i++)
        exchange(&side, i, PEER_MARK, PARENT_MARK);
    vu_expect_none(side.rcq, 20);
    ud_close(&side);
}

static const struct {
    const char *name;
    vu_side_fn a, b;
} cases[] = {
    {"fork__memory_parts", parts_a, parts_b},
    {"fork__child_opens_the_device", opens_a, waits_b},
    {"fork__child_does_not_hide_death", dies_a, dies_b},
    {"fork__while_requests_run", busy_a, busy_b},
    {"fork__datagrams", datagrams_a, datagrams_b},
};

int main(int argc, char **argv)
{
    int failed = 0, skipped = 0;
    const char *link = getenv("SIDEWIRE_LINK");
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Over packets all processes of a network share a port: one of another test that is killed may
     * take a datagram along. */
    if (link && !namespace_own_network())
        puts("in the network of all, where other tests had better not run meanwhile");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        int rc = vu_run_pair(VU_PROCESSES, cases[i].a, cases[i].b, NULL, 60);
        printf("%-4s %s\n", rc == 0 ? "ok" : rc == VU_SKIPPED ? "skip" : "FAIL", cases[i].name);
        failed += rc == 1;
        skipped += rc == VU_SKIPPED;
    }
    if (!failed && skipped)
        vu_skip("no RDMA device");
    return failed ? 1 : 0;
}
