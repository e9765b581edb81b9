/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/queue.h"

#include <assert.h>
#include <errno.h>

#include "common/rdma/watch.h"

bool mover_queue_open(struct mover_queue *queue, struct ibv_context *verbs, uint32_t entries,
                      int epoll_fd, void *epoll_data)
{
    *queue = (struct mover_queue){.channel = ibv_create_comp_channel(verbs)};
    if (!queue->channel || !mover_no_wait(queue->channel->fd))
        return false;
    queue->cq = ibv_create_cq(verbs, (int)entries, queue, queue->channel, 0);
    /* The epoll comes last: its owner may be another thread, which finds all of the queue. */
    return queue->cq && mover_queue_rearm(queue) &&
           mover_watch(epoll_fd, queue->channel->fd, epoll_data);
}

bool mover_queue_make_qp(struct mover_queue *queue, struct rdma_cm_id *id, struct ibv_pd *pd,
                         const struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr whole = *attr;
    whole.send_cq = whole.recv_cq = queue->cq;
    whole.qp_type = IBV_QPT_RC;
    return !rdma_create_qp(id, pd, &whole);
}

bool mover_queue_take(struct mover_queue *queue)
{
    struct ibv_cq *cq;
    void *context;
    if (!queue->channel || ibv_get_cq_event(queue->channel, &cq, &context))
        return false;
    queue->events++;
    return true;
}

void mover_queue_drain(struct mover_queue *queue)
{
    while (mover_queue_take(queue))
        ;
}

bool mover_queue_rearm(struct mover_queue *queue)
{
    assert(queue->cq);
    mover_queue_drain(queue);
    const int code = ibv_req_notify_cq(queue->cq, 0);
    if (code)
        errno = code;
    return !code;
}

bool mover_queue_arm(struct mover_queue *queue)
{
    if (!queue->cq)
        return true;
    if (queue->has_stash || !mover_queue_rearm(queue))
        return false;
    queue->has_stash = ibv_poll_cq(queue->cq, 1, &queue->stash) > 0;
    return !queue->has_stash;
}

int mover_queue_poll_stash(struct mover_queue *queue, int count, struct ibv_wc *wcs)
{
    assert(queue->has_stash && count > 0);
    queue->has_stash = false;
    wcs[0] = queue->stash;
    const int more = count > 1 ? ibv_poll_cq(queue->cq, count - 1, wcs + 1) : 0;
    return more > 0 ? 1 + more : 1;
}

void mover_queue_close(struct mover_queue *queue)
{
    if (queue->cq) {
        mover_queue_drain(queue); /* those that nobody acknowledges keep the device waiting */
        if (queue->events)
            ibv_ack_cq_events(queue->cq, queue->events);
        ibv_destroy_cq(queue->cq);
    }
    if (queue->channel)
        ibv_destroy_comp_channel(queue->channel);
    *queue = (struct mover_queue){.cq = NULL};
}
