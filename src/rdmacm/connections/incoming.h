/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machine hears from peers, turned into IDs and events. With sw_rdmacm_lock held. */
#ifndef SW_RDMACM_CONNECTIONS_INCOMING_H
#define SW_RDMACM_CONNECTIONS_INCOMING_H

#include "rdmacm/connections/id.h"

/* A REQ or SIDR_REQ for a service id that `listeners` (linked by service_next) listen to: the
 * connection's ID, or NULL and *reason, as sw_cm_ops.incoming() has it. */
struct sw_cm_id *sw_ucm_incoming(struct sw_ucm_id *listeners, const struct sw_cm_path *path,
                                 const struct sw_cm_message *message, uint16_t *reason);

/* An event of the machine for an ID. */
void sw_ucm_outcome(struct sw_ucm_id *id, const struct sw_cm_event *event);

#endif
