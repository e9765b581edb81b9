/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The programs of iWARP: what it cannot have, and why. All else is drawn as for other links.
 *
 * - UC, UD and XRC queue pairs, immediate data, atomics: there are none.
 * - Rights of a queue pair: connection management gives them.
 * - Faults: the first ends the connection of both sides. A WRITE or SEND is complete when TCP has
 *   it, so which of those behind a fault succeed and which are flushed is a matter of time: each
 *   is reported, and none of them changes a window.
 * - One end that fails or is reset alone: the other one hears of it some time later.
 */
#include "draw_impl.h"

bool draw_is_stream(const struct draw *draw)
{
    return draw->model->link == LINK_STREAM;
}

void draw_stream_breaks(struct draw *draw, struct draw_conn_acts *acts)
{
    if (draw_is_stream(draw) && (acts->error[0] || acts->error[1]))
        acts->error[0] = acts->error[1] = true;
}

void draw_stream_op(struct model_op *op)
{
    if (op->opcode == IBV_WR_SEND_WITH_IMM)
        op->opcode = IBV_WR_SEND;
    else if (op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        op->opcode = IBV_WR_RDMA_WRITE;
    else if (model_need(op->opcode) == IBV_ACCESS_REMOTE_ATOMIC)
        op->opcode = IBV_WR_RDMA_READ;
}

/* READs before a fault have been answered when it comes, and all from there on are reported. */
void draw_stream_fault(struct draw *draw, struct model_op *op)
{
    if (draw_is_stream(draw) && !model_is_local(op->opcode))
        op->flags |= IBV_SEND_FENCE | IBV_SEND_SIGNALED;
}

/* Requests are done in order. So with the last one all are, and a queue pair that fails in the next
 * round flushes none of them. */
void draw_stream_last(struct model_end *from, struct draw_sends *list)
{
    const int last = list->count - (list->rc ? 2 : 1);
    struct model_op *op = last < 0 ? NULL : &list->ops[last];
    if (!op || from->state != IBV_QPS_RTS || from->sig_all || op->flags & IBV_SEND_SIGNALED)
        return;
    op->flags |= IBV_SEND_SIGNALED;
    model_signal(from, op);
}
