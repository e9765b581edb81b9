/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IDs that listen: for packets on RoCE's devices, at a TCP port on those of iWARP. One at any
 * address does so on all devices, also those that come later.
 *
 * Everything with sw_rdmacm_lock held.
 */
#ifndef SW_RDMACM_CONNECTIONS_LISTENER_H
#define SW_RDMACM_CONNECTIONS_LISTENER_H

struct sw_ucm_id;

/* A bound ID begins to listen; if it cannot, it listens nowhere. 0 or a negative errno. */
int sw_ucm_listener_begin(struct sw_ucm_id *id, int backlog);

/* Devices have come or gone. For sw_ucm_id_each(); nothing happens to IDs that do not listen. */
void sw_ucm_listener_follow(struct sw_ucm_id *id, void *unused);

#endif
