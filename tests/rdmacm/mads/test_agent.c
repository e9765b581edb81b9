/* SPDX-License-Identifier: BSD-2-Clause */
/* How MADs find the process they are for: the direct way, and by packets. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "member.h"
#include "wire/cm_mad.h"

enum { TCP = 0x0106, PORT = 7471 };
#define SERVICE ((uint64_t)TCP << 16 | PORT)

static struct sw_cm_path path_to(const char *where)
{
    struct sw_cm_path path = {.ifindex = 1, .pkey = 0xffff};
    struct in6_addr to = address(where), from = address(strchr(where, ':') ? "::1" : "127.0.0.1");
    memcpy(path.remote_gid, &to, 16);
    memcpy(path.local_gid, &from, 16);
    return path;
}

static struct order request(const struct member *from, enum sw_cm_attribute attribute,
                            const char *where, uint64_t service_id)
{
    struct order order = {.kind = ORDER_SEND, .count = 1, .path = path_to(where)};
    struct sw_cm_message message = {.attribute = attribute, .transaction = 99};
    uint32_t id = from->slot << 21 | 3;
    if (attribute == SW_CM_REQ) {
        message.req.local_comm_id = id;
        message.req.service_id = service_id;
    } else {
        message.sidr_req.request_id = id;
        message.sidr_req.service_id = service_id;
    }
    sw_cm_mad_encode(&message, order.mad);
    return order;
}

static struct order reply(const struct sw_cm_path *path, const struct member *to)
{
    struct order order = {.kind = ORDER_SEND, .count = 1, .path = *path};
    struct sw_cm_message message = {.attribute = SW_CM_REP,
                                    .rep = {.remote_comm_id = to->slot << 21 | 3}};
    sw_cm_mad_encode(&message, order.mad);
    return order;
}

static int listen_at(struct member *member, const char *where, bool afonly, uint16_t port)
{
    struct sw_cm_port_name name = {
        .space = TCP, .port = port, .address = address(where), .afonly = afonly};
    int rc = member_claim(member, &name, NULL);
    return rc ? rc
              : member_do(member, &(struct order){.kind = ORDER_LISTEN,
                                                  .service_id = (uint64_t)TCP << 16 | port})
                    .rc;
}

/* The next MAD, of the kind expected. */
static struct report mad_of(struct member *member, enum sw_cm_attribute attribute,
                            struct sw_cm_message *message)
{
    struct report report = member_next(member);
    if (report.kind != REPORT_MAD)
        member_fail_with(member, &report);
    assert_int_equal(sw_cm_mad_decode(report.mad, SW_MAD_BYTES, message), SW_CM_MAD_FAULT_NONE);
    if (message->attribute != attribute)
        member_fail_with(member, &report);
    return report;
}

/* A request, its reply, and the word back. `direct`: the paths name processes. */
static void converse(const char *where, bool direct)
{
    struct member server = member_start(), client = member_start();
    struct sw_cm_message message;
    assert_int_equal(listen_at(&server, strchr(where, ':') ? "::" : "0.0.0.0", true, PORT), 0);

    struct order order = request(&client, SW_CM_REQ, where, SERVICE);
    member_do(&client, &order);
    struct report asked = mad_of(&server, SW_CM_REQ, &message);
    assert_int_equal(asked.path.slot, direct ? client.slot : 0);
    assert_memory_equal(asked.path.local_gid, order.path.remote_gid, 16);
    assert_memory_equal(asked.path.remote_gid, order.path.local_gid, 16);
    assert_int_equal(asked.path.ifindex, 1);

    order = reply(&asked.path, &client);
    member_do(&server, &order);
    struct report answered = mad_of(&client, SW_CM_REP, &message);
    assert_int_equal(answered.path.slot, direct ? server.slot : 0);
    assert_memory_equal(answered.path.remote_gid, asked.path.local_gid, 16);

    order = reply(&answered.path, &server);
    member_do(&client, &order);
    mad_of(&server, SW_CM_REP, &message);
    member_is_quiet(&server);
    member_is_quiet(&client);
    member_stop(&server);
    member_stop(&client);
}

