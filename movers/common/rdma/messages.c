/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/messages.h"

#include <stdlib.h>

bool mover_messages_open(struct mover_messages *messages, struct mover_queue *queue,
                         struct rdma_cm_id *id, struct ibv_pd *pd, uint32_t count, uint32_t bytes)
{
    const struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = count + 1,
                                                  .max_recv_wr = count,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1},
                                          .sq_sig_all = 1};
    assert(count && bytes && !id->qp);
    *messages =
        (struct mover_messages){.places = calloc(count, bytes), .count = count, .bytes = bytes};
    if (!messages->places || !mover_queue_make_qp(queue, id, pd, &attr))
        return false;
    messages->qp = id->qp;
    messages->mr = ibv_reg_mr(pd, messages->places, (size_t)count * bytes, IBV_ACCESS_LOCAL_WRITE);
    return messages->mr;
}

void mover_messages_close(struct mover_messages *messages)
{
    if (messages->mr)
        ibv_dereg_mr(messages->mr);
    free(messages->places);
    *messages = (struct mover_messages){0};
}
