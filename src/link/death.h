/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What becomes of a reliable queue pair whose peer's process has died, on any link, once what that
 * one sent last has been delivered. The QP is locked.
 */
#ifndef SW_LINK_DEATH_H
#define SW_LINK_DEATH_H

#include <stdbool.h>

#include "device/queue/qp_impl.h"

/* The peer had taken its queue pair down before (`has_left`), and nobody waits for it: then this
 * one stays as it is, since a wire would not tell either. */
static inline bool sw_death_spares(const struct sw_qp *qp, bool has_left)
{
    return has_left && qp->sq.head == qp->sq.tail;
}

/* The oldest request ends as one that nobody answers, and all else is flushed. */
static inline void sw_death_end(struct sw_qp *qp, enum ibv_wc_status unreachable)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->sq.head != qp->sq.tail)
        sw_sq_retire(qp, unreachable);
    sw_qp_fail(qp, -1);
}

#endif
