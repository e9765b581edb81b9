/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands of rdma/rdma_user_cm.h. Each gets its own copy of the command (zero behind what was
 * given) and how much room there is for the response, holds sw_rdmacm_lock, and returns 0 or a
 * negative errno. The sizes that are accepted are the kernel's.
 */
#ifndef SW_RDMACM_COMMANDS_COMMAND_H
#define SW_RDMACM_COMMANDS_COMMAND_H

#include <rdma/rdma_user_cm.h>

#include "rdmacm/commands/abi.h"
#include "rdmacm/connections/id.h"

union sw_ucm_command {
    struct rdma_ucm_create_id create_id;
    struct rdma_ucm_destroy_id destroy_id;
    struct rdma_ucm_bind_ip bind_ip;
    struct rdma_ucm_bind bind;
    struct rdma_ucm_resolve_ip resolve_ip;
    struct rdma_ucm_resolve_addr resolve_addr;
    struct rdma_ucm_resolve_route resolve_route;
    struct rdma_ucm_query query;
    struct rdma_ucm_connect connect;
    struct rdma_ucm_listen listen;
    struct rdma_ucm_accept accept;
    struct rdma_ucm_reject reject;
    struct rdma_ucm_disconnect disconnect;
    struct rdma_ucm_init_qp_attr init_qp_attr;
    struct rdma_ucm_get_event get_event;
    struct rdma_ucm_set_option set_option;
    struct rdma_ucm_notify notify;
    struct rdma_ucm_join_ip_mcast join_ip_mcast;
    struct rdma_ucm_join_mcast join_mcast;
    struct rdma_ucm_migrate_id migrate_id;
    struct sw_ucm_resolve_ib_service resolve_ib_service;
    struct sw_ucm_write_cm_event write_cm_event;
};

struct sw_ucm_request {
    struct sw_ucm_channel *channel;
    union sw_ucm_command in;
    size_t in_len, out_len; /* bytes, as the header says */
};

typedef int (*sw_ucm_handler)(struct sw_ucm_request *request);

/* commands/id.c */
int sw_ucm_create_id(struct sw_ucm_request *request);
int sw_ucm_destroy_id(struct sw_ucm_request *request);
int sw_ucm_migrate_id(struct sw_ucm_request *request);
int sw_ucm_set_option(struct sw_ucm_request *request);
int sw_ucm_write_cm_event(struct sw_ucm_request *request);
/* commands/resolve.c */
int sw_ucm_bind_ip(struct sw_ucm_request *request);
int sw_ucm_bind(struct sw_ucm_request *request);
int sw_ucm_resolve_ip(struct sw_ucm_request *request);
int sw_ucm_resolve_addr(struct sw_ucm_request *request);
int sw_ucm_resolve_route(struct sw_ucm_request *request);
int sw_ucm_resolve_ib_service(struct sw_ucm_request *request);
/* commands/query.c */
int sw_ucm_query_route(struct sw_ucm_request *request);
int sw_ucm_query(struct sw_ucm_request *request);
int sw_ucm_init_qp_attr(struct sw_ucm_request *request);
/* commands/connect.c */
int sw_ucm_connect(struct sw_ucm_request *request);
int sw_ucm_listen(struct sw_ucm_request *request);
int sw_ucm_accept(struct sw_ucm_request *request);
int sw_ucm_reject(struct sw_ucm_request *request);
int sw_ucm_disconnect(struct sw_ucm_request *request);
int sw_ucm_notify(struct sw_ucm_request *request);
/* commands/group.c */
int sw_ucm_join_ip_mcast(struct sw_ucm_request *request);
int sw_ucm_join_mcast(struct sw_ucm_request *request);
int sw_ucm_leave_mcast(struct sw_ucm_request *request);

/* Binds an ID to an address: what rdma_bind_addr() does. */
int sw_ucm_bind_address(struct sw_ucm_id *id, const union sw_address *address);

#endif
