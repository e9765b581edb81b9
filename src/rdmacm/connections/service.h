/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's one machine of connection management (cm/cm.h) between its IDs and the agent: who
 * listens to what, and which event of the machine becomes which event of an ID.
 *
 * Everything with sw_rdmacm_lock held.
 */
#ifndef SW_RDMACM_CONNECTIONS_SERVICE_H
#define SW_RDMACM_CONNECTIONS_SERVICE_H

#include "rdmacm/connections/id.h"

extern struct sw_cm sw_ucm_machine;

/* Starts the NIC, the agent and the machine, where they are not. 0 or a negative errno. */
int sw_ucm_service_start(void);

/* Whether this process has them. Without the lock. */
bool sw_ucm_service_is_started(void);

/* Requests for the ID's address and port come to it from here on. 0 or a negative errno. */
int sw_ucm_service_join(struct sw_ucm_id *id);
void sw_ucm_service_leave(struct sw_ucm_id *id); /* nothing happens if it does not listen */

/* Ends the ID's connection; then, or later, its memory is freed. */
void sw_ucm_service_forget(struct sw_ucm_id *id);

/* Tells the agent when the machine wants to be called: after calls to the machine. */
void sw_ucm_service_plan(void);

/* The Q_Key of an ID for datagrams: `qkey`, or if that is 0 the one of its port space. -EINVAL: it
 * has another already, or its port space has none. */
int sw_ucm_service_set_qkey(struct sw_ucm_id *id, uint32_t qkey);

/* The time of a local ACK timeout, as a REQ tells it (IBTA Vol1 12.7.34). */
uint8_t sw_ucm_service_ack_timeout(uint8_t ack_delay, uint8_t packet_life_time);

void sw_ucm_service_fork_child(void);

#define SW_UCM_ACK_DELAY 15 /* local_ca_ack_delay of our devices */

#endif
