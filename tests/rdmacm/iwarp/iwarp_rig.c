/* SPDX-License-Identifier: BSD-2-Clause */
#include "iwarp_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define QUIET_US 50000

int fd;

int open_channel(void **state)
{
    (void)state;
    fd = rig_open(O_NONBLOCK);
    return 0;
}

int close_channel(void **state)
{
    (void)state;
    return close(fd);
}

/* ---- queue pairs ---- */

struct ibv_context *open_device(const char *name)
{
    int count;
    struct ibv_context *context = NULL;
    struct ibv_device **list = ibv_get_device_list(&count);
    for (int i = 0; i < count && !context; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name))
            context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    assert_non_null(context);
    return context;
}

void open_end(struct end *end, const char *device)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    end->context = open_device(device);
    end->pd = ibv_alloc_pd(end->context);
    end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    end->qp = ibv_create_qp(end->pd, &init);
    assert_non_null(end->qp);
    assert_int_equal(
        ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT), 0);
}

void close_end(struct end *end)
{
    assert_int_equal(ibv_destroy_qp(end->qp), 0);
    assert_int_equal(ibv_destroy_cq(end->cq), 0);
    assert_int_equal(ibv_dealloc_pd(end->pd), 0);
    assert_int_equal(ibv_close_device(end->context), 0);
}

enum ibv_qp_state state_of(const struct end *end, struct ibv_qp_attr *attr)
{
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(end->qp, attr, 0x1fffff, &init), 0);
    return attr->qp_state;
}

/* ---- commands ---- */

struct rdma_ucm_conn_param param_of(const struct end *end, const void *data, uint8_t len)
{
    struct rdma_ucm_conn_param param = {.qp_num = end->qp->qp_num,
                                        .private_data_len = len,
                                        .responder_resources = 3,
                                        .initiator_depth = 2,
                                        .valid = 1};
    memcpy(param.private_data, data ? data : "", len);
    return param;
}

int connect_id(uint32_t id, const struct end *end, const void *data, uint8_t len)
{
    struct rdma_ucm_connect in = {.id = id, .conn_param = param_of(end, data, len)};
    return rig_command(fd, RDMA_USER_CM_CMD_CONNECT, &in, sizeof(in), 0);
}

int accept_id(uint32_t id, const struct end *end, const void *data, uint8_t len)
{
    struct rdma_ucm_accept in = {
        .id = id, .uid = RIG_UID + id, .conn_param = param_of(end, data, len)};
    return rig_command(fd, RDMA_USER_CM_CMD_ACCEPT, &in, sizeof(in), 0);
}

uint32_t resolved_id(const char *host, uint16_t port)
{
    return rig_active(fd, RDMA_PS_TCP, host, port);
}

void destroy_ids(const uint32_t *ids, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(rig_destroy(fd, ids[i], NULL), 0);
}

void is_quiet(void)
{
    usleep(QUIET_US);
    assert_false(rig_has_event(fd));
}

void make_connection(struct connection *c, const char *host, const char *device)
{
    struct rdma_ucm_event_resp event;
    c->from = resolved_id(host, rig_port(fd, c->listener));
    open_end(&c->active, device);
    open_end(&c->passive, device);
    assert_int_equal(connect_id(c->from, &c->active, NULL, 0), 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    assert_int_equal(event.param.conn.initiator_depth, 3);
    assert_int_equal(event.param.conn.responder_resources, 2);
    c->to = event.id;
    assert_int_equal(accept_id(c->to, &c->passive, NULL, 0), 0);
    rig_expect(fd, ESTABLISHED, NULL);
    rig_expect(fd, ESTABLISHED, NULL);
}

void end_connection(struct connection *c)
{
    destroy_ids((uint32_t[]){c->from, c->to, c->listener}, 3);
    close_end(&c->active);
    close_end(&c->passive);
}

/* ---- peers that are TCP sockets ---- */

void read_whole(int peer, uint8_t *bytes, size_t len)
{
    assert_int_equal(recv(peer, bytes, len, MSG_WAITALL), len);
}

void send_start(int peer, const char *key, uint8_t flags, uint8_t revision, const uint8_t *data,
                uint16_t len)
{
    uint8_t frame[START_BYTES + 512];
    memcpy(frame, key, 16);
    frame[16] = flags;
    frame[17] = revision;
    frame[18] = (uint8_t)(len >> 8);
    frame[19] = (uint8_t)len;
    if (len)
        memcpy(frame + START_BYTES, data, len);
    assert_int_equal(send(peer, frame, START_BYTES + len, MSG_NOSIGNAL), START_BYTES + len);
}

int tcp_connect(uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(peer, (const struct sockaddr *)&to, sizeof(to)), 0);
    return peer;
}

void begin_asking(struct asking *asking, uint8_t flags, uint8_t revision, const uint8_t *data,
                  uint16_t len)
{
    asking->listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    asking->peer = tcp_connect(rig_port(fd, asking->listener));
    send_start(asking->peer, "MPA ID Req Frame", flags, revision, data, len);
    rig_expect(fd, CONNECT_REQUEST, &asking->event);
}

void end_asking(struct asking *asking)
{
    destroy_ids((uint32_t[]){asking->event.id, asking->listener}, 2);
    close(asking->peer);
}
