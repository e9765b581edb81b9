/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections of iWARP devices: what the commands of commands/connect.c do for them. As in the
 * kernel, the side that connects moves the queue pair to RTS. 0 or a negative errno; everything
 * with sw_rdmacm_lock held.
 *
 *   iwarp.c   what commands ask for
 *   events.c  what comes of sockets, and what programs are told
 *   callers.c those that call listeners, until programs are told of them
 */
#ifndef SW_RDMACM_IWARP_IWARP_H
#define SW_RDMACM_IWARP_IWARP_H

#include "rdmacm/connections/id.h"
#include "rdmacm/iwarp/stream.h"

struct ib_uverbs_qp_attr;

/* Whether the ID is of an iWARP device. */
bool sw_ucm_is_iwarp(const struct sw_ucm_id *id);

int sw_ucm_iwarp_connect(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param);
/* As far as there are such devices and the ID is not of another one. */
int sw_ucm_iwarp_listen(struct sw_ucm_id *id, int backlog);
/* The same of a listener at any address, when devices have come or gone. */
int sw_ucm_iwarp_follow(struct sw_ucm_id *id);
/* accept(), and once the program's ID has its uid: ESTABLISHED, if nothing more is awaited. */
void sw_ucm_iwarp_accepted(struct sw_ucm_id *id, uint64_t uid);
int sw_ucm_iwarp_accept(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param);
int sw_ucm_iwarp_reject(struct sw_ucm_id *id, const void *private_data, uint8_t len);
int sw_ucm_iwarp_disconnect(struct sw_ucm_id *id);
int sw_ucm_iwarp_init_qp_attr(const struct sw_ucm_id *id, struct ib_uverbs_qp_attr *out);
/* The ID ends, or its device: whatever it has. */
void sw_ucm_iwarp_forget(struct sw_ucm_id *id);

/* Time: returns when next. */
uint64_t sw_ucm_iwarp_tick(uint64_t now_ns);
void sw_ucm_iwarp_start(void);
void sw_ucm_iwarp_fork_child(void);

/* stream_report.c: connections that begin, for link/connections.h. */
struct sw_connection;
uint32_t sw_ucm_stream_report(uint32_t from, struct sw_connection *out, uint32_t most,
                              uint32_t *next);

/* Between these files. */
/* Connects the socket, or again with an older revision of MPA. */
int sw_ucm_iwarp_call(struct sw_ucm_id *id, const struct sw_iwarp_start_config *config);
/* A socket of an ID that is about to be told, or was. */
void sw_ucm_iwarp_plan(const struct sw_ucm_stream *stream);
int sw_ucm_iwarp_give_qp(struct sw_ucm_stream *stream, const uint8_t *bytes, size_t len);

#endif
