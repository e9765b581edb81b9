/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connections of this process, and which of them the MADs for a process take.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_MADS_LOCAL_TABLE_H
#define SW_RDMACM_MADS_LOCAL_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "rdmacm/mads/local_connection.h"

/* All connections, linked by `next`, the newest first. */
struct sw_local_connection *sw_local_connections(void);
/* Takes those that have ended out of the table: a list. */
struct sw_local_connection *sw_local_take_dead(void);

/* One more, of a connected socket, which it takes. */
struct sw_local_connection *sw_local_add(int fd);
/* One more, to the socket of that name. -ECONNREFUSED: there is none; -EAGAIN: it does not accept
 * as fast as others connect. */
int sw_local_connect(const char *name, struct sw_local_connection **out);
/* The same, and it says whose it is. */
int sw_local_connect_and_greet(const char *name, struct sw_local_connection **out);
/* Says whose it is. */
void sw_local_greet(struct sw_local_connection *connection);

/* The connection that MADs for the process take, dead or not, whether proven or not; NULL: none. */
struct sw_local_connection *sw_local_peer(uint32_t slot);
bool sw_local_has_peer(uint32_t slot); /* one that has not ended */
void sw_local_make_peer(struct sw_local_connection *connection);
/* It has ended: it is not the one of its process any more. */
void sw_local_unmake_peer(struct sw_local_connection *connection);
/* The one that MADs for a process should take now; NULL: none yet. */
struct sw_local_connection *sw_local_find(uint32_t slot);
int sw_local_connect_to_slot(uint32_t slot);
/* Whether the process that a connection was with lives. Then there is one to it again. */
bool sw_local_lives(const struct sw_local_connection *old);

/* It has come from outside and has proven nothing yet. There is a bound for such connections. */
void sw_local_count_unproven(struct sw_local_connection *connection);
/* It has proven itself, or is about to be freed. */
void sw_local_uncount_unproven(struct sw_local_connection *connection);

void sw_local_table_fork_child(void);

#endif
