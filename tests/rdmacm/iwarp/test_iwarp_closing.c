/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments that are forged while this side closes its connection, by a peer that is a plain TCP
 * socket: just before the end, when it may still be looked at, and behind the FIN. They change no
 * memory and complete no receive; at most one Terminate answers, and the next connection goes well.
 * And ends that come together with the next request.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../preload/namespace.h"
#include "iwarp_rig.h"

enum { REGION_BYTES = 4096, RECEIVE_BYTES = 64, FPDU_MAX = 512, PATIENCE_MS = 10000 };
enum { TAGGED = 0xc1, UNTAGGED = 0x41, SEGMENT_MORE = 0x01 };
enum { WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, TERMINATE = 7 };

/* The side that closes. */
struct victim {
    struct end end;
    struct ibv_mr *mr;
    uint8_t *region, *receive; /* that peers may write and read; and that SENDs go to */
};

/* ---- what is forged ---- */

static void put_number(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

/* The ULPDU is at to + 2. */
static size_t close_fpdu(uint8_t *to, size_t ulpdu_len)
{
    put_number(to, ulpdu_len, 2);
    return 2 + ulpdu_len + (-(ulpdu_len + 2) & 3) + 4;
}

static size_t tagged(uint8_t *to, uint8_t opcode, uint32_t key, uint64_t at, size_t len)
{
    to[2] = TAGGED;
    to[3] = (uint8_t)(0x40 | opcode);
    put_number(to + 4, key, 4);
    put_number(to + 8, at, 8);
    memset(to + 16, 0xee, len);
    return close_fpdu(to, 14 + len);
}

static size_t untagged(uint8_t *to, uint8_t opcode, uint32_t queue, uint32_t msn, size_t len)
{
    to[2] = UNTAGGED;
    to[3] = (uint8_t)(0x40 | opcode);
    put_number(to + 8, queue, 4);
    put_number(to + 12, msn, 4);
    memset(to + 20, 0xee, len);
    return close_fpdu(to, 18 + len);
}

static size_t read_request(uint8_t *to, uint32_t key, uint64_t at)
{
    const size_t len = untagged(to, READ_REQUEST, 1, 1, 28);
    put_number(to + 20, 0x1234, 4);
    put_number(to + 24, 0, 8);
    put_number(to + 32, 64, 4);
    put_number(to + 36, key, 4);
    put_number(to + 40, at, 8);
    return len;
}

typedef size_t (*forgery_fn)(const struct victim *v, uint8_t *to);

static size_t write_by_no_key(const struct victim *v, uint8_t *to)
{
    return tagged(to, WRITE, v->mr->rkey + 0x10000, (uintptr_t)v->region, 64);
}

static size_t write_beyond(const struct victim *v, uint8_t *to)
{
    return tagged(to, WRITE, v->mr->rkey, (uintptr_t)v->region + REGION_BYTES - 8, 64);
}

static size_t write_that_wraps(const struct victim *v, uint8_t *to)
{
    return tagged(to, WRITE, v->mr->rkey, UINT64_MAX - 3, 64);
}

static size_t read_by_no_key(const struct victim *v, uint8_t *to)
{
    return read_request(to, v->mr->rkey + 0x10000, (uintptr_t)v->region);
}

static size_t answer_to_no_read(const struct victim *v, uint8_t *to)
{
    return tagged(to, READ_RESPONSE, v->mr->lkey, (uintptr_t)v->region, 64);
}

static size_t send_out_of_turn(const struct victim *v, uint8_t *to)
{
    (void)v;
    return untagged(to, SEND, 0, 2, 16);
}

static size_t send_too_long(const struct victim *v, uint8_t *to)
{
    (void)v;
    return untagged(to, SEND, 0, 1, RECEIVE_BYTES + 1);
}

static size_t send_begun(const struct victim *v, uint8_t *to)
{
    (void)v;
    const size_t len = untagged(to, SEND, 0, 1, 16);
    to[2] = SEGMENT_MORE;
    return len;
}

static size_t invalidate_of_no_key(const struct victim *v, uint8_t *to)
{
    const size_t len = untagged(to, SEND_INVALIDATE, 0, 1, 16);
    put_number(to + 4, v->mr->rkey + 0x10000, 4);
    return len;
}

static size_t no_such_queue(const struct victim *v, uint8_t *to)
{
    (void)v;
    return untagged(to, SEND, 9, 1, 16);
}

static size_t no_such_opcode(const struct victim *v, uint8_t *to)
{
    (void)v;
    return untagged(to, 14, 0, 1, 16);
}

static size_t no_such_version(const struct victim *v, uint8_t *to)
{
    const size_t len = write_by_no_key(v, to);
    to[2] &= 0xfc;
    return len;
}

static size_t short_fpdu(const struct victim *v, uint8_t *to)
{
    (void)v;
    return close_fpdu(to, 2);
}

static size_t half_fpdu(const struct victim *v, uint8_t *to)
{
    return write_by_no_key(v, to) / 2;
}

static size_t terminate(const struct victim *v, uint8_t *to)
{
    (void)v;
    const size_t len = untagged(to, TERMINATE, 2, 1, 4);
    put_number(to + 20, 0x02ff0000, 4);
    return len;
}

static size_t noise(const struct victim *v, uint8_t *to)
{
    (void)v;
    memset(to, 0x5a, FPDU_MAX);
    return FPDU_MAX;
}

/* What would have been good a little earlier. */
static size_t good_write(const struct victim *v, uint8_t *to)
{
    return tagged(to, WRITE, v->mr->rkey, (uintptr_t)v->region, 64);
}

static size_t good_read(const struct victim *v, uint8_t *to)
{
    return read_request(to, v->mr->rkey, (uintptr_t)v->region);
}

static size_t good_send(const struct victim *v, uint8_t *to)
{
    (void)v;
    return untagged(to, SEND, 0, 1, 16);
}

static const forgery_fn forgeries[] = {
    write_by_no_key,   write_beyond,
    write_that_wraps,  read_by_no_key,
    answer_to_no_read, send_out_of_turn,
    send_too_long,     send_begun,
    no_such_queue,     invalidate_of_no_key,
    no_such_opcode,    no_such_version,
    short_fpdu,        half_fpdu,
    terminate,         noise,
};
static const forgery_fn late_ones[] = {good_write, good_read, good_send};
#define COUNT_OF(list) (sizeof(list) / sizeof((list)[0]))

/* ---- the connection ---- */

static void open_victim(struct victim *v)
{
    enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
    open_end(&v->end, "iw_lo");
    assert_int_equal(
        ibv_modify_qp(v->end.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT), 0);
    v->region = calloc(2, REGION_BYTES);
    assert_non_null(v->region);
    v->receive = v->region + REGION_BYTES;
    v->mr = ibv_reg_mr(v->end.pd, v->region, REGION_BYTES, ACCESS);
    assert_non_null(v->mr);
}

static struct ibv_mr *post_receive(struct victim *v)
{
    struct ibv_mr *mr = ibv_reg_mr(v->end.pd, v->receive, RECEIVE_BYTES, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge sge = {(uintptr_t)v->receive, RECEIVE_BYTES, mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(ibv_post_recv(v->end.qp, &wr, &bad), 0);
    return mr;
}

static void close_victim(struct victim *v)
{
    assert_int_equal(ibv_dereg_mr(v->mr), 0);
    free(v->region);
    close_end(&v->end);
}

static void connect_to(struct asking *asking, struct victim *v)
{
    uint8_t reply[START_BYTES];
    begin_asking(asking, 0, 1, NULL, 0);
    assert_int_equal(accept_id(asking->event.id, &v->end, NULL, 0), 0);
    rig_expect(fd, ESTABLISHED, NULL);
    read_whole(asking->peer, reply, sizeof(reply));
}

/* All that comes until the other side has closed; its length. */
static size_t read_to_end(int peer, uint8_t *bytes, size_t room)
{
    size_t len = 0;
    for (;;) {
        struct pollfd readable = {.fd = peer, .events = POLLIN};
        assert_int_equal(poll(&readable, 1, PATIENCE_MS), 1);
        const ssize_t got = recv(peer, bytes + len, room - len, 0);
        if (got <= 0)
            return len;
        len += (size_t)got;
        assert_true(len < room);
    }
}

/* The receive was flushed, or failed for what came. */
static void no_receive_is_good(const struct victim *v)
{
    struct ibv_wc wc;
    int count;
    for (int i = 0; !(count = ibv_poll_cq(v->end.cq, 1, &wc)) && i < PATIENCE_MS; i++)
        usleep(1000);
    assert_int_equal(count, 1);
    assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
}

static void region_is_untouched(const struct victim *v)
{
    static const uint8_t zeros[REGION_BYTES];
    assert_memory_equal(v->region, zeros, REGION_BYTES);
}

static void forge_at_close(forgery_fn forge, bool is_behind)
{
    uint8_t bytes[FPDU_MAX] = {0}, answer[FPDU_MAX];
    struct asking asking;
    struct victim v;
    size_t got = 0;
    open_victim(&v);
    struct ibv_mr *mr = post_receive(&v);
    connect_to(&asking, &v);
    const size_t len = forge(&v, bytes);
    if (is_behind) {
        assert_int_equal(rig_disconnect(fd, asking.event.id), 0);
        assert_int_equal(read_to_end(asking.peer, answer, sizeof(answer)), 0);
    }
    assert_int_equal(send(asking.peer, bytes, len, MSG_NOSIGNAL), len);
    if (!is_behind) {
        rig_disconnect(fd, asking.event.id); /* which may find that it has ended */
        got = read_to_end(asking.peer, answer, sizeof(answer));
    }
    if (got) /* a Terminate, and nothing behind it */
        assert_int_equal(answer[3] & 0xf, TERMINATE);
    if (got)
        assert_int_equal(got, close_fpdu(bytes, (size_t)(answer[0] << 8 | answer[1])));
    assert_int_equal(shutdown(asking.peer, SHUT_WR), 0);
    rig_expect(fd, DISCONNECTED, NULL);
    no_receive_is_good(&v);
    region_is_untouched(&v);
    end_asking(&asking);
    region_is_untouched(&v);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    close_victim(&v);
}

/* Bytes that are refused behind the end are good on a connection that stands. */
static void next_one_goes_well(void)
{
    uint8_t bytes[FPDU_MAX] = {0}, answer[FPDU_MAX];
    struct asking asking;
    struct victim v;
    struct ibv_wc wc;
    int count;
    open_victim(&v);
    struct ibv_mr *mr = post_receive(&v);
    connect_to(&asking, &v);
    size_t len = good_write(&v, bytes);
    assert_int_equal(send(asking.peer, bytes, len, MSG_NOSIGNAL), len);
    memset(bytes, 0, sizeof(bytes));
    len = good_send(&v, bytes);
    assert_int_equal(send(asking.peer, bytes, len, MSG_NOSIGNAL), len);
    for (int i = 0; !(count = ibv_poll_cq(v.end.cq, 1, &wc)) && i < PATIENCE_MS; i++)
        usleep(1000);
    assert_int_equal(count, 1);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(v.region[0], 0xee);
    assert_int_equal(rig_disconnect(fd, asking.event.id), 0);
    assert_int_equal(shutdown(asking.peer, SHUT_WR), 0);
    read_to_end(asking.peer, answer, sizeof(answer));
    rig_expect(fd, DISCONNECTED, NULL);
    end_asking(&asking);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    close_victim(&v);
}

static void disconnect__forged_just_before(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(forgeries); i++)
        forge_at_close(forgeries[i], false);
    next_one_goes_well();
    is_quiet();
}

static void disconnect__forged_behind_the_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(forgeries); i++)
        forge_at_close(forgeries[i], true);
    for (size_t i = 0; i < COUNT_OF(late_ones); i++)
        forge_at_close(late_ones[i], true);
    next_one_goes_well();
    is_quiet();
}

