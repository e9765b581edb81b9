/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connection management on iWARP devices, in a network namespace of the test's own: commands as a
 * program of librdmacm gives them, queue pairs by verbs, and peers that are plain TCP sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../preload/namespace.h"
#include "rig.h"

#define HOST "10.9.9.1"
#define SENDER_MOST 252
#define SHOWN_MOST 255
#define START_BYTES 20
#define ENHANCED_BYTES 4
#define QUIET_US 50000

/* ---- queue pairs ---- */

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

static int fd;

static struct ibv_context *open_device(const char *name)
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

static void open_end(struct end *end, const char *device)
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

static void close_end(struct end *end)
{
    assert_int_equal(ibv_destroy_qp(end->qp), 0);
    assert_int_equal(ibv_destroy_cq(end->cq), 0);
    assert_int_equal(ibv_dealloc_pd(end->pd), 0);
    assert_int_equal(ibv_close_device(end->context), 0);
}

static enum ibv_qp_state state_of(const struct end *end, struct ibv_qp_attr *attr)
{
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(end->qp, attr, 0x1fffff, &init), 0);
    return attr->qp_state;
}

/* ---- commands ---- */

static struct rdma_ucm_conn_param param_of(const struct end *end, const void *data, uint8_t len)
{
    struct rdma_ucm_conn_param param = {.qp_num = end->qp->qp_num,
                                        .private_data_len = len,
                                        .responder_resources = 3,
                                        .initiator_depth = 2,
                                        .valid = 1};
    memcpy(param.private_data, data ? data : "", len);
    return param;
}

static int connect_id(uint32_t id, const struct end *end, const void *data, uint8_t len)
{
    struct rdma_ucm_connect in = {.id = id, .conn_param = param_of(end, data, len)};
    return rig_command(fd, RDMA_USER_CM_CMD_CONNECT, &in, sizeof(in), 0);
}

static int accept_id(uint32_t id, const struct end *end, const void *data, uint8_t len)
{
    struct rdma_ucm_accept in = {
        .id = id, .uid = RIG_UID + id, .conn_param = param_of(end, data, len)};
    return rig_command(fd, RDMA_USER_CM_CMD_ACCEPT, &in, sizeof(in), 0);
}

static uint32_t resolved_id(const char *host, uint16_t port)
{
    return rig_active(fd, RDMA_PS_TCP, host, port);
}

static void destroy_ids(const uint32_t *ids, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(rig_destroy(fd, ids[i], NULL), 0);
}

static void is_quiet(void)
{
    usleep(QUIET_US);
    assert_false(rig_has_event(fd));
}

struct connection {
    uint32_t listener, from, to;
    struct end active, passive;
};

static void make_connection(struct connection *c, const char *host, const char *device)
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

static void end_connection(struct connection *c)
{
    destroy_ids((uint32_t[]){c->from, c->to, c->listener}, 3);
    close_end(&c->active);
    close_end(&c->passive);
}

/* ---- peers that are TCP sockets ---- */

static int tcp_listener(uint16_t *port)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(own);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&own, len), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&own, &len), 0);
    *port = ntohs(own.sin_port);
    return listener;
}

static int tcp_connect(uint16_t port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(peer, (const struct sockaddr *)&to, sizeof(to)), 0);
    return peer;
}

static void read_whole(int peer, uint8_t *bytes, size_t len)
{
    assert_int_equal(recv(peer, bytes, len, MSG_WAITALL), len);
}

static void read_closed(int peer)
{
    uint8_t byte;
    assert_true(recv(peer, &byte, 1, 0) <= 0);
}

/* Of a request: its revision, and how much follows. */
static uint16_t read_request(int peer, uint8_t *revision)
{
    uint8_t head[START_BYTES], rest[512];
    read_whole(peer, head, sizeof(head));
    assert_memory_equal(head, "MPA ID Req Frame", 16);
    const uint16_t len = (uint16_t)(head[18] << 8 | head[19]);
    *revision = head[17];
    if (len)
        read_whole(peer, rest, len);
    return len;
}

static void send_start(int peer, const char *key, uint8_t flags, uint8_t revision,
                       const uint8_t *data, uint16_t len)
{
    uint8_t frame[START_BYTES + 512];
    memcpy(frame, key, 16);
    frame[16] = flags;
    frame[17] = revision;
    frame[18] = (uint8_t)(len >> 8);
    frame[19] = (uint8_t)len;
    memcpy(frame + START_BYTES, data, len);
    assert_int_equal(send(peer, frame, START_BYTES + len, MSG_NOSIGNAL), START_BYTES + len);
}

/* ---- listening ---- */

