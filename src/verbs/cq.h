/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of a completion queue share: cq.c (life, ibv_poll_cq) and cq_ex.c (ibv_start_poll
 * and the read functions). */
#ifndef SW_VERBS_CQ_H
#define SW_VERBS_CQ_H

#include "verbs/object.h"

/* Makes it an extended CQ: installs start_poll, next_poll, end_poll and every read function. */
void sw_cq_ex_init(struct sw_verbs_cq *cq);
/* Takes up to `max` completions that ibv_start_poll left in the cache; returns how many. */
int sw_cq_ex_drain(struct sw_verbs_cq *cq, int max, struct ibv_wc *wc);
/* Forgets the cached completions of a QP that was destroyed, but those of messages that came. */
void sw_cq_ex_purge(struct sw_verbs_cq *cq, uint32_t qp_num);

#endif
