/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels. The event queue is the list of CQs with undelivered events, each with their
 * number, so that queueing an event never allocates and never blocks: it happens in the poster's or
 * the peer's hot path.
 */
#ifndef SW_VERBS_CHANNEL_H
#define SW_VERBS_CHANNEL_H

#include "verbs/object.h"

/* Counts a CQ in or out, so that a channel in use cannot be destroyed. */
void sw_channel_attach(struct ibv_comp_channel *channel);
void sw_channel_detach(struct ibv_comp_channel *channel);

/* The device's callback (sw_cq_notify_fn): `owner` is the struct sw_verbs_cq. */
void sw_channel_notify(void *owner);

/* For a CQ about to be freed, from which no new event can come: drops its queued events, then waits
 * until the program has acknowledged those it fetched. */
void sw_channel_forget(struct sw_verbs_cq *cq);

#endif
