/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections between the IDs of one process and of two: events with all their fields, private
 * data, backlog, refusals, disconnects and ends. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../rig.h"

#define REQ_PRIVATE 56 /* behind the header of the IP CM service */
#define REP_PRIVATE 196
#define REJ_PRIVATE 148
#define SIDR_REQ_PRIVATE 180
#define SIDR_REP_PRIVATE 136

/* The passive and the active side, each with a channel of its own. */
static int passive, active;

static int setup(void **state)
{
    (void)state;
    passive = rig_open(O_NONBLOCK);
    active = rig_open(O_NONBLOCK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(active);
    close(passive);
    return 0;
}

/* A listener, an ID that has sent it a request, and the ID of the request. */
struct meeting {
    uint32_t listener, from, to;
    uint16_t port;
    struct rdma_ucm_event_resp request;
};

static void ask(struct meeting *meeting, uint16_t port_space, const char *host, const void *data,
                uint8_t len)
{
    meeting->listener = rig_listener(passive, port_space, host, 0);
    meeting->port = rig_port(passive, meeting->listener);
    meeting->from = rig_active(active, port_space, host, meeting->port);
    assert_int_equal(rig_connect(active, meeting->from, data, len), 0);
    rig_expect(passive, CONNECT_REQUEST, &meeting->request);
    meeting->to = meeting->request.id;
}

static void meet(struct meeting *meeting, const char *host)
{
    struct rdma_ucm_event_resp event;
    ask(meeting, RDMA_PS_TCP, host, NULL, 0);
    assert_int_equal(rig_accept(passive, meeting->to, NULL, 0), 0);
    rig_expect(active, CONNECT_RESPONSE, NULL);
    assert_int_equal(rig_ready(active, meeting->from), 0);
    rig_expect(passive, ESTABLISHED, &event);
    assert_int_equal(event.uid, RIG_UID + meeting->to);
    assert_int_equal(event.id, meeting->to);
}

static void is_ece_of(const struct rdma_ucm_ece *ece, uint32_t id)
{
    const struct rdma_ucm_ece wanted = rig_ece(id);
    assert_memory_equal(ece, &wanted, sizeof(wanted));
}

static void connect__tells_each_side_all_of_the_other(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "::1"};
    static const char *const sources[] = {"127.0.0.1", "127.0.0.1", "::1"};
    for (int i = 0; i < 3; i++) {
        struct meeting m;
        struct rdma_ucm_event_resp event;
        struct rdma_ucm_query_addr_resp address;
        struct sockaddr_storage wanted;
        ask(&m, RDMA_PS_TCP, hosts[i], "hello", 5);
        const struct rdma_ucm_conn_param *conn = &m.request.param.conn;
        assert_int_equal(m.request.status, 0);
        assert_int_equal(conn->private_data_len, REQ_PRIVATE);
        assert_memory_equal(conn->private_data, "hello\0\0", 7);
        assert_int_equal(conn->qp_num, 0x100 + m.from);
        assert_int_equal(conn->responder_resources, 2); /* the peer's depth, and the other way */
        assert_int_equal(conn->initiator_depth, 3);
        assert_int_equal(conn->retry_count, 5);
        assert_int_equal(conn->rnr_retry_count, 6);
        is_ece_of(&m.request.ece, m.from);
        assert_int_equal(rig_query_addr(passive, m.to, &address), 0);
        rig_address(hosts[i], m.port, &wanted);
        assert_memory_equal(&address.src_addr, &wanted, address.src_size);
        rig_address(sources[i], rig_port(active, m.from), &wanted);
        assert_memory_equal(&address.dst_addr, &wanted, address.dst_size);
        assert_true(address.node_guid);

        assert_int_equal(rig_accept(passive, m.to, "welcome", 7), 0);
        rig_expect(active, CONNECT_RESPONSE, &event);
        conn = &event.param.conn;
        assert_int_equal(event.id, m.from);
        assert_int_equal(conn->private_data_len, REP_PRIVATE);
        assert_memory_equal(conn->private_data, "welcome\0", 8);
        is_ece_of(&event.ece, m.to);
        assert_int_equal(conn->qp_num, 0x100 + m.to);
        assert_int_equal(conn->responder_resources, 2);
        assert_int_equal(conn->initiator_depth, 3);
        assert_int_equal(conn->rnr_retry_count, 6);
        assert_false(rig_has_event(passive)); /* not before the other is ready */
        assert_int_equal(rig_ready(active, m.from), 0);
        rig_expect(passive, ESTABLISHED, NULL);
        assert_int_equal(rig_ready(active, m.from), EINVAL); /* once */
    }
}

