/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events: a queue for each context, behind its async_fd. */
#ifndef SW_VERBS_ASYNC_H
#define SW_VERBS_ASYNC_H

#include "verbs/object.h"

/* 0 or a negative errno. */
int sw_async_init(struct sw_verbs_context *ctx);
void sw_async_fini(struct sw_verbs_context *ctx);

/* The device's callback (sw_async_fn): `owner` is the struct sw_verbs_context, `element` the verbs
 * object. */
void sw_async_push(void *owner, enum ibv_event_type type, void *element);

/* For an element about to be freed, from which no new event can come: drops its queued events, then
 * waits until the program has acknowledged those it fetched (IBTA leaves this to the
 * implementation; programs rely on libibverbs' promise). */
void sw_async_forget_cq(struct sw_verbs_cq *cq);
void sw_async_forget_qp(struct sw_verbs_qp *qp);
void sw_async_forget_srq(struct sw_verbs_srq *srq);

#endif