/* ---- ends before requests ---- */

struct served {
    struct end end;
    uint32_t id;
    int peer;
};

/* Accepts the request of this event. */
static void serve_peer(struct served *s, const struct rdma_ucm_event_resp *event, int peer)
{
    uint8_t reply[START_BYTES];
    s->id = event->id;
    s->peer = peer;
    open_end(&s->end, "iw_lo");
    assert_int_equal(accept_id(s->id, &s->end, NULL, 0), 0);
    rig_expect(fd, ESTABLISHED, NULL);
    read_whole(peer, reply, sizeof(reply));
}

static void end_peer(struct served *s)
{
    close(s->peer);
    destroy_ids(&s->id, 1);
    close_end(&s->end);
}

/* A peer with many connections ends the last of them, and asks for the next one at once. */
static void disconnect__of_many_is_told_before_the_next_request(void **state)
{
    (void)state;
    enum { MANY = 70, TURNS = 30 };
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 4);
    const uint16_t port = rig_port(fd, listener);
    struct rdma_ucm_event_resp event;
    static struct served all[MANY];
    for (int i = 0; i < MANY; i++) {
        const int peer = tcp_connect(port);
        send_start(peer, "MPA ID Req Frame", 0, 1, NULL, 0);
        rig_expect(fd, CONNECT_REQUEST, &event);
        serve_peer(&all[i], &event, peer);
    }
    for (int i = 0; i < TURNS; i++) {
        struct served *last = &all[MANY - 1];
        const int next = tcp_connect(port);
        shutdown(last->peer, SHUT_RDWR);
        send_start(next, "MPA ID Req Frame", 0, 1, NULL, 0);
        rig_expect(fd, DISCONNECTED, NULL);
        rig_expect(fd, CONNECT_REQUEST, &event);
        end_peer(last);
        serve_peer(last, &event, next);
    }
    destroy_ids(&listener, 1);
    for (int i = 0; i < MANY; i++)
        end_peer(&all[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_channel, close_channel)

int main(void)
{
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        TEST(disconnect__forged_just_before),
        TEST(disconnect__forged_behind_the_end),
        TEST(disconnect__of_many_is_told_before_the_next_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
