/* SPDX-License-Identifier: BSD-2-Clause */
/* Faults on purpose, on packets (impair.c). Called only while faults are asked for: sw_faults_live,
 * which the inline functions test. */
#ifndef SW_LINK_ROCE_IMPAIR_H
#define SW_LINK_ROCE_IMPAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "link/faults/live.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/tx.h"
#include "wire/packet.h"

struct sw_qp;

/* In all of these a `qp` of NULL stands for QP 1 or a group. */

void sw_roce_impair_start(void);
void sw_roce_impair_fork_child(void);
/* Passes a packet that leaves, as the rules say: to the batch, once or twice, or to be held. */
void sw_roce_impair_sent(const struct sw_qp *qp, struct sw_batch *batch,
                         const struct sw_packet *packet, const struct sw_outgoing *out);
/* The same for one that came; rx_lock held. Returns whether its sender is known. */
bool sw_roce_impair_received(struct sw_qp *qp, const struct sw_arrival *arrival,
                             const struct sw_packet *packet);
/* Whether no rule is about packets that come: so many for the QP have passed then. */
bool sw_roce_impair_spares(const struct sw_qp *qp, uint32_t count);
/* Lets go of what was held until now; rx_lock held, no QP locked. */
void sw_roce_impair_release(uint64_t now_ns);
/* Has the engine woken for what is still held; rx_lock held. */
void sw_roce_impair_plan(void);
/* Whether the QP's receives are to be taken for absent. */
bool sw_roce_impair_withholds(const struct sw_qp *qp);

static inline void sw_roce_add(const struct sw_qp *qp, struct sw_batch *batch,
                               const struct sw_packet *packet, const struct sw_outgoing *out)
{
    if (__builtin_expect(sw_faults_live != NULL, 0))
        sw_roce_impair_sent(qp, batch, packet, out);
    else
        sw_batch_add(batch, out);
}

static inline bool sw_roce_withholds(const struct sw_qp *qp)
{
    return __builtin_expect(sw_faults_live != NULL, 0) && sw_roce_impair_withholds(qp);
}

#endif