static void init_qp_attr__of_a_connection(void **state)
{
    (void)state;
    struct meeting m;
    struct ib_uverbs_qp_attr mine, other;
    const uint8_t gid[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    const uint32_t rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const uint32_t rts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                         IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    ask(&m, RDMA_PS_TCP, "127.0.0.1", NULL, 0);
    assert_int_equal(rig_init_qp_attr(active, m.from, IBV_QPS_RTR, &mine), EINVAL); /* of whom? */
    assert_int_equal(rig_init_qp_attr(passive, m.to, IBV_QPS_INIT, &other), 0);
    assert_int_equal(other.qp_attr_mask,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    assert_int_equal(other.qp_access_flags,
                     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    assert_int_equal(rig_accept(passive, m.to, NULL, 0), 0);
    rig_expect(active, CONNECT_RESPONSE, NULL);

    assert_int_equal(rig_init_qp_attr(active, m.from, IBV_QPS_RTR, &mine), 0);
    assert_int_equal(rig_init_qp_attr(passive, m.to, IBV_QPS_RTS, &other), 0);
    assert_int_equal(mine.qp_attr_mask, rtr);
    assert_int_equal(other.qp_attr_mask, rts);
    assert_int_equal(mine.dest_qp_num, 0x100 + m.to);
    assert_int_equal(mine.max_dest_rd_atomic, 2); /* as the REP says */
    assert_int_equal(mine.rq_psn, other.sq_psn);
    assert_memory_equal(mine.ah_attr.grh.dgid, gid, 16);
    assert_int_equal(mine.ah_attr.is_global, 1);
    assert_int_equal(mine.ah_attr.grh.sgid_index % 2, 1); /* RoCE v2 */
    assert_int_equal(other.retry_cnt, 5);
    assert_int_equal(other.rnr_retry, 6);
    assert_int_equal(other.max_rd_atomic, 2);
    assert_true(other.timeout);

    assert_int_equal(rig_init_qp_attr(active, m.from, IBV_QPS_RTS, &mine), 0);
    assert_int_equal(rig_init_qp_attr(passive, m.to, IBV_QPS_RTR, &other), 0);
    assert_int_equal(other.qp_attr_mask, rtr);
    assert_int_equal(mine.qp_attr_mask, rts);
    assert_int_equal(other.dest_qp_num, 0x100 + m.from);
    assert_int_equal(other.rq_psn, mine.sq_psn);
    assert_int_equal(mine.max_rd_atomic, 3);
}

static void private_data__at_its_limits(void **state)
{
    (void)state;
    struct meeting m;
    struct rdma_ucm_event_resp event;
    uint8_t data[255];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i + 1);
    ask(&m, RDMA_PS_TCP, "127.0.0.1", data, REQ_PRIVATE);
    assert_memory_equal(m.request.param.conn.private_data, data, REQ_PRIVATE);
    assert_int_equal(rig_accept(passive, m.to, data, REP_PRIVATE), 0);
    rig_expect(active, CONNECT_RESPONSE, &event);
    assert_memory_equal(event.param.conn.private_data, data, REP_PRIVATE);

    uint32_t id = rig_active(active, RDMA_PS_TCP, "127.0.0.1", m.port);
    assert_int_equal(rig_connect(active, id, data, REQ_PRIVATE + 1), EINVAL);
    assert_int_equal(rig_connect(active, id, NULL, 0), 0); /* nothing has happened */
    rig_expect(passive, CONNECT_REQUEST, &event);
    assert_int_equal(rig_reject(passive, event.id, data, REJ_PRIVATE + 1), EINVAL);
    assert_int_equal(rig_reject(passive, event.id, data, REJ_PRIVATE), 0);
    rig_expect(active, REJECTED, &event);
    assert_int_equal(event.status, 28);
    assert_int_equal(event.param.conn.private_data_len, REJ_PRIVATE);
    assert_memory_equal(event.param.conn.private_data, data, REJ_PRIVATE);
}

static void accept__with_too_much_data_refuses(void **state)
{
    (void)state;
    struct meeting m;
    struct rdma_ucm_event_resp event;
    uint8_t data[REP_PRIVATE + 1] = {0};
    ask(&m, RDMA_PS_TCP, "127.0.0.1", NULL, 0);
    assert_int_equal(rig_accept(passive, m.to, data, sizeof(data)), EINVAL);
    rig_expect(active, REJECTED, &event);
    assert_int_equal(event.status, 28);
}

static void connect__nobody_listens(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint32_t listener = rig_listener(passive, RDMA_PS_TCP, "127.0.0.1", 0);
    uint16_t port = rig_port(passive, listener);
    assert_int_equal(rig_destroy(passive, listener, NULL), 0);
    uint32_t id = rig_active(active, RDMA_PS_TCP, "127.0.0.1", port);
    assert_int_equal(rig_connect(active, id, NULL, 0), 0);
    rig_expect(active, REJECTED, &event);
    assert_int_equal(event.status, 8); /* invalid service ID */
    assert_int_equal(rig_connect(active, id, NULL, 0), EINVAL);
}

static void disconnect__tells_both(void **state)
{
    (void)state;
    struct meeting m;
    struct rdma_ucm_event_resp event;
    for (int by_passive = 0; by_passive < 2; by_passive++) {
        meet(&m, "127.0.0.1");
        int first = by_passive ? passive : active, second = by_passive ? active : passive;
        uint32_t one = by_passive ? m.to : m.from, other = by_passive ? m.from : m.to;
        assert_int_equal(rig_disconnect(first, one), 0);
        rig_expect(second, DISCONNECTED, &event);
        assert_int_equal(event.id, other);
        assert_int_equal(event.status, 0);
        assert_int_equal(rig_disconnect(second, other), 0);
        rig_expect(first, DISCONNECTED, NULL);
        assert_int_equal(rig_disconnect(second, other), 0); /* it is over, which is fine */
        assert_int_equal(rig_destroy(second, other, NULL), 0);
        assert_int_equal(rig_destroy(first, one, NULL), 0);
    }
}

static void destroy__ends_the_connection(void **state)
{
    (void)state;
    struct meeting m;
    struct rdma_ucm_event_resp event;
    meet(&m, "127.0.0.1");
    assert_int_equal(rig_destroy(active, m.from, NULL), 0);
    rig_expect(passive, DISCONNECTED, &event);
    assert_int_equal(event.id, m.to);
    ask(&m, RDMA_PS_TCP, "127.0.0.1", NULL, 0);
    assert_int_equal(rig_destroy(passive, m.to, NULL), 0);
    rig_expect(active, REJECTED, &event);
    assert_int_equal(event.status, 28);
}

/* A listener that ends takes the requests along that nobody has fetched. */
static void destroy__of_a_listener_refuses_requests(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint32_t reported, listener = rig_listener(passive, RDMA_PS_TCP, "127.0.0.1", 0);
    uint32_t id = rig_active(active, RDMA_PS_TCP, "127.0.0.1", rig_port(passive, listener));
    assert_int_equal(rig_connect(active, id, NULL, 0), 0);
    for (int i = 0; i < 10000 && !rig_has_event(passive); i++)
        usleep(1000);
    assert_int_equal(rig_destroy(passive, listener, &reported), 0);
    assert_int_equal(reported, 0);
    assert_false(rig_has_event(passive));
    rig_expect(active, REJECTED, &event);
    assert_int_equal(event.status, 28);
}

static void close__of_a_channel_ends_its_connections(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, "127.0.0.1");
    close(passive);
    rig_expect(active, DISCONNECTED, NULL);
    passive = rig_open(O_NONBLOCK);
}

/* Returns whether no more requests waited than the backlog says. */
static bool keep_to_backlog(void)
{
    enum { ROOM = 2, ASKING = 4 };
    struct rdma_ucm_event_resp event;
    int come = 0;
    const uint32_t listener = rig_listener(passive, RDMA_PS_TCP, "127.0.0.1", ROOM);
    for (int i = 0; i < ASKING; i++) {
        uint32_t id = rig_active(active, RDMA_PS_TCP, "127.0.0.1", rig_port(passive, listener));
        assert_int_equal(rig_connect(active, id, NULL, 0), 0);
    }
    usleep(50000);
    for (; come < ROOM; come++)
        rig_expect(passive, CONNECT_REQUEST, &event);
    const int rc = rig_get_event(passive, &event);
    for (come += rc == 0; come < ASKING; come++)
        rig_expect(passive, CONNECT_REQUEST, &event);
    assert_false(rig_has_event(active)); /* nobody was refused */
    return rc == EAGAIN;
}

/* No more requests wait than the backlog says; the others ask again, after 0.2 s. Where this
 * process stood still meanwhile, one of them has found room: then it is looked at once more. */
static void listen__backlog(void **state)
{
    (void)state;
    bool keeps = false;
    for (int round = 0; round < 20 && !keeps; round++)
        keeps = keep_to_backlog();
    assert_true(keeps);
}

/* An ID whose program has not accepted yet has no uid, so nothing is told of it. A program that
 * accepts then is told that nobody is there. */
static void request__withdrawn_before_it_is_accepted(void **state)
{
    (void)state;
    struct meeting m;
    ask(&m, RDMA_PS_TCP, "127.0.0.1", NULL, 0);
    assert_int_equal(rig_destroy(active, m.from, NULL), 0);
    usleep(50000);
    assert_false(rig_has_event(passive));
    if (rig_accept(passive, m.to, NULL, 0) != EINVAL)
        rig_expect(passive, REJECTED, NULL);
    assert_int_equal(rig_destroy(passive, m.to, NULL), 0);
}

static void notify__stands_in_for_a_lost_rtu(void **state)
{
    (void)state;
    struct meeting m;
    ask(&m, RDMA_PS_TCP, "127.0.0.1", NULL, 0);
    assert_int_equal(rig_accept(passive, m.to, NULL, 0), 0);
    struct rdma_ucm_notify in = {.id = m.to, .event = IBV_EVENT_COMM_EST};
    assert_int_equal(rig_command(passive, RDMA_USER_CM_CMD_NOTIFY, &in, sizeof(in), 0), 0);
    rig_expect(passive, ESTABLISHED, NULL);
    rig_expect(active, CONNECT_RESPONSE, NULL);
    assert_int_equal(rig_ready(active, m.from), 0);
    usleep(20000);
    assert_false(rig_has_event(passive)); /* once */
    in.event = IBV_EVENT_QP_FATAL;
    assert_int_equal(rig_command(passive, RDMA_USER_CM_CMD_NOTIFY, &in, sizeof(in), 0), EINVAL);
}

static void listen__wildcard_serves_both_families(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct rdma_ucm_query_addr_resp address;
    uint32_t listener = rig_listener(passive, RDMA_PS_TCP, "::", 0);
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    for (int i = 0; i < 2; i++) {
        uint32_t id = rig_active(active, RDMA_PS_TCP, hosts[i], rig_port(passive, listener));
        assert_int_equal(rig_connect(active, id, NULL, 0), 0);
        rig_expect(passive, CONNECT_REQUEST, &event);
        assert_int_equal(rig_query_addr(passive, event.id, &address), 0);
        assert_int_equal(address.src_addr.ss_family, i ? AF_INET6 : AF_INET);
        assert_int_equal(rig_reject(passive, event.id, NULL, 0), 0);
        rig_expect(active, REJECTED, NULL);
    }
}

static void datagrams__find_their_queue_pair(void **state)
{
    (void)state;
    struct meeting m;
    struct rdma_ucm_event_resp event;
    ask(&m, RDMA_PS_UDP, "127.0.0.1", "who", 3);
    assert_int_equal(m.request.param.ud.private_data_len, SIDR_REQ_PRIVATE);
    assert_memory_equal(m.request.param.ud.private_data, "who", 3);
    assert_int_equal(rig_accept(passive, m.to, "me", 2), 0);
    rig_expect(active, ESTABLISHED, &event);
    assert_int_equal(event.status, 0);
    assert_int_equal(event.param.ud.qp_num, 0x100 + m.to);
    assert_int_equal(event.param.ud.qkey, 0x01234567);
    assert_int_equal(event.param.ud.private_data_len, SIDR_REP_PRIVATE);
    assert_memory_equal(event.param.ud.private_data, "me", 2);
    assert_int_equal(event.param.ud.ah_attr.grh.dgid[12], 127);
    assert_int_equal(event.param.ud.ah_attr.port_num, 1);

    uint32_t id = rig_active(active, RDMA_PS_UDP, "127.0.0.1", m.port);
    assert_int_equal(rig_connect(active, id, NULL, 0), 0);
    rig_expect(passive, CONNECT_REQUEST, &event);
    assert_int_equal(rig_reject(passive, event.id, "no", 2), 0);
    rig_expect(active, UNREACHABLE, &event);
    assert_int_equal(event.status, 2);
    assert_memory_equal(event.param.ud.private_data, "no", 2);
}

/* Runs in a child: accepts one connection, then is killed or exits. */
static void serve_once(int report, bool accepts)
{
    struct rdma_ucm_event_resp event;
    int fd = rig_open(0);
    uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 0);
    uint16_t port = rig_port(fd, listener);
    if (write(report, &port, sizeof(port)) != sizeof(port))
        _exit(1);
    rig_expect(fd, CONNECT_REQUEST, &event);
    if (accepts) {
        rig_accept(fd, event.id, "child", 5);
        rig_expect(fd, ESTABLISHED, NULL);
    }
    if (write(report, &port, sizeof(port)) != sizeof(port))
        _exit(1);
    for (;;)
        pause();
}

