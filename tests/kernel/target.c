/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * target DEVICE GID_INDEX: runs in the guest. An ordinary verbs program on rdma_rxe: for each TCP
 * connection one queue pair with memory for all remote accesses, which executes the commands it is
 * sent until the connection is closed.
 */
#include "target.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECEIVES = 64, PSN = 0xfffff0, POLL_US = 20 };
enum { REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };

struct target {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    int gid_index;
    uint8_t *memory, *received, *scratch; /* one region */
};

static void check(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(EXIT_FAILURE);
    }
}

static struct ibv_sge sge_of(const struct target *t, const void *at, uint64_t len_bytes)
{
    return (struct ibv_sge){(uintptr_t)at, (uint32_t)len_bytes, t->mr->lkey};
}

static void post_receive(struct target *t, uint64_t slot)
{
    struct ibv_sge sge = sge_of(t, t->received + slot * TARGET_MESSAGE_MAX, TARGET_MESSAGE_MAX);
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    check(!ibv_post_recv(t->qp, &wr, &bad), "ibv_post_recv");
}

/* Returns whether it succeeded; a refusal is the peer's to explain. */
static int execute(struct target *t, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;
    int n;
    wr->num_sge = 1;
    wr->send_flags = IBV_SEND_SIGNALED;
    check(!ibv_post_send(t->qp, wr, &bad), "ibv_post_send");
    while ((n = ibv_poll_cq(t->send_cq, 1, &wc)) == 0)
        usleep(POLL_US);
    if (n == 1 && wc.status != IBV_WC_SUCCESS)
        printf("opcode %d: %s\n", wr->opcode, ibv_wc_status_str(wc.status));
    return n == 1 && wc.status == IBV_WC_SUCCESS;
}

static int send_bytes(struct target *t, const void *bytes, uint64_t len_bytes)
{
    struct ibv_sge sge = sge_of(t, bytes, len_bytes);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge};
    return execute(t, &wr);
}

static int obey(struct target *t, const uint8_t *message, uint32_t len_bytes)
{
    struct target_command command;
    memcpy(&command, message, sizeof(command));
    struct ibv_sge sge = sge_of(t, t->scratch, command.len_bytes);
    struct ibv_send_wr wr = {.sg_list = &sge};
    switch ((enum target_op)command.op) {
    case TARGET_ECHO:
        return send_bytes(t, message, len_bytes);
    case TARGET_COPY:
        wr.opcode = IBV_WR_RDMA_READ;
        wr.wr.rdma.rkey = command.rkey;
        wr.wr.rdma.remote_addr = command.from;
        if (!execute(t, &wr))
            return 0;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.wr.rdma.remote_addr = command.to;
        return execute(t, &wr) && send_bytes(t, t->scratch, 8);
    case TARGET_ADD:
        sge.length = 8;
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.rkey = command.rkey;
        wr.wr.atomic.remote_addr = command.to;
        wr.wr.atomic.compare_add = command.from;
        return execute(t, &wr) && send_bytes(t, t->scratch, 8);
    }
    return 0;
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
    enum ibv_mtu mtu = IBV_MTU_256;
    while (bytes > 256u << (mtu - IBV_MTU_256))
        mtu++;
    return mtu;
}

static void connect_qp(struct target *t, const struct target_hello *peer)
{
    int is_uc = (int)peer->is_uc;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = REMOTE | (is_uc ? 0 : IBV_ACCESS_REMOTE_ATOMIC)};
    check(!ibv_modify_qp(t->qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
          "INIT");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_of(peer->mtu_bytes),
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.sgid_index = (uint8_t)t->gid_index, .hop_limit = 64}}};
    memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, 16);
    int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    check(!ibv_modify_qp(t->qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | (is_uc ? 0 : reliable)),
          "RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .sq_psn = PSN,
                                .timeout = 16,
                                .retry_cnt = 7,
                                .rnr_retry = 7,
                                .max_rd_atomic = 16};
    reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    check(!ibv_modify_qp(t->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (is_uc ? 0 : reliable)),
          "RTS");
}

static int is_closed(int conn)
{
    char byte;
    return recv(conn, &byte, 1, MSG_DONTWAIT) == 0;
}

static void serve(struct target *t, int conn)
{
    struct target_hello hello;
    struct ibv_wc wc;
    check(recv(conn, &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello), "hello");
    struct ibv_qp_init_attr init = {.send_cq = t->send_cq,
                                    .recv_cq = t->recv_cq,
                                    .qp_type = hello.is_uc ? IBV_QPT_UC : IBV_QPT_RC,
                                    .cap = {4, RECEIVES, 1, 1, 0}};
    t->qp = ibv_create_qp(t->pd, &init);
    check(t->qp != NULL, "ibv_create_qp");
    connect_qp(t, &hello);
    memset(t->memory, 0, TARGET_MEMORY);
    for (uint64_t slot = 0; slot < RECEIVES; slot++)
        post_receive(t, slot);
    hello = (struct target_hello){
        .qpn = t->qp->qp_num, .psn = PSN, .addr = (uintptr_t)t->memory, .rkey = t->mr->rkey};
    check(send(conn, &hello, sizeof(hello), 0) == sizeof(hello), "hello");
    for (int good = 1; good && !is_closed(conn);) {
        if (ibv_poll_cq(t->recv_cq, 1, &wc) != 1) {
            usleep(POLL_US); /* rxe works in threads that want the processor */
            continue;
        }
        good = wc.status == IBV_WC_SUCCESS &&
               obey(t, t->received + wc.wr_id * TARGET_MESSAGE_MAX, wc.byte_len);
        if (good)
            post_receive(t, wc.wr_id);
    }
    ibv_destroy_qp(t->qp);
    while (ibv_poll_cq(t->recv_cq, 1, &wc) == 1)
        ;
}

int main(int argc, char **argv)
{
    struct target t = {.gid_index = argc > 2 ? atoi(argv[2]) : 1};
    struct ibv_device **devices = ibv_get_device_list(NULL);
    for (; argc > 1 && devices && *devices && !t.context; devices++)
        if (strcmp(ibv_get_device_name(*devices), argv[1]) == 0)
            t.context = ibv_open_device(*devices);
    check(t.context != NULL, "device");
    setlinebuf(stdout);
    size_t size = TARGET_MEMORY + (RECEIVES + 1ul) * TARGET_MESSAGE_MAX;
    t.memory = aligned_alloc(4096, size);
    t.received = t.memory + TARGET_MEMORY;
    t.scratch = t.received + (size_t)RECEIVES * TARGET_MESSAGE_MAX;
    t.pd = ibv_alloc_pd(t.context);
    t.mr = ibv_reg_mr(t.pd, t.memory, size,
                      IBV_ACCESS_LOCAL_WRITE | REMOTE | IBV_ACCESS_REMOTE_ATOMIC);
    t.send_cq = ibv_create_cq(t.context, 8, NULL, NULL, 0);
    t.recv_cq = ibv_create_cq(t.context, RECEIVES, NULL, NULL, 0);
    check(t.mr && t.send_cq && t.recv_cq, "verbs objects");
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(TARGET_PORT)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    check(!bind(listener, (struct sockaddr *)&any, sizeof(any)) && !listen(listener, 4), "listen");
    for (;;) {
        int conn = accept(listener, NULL, NULL);
        check(conn >= 0, "accept");
        serve(&t, conn);
        close(conn);
    }
}
