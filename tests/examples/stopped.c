/* SPDX-License-Identifier: BSD-2-Clause */
/* A client that stops itself, some microseconds after it has asked for a connection:
 * stopped ADDR PORT US. */
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RESOLVE_MS = 2000 };

static void await(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(events, &event) || event->event != type) {
        fprintf(stderr, "no %s\n", rdma_event_str(type));
        _exit(1);
    }
    rdma_ack_cm_event(event);
}

int main(int argc, char **argv)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct addrinfo *to;
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    if (argc != 4 || !events || getaddrinfo(argv[1], argv[2], NULL, &to) ||
        rdma_create_id(events, &id, NULL, RDMA_PS_TCP) ||
        rdma_resolve_addr(id, NULL, to->ai_addr, RESOLVE_MS))
        return 1;
    await(events, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(id, RESOLVE_MS))
        return 1;
    await(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
    attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 2, NULL, NULL, 0);
    if (!attr.send_cq || rdma_create_qp(id, NULL, &attr) || rdma_connect(id, &param))
        return 1;
    usleep((useconds_t)atoi(argv[3]));
    raise(SIGSTOP);
    return 0;
}
