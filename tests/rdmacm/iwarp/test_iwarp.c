/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections on iWARP devices, in a network namespace of the test's own: with itself, and with
 * peers that are plain TCP sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../preload/namespace.h"
#include "iwarp_rig.h"

#define SENDER_MOST 252
#define SHOWN_MOST 255
#define ENHANCED_BYTES 4

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

static void read_closed(int peer)
{
    uint8_t byte;
    assert_true(recv(peer, &byte, 1, 0) <= 0);
}

/* Reads a request: its revision, and how much follows. */
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

/* An ID that asks a peer. */
struct asker {
    struct end end;
    uint32_t id;
};

static void open_asker(struct asker *asker, uint16_t port)
{
    asker->id = resolved_id("127.0.0.1", port);
    open_end(&asker->end, "iw_lo");
}

static void close_asker(struct asker *asker)
{
    destroy_ids(&asker->id, 1);
    close_end(&asker->end);
}

/* It asks a TCP socket, which has taken its connection. */
struct asked {
    struct asker asker;
    int listener, peer;
};

static void begin_asked(struct asked *asked, const void *data, uint8_t len)
{
    uint16_t port;
    asked->listener = tcp_listener(&port);
    open_asker(&asked->asker, port);
    assert_int_equal(connect_id(asked->asker.id, &asked->asker.end, data, len), 0);
    asked->peer = accept4(asked->listener, NULL, NULL, SOCK_CLOEXEC);
}

static void end_asked(struct asked *asked)
{
    close_asker(&asked->asker);
    close(asked->peer);
    close(asked->listener);
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

static void listen__a_second_time_is_refused_and_the_first_goes_on(void **state)
{
    (void)state;
    uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    assert_int_equal(rig_listen(fd, listener, 4), EINVAL);
    close(tcp_connect(rig_port(fd, listener)));
    destroy_ids(&listener, 1);
}

/* Ports are given out one after the other; TCP has those around the last one. */
static void listen__a_port_that_is_chosen_is_free_in_tcp(void **state)
{
    (void)state;
    enum { NEIGHBOURS = 16 };
    int listeners[2 * NEIGHBOURS];
    uint32_t first, second;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &first), 0);
    assert_int_equal(rig_bind(fd, first, "127.0.0.1", 0), 0);
    const uint16_t port = rig_port(fd, first);
    for (int i = 0; i < 2 * NEIGHBOURS; i++) {
        const struct sockaddr_in own = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)(port - NEIGHBOURS + i)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        listeners[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(listeners[i], (const struct sockaddr *)&own, sizeof(own)), 0);
        assert_int_equal(listen(listeners[i], 1), 0);
    }
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &second), 0);
    assert_int_equal(rig_bind(fd, second, "127.0.0.1", 0), 0);
    assert_int_equal(rig_listen(fd, second, 1), 0);
    destroy_ids((uint32_t[]){first, second}, 2);
    for (int i = 0; i < 2 * NEIGHBOURS; i++)
        close(listeners[i]);
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

/* One connects and asks later; this program stands still while it does, another connects that says
 * nothing, and one that asks at once. Both requests are there when the engine goes on. */
static void ask_in_turn(uint16_t port, pid_t asked)
{
    const useconds_t step_us = 30000;
    const int first = tcp_connect(port);
    usleep(step_us); /* it is accepted, or the test finds less */
    kill(asked, SIGSTOP);
    usleep(step_us);
    tcp_connect(port);
    send_start(first, "MPA ID Req Frame", 0, 1, (const uint8_t *)"1", 1);
    const int second = tcp_connect(port);
    send_start(second, "MPA ID Req Frame", 0, 1, (const uint8_t *)"2", 1);
    kill(asked, SIGCONT);
}

static void requests__come_in_the_order_in_which_peers_ask(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp events[2];
    int ends[2];
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    const uint16_t port = rig_port(fd, listener);
    const pid_t self = getpid();
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (!child) {
        char byte;
        close(ends[1]);
        ask_in_turn(port, self);
        _exit((int)read(ends[0], &byte, 1)); /* until it is closed */
    }
    for (int i = 0; i < 2; i++) {
        rig_expect(fd, CONNECT_REQUEST, &events[i]);
        assert_int_equal(events[i].param.conn.private_data_len, 1);
        assert_int_equal(events[i].param.conn.private_data[0], '1' + i);
    }
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    destroy_ids((uint32_t[]){events[0].id, events[1].id, listener}, 3);
}

