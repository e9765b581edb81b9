/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/client.h"

#include "common/time/clock.h"

enum { TURN = 64 /* completions */ };

static void client_woken(struct mover_watch *watch)
{
    mover_client_ready(watch->context);
}

bool mover_client_open(struct mover_client *client, struct mover_loop *loop, struct rdma_cm_id *id,
                       struct ibv_pd *pd, uint32_t count, uint32_t bytes)
{
    assert(client->answer && client->ended);
    client->loop = loop;
    client->id = id;
    client->watch = (struct mover_watch){.fd = -1, .ready = client_woken, .context = client};
    if (!mover_queue_open(&client->queue, id->verbs, 2 * count + 1, loop->epoll_fd, &client->watch))
        return false;
    client->watch.fd = client->queue.channel->fd;
    bool is_fine = mover_messages_open(&client->messages, &client->queue, id, pd, count, bytes);
    for (uint32_t i = 0; is_fine && i < count; i++)
        is_fine = mover_message_receive(&client->messages, i);
    return is_fine;
}

static bool client_answer(struct mover_client *client, const struct ibv_wc *wc)
{
    uint32_t bytes = wc->byte_len;
    if (!client->answer(client, mover_message_at(&client->messages, wc->wr_id), &bytes))
        return false;
    client->answers++;
    client->answered_ns = mover_now_ns();
    return mover_message_send(&client->messages, wc->wr_id, bytes);
}

/* False: the connection is over. */
static bool client_take(struct mover_client *client, const struct ibv_wc *wc)
{
    client->status = wc->status;
    if (wc->status)
        return false;
    if (wc->opcode == IBV_WC_RECV)
        return client->is_over || client_answer(client, wc);
    if (wc->opcode == IBV_WC_RDMA_WRITE) {
        client->is_probed = false;
        return true;
    }
    if (wc->opcode != IBV_WC_SEND) /* a WRITE with immediate data is no message */
        return false;
    client->answers--;
    client->answered_ns = client->answers ? mover_now_ns() : 0;
    return !client->is_over && mover_message_receive(&client->messages, wc->wr_id);
}

/* A turn: a client that always has something to say leaves time to others. */
void mover_client_ready(struct mover_client *client)
{
    struct ibv_wc wc;
    bool is_fine = mover_queue_rearm(&client->queue);
    int taken = 0;
    for (; is_fine && taken < TURN && mover_queue_poll(&client->queue, 1, &wc) > 0; taken++)
        is_fine = client_take(client, &wc);
    if (!is_fine)
        client->ended(client);
    else if (taken == TURN)
        mover_loop_call_at(client->loop, &client->watch, mover_now_ns());
}

/* No key is looked at for no bytes. */
void mover_client_probe(struct mover_client *client)
{
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE};
    if (!client->is_probed && !client->is_over)
        client->is_probed = !ibv_post_send(client->id->qp, &wr, &bad);
}

/* A software device says so in place of what a drained queue says: on an adapter, nothing of a
 * queue pair in the error state is under way. */
bool mover_client_is_quiet(struct mover_client *client)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr init;
    struct ibv_qp *qp = client->id ? client->id->qp : NULL;
    if (!qp)
        return true;
    ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) || attr.qp_state != IBV_QPS_ERR ||
           !attr.sq_draining;
}

void mover_client_close(struct mover_client *client)
{
    if (client->id->qp)
        rdma_destroy_qp(client->id);
    if (client->queue.channel)
        mover_loop_unwatch(client->loop, &client->watch);
    mover_queue_close(&client->queue);
    mover_messages_close(&client->messages);
    client->id->context = NULL;
    client->id = NULL;
}

void mover_client_end(struct mover_client *client)
{
    struct rdma_cm_id *id = client->id;
    rdma_disconnect(id);
    mover_client_close(client);
    rdma_destroy_id(id);
}
