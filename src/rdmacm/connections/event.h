/* SPDX-License-Identifier: BSD-2-Clause */
/* Events as programs fetch them. Everything with sw_rdmacm_lock held. */
#ifndef SW_RDMACM_CONNECTIONS_EVENT_H
#define SW_RDMACM_CONNECTIONS_EVENT_H

#include "rdmacm/connections/id.h"

struct ib_uverbs_ah_attr;

/* An event for an ID with its uid and number; NULL without memory. `status` as the kernel has it:
 * 0, a negative errno, or the reason of a REJ or SIDR_REP. */
struct sw_ucm_event *sw_ucm_event_new(struct sw_ucm_id *id, enum sw_ucm_event_type type,
                                      int status);
/* Sends it, or drops it: an ID whose program has not told its uid yet gets none, as in the kernel.
 * NULL does nothing. */
void sw_ucm_event_send(struct sw_ucm_event *event);
/* Both, for one without parameters. */
void sw_ucm_event_tell(struct sw_ucm_id *id, enum sw_ucm_event_type type, int status);

/* The address of the other side, for a queue pair or an address handle. */
void sw_ucm_event_address(const struct sw_ucm_id *id, const uint8_t dgid[16],
                          struct ib_uverbs_ah_attr *out);

#endif