static void request__shows_255_bytes_of_what_came(void **state)
{
    (void)state;
    struct asking asking;
    uint8_t data[ENHANCED_BYTES + 500] = {0, 4, 0, 5};
    const struct rdma_ucm_conn_param *param = &asking.event.param.conn;
    memset(data + ENHANCED_BYTES, 'x', sizeof(data) - ENHANCED_BYTES);
    begin_asking(&asking, 0x10, 2, data, sizeof(data));
    assert_int_equal(param->private_data_len, SHOWN_MOST);
    assert_memory_equal(param->private_data, data + ENHANCED_BYTES, SHOWN_MOST);
    assert_int_equal(param->initiator_depth, 4); /* what the peer takes */
    assert_int_equal(param->responder_resources, 5);
    end_asking(&asking);
}

static void accept__wants_parameters_and_a_queue_pair(void **state)
{
    (void)state;
    struct asking asking;
    struct end end;
    open_end(&end, "iw_lo");
    begin_asking(&asking, 0, 1, NULL, 0);
    const uint32_t id = asking.event.id;
    assert_int_equal(rig_ready(fd, id), EINVAL);
    struct end none = end;
    struct ibv_qp other = *end.qp;
    other.qp_num ^= 0x7ff;
    none.qp = &other;
    assert_int_equal(accept_id(id, &none, NULL, 0), EINVAL);
    assert_int_equal(accept_id(id, &end, NULL, 0), 0);
    rig_expect(fd, ESTABLISHED, NULL); /* at once: nothing is to come first */
    end_asking(&asking);
    close_end(&end);
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
    struct asker asker;
    uint16_t port;
    close(tcp_listener(&port));
    open_asker(&asker, port);
    assert_int_equal(connect_id(asker.id, &asker.end, NULL, 0), 0);
    rig_expect(fd, REJECTED, &event);
    assert_int_equal((int)event.status, -ECONNREFUSED);
    close_asker(&asker);
}

static void connect__to_what_is_no_mpa(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct asked asked;
    uint8_t revision;
    begin_asked(&asked, NULL, 0);
    read_request(asked.peer, &revision);
    assert_int_equal(send(asked.peer, "SSH-2.0-OpenSSH_9.2p1 Debian", 28, MSG_NOSIGNAL), 28);
    rig_expect(fd, CONNECT_ERROR, &event);
    assert_int_equal((int)event.status, -EPROTO);
    read_closed(asked.peer);
    end_asked(&asked);
}

/* After 10 s, as with siw. */
static void connect__to_who_never_replies(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct asked asked;
    begin_asked(&asked, NULL, 0);
    rig_expect(fd, UNREACHABLE, &event);
    assert_int_equal((int)event.status, -ETIMEDOUT);
    end_asked(&asked);
}