static void sw_agent_send__to_and_fro_ipv4(void **state)
{
    (void)state;
    converse("127.0.0.1", true);
}

static void sw_agent_send__to_and_fro_ipv6(void **state)
{
    (void)state;
    converse("::1", true);
}

static void sw_agent_send__to_and_fro_by_packets_ipv4(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LINK", "roce", 1);
    converse("127.0.0.1", false);
    unsetenv("SIDEWIRE_LINK");
}

static void sw_agent_send__to_and_fro_by_packets_ipv6(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LINK", "roce", 1);
    converse("::1", false);
    unsetenv("SIDEWIRE_LINK");
}

/* Processes that may not look into each other: as if by packets, though over the same sockets. */
static void sw_agent_send__to_and_fro_between_strangers(void **state)
{
    (void)state;
    setenv("MEMBER_STRANGER", "1", 1);
    converse("127.0.0.1", false);
    converse("::1", false);
    unsetenv("MEMBER_STRANGER");
}

/* It may hand on another host's request, as anybody may who shares the port. All else that it says
 * is its own, and comes from here. */
static void sw_agent_send__a_stranger_speaks_for_this_host_alone(void **state)
{
    (void)state;
    const struct in6_addr elsewhere = address("10.1.2.3");
    setenv("MEMBER_STRANGER", "1", 1);
    struct member server = member_start(), client = member_start();
    unsetenv("MEMBER_STRANGER");
    struct sw_cm_message message;
    assert_int_equal(listen_at(&server, "0.0.0.0", false, PORT), 0);
    struct sw_cm_path path = path_to("127.0.0.1");
    memcpy(path.local_gid, &elsewhere, 16);
    struct order order = reply(&path, &server);
    member_do(&client, &order);
    member_is_quiet(&server);
    order = request(&client, SW_CM_REQ, "127.0.0.1", SERVICE);
    memcpy(order.path.local_gid, &elsewhere, 16);
    member_do(&client, &order);
    struct report asked = mad_of(&server, SW_CM_REQ, &message);
    assert_int_equal(asked.path.slot, 0);
    assert_memory_equal(asked.path.remote_gid, &elsewhere, 16);
    path = path_to("127.0.0.1");
    order = reply(&path, &server);
    member_do(&client, &order);
    mad_of(&server, SW_CM_REP, &message);
    member_stop(&server);
    member_stop(&client);
}

/* A caller that connects and proves nothing is sent away where others would be in want of
 * descriptors. */
static void sw_local_open__bounds_those_who_prove_nothing(void **state)
{
    (void)state;
    enum { COUNT = 600, KEPT = 512 };
    struct member server = member_start(), client = member_start();
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const int len = snprintf(to.sun_path + 1, 64, "sidewire.%u.cm", server.slot);
    int callers[COUNT];
    for (int i = 0; i < COUNT; i++) {
        callers[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(callers[i], (struct sockaddr *)&to,
                                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)),
                         0);
    }
    for (int i = 0; i < COUNT - KEPT; i++) {
        struct pollfd end = {.fd = callers[i], .events = POLLRDHUP};
        assert_int_equal(poll(&end, 1, 30000), 1);
    }
    struct pollfd last = {.fd = callers[COUNT - 1], .events = POLLRDHUP};
    assert_int_equal(poll(&last, 1, 0), 0);
    for (int i = 0; i < COUNT; i++)
        close(callers[i]);
    struct sw_cm_message message;
    assert_int_equal(listen_at(&server, "0.0.0.0", false, PORT), 0);
    struct order order = request(&client, SW_CM_REQ, "127.0.0.1", SERVICE);
    member_do(&client, &order);
    mad_of(&server, SW_CM_REQ, &message);
    member_stop(&server);
    member_stop(&client);
}

