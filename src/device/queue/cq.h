/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues. */
#ifndef SW_DEVICE_QUEUE_CQ_H
#define SW_DEVICE_QUEUE_CQ_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_context;
struct sw_cq;
struct sw_pd;

/* Called (from a poster, a poller or the engine; device locks may be held: must not call back into
 * device/, must not block) when an armed CQ gets a completion. */
typedef void (*sw_cq_notify_fn)(void *owner);

/* cqe: at least this many entries, 1..SW_MAX_CQE else -EINVAL. notify may be NULL (no channel). */
int sw_cq_create(struct sw_context *ctx, int cqe, sw_cq_notify_fn notify, void *owner,
                 struct sw_cq **out);
/* The same in memory of a parent domain, which is busy while the CQ lives. */
int sw_cq_create_in(struct sw_context *ctx, struct sw_pd *pd, int cqe, sw_cq_notify_fn notify,
                    void *owner, struct sw_cq **out);
int sw_cq_destroy(struct sw_cq *cq); /* -EBUSY while QPs or SRQs use it */
int sw_cq_entries(const struct sw_cq *cq);
int sw_cq_resize(struct sw_cq *cq, int cqe); /* keeps entries; -EINVAL if fewer than are queued */
/* Returns the number of work completions stored (0..max), or -1 after an overflow. Drives the QPs
 * of the CQ. */
int sw_cq_poll(struct sw_cq *cq, int max, struct ibv_wc *wc);
/* The same, and when each of them entered the queue (sw_clock_ns()); zero for a CQ that does not
 * keep times. */
int sw_cq_poll_timed(struct sw_cq *cq, int max, struct ibv_wc *wc, uint64_t *times_ns);
/* Before the first completion: have it keep times. */
int sw_cq_keep_times(struct sw_cq *cq);
/* Before the first completion: what does not fit is lost, and nothing else happens. */
void sw_cq_ignore_overrun(struct sw_cq *cq);
/* An armed CQ's event waits for `count` completions, or for `period_us` after the first of them. 0
 * of either: no waiting. */
void sw_cq_moderate(struct sw_cq *cq, uint16_t count, uint16_t period_us);
/* Whether it tells of a message that came. Its sender was told so, too: such completions outlive
 * their queue pair, where others go with it (docs/verbs.md). */
static inline bool sw_cq_has_received(const struct ibv_wc *wc)
{
    return wc->status == IBV_WC_SUCCESS && (wc->opcode & IBV_WC_RECV);
}
int sw_cq_req_notify(struct sw_cq *cq, bool solicited_only);

#endif
