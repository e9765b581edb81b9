/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two programs that end without a last word between them, many times:
 *   parting [--rounds N]
 * Each counts up by WRITEs into the other's memory and looks at its own. The last WRITE is one that
 * nobody waits for: it may come to a queue pair, or a process, that is gone. On hardware the
 * program is gone itself before its retries have run out, so no request may fail.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_util/pair.h"

#define STEPS 20
#define LINGER_US 30000
#define PATIENCE_MS 20000

struct parting {
    struct vu_ep ep;
    struct vu_key peer;
    struct ibv_mr *mr;
    _Atomic uint64_t *words; /* the other's count; ours */
};

static void no_failure(struct parting *p)
{
    struct ibv_wc wc;
    while (ibv_poll_cq(p->ep.scq, 1, &wc) > 0)
        VU_CHECK(wc.status == IBV_WC_SUCCESS, "a request failed: %s", ibv_wc_status_str(wc.status));
}

static void write_count(struct parting *p, uint64_t count)
{
    p->words[1] = count;
    const struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = (void *)&p->words[1],
                                 .len_bytes = sizeof(count),
                                 .lkey = p->mr->lkey,
                                 .remote = p->peer.addr,
                                 .rkey = p->peer.rkey};
    VU_EQ(vu_post_send(p->ep.qp, &send), 0);
}

static void linger(struct parting *p, uint64_t us)
{
    for (uint64_t passed = 0; passed < us; passed += 200) {
        no_failure(p);
        usleep(200);
    }
}

static void parting_side(int sock, void *arg)
{
    const int round = *(const int *)arg;
    struct vu_conn conn = vu_conn_default;
    struct vu_dev dev;
    struct parting p;
    conn.timeout = 19; /* 17 s with its retries: nobody lingers so long, however busy */
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &p.ep);
    p.words = aligned_alloc(4096, 4096);
    VU_TRUE(p.words);
    memset((void *)p.words, 0, 4096);
    p.mr = vu_reg(&dev, (void *)p.words, 4096, VU_ACCESS_ALL);
    p.peer = vu_trade_keys(sock, p.mr);
    vu_connect(&p.ep, sock, &conn);
    const uint64_t end_ms = vu_now_ms() + PATIENCE_MS;
    for (uint64_t count = 1; count <= STEPS; count++) {
        write_count(&p, count);
        while (atomic_load(&p.words[0]) < count) {
            no_failure(&p);
            VU_CHECK(vu_now_ms() < end_ms, "the other side stands still");
        }
    }
    usleep((useconds_t)((round * 7 + (int)getpid() * 13) % 5) * 2000);
    write_count(&p, STEPS + 1);
    linger(&p, (uint64_t)((round + (int)getpid()) % 2) * LINGER_US);
    VU_EQ(ibv_destroy_qp(p.ep.qp), 0);
    _exit(0);
}

int main(int argc, char **argv)
{
    int rounds = 20;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") != 0)
            return 2;
        rounds = atoi(argv[i + 1]);
    }
    for (int round = 0; round < rounds; round++) {
        const int rc = vu_run_pair(VU_PROCESSES, parting_side, parting_side, &round, 60);
        if (rc)
            return rc;
    }
    return 0;
}