/* On a connection of its own, without the fields that revision 2 has. */
static void connect__an_older_peer_is_asked_again(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct asked asked;
    uint8_t revision;
    begin_asked(&asked, "hello", 5);
    assert_int_equal(read_request(asked.peer, &revision), ENHANCED_BYTES + 5);
    assert_int_equal(revision, 2);
    send_start(asked.peer, "MPA ID Rep Frame", 0, 1, NULL, 0);
    read_closed(asked.peer);
    close(asked.peer);
    asked.peer = accept4(asked.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(read_request(asked.peer, &revision), 5);
    assert_int_equal(revision, 1);
    send_start(asked.peer, "MPA ID Rep Frame", 0, 1, (const uint8_t *)"hi", 2);
    rig_expect(fd, ESTABLISHED, &event);
    assert_int_equal(event.param.conn.private_data_len, 2);
    close(asked.peer);
    rig_expect(fd, DISCONNECTED, NULL);
    asked.peer = -1;
    end_asked(&asked);
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

/* As with siw: a peer that ends its connection and asks for the next one at once. */
static void disconnect__is_told_before_the_next_request(void **state)
{
    (void)state;
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    struct rdma_ucm_event_resp event;
    uint8_t reply[START_BYTES];
    int peer = tcp_connect(rig_port(fd, listener));
    send_start(peer, "MPA ID Req Frame", 0, 1, NULL, 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    for (int i = 0; i < 100; i++) {
        const uint32_t id = event.id;
        struct end end;
        open_end(&end, "iw_lo");
        assert_int_equal(accept_id(id, &end, NULL, 0), 0);
        rig_expect(fd, ESTABLISHED, NULL);
        read_whole(peer, reply, sizeof(reply));
        const int next = tcp_connect(rig_port(fd, listener));
        shutdown(peer, SHUT_RDWR);
        send_start(next, "MPA ID Req Frame", 0, 1, NULL, 0);
        rig_expect(fd, DISCONNECTED, NULL);
        rig_expect(fd, CONNECT_REQUEST, &event);
        close(peer);
        peer = next;
        destroy_ids(&id, 1);
        close_end(&end);
    }
    close(peer);
    destroy_ids((uint32_t[]){event.id, listener}, 2);
}

/* What it sends is dropped for a time, then it is let go. */
static void disconnect__from_a_peer_that_never_closes(void **state)
{
    (void)state;
    struct asking asking;
    struct end end;
    static const uint8_t bytes[64];
    open_end(&end, "iw_lo");
    begin_asking(&asking, 0, 1, NULL, 0);
    assert_int_equal(accept_id(asking.event.id, &end, NULL, 0), 0);
    rig_expect(fd, ESTABLISHED, NULL);
    uint8_t reply[START_BYTES];
    read_whole(asking.peer, reply, sizeof(reply));
    assert_int_equal(rig_disconnect(fd, asking.event.id), 0);
    read_closed(asking.peer);
    rig_expect(fd, DISCONNECTED, NULL);
    int tries = 0;
    while (send(asking.peer, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0 && ++tries < 3000)
        usleep(10000);
    assert_in_range(tries, 0, 2999);
    end_asking(&asking);
    close_end(&end);
}

/* The peer takes no READs: one is not sent, and says so. */
static void read__without_a_depth_fails(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct end active, passive;
    struct ibv_wc wc;
    uint64_t word;
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    const uint32_t from = resolved_id("127.0.0.1", rig_port(fd, listener));
    open_end(&active, "iw_lo");
    open_end(&passive, "iw_lo");
    struct ibv_mr *mr = ibv_reg_mr(active.pd, &word, sizeof(word), IBV_ACCESS_LOCAL_WRITE);
    assert_int_equal(connect_id(from, &active, NULL, 0), 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    struct rdma_ucm_accept in = {
        .id = event.id, .uid = RIG_UID + event.id, .conn_param = param_of(&passive, NULL, 0)};
    in.conn_param.responder_resources = in.conn_param.initiator_depth = 0;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_ACCEPT, &in, sizeof(in), 0), 0);
    rig_expect(fd, ESTABLISHED, NULL);
    rig_expect(fd, ESTABLISHED, NULL);
    struct ibv_sge sge = {(uintptr_t)&word, sizeof(word), mr->lkey};
    struct ibv_send_wr read = {.sg_list = &sge,
                               .num_sge = 1,
                               .opcode = IBV_WR_RDMA_READ,
                               .send_flags = IBV_SEND_SIGNALED,
                               .wr.rdma = {.remote_addr = 1, .rkey = 1}},
                       *bad;
    assert_int_equal(ibv_post_send(active.qp, &read, &bad), 0);
    assert_int_equal(ibv_poll_cq(active.cq, 1, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_LOC_QP_OP_ERR);
    rig_expect(fd, DISCONNECTED, NULL);
    rig_expect(fd, DISCONNECTED, NULL);
    destroy_ids((uint32_t[]){from, event.id, listener}, 3);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    close_end(&active);
    close_end(&passive);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_channel, close_channel)

int main(void)
{
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        TEST(bind__a_low_port_is_refused_as_the_kernel_refuses_it),
        TEST(listen__a_port_of_tcp_is_in_use_then),
        TEST(listen__a_second_time_is_refused_and_the_first_goes_on),
        TEST(listen__a_port_that_is_chosen_is_free_in_tcp),
        TEST(listen__not_for_datagrams),
        TEST(connect__private_data_up_to_252_bytes),
        TEST(request__shows_255_bytes_of_what_came),
        TEST(requests__come_in_the_order_in_which_peers_ask),
        TEST(accept__wants_parameters_and_a_queue_pair),
        TEST(reject__is_told_as_a_reset_with_its_data),
        TEST(connect__nobody_listens),
        TEST(connect__to_what_is_no_mpa),
        TEST(connect__to_who_never_replies),
        TEST(connect__an_older_peer_is_asked_again),
        TEST(attributes__as_the_kernel_gives_them),
        TEST(query_qp__knows_no_address_of_the_peer),
        TEST(disconnect__by_sqd_and_once_more),
        TEST(disconnect__is_told_before_the_next_request),
        TEST(disconnect__from_a_peer_that_never_closes),
        TEST(read__without_a_depth_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