static void bind__a_low_port_is_refused_as_the_kernel_refuses_it(void **state)
{
    (void)state;
    uint32_t id;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    namespace_write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "2000");
    const int rc = rig_bind(fd, id, "127.0.0.1", 1500);
    namespace_write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "1024");
    assert_int_equal(rc, geteuid() ? EACCES : 0); /* root has the capability */
    destroy_ids(&id, 1);
}

static void listen__a_port_of_tcp_is_in_use_then(void **state)
{
    (void)state;
    uint32_t id;
    uint16_t port;
    const int listener = tcp_listener(&port);
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_bind(fd, id, "127.0.0.1", port), 0);
    assert_int_equal(rig_listen(fd, id, 1), EADDRINUSE);
    close(listener);
    assert_int_equal(rig_listen(fd, id, 1), 0);
    destroy_ids(&id, 1);
}

static void listen__not_for_datagrams(void **state)
{
    (void)state;
    uint32_t id;
    assert_int_equal(rig_create(fd, RDMA_PS_UDP, &id), 0);
    assert_int_equal(rig_bind(fd, id, "127.0.0.1", 0), 0);
    assert_int_equal(rig_listen(fd, id, 1), EOPNOTSUPP);
    destroy_ids(&id, 1);
}

/* ---- the start ---- */

static void connect__private_data_up_to_252_bytes(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint8_t data[SHOWN_MOST];
    struct end active, passive;
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    const uint32_t from = resolved_id("127.0.0.1", rig_port(fd, listener));
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7);
    open_end(&active, "iw_lo");
    open_end(&passive, "iw_lo");
    assert_int_equal(connect_id(from, &active, data, SENDER_MOST + 1), EINVAL);
    assert_int_equal(connect_id(from, &active, data, SENDER_MOST), 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    assert_int_equal(event.param.conn.private_data_len, SENDER_MOST);
    assert_memory_equal(event.param.conn.private_data, data, SENDER_MOST);
    const uint32_t to = event.id;
    assert_int_equal(accept_id(to, &passive, data, SENDER_MOST + 1), EINVAL);
    assert_int_equal(accept_id(to, &passive, data, SENDER_MOST), 0);
    for (int i = 0; i < 2; i++) {
        rig_expect(fd, ESTABLISHED, &event);
        if (event.id != from)
            continue;
        assert_int_equal(event.param.conn.private_data_len, SENDER_MOST);
        assert_memory_equal(event.param.conn.private_data, data, SENDER_MOST);
    }
    destroy_ids((uint32_t[]){from, to, listener}, 3);
    close_end(&active);
    close_end(&passive);
}

static void request__shows_255_bytes_of_what_came(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint8_t data[ENHANCED_BYTES + 500] = {0, 4, 0, 5};
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    const int peer = tcp_connect(rig_port(fd, listener));
    memset(data + ENHANCED_BYTES, 'x', sizeof(data) - ENHANCED_BYTES);
    send_start(peer, "MPA ID Req Frame", 0x10, 2, data, sizeof(data));
    rig_expect(fd, CONNECT_REQUEST, &event);
    assert_int_equal(event.param.conn.private_data_len, SHOWN_MOST);
    assert_memory_equal(event.param.conn.private_data, data + ENHANCED_BYTES, SHOWN_MOST);
    assert_int_equal(event.param.conn.initiator_depth, 4); /* what the peer takes */
    assert_int_equal(event.param.conn.responder_resources, 5);
    destroy_ids((uint32_t[]){event.id, listener}, 2);
    close(peer);
}

