/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client that says what it likes: stranger PORT PRIVATE_DATA [MESSAGE], both in hex. Prints
 * "rejected REASON", or "answer HEX" and "ended" as they come.
 */
#include <poll.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PATIENCE_MS /* for an answer, or the end */
#define PATIENCE_MS 8000
#endif

enum { BUFFER_BYTES = 8192, STEP_MS = 20 };

static uint8_t buffer[BUFFER_BYTES], answer[BUFFER_BYTES];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static size_t unhex(const char *text, uint8_t *out)
{
    size_t count = 0;
    unsigned byte;
    while (sscanf(text + 2 * count, "%2x", &byte) == 1 && count < BUFFER_BYTES)
        out[count++] = (uint8_t)byte;
    return count;
}

static void connect_to(struct rdma_cm_id *id, const void *data, size_t bytes)
{
    struct rdma_conn_param param = {.private_data = data,
                                    .private_data_len = (uint8_t)bytes,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
    if (!rdma_connect(id, &param))
        return;
    const struct rdma_cm_event *event = id->event;
    const uint8_t *why = event ? event->param.conn.private_data : NULL;
    if (!event || event->event != RDMA_CM_EVENT_REJECTED || !why)
        die("rdma_connect");
    printf("rejected %u\n", why[6]);
    exit(0);
}

/* False: an answer that says that all is well, or the end. */
static bool take_answers(struct rdma_cm_id *id, struct ibv_mr *in)
{
    struct ibv_wc wc;
    while (ibv_poll_cq(id->recv_cq, 1, &wc) > 0) {
        if (wc.status)
            return puts("ended"), false;
        printf("answer ");
        for (uint32_t at = 0; at < wc.byte_len; at++)
            printf("%02x", answer[at]);
        putchar('\n');
        if (!answer[5])
            return false;
        rdma_post_recv(id, NULL, answer, sizeof(answer), in);
    }
    return true;
}

/* Messages that came before the connection ended are told first. */
static void listen_to(struct rdma_cm_id *id, struct ibv_mr *in)
{
    for (int i = 0; i < PATIENCE_MS / STEP_MS; i++) {
        struct pollfd fd = {.fd = id->channel->fd, .events = POLLIN};
        const bool is_over = poll(&fd, 1, STEP_MS) > 0;
        if (!take_answers(id, in))
            return;
        if (is_over) {
            puts("ended");
            return;
        }
    }
    puts("silence");
}

int main(int argc, char **argv)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1};
    struct rdma_cm_id *id = NULL;
    uint8_t hello[256];
    if (argc < 3 || rdma_getaddrinfo("127.0.0.1", argv[1], &hints, &found) ||
        rdma_create_ep(&id, found, NULL, &attr))
        die("rdma_create_ep");
    struct ibv_mr *in = rdma_reg_msgs(id, answer, sizeof(answer)),
                  *out = rdma_reg_msgs(id, buffer, sizeof(buffer));
    if (!in || !out || rdma_post_recv(id, NULL, answer, sizeof(answer), in))
        die("receive");
    connect_to(id, hello, unhex(argv[2], hello));
    if (argc > 3) {
        const size_t bytes = unhex(argv[3], buffer);
        if (rdma_post_send(id, NULL, buffer, bytes, out, 0))
            die("send");
    }
    listen_to(id, in);
    return 0;
}
