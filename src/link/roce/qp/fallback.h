/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The carrier of a connection whose packets find no answer (link/paired/trial.c). It is asked to
 * call the peer, and takes the queue pair over if the rule of transport/fallback.h allows it. All
 * is called with the QP locked.
 */
#ifndef SW_LINK_ROCE_QP_FALLBACK_H
#define SW_LINK_ROCE_QP_FALLBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/fallback.h"

struct sw_qp;
struct sw_roce_qp;

struct sw_roce_fallback_ops {
    /* Whether connections to the peer's host were found to need one lately. */
    bool (*knows)(const struct sw_qp *qp);
    void (*call)(struct sw_qp *qp);
    /* The connection ends: no call of it goes on. */
    void (*hang_up)(struct sw_qp *qp);
};
/* Before a queue pair is connected; NULL: there is none. */
void sw_roce_set_fallback(const struct sw_roce_fallback_ops *ops);

/* ---- for the connection ---- */

/* The send side's attributes are known. */
void sw_roce_begin_sending(struct sw_roce_qp *r);
/* Its timer has run out. */
void sw_roce_miss_answer(struct sw_roce_qp *r, uint64_t now_ns);
void sw_roce_stop_calling(struct sw_roce_qp *r);

/* ---- for the carrier that takes it over ---- */

/* NULL: the QP is none of this link's, or not one that can be taken over. */
struct sw_fallback *sw_roce_fallback(const struct sw_qp *qp);
/* MOVE is the step: nothing is left of the connection, and link_state is NULL. Requests that were
 * posted and are not complete are to be sent anew. */
void sw_roce_let_go(struct sw_qp *qp);

#endif