/* REQ and SIDR_REQ, while there is a process with the port open, or none but the asker. */
static void service_is_refused(struct member *client, const char *where, uint64_t service_id)
{
    struct sw_cm_message message;
    struct order order = request(client, SW_CM_REQ, where, service_id);
    member_do(client, &order);
    mad_of(client, SW_CM_REJ, &message);
    assert_int_equal(message.rej.remote_comm_id, client->slot << 21 | 3);
    assert_int_equal(message.rej.reason, SW_CM_REASON_SERVICE_ID);
    assert_int_equal(message.transaction, 99);
    order = request(client, SW_CM_SIDR_REQ, where, service_id);
    member_do(client, &order);
    mad_of(client, SW_CM_SIDR_REP, &message);
    assert_int_equal(message.sidr_rep.request_id, client->slot << 21 | 3);
    assert_int_equal(message.sidr_rep.status, SW_CM_SIDR_UNSUPPORTED);
}

static void is_refused(struct member *client, const char *where)
{
    service_is_refused(client, where, SERVICE);
    service_is_refused(client, where, 0); /* which nobody can listen to */
}

static void sw_agent_send__refused_where_nobody_listens(void **state)
{
    (void)state;
    struct member client = member_start(), server = member_start();
    struct sw_cm_message message;
    is_refused(&client, "127.0.0.1");
    assert_int_equal(listen_at(&server, "127.0.0.1", false, PORT), 0);
    struct order order = request(&client, SW_CM_REQ, "127.0.0.1", SERVICE);
    member_do(&client, &order);
    mad_of(&server, SW_CM_REQ, &message);
    is_refused(&client, "127.0.0.2");
    member_do(&server, &(struct order){.kind = ORDER_RELEASE, .which = 0});
    is_refused(&client, "127.0.0.1");
    member_stop(&client);
    member_stop(&server);
}

static void sw_agent_send__refused_by_packets_where_nobody_listens(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LINK", "roce", 1);
    struct member client = member_start();
    is_refused(&client, "127.0.0.1");
    is_refused(&client, "::1");
    member_stop(&client);
    unsetenv("SIDEWIRE_LINK");
}

static void sw_agent_send__refused_by_strangers_where_nobody_listens(void **state)
{
    (void)state;
    setenv("MEMBER_STRANGER", "1", 1);
    struct member client = member_start(), server = member_start();
    struct sw_cm_message message;
    assert_int_equal(listen_at(&server, "127.0.0.1", false, PORT), 0);
    struct order order = request(&client, SW_CM_REQ, "127.0.0.1", SERVICE);
    member_do(&client, &order);
    mad_of(&server, SW_CM_REQ, &message);
    is_refused(&client, "127.0.0.2");
    member_stop(&client);
    member_stop(&server);
    unsetenv("MEMBER_STRANGER");
}

/* Three processes listen to one port at three addresses. */
static void listeners_by_address(void)
{
    const char *const where[] = {"127.0.0.1", "127.0.0.2", "::1"};
    struct member servers[3], client;
    struct sw_cm_message message;
    for (int i = 0; i < 3; i++) {
        servers[i] = member_start();
        assert_int_equal(listen_at(&servers[i], where[i], true, PORT), 0);
    }
    client = member_start();
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 3; i++) {
            struct order order = request(&client, SW_CM_REQ, where[i], SERVICE);
            member_do(&client, &order);
            mad_of(&servers[i], SW_CM_REQ, &message);
        }
    for (int i = 0; i < 3; i++) {
        member_is_quiet(&servers[i]);
        member_stop(&servers[i]);
    }
    member_stop(&client);
}

static void sw_agent_send__to_the_listener_of_the_address(void **state)
{
    (void)state;
    listeners_by_address();
}

