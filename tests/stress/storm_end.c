/* SPDX-License-Identifier: BSD-2-Clause */
#include "stress/storm_end.h"

#include <errno.h>
#include <string.h>

struct board *board;
struct process own;

bool storm_is_killed(int process)
{
    return atomic_load(&board->killed_ms[process]) != 0;
}

struct end *end_take(struct rdma_cm_id *id, bool is_caller)
{
    for (uint32_t i = 0; i < ENDS; i++) {
        struct end *end = &own.ends[i];
        if (end->id)
            continue;
        *end = (struct end){.id = id,
                            .is_caller = is_caller,
                            .life = end->life + 1,
                            .began_ms = vu_now_ms(),
                            .sent = own.memory + (size_t)i * 2 * MESSAGE_BYTES,
                            .received = own.memory + ((size_t)i * 2 + 1) * MESSAGE_BYTES};
        id->context = end;
        if (is_caller)
            own.calls++;
        else
            own.answers++;
        return end;
    }
    return NULL;
}

void end_let_go(struct end *end)
{
    if (end->has_qp)
        rdma_destroy_qp(end->id);
    VU_EQ(rdma_destroy_id(end->id), 0);
    end->id = NULL;
    if (end->is_caller)
        own.calls--;
    else
        own.answers--;
}

void end_cut(struct end *end, const char *why, int status)
{
    VU_CHECK(storm_is_killed(end->peer), "%s %u with process %d, which lives: %s, status %d",
             end->is_caller ? "call" : "answer to", end->hello.serial, end->peer, why, status);
    if (end->is_caller)
        atomic_fetch_add(&board->cut, 1);
    end_let_go(end);
}

enum { CALL, ANSWER };

static uint32_t compose(const struct end *end, uint32_t kind, uint8_t *out)
{
    struct vu_random random = {board->seed ^ ((uint64_t)end->hello.caller << 40 |
                                              (uint64_t)end->hello.serial << 8 | kind)};
    uint32_t len_bytes = 1 + vu_random_below(&random, MESSAGE_BYTES);
    vu_random_fill(&random, out, len_bytes);
    return len_bytes;
}

static uint64_t number_of(const struct end *end, uint32_t is_send)
{
    return (uint64_t)end->life << 32 | (uint64_t)(end - own.ends) << 1 | is_send;
}

bool end_create_qp(struct end *end)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = own.cq,
        .recv_cq = own.cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1}};
    VU_TRUE(end->id->verbs == own.context);
    if (rdma_create_qp(end->id, own.pd, &attr)) {
        end_cut(end, "rdma_create_qp", errno);
        return false;
    }
    end->has_qp = true;
    VU_EQ(vu_post_recv(end->id->qp, number_of(end, 0), end->received, MESSAGE_BYTES, own.mr->lkey),
          0);
    return true;
}

static void say(struct end *end)
{
    struct vu_send send = {.opcode = IBV_WR_SEND,
                           .wr_id = number_of(end, 1),
                           .flags = IBV_SEND_SIGNALED,
                           .addr = end->sent,
                           .len_bytes = compose(end, end->is_caller ? CALL : ANSWER, end->sent),
                           .lkey = own.mr->lkey};
    VU_EQ(vu_post_send(end->id->qp, &send), 0);
}

static void heard(struct end *end, uint32_t len_bytes)
{
    static uint8_t wanted[MESSAGE_BYTES];
    VU_EQ(len_bytes, compose(end, end->is_caller ? ANSWER : CALL, wanted));
    VU_TRUE(memcmp(end->received, wanted, len_bytes) == 0);
    end->has_received = true;
    if (!end->is_caller)
        say(end);
}

/* Each end is used up when its messages have gone both ways: one of them then takes leave. */
static void leave_if_done(struct end *end)
{
    if (!end->has_sent || !end->has_received || !end->is_established || end->is_leaving)
        return;
    if (end->is_caller)
        atomic_fetch_add(&board->used, 1);
    bool caller_leaves = end->hello.serial % 4 != 1;
    if (end->is_caller != caller_leaves || end->ended_ms)
        return;
    end->is_leaving = true;
    if (end->is_caller && end->hello.serial % 8 == 2)
        end_let_go(end); /* without a word */
    else if (rdma_disconnect(end->id))
        end_cut(end, "disconnect", errno);
}

void end_drain_cq(void)
{
    struct ibv_wc wc;
    int got;
    while ((got = ibv_poll_cq(own.cq, 1, &wc)) > 0) {
        struct end *end = &own.ends[(uint32_t)wc.wr_id >> 1];
        if (!end->id || end->life != wc.wr_id >> 32)
            continue; /* it was given up */
        if (wc.status != IBV_WC_SUCCESS)
            continue; /* the end of the connection follows, or was ours */
        if (wc.wr_id & 1)
            end->has_sent = true;
        else
            heard(end, wc.byte_len);
        leave_if_done(end);
    }
    VU_EQ(got, 0);
}

void end_established(struct end *end)
{
    end->is_established = true;
    if (end->is_caller)
        say(end);
    else
        leave_if_done(end); /* messages may be faster */
}
