/* SPDX-License-Identifier: BSD-2-Clause */
/* Sides that only wait: they learn of a death all the same, unless they had been left before. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "liveness_side.h"

#define CHILD_MS 5000 /* that a child of it lives on */
#define SPARED_MS 1500

static void exchange(struct side *side, struct vu_ep *ep, struct ibv_mr *mr, bool sends)
{
    const struct vu_send send = {.opcode = IBV_WR_SEND,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = mr->addr,
                                 .len_bytes = 8,
                                 .lkey = mr->lkey};
    VU_EQ(vu_post_recv(ep->qp, 1, mr->addr, 64, mr->lkey), 0);
    VU_EQ(vu_post_recv(ep->qp, 2, mr->addr, 64, mr->lkey), 0);
    vu_barrier(side->sock);
    if (sends) {
        VU_EQ(vu_post_send(ep->qp, &send), 0);
        vu_expect(ep->scq, 0, IBV_WC_SUCCESS);
    } else {
        vu_expect(ep->rcq, 1, IBV_WC_SUCCESS);
    }
    vu_barrier(side->sock);
}

static void connect_waiting(struct side *side, struct vu_ep *ep, bool sends)
{
    static uint8_t memory[BYTES];
    const struct vu_ep_attr attr = {.channel = true};
    struct vu_conn conn = vu_conn_default;
    conn.timeout = side->scenario->timeout;
    conn.retry_cnt = side->scenario->retries;
    struct ibv_mr *mr = vu_reg(&side->dev, memory, sizeof(memory), VU_ACCESS_ALL);
    vu_ep_create(&side->dev, &attr, ep);
    vu_connect(ep, side->sock, &conn);
    if (strcmp(side->scenario->name, "kill_unheard") != 0)
        exchange(side, ep, mr, sends);
    else if (!sends)
        VU_EQ(vu_post_recv(ep->qp, 1, mr->addr, 64, mr->lkey), 0);
}

void there_waits(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    side_tell(side->control);
    pause();
}

/* Asleep, as a server is. */
void here_waits(struct side *side)
{
    struct vu_ep ep;
    struct ibv_wc wc;
    connect_waiting(side, &ep, false);
    side_await_line(NULL);
    VU_EQ(ibv_req_notify_cq(ep.rcq, 0), 0);
    side_tell(side->control);
    VU_TRUE(vu_cq_event(ep.channel, 30000));
    VU_EQ(ibv_poll_cq(ep.rcq, 1, &wc), 1);
    side_report_death(side);
    VU_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_ERR);
}

/* It was told by the program itself, so a death means nothing. */
void there_leaves(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    vu_ep_destroy(&ep);
    side_tell(side->control);
    pause();
}

void here_is_left(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, false);
    side_tell(side->control);
    side_ended_ms(side);
    vu_expect_none(ep.rcq, SPARED_MS);
    VU_TRUE(vu_ep_state(&ep) != IBV_QPS_ERR);
}

/* An end like any other: by itself, without a word. */
void there_exits(struct side *side)
{
    struct vu_ep ep;
    char word;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    side_tell(side->control);
    vu_get(side->control, &word, 1);
    exit(0);
}

/* Called by both, parent and child. */
static void child_lives_on(struct side *side, long child)
{
    VU_TRUE(child >= 0);
    if (child == 0) {
        vu_sleep_ms(CHILD_MS);
        _exit(0);
    }
    side_tell(side->control);
    pause();
}

/* A child of it lives on. */
void there_forks(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    child_lives_on(side, fork());
}

/* A child by the bare system call keeps all its sockets open, so that nobody sees one close. The
 * same as a process whose memory takes the kernel long to take down. */
void there_clones(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    child_lives_on(side, syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0));
}
