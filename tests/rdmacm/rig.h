/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of rdma/rdma_user_cm.h as raw writes, without librdmacm. Each returns 0 or the
 * errno. */
#ifndef RDMACM_RIG_H
#define RDMACM_RIG_H

#include <rdma/rdma_user_cm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { /* of <rdma/rdma_cma.h> */
       ADDR_RESOLVED,
       ADDR_ERROR,
       ROUTE_RESOLVED,
       ROUTE_ERROR,
       CONNECT_REQUEST,
       CONNECT_RESPONSE,
       CONNECT_ERROR,
       UNREACHABLE,
       REJECTED,
       ESTABLISHED,
       DISCONNECTED,
       DEVICE_REMOVAL,
       MULTICAST_JOIN,
       MULTICAST_ERROR,
       ADDR_CHANGE,
       TIMEWAIT_EXIT,
       ADDRINFO_RESOLVED,
       ADDRINFO_ERROR,
       USER,
       INTERNAL,
};

/* What Linux 6.16 and 6.17 added: older headers lack it. */
enum { RIG_CMD_RESOLVE_IB_SERVICE = 23, RIG_CMD_WRITE_CM_EVENT = 24, RIG_QUERY_IB_SERVICE = 3 };
struct rig_resolve_ib_service {
    uint32_t id, hole;
    uint64_t service_id;
    uint8_t service_name[64];
    uint32_t flags, reserved;
};
struct rig_write_cm_event {
    uint32_t id, reserved, event, status;
    uint64_t arg; /* of a union with the parameters of other events */
    uint8_t rest[296];
};

#define RIG_UID 0x1234500000000ull /* plus its number: the uid of an ID */

/* Writes header and command with this room for a response. */
int rig_command(int fd, uint32_t command, const void *in, size_t in_len, size_t out_len);

int rig_open(int flags); /* a channel; fails the test if there is none */
int rig_create(int fd, uint16_t port_space, uint32_t *id);
int rig_destroy(int fd, uint32_t id, uint32_t *events_reported);
/* "127.0.0.1", "::1", "fe80::1%lo" */
void rig_address(const char *text, uint16_t port, struct sockaddr_storage *out);
int rig_bind(int fd, uint32_t id, const char *address, uint16_t port);
int rig_resolve_addr(int fd, uint32_t id, const char *src, const char *dst, uint16_t port);
int rig_resolve_route(int fd, uint32_t id);
int rig_listen(int fd, uint32_t id, uint32_t backlog);
struct rdma_ucm_ece rig_ece(uint32_t id); /* that connect and accept say */
int rig_connect(int fd, uint32_t id, const void *data, uint8_t len);
int rig_accept(int fd, uint32_t id, const void *data, uint8_t len); /* with the uid of its number */
int rig_ready(int fd, uint32_t id);
int rig_reject(int fd, uint32_t id, const void *data, uint8_t len);
int rig_disconnect(int fd, uint32_t id);
int rig_query_addr(int fd, uint32_t id, struct rdma_ucm_query_addr_resp *out);
int rig_init_qp_attr(int fd, uint32_t id, uint32_t state, struct ib_uverbs_qp_attr *out);
int rig_set_option(int fd, uint32_t id, uint32_t level, uint32_t name, const void *value,
                   uint32_t len);
uint16_t rig_port(int fd, uint32_t id); /* that it is bound to */

/* The next event, waited for up to 10 s; fails the test if it is another. */
void rig_expect(int fd, uint32_t type, struct rdma_ucm_event_resp *out);
int rig_get_event(int fd, struct rdma_ucm_event_resp *out); /* blocks as the descriptor says */
bool rig_has_event(int fd);                                 /* now */

/* From nothing to ROUTE_RESOLVED. */
uint32_t rig_active(int fd, uint16_t port_space, const char *dst, uint16_t port);
/* A listener on a free port. */
uint32_t rig_listener(int fd, uint16_t port_space, const char *address, uint32_t backlog);

#endif
