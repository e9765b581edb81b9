/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completions of queue pairs, and how they wake their owner, who sleeps on an epoll. One thread at
 * a time is in a queue. An owner that polls, and sleeps when there is nothing to do:
 *
 *     while (mover_queue_poll(&queue, 1, &wc) > 0)
 *         take_completion(&wc);
 *     if (mover_queue_arm(&queue))
 *         epoll_wait(epoll_fd, &event, 1, timeout_ms);
 *
 * An owner that is called when the epoll has an event, as a server with a loop is:
 *
 *     bool is_fine = mover_queue_rearm(&queue);
 *     while (is_fine && mover_queue_poll(&queue, 1, &wc) > 0)
 *         is_fine = take_completion(&wc);
 */
#ifndef SW_MOVERS_QUEUE_H
#define SW_MOVERS_QUEUE_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

/* All zero: not open. */
struct mover_queue {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    unsigned events; /* taken from the channel, and not yet acknowledged */
    bool has_stash;
    struct ibv_wc stash; /* what arming has found, for the next poll */
};

/* Room for so many completions of that device. The queue is armed: the first one wakes the owner
 * of the epoll, who finds `epoll_data`. False and errno: the device or the system has no room.
 * Close it also after a failure. */
bool mover_queue_open(struct mover_queue *queue, struct ibv_context *verbs, uint32_t entries,
                      int epoll_fd, void *epoll_data);
/* Makes the reliable queue pair `id->qp`, whose completions come here. `attr` says how large it is
 * ("cap"), whether all requests complete ("sq_sig_all"), and whose receives it has ("srq"). False
 * and errno: the device has no room for it. */
bool mover_queue_make_qp(struct mover_queue *queue, struct rdma_cm_id *id, struct ibv_pd *pd,
                         const struct ibv_qp_init_attr *attr);
/* One event; false: there is none. Each time that the queue is armed there is one at most. */
bool mover_queue_take(struct mover_queue *queue);
/* Takes what woke the owner. Each event is taken, or it wakes the owner again. */
void mover_queue_drain(struct mover_queue *queue);
/* The next completion will wake the owner. Poll then, until there is nothing left: one that came
 * before wakes nobody. False and errno: the device refuses. */
bool mover_queue_rearm(struct mover_queue *queue);
/* The same, and looks whether there is anything. True: the owner may sleep. False: there is
 * something to poll, or the device refuses. A queue that is not open keeps nobody awake. */
bool mover_queue_arm(struct mover_queue *queue);
/* After its queue pairs are destroyed. Completions that nobody has polled are lost. */
void mover_queue_close(struct mover_queue *queue);

/* The first is the one that arming has found. */
int mover_queue_poll_stash(struct mover_queue *queue, int count, struct ibv_wc *wcs);

/* As ibv_poll_cq(): how many completions were there, at most `count`; negative if the device
 * fails. 0 if the queue is not open. */
static inline int mover_queue_poll(struct mover_queue *queue, int count, struct ibv_wc *wcs)
{
    if (queue->has_stash)
        return mover_queue_poll_stash(queue, count, wcs);
    return queue->cq ? ibv_poll_cq(queue->cq, count, wcs) : 0;
}

/* Posts a receive of `bytes` bytes at `data`, registered as `lkey`. Its completion has `wr_id`.
 * False and errno: the queue pair has no room, or has ended. */
static inline bool mover_post_receive(struct ibv_qp *qp, uint64_t wr_id, void *data, uint32_t bytes,
                                      uint32_t lkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)data, .length = bytes, .lkey = lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
    return !ibv_post_recv(qp, &wr, &bad);
}

/* Posts a SEND in the same way. It completes if `flags` (enum ibv_send_flags) or the queue pair
 * ("sq_sig_all") say so. The bytes are the device's until then. */
static inline bool mover_post_send(struct ibv_qp *qp, uint64_t wr_id, const void *data,
                                   uint32_t bytes, uint32_t lkey, unsigned flags)
{
    struct ibv_sge sge = {.addr = (uintptr_t)data, .length = bytes, .lkey = lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = wr_id,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = flags};
    return !ibv_post_send(qp, &wr, &bad);
}

#endif
