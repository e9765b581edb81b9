/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: keys of their own to parts of regions, bound and invalidated by requests of a
 * send queue, or by a peer's SEND with invalidate. A window is an entry of the same public table as
 * regions, so peers check and reach it like one. IBTA Vol1 10.6.7.2, 11.2.10.9 to .12.
 *
 * Type 1 may be used through any QP of its PD and bound again at any time. Type 2 (of its two
 * flavours 2B) belongs to the QP it was bound through, and must be invalidated before it is bound
 * again.
 */
#ifndef SW_DEVICE_MEMORY_MW_H
#define SW_DEVICE_MEMORY_MW_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/rules/target.h"

struct sw_mw;
struct sw_pd;
struct sw_qp;
struct sw_wqe;

/* -EINVAL: no such type; -ENOMEM: no table entry. */
int sw_mw_alloc(struct sw_pd *pd, enum ibv_mw_type type, struct sw_mw **out);
/* Bound or not. Waits for peers' accesses in flight, as deregistration does. */
void sw_mw_dealloc(struct sw_mw *mw);
/* Until a bind gives it another: valid for nobody. */
uint32_t sw_mw_key(const struct sw_mw *mw);

/* Executes a bind or a local invalidate, in its turn; the QP is locked, and not inside an access
 * section. */
enum ibv_wc_status sw_mw_execute(struct sw_qp *qp, const struct sw_wqe *wqe);
/* What the peer's SEND with invalidate asks for; the QP is locked. The one peer that could use the
 * key is the one that asks, in order, so there is nothing to wait for. */
enum sw_verdict sw_mw_invalidate_for_peer(struct sw_qp *qp, uint32_t key);
/* The QP is no more: nor are the windows that were bound through it. */
void sw_mw_forget_qp(const struct sw_qp *qp);

#endif
