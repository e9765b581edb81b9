/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs that are connected to themselves, over packets, while all other processes that share
 * the UDP port are stopped. The kernel brings most of what they send to one of those. Each request
 * has to succeed within its retries all the same. In a network of its own: others would lose
 * packets to the stopped ones, too.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "preload/namespace.h"
#include "verbs_util/pair.h"

enum { STOPPED = 8, QUEUE_PAIRS = 12, BYTES = 64, DONE_MS = 20000 };

/* Its port is open before it stops. */
static void stopped(int sock, void *arg)
{
    struct vu_dev dev;
    struct vu_ep ep;
    (void)sock;
    (void)arg;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    vu_connect_here(&ep);
    raise(SIGSTOP);
}

static void write_to_itself(struct vu_dev *dev, uint64_t number)
{
    static uint8_t from[BYTES], to[BYTES];
    struct ibv_mr *mr_from = vu_reg(dev, from, BYTES, VU_ACCESS_ALL);
    struct ibv_mr *mr_to = vu_reg(dev, to, BYTES, VU_ACCESS_ALL);
    struct vu_ep ep;
    struct ibv_wc wc;
    memset(from, (int)number + 1, BYTES);
    vu_ep_create(dev, NULL, &ep);
    vu_connect_here(&ep);
    const struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                                 .wr_id = number,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = from,
                                 .len_bytes = BYTES,
                                 .lkey = mr_from->lkey,
                                 .remote = (uintptr_t)to,
                                 .rkey = mr_to->rkey};
    VU_EQ(vu_post_send(ep.qp, &send), 0);
    VU_EQ(vu_poll(ep.scq, &wc, 1, DONE_MS), 1);
    VU_CHECK(wc.status == IBV_WC_SUCCESS, "queue pair %llu: %s", (unsigned long long)number,
             ibv_wc_status_str(wc.status));
    VU_EQ(memcmp(from, to, BYTES), 0);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(mr_from), 0);
    VU_EQ(ibv_dereg_mr(mr_to), 0);
}

int main(void)
{
    pid_t pids[STOPPED];
    struct vu_dev dev;
    int status;
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return VU_SKIPPED;
    }
    for (int i = 0; i < STOPPED; i++)
        pids[i] = vu_spawn(stopped, -1, NULL);
    for (int i = 0; i < STOPPED; i++)
        VU_CHECK(waitpid(pids[i], &status, WUNTRACED) == pids[i] && WIFSTOPPED(status),
                 "process %d did not come so far", i);
    vu_dev_open(&dev);
    for (uint64_t i = 0; i < QUEUE_PAIRS; i++)
        write_to_itself(&dev, i);
    vu_dev_close(&dev);
    for (int i = 0; i < STOPPED; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], &status, 0);
    }
    printf("%d queue pairs beside %d stopped processes\n", QUEUE_PAIRS, STOPPED);
    return 0;
}
