/* SPDX-License-Identifier: BSD-2-Clause */
/* A SEND that goes into the peer's receive in one step. Inside an access section. */
#ifndef SW_LINK_DIRECT_SEND_PLACING_H
#define SW_LINK_DIRECT_SEND_PLACING_H

#include <stdbool.h>
#include <stdint.h>

#include "link/direct/bind/step.h"
#include "link/direct/send/peer_receive.h"

struct sw_gather;
struct sw_record_head;

/* Whether nearly all of it is mapped: what is not goes along with the record. */
bool sw_placing_suits(const struct sw_direct_qp *d, const struct sw_placing *placing);
/* BLOCKED: the ring or the area has no room. */
enum sw_step sw_placing_send(struct sw_direct_qp *d, const struct sw_gather *gather,
                             const struct sw_placing *placing, const struct sw_record_head *head);

#endif