/* Whichever of them the kernel gave the packet to. */
static void sw_agent_send__to_the_listener_of_the_address_by_packets(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LINK", "roce", 1);
    listeners_by_address();
    unsetenv("SIDEWIRE_LINK");
}

/* The packet may have come to a process that the listener refuses. */
static void sw_agent_send__to_the_listener_by_packets_to_a_stranger(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LINK", "roce", 1);
    setenv("MEMBER_STRANGER", "1", 1);
    listeners_by_address();
    unsetenv("MEMBER_STRANGER");
    unsetenv("SIDEWIRE_LINK");
}

/* The next listener gets it. */
static void sw_agent_send__to_the_next_listener(void **state)
{
    (void)state;
    struct member one = member_start(), other = member_start(), client = member_start();
    struct sw_cm_message message;
    struct order order = request(&client, SW_CM_REQ, "127.0.0.1", SERVICE);
    assert_int_equal(listen_at(&one, "0.0.0.0", false, PORT), 0);
    member_do(&client, &order);
    mad_of(&one, SW_CM_REQ, &message);
    member_do(&one, &(struct order){.kind = ORDER_RELEASE, .which = 0});
    assert_int_equal(listen_at(&other, "0.0.0.0", false, PORT), 0);
    usleep(50000); /* the asker's engine sees the end of the connection to the service */
    member_do(&client, &order);
    mad_of(&other, SW_CM_REQ, &message);
    member_is_quiet(&one);
    member_stop(&one);
    member_stop(&other);
    member_stop(&client);
}

/* The client has asked the server for a connection. */
static struct report be_asked(struct member *server, struct member *client)
{
    struct sw_cm_message message;
    assert_int_equal(listen_at(server, "0.0.0.0", false, PORT), 0);
    struct order order = request(client, SW_CM_REQ, "127.0.0.1", SERVICE);
    member_do(client, &order);
    return mad_of(server, SW_CM_REQ, &message);
}

static void sw_agent_user_gone__told_of_who_dies(void **state)
{
    (void)state;
    struct member server = member_start(), client = member_start();
    struct sw_cm_message message;
    struct report asked = be_asked(&server, &client);
    struct order order = reply(&asked.path, &client);
    member_do(&server, &order);
    mad_of(&client, SW_CM_REP, &message);

    member_kill(&server);
    /* Also of what it asked for, as nobody remembers that it was answered. */
    bool gone = false, refused = false;
    while (!gone || !refused) {
        struct report report = member_next(&client);
        if (report.kind == REPORT_GONE) {
            assert_int_equal(report.value, server.slot);
            gone = true;
        } else {
            assert_int_equal(sw_cm_mad_decode(report.mad, SW_MAD_BYTES, &message), 0);
            assert_int_equal(message.attribute, SW_CM_REJ);
            assert_int_equal(message.rej.remote_comm_id, client.slot << 21 | 3);
            refused = true;
        }
    }
    member_is_quiet(&client);
    order = request(&client, SW_CM_REQ, "127.0.0.1", SERVICE);
    member_do(&client, &order);
    mad_of(&client, SW_CM_REJ, &message);
    member_stop(&client);
}

/* Its request was read when there was no connection with it any more. */
static void sw_agent_user_gone__told_when_the_answer_finds_nobody(void **state)
{
    (void)state;
    struct member server = member_start(), client = member_start();
    struct report asked = be_asked(&server, &client);
    member_kill(&client);
    member_is_quiet(&server); /* which had nothing to do with it but the request */
    struct order order = reply(&asked.path, &client);
    member_do(&server, &order);
    struct report told = member_next(&server);
    assert_int_equal(told.kind, REPORT_GONE);
    assert_int_equal(told.value, client.slot);
    member_is_quiet(&server);
    member_stop(&server);
}

/* Another process of its port takes what comes for a process that has died: its machine knows of no
 * such connection, and says so. */