static void accept__wants_parameters_and_a_queue_pair(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct end end;
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    const int peer = tcp_connect(rig_port(fd, listener));
    open_end(&end, "iw_lo");
    send_start(peer, "MPA ID Req Frame", 0, 1, NULL, 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    assert_int_equal(rig_ready(fd, event.id), EINVAL);
    struct end none = end;
    struct ibv_qp other = *end.qp;
    other.qp_num ^= 0x7ff;
    none.qp = &other;
    assert_int_equal(accept_id(event.id, &none, NULL, 0), EINVAL);
    assert_int_equal(accept_id(event.id, &end, NULL, 0), 0);
    rig_expect(fd, ESTABLISHED, NULL); /* at once: nothing is to come first */
    destroy_ids((uint32_t[]){event.id, listener}, 2);
    close_end(&end);
    close(peer);
}

static void reject__is_told_as_a_reset_with_its_data(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct end end;
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    const uint32_t from = resolved_id("127.0.0.1", rig_port(fd, listener));
    open_end(&end, "iw_lo");
    assert_int_equal(connect_id(from, &end, NULL, 0), 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    const uint32_t to = event.id;
    assert_int_equal(rig_reject(fd, to, "no", 2), 0);
    rig_expect(fd, REJECTED, &event);
    assert_int_equal((int)event.status, -ECONNRESET);
    assert_int_equal(event.param.conn.private_data_len, 2);
    assert_memory_equal(event.param.conn.private_data, "no", 2);
    destroy_ids((uint32_t[]){from, to, listener}, 3);
    close_end(&end);
}

static void connect__nobody_listens(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct end end;
    uint16_t port;
    close(tcp_listener(&port));
    const uint32_t from = resolved_id("127.0.0.1", port);
    open_end(&end, "iw_lo");
    assert_int_equal(connect_id(from, &end, NULL, 0), 0);
    rig_expect(fd, REJECTED, &event);
    assert_int_equal((int)event.status, -ECONNREFUSED);
    destroy_ids(&from, 1);
    close_end(&end);
}

static void connect__to_what_is_no_mpa(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct end end;
    uint16_t port;
    uint8_t revision;
    const int listener = tcp_listener(&port);
    const uint32_t from = resolved_id("127.0.0.1", port);
    open_end(&end, "iw_lo");
    assert_int_equal(connect_id(from, &end, NULL, 0), 0);
    const int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    read_request(peer, &revision);
    assert_int_equal(send(peer, "SSH-2.0-OpenSSH_9.2p1 Debian", 28, MSG_NOSIGNAL), 28);
    rig_expect(fd, CONNECT_ERROR, &event);
    assert_int_equal((int)event.status, -EPROTO);
    read_closed(peer);
    destroy_ids(&from, 1);
    close_end(&end);
    close(peer);
    close(listener);
}

/* On a connection of its own, without the fields that revision 2 has. */
static void connect__an_older_peer_is_asked_again(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct end end;
    uint16_t port;
    uint8_t revision;
    const int listener = tcp_listener(&port);
    const uint32_t from = resolved_id("127.0.0.1", port);
    open_end(&end, "iw_lo");
    assert_int_equal(connect_id(from, &end, "hello", 5), 0);
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(read_request(peer, &revision), ENHANCED_BYTES + 5);
    assert_int_equal(revision, 2);
    send_start(peer, "MPA ID Rep Frame", 0, 1, NULL, 0);
    read_closed(peer);
    close(peer);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(read_request(peer, &revision), 5);
    assert_int_equal(revision, 1);
    send_start(peer, "MPA ID Rep Frame", 0, 1, (const uint8_t *)"hi", 2);
    rig_expect(fd, ESTABLISHED, &event);
    assert_int_equal(event.param.conn.private_data_len, 2);
    close(peer);
    rig_expect(fd, DISCONNECTED, NULL);
    destroy_ids(&from, 1);
    close_end(&end);
    close(listener);
}

/* ---- a connection ---- */

static void attributes__as_the_kernel_gives_them(void **state)
{
    (void)state;
    struct connection c = {.listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4)};
    struct ib_uverbs_qp_attr attr;
    const uint32_t id = resolved_id("127.0.0.1", 1);
    const uint32_t mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
    assert_int_equal(rig_init_qp_attr(fd, id, IBV_QPS_INIT, &attr), 0);
    assert_int_equal(attr.qp_attr_mask, mask);
    assert_int_equal(attr.qp_access_flags, 0);
    destroy_ids(&id, 1);
    make_connection(&c, "127.0.0.1", "iw_lo");
    for (int i = 0; i < 2; i++) {
        const enum ibv_qp_state to = i ? IBV_QPS_RTR : IBV_QPS_INIT;
        assert_int_equal(rig_init_qp_attr(fd, c.from, to, &attr), 0);
        assert_int_equal(attr.qp_attr_mask, mask);
        assert_int_equal(attr.qp_access_flags,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    }
    assert_int_equal(rig_init_qp_attr(fd, c.from, IBV_QPS_RTS, &attr), 0);
    assert_int_equal(attr.qp_attr_mask, IBV_QP_PORT);
    struct ibv_qp_attr own = {.port_num = 1};
    assert_int_equal(ibv_modify_qp(c.active.qp, &own, IBV_QP_PORT), 0);
    assert_int_equal(state_of(&c.active, &own), IBV_QPS_RTS);
    end_connection(&c);
}

/* As siw: nothing of a peer's address or number, the interface's MTU, the depths agreed on. */
static void query_qp__knows_no_address_of_the_peer(void **state)
{
    (void)state;
    static const struct ibv_ah_attr none;
    struct connection c = {.listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4)};
    struct ibv_qp_attr attr;
    make_connection(&c, "127.0.0.1", "iw_lo");
    assert_int_equal(state_of(&c.active, &attr), IBV_QPS_RTS);
    assert_memory_equal(&attr.ah_attr, &none, sizeof(none));
    assert_int_equal(attr.dest_qp_num, 0);
    assert_int_equal(attr.path_mtu, IBV_MTU_4096);
    assert_int_equal(attr.max_rd_atomic, 2);
    assert_int_equal(attr.max_dest_rd_atomic, 3);
    end_connection(&c);
}

static void disconnect__by_sqd_and_once_more(void **state)
{
    (void)state;
    struct connection c = {.listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4)};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
    make_connection(&c, "127.0.0.1", "iw_lo");
    assert_int_equal(ibv_modify_qp(c.active.qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(rig_disconnect(fd, c.from), 0);
    rig_expect(fd, DISCONNECTED, NULL);
    rig_expect(fd, DISCONNECTED, NULL);
    is_quiet(); /* no TIMEWAIT_EXIT */
    for (int i = 0; i < 4; i++) {
        attr.qp_state = i % 2 ? IBV_QPS_ERR : IBV_QPS_SQD;
        assert_int_equal(ibv_modify_qp(i < 2 ? c.active.qp : c.passive.qp, &attr, IBV_QP_STATE), 0);
    }
    assert_int_equal(rig_disconnect(fd, c.from), 0);
    assert_int_equal(rig_disconnect(fd, c.to), 0);
    is_quiet();
    end_connection(&c);
}

/* ---- interfaces that come and go ---- */

static void add_interface(void)
{
    assert_int_equal(system("ip link add sw0 type veth peer name sw1 && ip link set sw1 up && "
                            "ip link set sw0 up && ip address add " HOST "/24 dev sw0"),
                     0);
    usleep(200000); /* until the device has its address */
}

static void delete_interface(void)
{
    assert_int_equal(system("ip link del sw0"), 0);
}

static void added__a_listener_at_any_address_has_it(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct connection c = {.listener = rig_listener(fd, RDMA_PS_TCP, "0.0.0.0", 4)};
    for (int round = 0; round < 2; round++) {
        uint32_t told[2];
        add_interface();
        make_connection(&c, HOST, "iw_sw0");
        delete_interface();
        for (int i = 0; i < 2; i++) {
            rig_expect(fd, DEVICE_REMOVAL, &event);
            told[i] = event.id;
        }
        assert_true((told[0] == c.from && told[1] == c.to) ||
                    (told[0] == c.to && told[1] == c.from));
        is_quiet(); /* and nothing of a disconnect */
        assert_int_equal(rig_disconnect(fd, c.from), ENXIO);
        destroy_ids((uint32_t[]){c.from, c.to}, 2);
        close_end(&c.active);
        close_end(&c.passive);
    }
    destroy_ids(&c.listener, 1);
}

/* The peer hears nothing: there is no way to it any more. */
static void removed__the_queue_pair_is_flushed(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct end end;
    struct ibv_wc wc;
    struct ibv_recv_wr receive = {.wr_id = 7}, *bad;
    struct ibv_qp_attr attr;
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "0.0.0.0", 4);
    add_interface();
    const uint32_t bound = rig_listener(fd, RDMA_PS_TCP, HOST, 4);
    open_end(&end, "iw_sw0");
    assert_int_equal(ibv_post_recv(end.qp, &receive, &bad), 0);
    struct sockaddr_storage to;
    rig_address(HOST, rig_port(fd, listener), &to);
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(peer, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
    send_start(peer, "MPA ID Req Frame", 0, 1, NULL, 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    const uint32_t called = event.id;
    assert_int_equal(accept_id(called, &end, NULL, 0), 0);
    rig_expect(fd, ESTABLISHED, NULL);
    read_whole(peer, (uint8_t[START_BYTES]){0}, START_BYTES);
    delete_interface();
    rig_expect(fd, DEVICE_REMOVAL, NULL);
    rig_expect(fd, DEVICE_REMOVAL, NULL);
    assert_int_equal(state_of(&end, &attr), IBV_QPS_ERR);
    assert_int_equal(ibv_poll_cq(end.cq, 1, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
    destroy_ids((uint32_t[]){bound, called, listener}, 3);
    close_end(&end);
    close(peer);
}

static int try_tcp(const char *host, uint16_t port)
{
    struct sockaddr_storage to;
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rig_address(host, port, &to);
    const int rc = connect(peer, (struct sockaddr *)&to, sizeof(struct sockaddr_in)) ? errno : 0;
    close(peer);
    return rc;
}

/* The first iWARP device comes after the listener, and the last one goes before it. */
static void added__the_first_of_its_kind(void **state)
{
    (void)state;
    struct connection c = {.listener = rig_listener(fd, RDMA_PS_TCP, "0.0.0.0", 4)};
    const uint16_t port = rig_port(fd, c.listener);
    assert_int_equal(try_tcp("127.0.0.1", port), ECONNREFUSED);
    for (int round = 0; round < 2; round++) {
        add_interface();
        make_connection(&c, HOST, "iw_sw0");
        delete_interface();
        rig_expect(fd, DEVICE_REMOVAL, NULL);
        rig_expect(fd, DEVICE_REMOVAL, NULL);
        is_quiet();
        assert_int_equal(try_tcp("127.0.0.1", port), ECONNREFUSED);
        destroy_ids((uint32_t[]){c.from, c.to}, 2);
        close_end(&c.active);
        close_end(&c.passive);
    }
    destroy_ids(&c.listener, 1);
}

/* ---- routes ---- */

static void query_gids(uint32_t id, uint8_t out[2][16])
{
    struct rdma_ucm_query_addr_resp answer;
    struct rdma_ucm_query in = {
        .response = (uintptr_t)&answer, .id = id, .option = RDMA_USER_CM_QUERY_GID};
    assert_int_equal(
        rig_command(fd, RDMA_USER_CM_CMD_QUERY, &in, sizeof(in), sizeof(answer)), 0);
    memcpy(out[0], (uint8_t *)&answer.src_addr + 8, 16); /* struct sockaddr_ib */
    memcpy(out[1], (uint8_t *)&answer.dst_addr + 8, 16);
}

static void query__gids_are_hardware_addresses(void **state)
{
    (void)state;
    static const uint8_t none[16];
    static const uint8_t own[16] = {2, 0, 0, 0, 1, 1}, other[16] = {2, 0, 0, 0, 1, 2};
    struct rdma_ucm_query_route_resp route;
    uint8_t gids[2][16];
    uint32_t id;
    add_interface();
    assert_int_equal(system("ip link set sw0 address 02:00:00:00:01:01"), 0);
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "10.9.9.2", 4711), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    query_gids(id, gids);
    assert_memory_equal(gids[0], own, 16);
    assert_memory_equal(gids[1], none, 16); /* nothing was sent there yet */
    assert_int_equal(
        system("ip neighbour replace 10.9.9.2 lladdr 02:00:00:00:01:02 dev sw0 nud reachable"), 0);
    query_gids(id, gids);
    assert_memory_equal(gids[1], other, 16);
    assert_int_equal(rig_resolve_route(fd, id), 0);
    rig_expect(fd, ROUTE_RESOLVED, NULL);
    struct rdma_ucm_query in = {.response = (uintptr_t)&route, .id = id};
    assert_int_equal(
        rig_command(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, &in, sizeof(in), sizeof(route)), 0);
    assert_int_equal(route.num_paths, 0);
    assert_memory_equal(route.ib_route[0].sgid, own, 16);
    assert_memory_equal(route.ib_route[0].dgid, other, 16);
    destroy_ids(&id, 1);
    delete_interface();
}

/* ---- */

static int open_channel(void **state)
{
    (void)state;
    fd = rig_open(O_NONBLOCK);
    return 0;
}

static int close_channel(void **state)
{
    (void)state;
    return close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_channel, close_channel)

int main(int argc, char **argv)
{
    (void)argv;
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        TEST(bind__a_low_port_is_refused_as_the_kernel_refuses_it),
        TEST(listen__a_port_of_tcp_is_in_use_then),
        TEST(listen__not_for_datagrams),
        TEST(connect__private_data_up_to_252_bytes),
        TEST(request__shows_255_bytes_of_what_came),
        TEST(accept__wants_parameters_and_a_queue_pair),
        TEST(reject__is_told_as_a_reset_with_its_data),
        TEST(connect__nobody_listens),
        TEST(connect__to_what_is_no_mpa),
        TEST(connect__an_older_peer_is_asked_again),
        TEST(attributes__as_the_kernel_gives_them),
        TEST(query_qp__knows_no_address_of_the_peer),
        TEST(disconnect__by_sqd_and_once_more),
        TEST(added__a_listener_at_any_address_has_it),
        TEST(removed__the_queue_pair_is_flushed),
        TEST(query__gids_are_hardware_addresses),
    };
    const struct CMUnitTest late[] = {TEST(added__the_first_of_its_kind)};
    return argc > 1 ? cmocka_run_group_tests(late, NULL, NULL)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