static void meet_and_lose(bool accepts, uint32_t then)
{
    int ends[2], status;
    uint16_t port;
    struct rdma_ucm_event_resp event;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        serve_once(ends[1], accepts);
    assert_int_equal(read(ends[0], &port, sizeof(port)), sizeof(port));
    uint32_t id = rig_active(active, RDMA_PS_TCP, "127.0.0.1", port);
    assert_int_equal(rig_connect(active, id, "parent", 6), 0);
    if (accepts) {
        rig_expect(active, CONNECT_RESPONSE, &event);
        assert_memory_equal(event.param.conn.private_data, "child", 5);
        assert_int_equal(rig_ready(active, id), 0);
    }
    assert_int_equal(read(ends[0], &port, sizeof(port)), sizeof(port));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    rig_expect(active, then, NULL);
    assert_int_equal(rig_destroy(active, id, NULL), 0);
    close(ends[0]);
    close(ends[1]);
}

static void killed__peer_is_told(void **state)
{
    (void)state;
    meet_and_lose(true, DISCONNECTED);
}

static void killed__before_it_has_accepted(void **state)
{
    (void)state;
    meet_and_lose(false, REJECTED);
}

static void many__connections_one_after_another(void **state)
{
    (void)state;
    uint32_t listener = rig_listener(passive, RDMA_PS_TCP, "127.0.0.1", 0);
    for (int i = 0; i < 1000; i++) {
        struct rdma_ucm_event_resp event;
        uint32_t id = rig_active(active, RDMA_PS_TCP, "127.0.0.1", rig_port(passive, listener));
        assert_int_equal(rig_connect(active, id, NULL, 0), 0);
        rig_expect(passive, CONNECT_REQUEST, &event);
        uint32_t to = event.id;
        assert_int_equal(rig_accept(passive, to, NULL, 0), 0);
        rig_expect(active, CONNECT_RESPONSE, NULL);
        assert_int_equal(rig_ready(active, id), 0);
        rig_expect(passive, ESTABLISHED, NULL);
        assert_int_equal(rig_disconnect(active, id), 0);
        rig_expect(passive, DISCONNECTED, NULL);
        assert_int_equal(rig_disconnect(passive, to), 0);
        rig_expect(active, DISCONNECTED, NULL);
        assert_int_equal(rig_destroy(active, id, NULL), 0);
        assert_int_equal(rig_destroy(passive, to, NULL), 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(connect__tells_each_side_all_of_the_other),
        TEST(init_qp_attr__of_a_connection),
        TEST(private_data__at_its_limits),
        TEST(accept__with_too_much_data_refuses),
        TEST(connect__nobody_listens),
        TEST(disconnect__tells_both),
        TEST(destroy__ends_the_connection),
        TEST(destroy__of_a_listener_refuses_requests),
        TEST(close__of_a_channel_ends_its_connections),
        TEST(listen__backlog),
        TEST(request__withdrawn_before_it_is_accepted),
        TEST(notify__stands_in_for_a_lost_rtu),
        TEST(listen__wildcard_serves_both_families),
        TEST(datagrams__find_their_queue_pair),
        TEST(killed__peer_is_told),
        TEST(killed__before_it_has_accepted),
        TEST(many__connections_one_after_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
