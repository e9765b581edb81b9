/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What librdmacm calls an rdma_cm_id, as the kernel has it: a number on a channel, a state, two
 * addresses, a device, a route, and a connection of the machine in cm/. States and the errno of
 * each misuse are those of drivers/infiniband/core/{ucma,cma}.c.
 *
 * Everything with sw_rdmacm_lock held.
 */
#ifndef SW_RDMACM_CONNECTIONS_ID_H
#define SW_RDMACM_CONNECTIONS_ID_H

#include <rdma/rdma_user_cm.h>
#include <stdbool.h>
#include <stdint.h>

#include "cm/cm.h"
#include "rdmacm/address.h"
#include "rdmacm/connections/channel.h"

struct sw_cm_port;
struct sw_netdev;
struct sw_ucm_service;
struct sw_ucm_stream;

enum sw_ucm_state {
    SW_UCM_IDLE,
    SW_UCM_ADDR_BOUND,
    SW_UCM_ADDR_QUERY, /* a neighbour is being asked for: resolving.h */
    SW_UCM_ADDR_RESOLVED,
    SW_UCM_ROUTE_RESOLVED,
    SW_UCM_CONNECT,
    SW_UCM_DISCONNECT,
    SW_UCM_LISTEN,
    SW_UCM_DEVICE_REMOVAL,
};

/* Events of <rdma/rdma_cma.h>. */
enum sw_ucm_event_type {
    SW_UCM_ADDR_RESOLVED_EVENT,
    SW_UCM_ADDR_ERROR_EVENT,
    SW_UCM_ROUTE_RESOLVED_EVENT,
    SW_UCM_ROUTE_ERROR_EVENT,
    SW_UCM_CONNECT_REQUEST_EVENT,
    SW_UCM_CONNECT_RESPONSE_EVENT,
    SW_UCM_CONNECT_ERROR_EVENT,
    SW_UCM_UNREACHABLE_EVENT,
    SW_UCM_REJECTED_EVENT,
    SW_UCM_ESTABLISHED_EVENT,
    SW_UCM_DISCONNECTED_EVENT,
    SW_UCM_DEVICE_REMOVAL_EVENT,
    SW_UCM_MULTICAST_JOIN_EVENT,
    SW_UCM_MULTICAST_ERROR_EVENT,
    SW_UCM_ADDR_CHANGE_EVENT,
    SW_UCM_TIMEWAIT_EXIT_EVENT,
    SW_UCM_ADDRINFO_RESOLVED_EVENT,
    SW_UCM_ADDRINFO_ERROR_EVENT,
    SW_UCM_USER_EVENT,
    SW_UCM_INTERNAL_EVENT,
};

/* How packets of a connection go. */
struct sw_ucm_route {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint8_t mtu, rate; /* enum ibv_mtu, enum ibv_rate */
    uint8_t sl, traffic_class, hop_limit;
    uint8_t packet_life_time; /* 4.096 us * 2^n */
};

/* A multicast group that an ID has joined. */
struct sw_ucm_group {
    struct sw_ucm_group *next; /* of the ID's */
    struct sw_ucm_id *id;
    uint32_t handle;
    uint64_t uid;
    uint32_t events_reported;
    union sw_address address;
};

struct sw_ucm_id {
    struct sw_cm_id cm;
    uint32_t handle; /* its number; UINT32_MAX: destroyed, and its memory still the machine's */
    uint64_t uid;    /* the program's; 0: not told yet, no events */
    struct sw_ucm_channel *channel;
    struct sw_ucm_id *next, **back; /* on its channel */
    enum sw_ucm_state state;
    uint32_t port_space; /* enum rdma_ucm_port_space */
    uint8_t qp_type;     /* enum ibv_qp_type; 0: any */
    uint32_t events_reported;

    union sw_address src, dst;
    struct sw_netdev *dev; /* or NULL */
    uint32_t ifindex;      /* of dev */
    struct sw_cm_port *port;
    struct sw_ucm_route route;
    bool has_path; /* the route is resolved */

    /* Options. */
    bool reuse_address, address_family_only, address_family_only_set;
    bool tos_set, timeout_set;
    uint8_t tos, timeout;

    /* A listener's. */
    uint32_t backlog; /* requests that may still wait to be fetched */
    uint32_t backlog_max;
    struct sw_ucm_service *service;
    struct sw_ucm_id *service_next;

    struct sw_ucm_event *request; /* that brings it, until it is fetched */

    /* A connection's; what a queue pair is to be given (INIT_QP_ATTR). */
    bool has_cm; /* the machine knows, or has known, of it */
    bool srq;
    uint32_t handover_place; /* in the list of handover.c; 0: not there */
    uint64_t farewell_ns;    /* farewell.c: since when its peer has left, untold; 0: it has not */
    uint32_t farewell_looks; /* for what that one may have said before */
    struct sw_ucm_id *farewell_next;
    struct sw_ucm_stream *stream; /* iWARP: stream.h; NULL: none, or it has ended */
    uint8_t private_len;          /* of its request, which may have to be sent again */
    uint8_t private_data[RDMA_MAX_PRIVATE_DATA];
    uint32_t qpn, remote_qpn, qkey;
    uint32_t psn, remote_psn; /* 24 bits each: where we, and the peer, want the other to begin */
    uint8_t path_mtu, ack_timeout, retry_count, rnr_retry_count;
    uint8_t responder_resources, initiator_depth;
    struct rdma_ucm_ece ece;

    struct sw_ucm_group *groups;
};

/* A new ID on the channel. 0, -ENOMEM. */
int sw_ucm_id_create(struct sw_ucm_channel *channel, uint32_t port_space, uint8_t qp_type,
                     struct sw_ucm_id **out);

/* The ID of a number: 0; -ENOENT: there is none; -EINVAL: it is on another channel; -ENXIO: its
 * device is gone, so that it can only be destroyed. */
int sw_ucm_id_find(struct sw_ucm_channel *channel, uint32_t handle, struct sw_ucm_id **out);
/* The same, whatever its state: -ENOENT, -EINVAL. */
int sw_ucm_id_find_any(struct sw_ucm_channel *channel, uint32_t handle, struct sw_ucm_id **out);
/* That of sw_ucm_id_find(), and it must have a device: else -EINVAL. */
int sw_ucm_id_find_bound(struct sw_ucm_channel *channel, uint32_t handle, struct sw_ucm_id **out);
/* A group of an ID on the channel: 0, -ENOENT, -EINVAL. */
int sw_ucm_group_find(struct sw_ucm_channel *channel, uint32_t handle, struct sw_ucm_group **out);
/* A number for a group that the ID has joined. 0, -ENOMEM. */
int sw_ucm_group_create(struct sw_ucm_id *id, struct sw_ucm_group **out);
/* Ends it, with its events. Returns how many of them were reported. */
uint32_t sw_ucm_group_destroy(struct sw_ucm_group *group);

/* Ends whatever it is about, with its undelivered events and the requests in them. Returns how many
 * events were reported. */
uint32_t sw_ucm_id_destroy(struct sw_ucm_id *id);
void sw_ucm_id_destroy_all(struct sw_ucm_channel *channel);
/* The machine has let go of the memory of a destroyed one. */
void sw_ucm_id_free(struct sw_ucm_id *id);
void sw_ucm_id_move(struct sw_ucm_id *id, struct sw_ucm_channel *to);

/* Calls fn for each ID of the process; fn may destroy none. */
void sw_ucm_id_each(void (*fn)(struct sw_ucm_id *id, void *arg), void *arg);

/* Forgets all of the parent's in a forked child. */
void sw_ucm_id_fork_child(void);

#endif