static void sw_agent_send__to_the_dead_by_packets(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LINK", "roce", 1);
    struct member dead = member_start(), heir = member_start(), peer = member_start();
    struct sw_cm_path path = path_to("127.0.0.1");
    struct sw_cm_message message;
    /* Both that live have the port open: whoever gets the packet takes it. */
    struct order order = reply(&path, &peer);
    member_do(&peer, &order);
    mad_of(&peer, SW_CM_REP, &message);
    order = reply(&path, &heir);
    member_do(&heir, &order);
    mad_of(&heir, SW_CM_REP, &message);
    member_kill(&dead);
    order = reply(&path, &dead);
    member_do(&peer, &order);
    struct pollfd who[2] = {{.fd = heir.reports, .events = POLLIN},
                            {.fd = peer.reports, .events = POLLIN}};
    assert_int_equal(poll(who, 2, 30000), 1);
    mad_of(who[0].revents ? &heir : &peer, SW_CM_REP, &message);
    assert_int_equal(message.rep.remote_comm_id, dead.slot << 21 | 3);
    member_is_quiet(&heir);
    member_is_quiet(&peer);
    member_stop(&heir);
    member_stop(&peer);
    unsetenv("SIDEWIRE_LINK");
}

/* More than any socket holds, and nobody reads for a while: the listener is stopped. */
static void sw_agent_send__a_storm_arrives_in_order(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct member server = member_start(), clients[2] = {member_start(), member_start()};
    assert_int_equal(listen_at(&server, "0.0.0.0", false, PORT), 0);
    for (int i = 0; i < 2; i++) {
        struct order order = request(&clients[i], SW_CM_REQ, "127.0.0.1", SERVICE);
        order.count = COUNT;
        order.value = (uint32_t)i * COUNT;
        member_do(&clients[i], &order);
    }
    uint32_t next[2] = {0, COUNT};
    for (int i = 0; i < 2 * COUNT; i++) {
        struct report report = member_next(&server);
        assert_int_equal(report.kind, REPORT_MAD);
        assert_int_equal(report.value, next[report.value >= COUNT]);
        next[report.value >= COUNT]++;
    }
    member_is_quiet(&server);
    member_stop(&server);
    for (int i = 0; i < 2; i++)
        member_kill(&clients[i]); /* it still says who is gone */
}

int main(void)
{
    int rc = enter_namespace();
    if (rc)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_agent_send__to_and_fro_ipv4),
        cmocka_unit_test(sw_agent_send__to_and_fro_ipv6),
        cmocka_unit_test(sw_agent_send__to_and_fro_by_packets_ipv4),
        cmocka_unit_test(sw_agent_send__to_and_fro_by_packets_ipv6),
        cmocka_unit_test(sw_agent_send__to_and_fro_between_strangers),
        cmocka_unit_test(sw_agent_send__a_stranger_speaks_for_this_host_alone),
        cmocka_unit_test(sw_agent_send__refused_by_strangers_where_nobody_listens),
        cmocka_unit_test(sw_agent_send__to_the_listener_by_packets_to_a_stranger),
        cmocka_unit_test(sw_local_open__bounds_those_who_prove_nothing),
        cmocka_unit_test(sw_agent_send__refused_where_nobody_listens),
        cmocka_unit_test(sw_agent_send__refused_by_packets_where_nobody_listens),
        cmocka_unit_test(sw_agent_send__to_the_listener_of_the_address),
        cmocka_unit_test(sw_agent_send__to_the_listener_of_the_address_by_packets),
        cmocka_unit_test(sw_agent_send__to_the_next_listener),
        cmocka_unit_test(sw_agent_user_gone__told_of_who_dies),
        cmocka_unit_test(sw_agent_user_gone__told_when_the_answer_finds_nobody),
        cmocka_unit_test(sw_agent_send__to_the_dead_by_packets),
        cmocka_unit_test(sw_agent_send__a_storm_arrives_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
