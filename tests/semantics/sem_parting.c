/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: programs that end without a last word between them. Requests that had arrived at a queue
 * pair when it was destroyed are done and acknowledged. Others end when the sender's own timers say
 * so, as on a wire, though the peer's process is known to have ended long before. */
#include <string.h>
#include <unistd.h>

#include "sem.h"

enum {
    OPCODE = 0xff,
    BEFORE_IT_LEAVES = 1 << 8, /* posted while the peer's queue pair is there, and it has come */
    BEFORE_IT_ENDS = 1 << 9,   /* while its process is, but no queue pair; else after both */
    SHORT_TIMERS = 1 << 10,
    RESETS = 1 << 11, /* the peer resets its queue pair, instead of destroying it */
};

/* On a busy machine the engine may take some time to see the end. */
#define QUIET_MS 400
#define MEETING_US 100000
#define END_MS 20000

static void await_end(int sock)
{
    char none;
    VU_EQ(vu_try_get(sock, &none, 1, END_MS), false);
}

static void parting_a(int sock, int param)
{
    const enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)(param & OPCODE);
    struct rig_attr attr = {.conn = vu_conn_default};
    struct rig rig;
    attr.conn.timeout = param & SHORT_TIMERS ? 10 : 19; /* 1 ms, or 2.1 s */
    attr.conn.retry_cnt = param & SHORT_TIMERS ? 1 : 7;
    rig_open(&rig, sock, &attr);
    const struct vu_send send =
        rig_send(&rig, opcode, 1, 0, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 4096);
    vu_barrier(sock);
    rig_post(&rig, &send); /* they have met, and memory is mapped by then */
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    usleep(MEETING_US);
    if (param & BEFORE_IT_LEAVES)
        rig_post(&rig, &send);
    vu_barrier(sock);
    if (!(param & BEFORE_IT_LEAVES))
        vu_barrier(sock);
    if (param & BEFORE_IT_ENDS)
        rig_post(&rig, &send);
    vu_put(sock, &param, sizeof(param));
    await_end(sock);
    if (!(param & (BEFORE_IT_LEAVES | BEFORE_IT_ENDS))) {
        vu_expect_none(rig.ep.scq, QUIET_MS);
        rig_post(&rig, &send);
    }
    if (param & BEFORE_IT_LEAVES) {
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    } else if (param & SHORT_TIMERS) {
        struct ibv_wc wc;
        VU_EQ(vu_poll(rig.ep.scq, &wc, 1, END_MS), 1);
        VU_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    } else {
        vu_expect_none(rig.ep.scq, QUIET_MS);
        VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    }
    rig_close(&rig);
}

static void parting_b(int sock, int param)
{
    struct rig rig;
    int go;
    rig_open(&rig, sock, NULL);
    for (int i = 0; i < (param & BEFORE_IT_LEAVES ? 2 : 1); i++)
        rig_recv(&rig, 1, 0, 4096);
    vu_barrier(sock);
    vu_barrier(sock);
    if (param & RESETS)
        vu_ep_to(&rig.ep, IBV_QPS_RESET);
    else
        VU_EQ(ibv_destroy_qp(rig.ep.qp), 0);
    if (!(param & BEFORE_IT_LEAVES))
        vu_barrier(sock);
    vu_get(sock, &go, sizeof(go));
    _exit(0);
}

#define ONE(name, param)                                                \
    {                                                                   \
        "parting__" name, parting_a, parting_b, SEM_PROCESSES | (param) \
    }

const struct sem_case sem_parting[] = {
    ONE("write_that_had_come", IBV_WR_RDMA_WRITE | BEFORE_IT_LEAVES),
    ONE("write_that_had_come_to_a_reset", IBV_WR_RDMA_WRITE | BEFORE_IT_LEAVES | RESETS),
    ONE("send_that_had_come", IBV_WR_SEND | BEFORE_IT_LEAVES),
    ONE("read_that_had_come", IBV_WR_RDMA_READ | BEFORE_IT_LEAVES),
    ONE("atomic_that_had_come", IBV_WR_ATOMIC_FETCH_AND_ADD | BEFORE_IT_LEAVES),
    ONE("write_to_who_ends", IBV_WR_RDMA_WRITE | BEFORE_IT_ENDS),
    ONE("send_to_who_ends", IBV_WR_SEND | BEFORE_IT_ENDS),
    ONE("read_of_who_ends", IBV_WR_RDMA_READ | BEFORE_IT_ENDS),
    ONE("atomic_at_who_ends", IBV_WR_ATOMIC_FETCH_AND_ADD | BEFORE_IT_ENDS),
    ONE("write_to_who_resets_and_ends", IBV_WR_RDMA_WRITE | BEFORE_IT_ENDS | RESETS),
    ONE("write_to_who_has_ended", IBV_WR_RDMA_WRITE),
    ONE("timers_end_a_write", IBV_WR_RDMA_WRITE | BEFORE_IT_ENDS | SHORT_TIMERS),
    ONE("timers_end_a_read", IBV_WR_RDMA_READ | SHORT_TIMERS),
    {0},
};
