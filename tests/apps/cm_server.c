/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server for peers that end in any way, any time: cm_server ADDRESS PORT. It says what events
 * come, and sends each message back. A peer may send one of up to 16 bytes, and the next when the
 * first has come back, as rping's client does.
 *
 * rping's server is none: where a connection fails before its thread has seen that it is made, it
 * frees what its other thread still uses; and where one fails later, it may end before that thread
 * has told of it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 16, BACKLOG = 16 };

/* The state of one peer. */
struct served {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    unsigned char bytes[BYTES];
};

static struct ibv_comp_channel *completions; /* of all */

static void must(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void post_receive(struct served *served)
{
    struct ibv_sge sge = {(uintptr_t)served->bytes, BYTES, served->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    ibv_post_recv(served->id->qp, &wr, &bad); /* it may have ended */
}

/* With the next receive there first. */
static void send_back(struct served *served, uint32_t len)
{
    unsigned char bytes[BYTES];
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = len};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED},
                       *bad;
    memcpy(bytes, served->bytes, len);
    post_receive(served);
    ibv_post_send(served->id->qp, &wr, &bad);
}

static void end_peer(struct served *served)
{
    struct rdma_cm_id *id = served->id;
    rdma_destroy_qp(id);
    must(!ibv_destroy_cq(served->cq) && !ibv_dereg_mr(served->mr), "ending a connection");
    must(!rdma_destroy_id(id), "rdma_destroy_id");
    free(served);
}

static void accept_peer(struct rdma_cm_id *id)
{
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 4,
                                            .max_recv_wr = 4,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = BYTES},
                                    .qp_type = IBV_QPT_RC};
    struct served *served = calloc(1, sizeof(*served));
    must(served != NULL, "calloc");
    if (!completions) {
        completions = ibv_create_comp_channel(id->verbs);
        must(completions != NULL, "ibv_create_comp_channel");
    }
    served->id = id;
    served->cq = ibv_create_cq(id->verbs, 16, served, completions, 0);
    must(served->cq && !ibv_req_notify_cq(served->cq, 0), "ibv_create_cq");
    init.send_cq = init.recv_cq = served->cq;
    must(!rdma_create_qp(id, NULL, &init), "rdma_create_qp");
    served->mr = ibv_reg_mr(id->qp->pd, served->bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    must(served->mr != NULL, "ibv_reg_mr");
    id->context = served;
    post_receive(served);
    if (rdma_accept(id, &param)) /* its peer has gone */
        end_peer(served);
}

static void take_event(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event;
    must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    const enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id *id = event->id;
    rdma_ack_cm_event(event);
    printf("%s\n", rdma_event_str(type) + strlen("RDMA_CM_EVENT_"));
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
        accept_peer(id);
    else if (type != RDMA_CM_EVENT_ESTABLISHED)
        end_peer(id->context);
}

/* The queue's event is acknowledged first: a queue with one that is not cannot be destroyed. */
static void take_completions(void)
{
    struct ibv_cq *cq;
    struct ibv_wc wc;
    void *context;
    if (ibv_get_cq_event(completions, &cq, &context))
        return;
    ibv_ack_cq_events(cq, 1);
    must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    while (ibv_poll_cq(cq, 1, &wc) > 0)
        if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV)
            send_back(context, wc.byte_len);
}

int main(int argc, char **argv)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    struct rdma_cm_id *listener = NULL;
    must(argc == 3 && inet_pton(AF_INET, argv[1], &own.sin_addr) == 1, "cm_server ADDRESS PORT");
    own.sin_port = htons((uint16_t)atoi(argv[2]));
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    must(channel && !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
    must(!rdma_bind_addr(listener, (struct sockaddr *)&own), "rdma_bind_addr");
    must(!rdma_listen(listener, BACKLOG), "rdma_listen");
    for (;;) {
        struct pollfd ready[2] = {{.fd = channel->fd, .events = POLLIN},
                                  {.fd = completions ? completions->fd : -1, .events = POLLIN}};
        must(poll(ready, 2, -1) > 0 || errno == EINTR, "poll");
        if (ready[1].revents) /* before who it is about has ended */
            take_completions();
        else if (ready[0].revents)
            take_event(channel);
    }
}
