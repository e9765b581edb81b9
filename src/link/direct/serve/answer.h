/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing answers to the peer: the response ring. Inside an access section, but for
 * sw_answer_tell(). */
#ifndef SW_LINK_DIRECT_SERVE_ANSWER_H
#define SW_LINK_DIRECT_SERVE_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "link/direct/process/block.h"

struct sw_direct_qp;
struct sw_qp;

/* The record to fill, with `len_bytes` of the response area behind it (bounce_at); NULL while there
 * is no room. */
struct sw_record *sw_answer_reserve(struct sw_direct_qp *d, uint32_t len_bytes);
void sw_answer_publish(struct sw_direct_qp *d, struct sw_record *record);

/* Tells the peer how many requests were done (d->serve.acks_due), all in one word. Before any other
 * answer. */
void sw_answer_acks(struct sw_direct_qp *d);
/* Whether there is room for one more answer. */
bool sw_answer_has_room(struct sw_direct_qp *d);

/* Wakes a peer that sleeps until its requests are answered, if any were since the last call.
 * Outside the section. */
void sw_answer_wake(struct sw_direct_qp *d);

/* Answers what this run has done, and gives the peer its room back. While it cannot be reached (we
 * are not attached to it yet), or has no room for the answer, the QP keeps asking to be driven: the
 * peer may be waiting for just this, and send nothing more. So it does while a flush goes on. */
void sw_answer_tell(struct sw_qp *qp, struct sw_direct_qp *d);

#endif
