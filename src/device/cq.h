/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues. */
#ifndef SW_DEVICE_CQ_H
#define SW_DEVICE_CQ_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_context;
struct sw_cq;

/* Called (from a poster, a poller or the engine; device locks may be held: must not call back into
 * device/, must not block) when an armed CQ gets a completion. */
typedef void (*sw_cq_notify_fn)(void *owner);

/* cqe: at least this many entries, 1..SW_MAX_CQE else -EINVAL. notify may be NULL (no channel). */
int sw_cq_create(struct sw_context *ctx, int cqe, sw_cq_notify_fn notify, void *owner,
                 struct sw_cq **out);
int sw_cq_destroy(struct sw_cq *cq); /* -EBUSY while QPs or SRQs use it */
int sw_cq_entries(const struct sw_cq *cq);
int sw_cq_resize(struct sw_cq *cq, int cqe); /* keeps entries; -EINVAL if fewer than are queued */
/* Returns the number of work completions stored (0..max), or -1 after an overflow. Drives the QPs
 * of the CQ. */
int sw_cq_poll(struct sw_cq *cq, int max, struct ibv_wc *wc);
int sw_cq_req_notify(struct sw_cq *cq, bool solicited_only);

#endif
