/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What becomes of a reliable queue pair whose peer's process has died, on any link, once what that
 * one sent last has been delivered. The QP is locked.
 *
 * A process that had taken its queue pair down before it ended has no part in it: a wire would not
 * tell, so this one stays as it is. Its requests end when their own timers say so. A program that
 * ends without a last word often has a WRITE on its way to one that has left already, and is gone
 * itself before hardware's retries have run out.
 */
#ifndef SW_LINK_DEATH_H
#define SW_LINK_DEATH_H

#include <netinet/in.h>
#include <stdbool.h>

#include "base/clock.h"
#include "device/queue/qp_impl.h"

/* A program that uses rdma_cm learns of a death by its event first, then its requests end. It is so
 * on hardware, too: the dead process's kernel sends DREQ, and requests end after their retries. */
#define SW_DEATH_TOLD_FIRST_NS (500 * SW_NS_PER_MS)

/* The function that is called for a queue pair whose peer has died, where nothing else tells
 * rdma_cm. It only takes a note, and wakes the engine. Returns whether the program may be told of
 * it: then the queue pair ends a little later. */
void sw_death_on_loss(bool (*tell)(const struct sw_qp *qp), bool (*is_heard)(void));
bool sw_death_tell(const struct sw_qp *qp);
/* Whether the program uses rdma_cm, so that it may be told. */
bool sw_death_is_heard(void);

/* The same where a whole process has died, the one of this slot on the host of this address: for
 * all connections to it. In the engine. */
void sw_death_on_process(bool (*tell)(const struct in6_addr *address, uint32_t slot));
void sw_death_tell_process(const struct in6_addr *address, uint32_t slot);

/* The oldest request ends as one that nobody answers, and all else is flushed. */
static inline void sw_death_end(struct sw_qp *qp, enum ibv_wc_status unreachable)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->sq.head != qp->sq.tail)
        sw_sq_retire(qp, unreachable);
    sw_qp_fail(qp, -1);
}

#endif
