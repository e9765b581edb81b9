/* SPDX-License-Identifier: BSD-2-Clause */
/* IDs whose device vanishes: an interface of the test's own network namespace is deleted. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../preload/namespace.h"
#include "../rig.h"

#define HOST "10.9.9.1"

#define QUIET_US 100000

static int fd;

/* A program that opens the device finds all interfaces that are there. */
static int add_interface(void **state)
{
    (void)state;
    if (system("ip link add sw0 type veth peer name sw1 && ip link set sw1 up && "
               "ip link set sw0 up && ip address add " HOST "/24 dev sw0"))
        return -1;
    fd = rig_open(O_NONBLOCK);
    return 0;
}

static int close_channel(void **state)
{
    (void)state;
    return close(fd);
}

static void delete_interface(void)
{
    assert_int_equal(system("ip link del sw0"), 0);
}

static void is_quiet(void)
{
    usleep(QUIET_US);
    assert_false(rig_has_event(fd));
}

static void is_removed(uint32_t id, uint32_t events_reported)
{
    struct rdma_ucm_query_addr_resp names;
    uint32_t reported;
    assert_int_equal(rig_query_addr(fd, id, &names), ENXIO);
    assert_int_equal(rig_listen(fd, id, 1), ENXIO);
    assert_int_equal(rig_connect(fd, id, NULL, 0), ENXIO);
    assert_int_equal(rig_disconnect(fd, id), ENXIO);
    assert_int_equal(rig_destroy(fd, id, &reported), 0);
    assert_int_equal(reported, events_reported);
    assert_int_equal(rig_destroy(fd, id, NULL), ENOENT);
}

static uint64_t node_of(uint32_t id)
{
    struct rdma_ucm_query_addr_resp address;
    assert_int_equal(rig_query_addr(fd, id, &address), 0);
    return address.node_guid;
}

static uint32_t to_loopback(const char *from)
{
    uint32_t id;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_resolve_addr(fd, id, from, "127.0.0.1", 4711), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    return id;
}

/* The loopback has come up: who resolves knows of it soon, though not at once. */
static void await_loopback(uint64_t other_node)
{
    uint64_t node;
    int tries = 0;
    do {
        const uint32_t id = to_loopback("127.0.0.1");
        node = node_of(id);
        assert_int_equal(rig_destroy(fd, id, NULL), 0);
        usleep(tries ? 10000 : 0);
    } while (node == other_node && ++tries < 1000);
    assert_int_not_equal(node, other_node);
}

/* No device has 127.0.0.9: the loopback's stands in for it, though here it came up last. */
static void resolve__from_any_loopback_address_by_the_loopbacks_device(void **state)
{
    (void)state;
    uint32_t known, other, on_host;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &on_host), 0);
    assert_int_equal(rig_bind(fd, on_host, HOST, 0), 0); /* its device is the first */
    assert_int_equal(system("ip link set lo up"), 0);
    await_loopback(node_of(on_host));
    known = to_loopback("127.0.0.1");
    other = to_loopback("127.0.0.9");
    assert_int_not_equal(node_of(known), 0);
    assert_int_equal(node_of(other), node_of(known));
    assert_int_not_equal(node_of(other), node_of(on_host));
    assert_int_equal(rig_destroy(fd, known, NULL), 0);
    assert_int_equal(rig_destroy(fd, other, NULL), 0);
    assert_int_equal(rig_destroy(fd, on_host, NULL), 0);
    delete_interface();
}

/* As a kernel's RoCE device, which has no subnet administrator. */
static void bind__to_the_address_of_a_device_has_it(void **state)
{
    (void)state;
    struct rdma_ucm_query_addr_resp address;
    struct rig_resolve_ib_service in = {.service_id = 1, .flags = 1};
    uint32_t id;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_bind(fd, id, HOST, 0), 0);
    assert_int_equal(rig_query_addr(fd, id, &address), 0);
    assert_int_not_equal(address.node_guid, 0);
    assert_int_equal(address.port_num, 1);
    in.id = id;
    assert_int_equal(rig_command(fd, RIG_CMD_RESOLVE_IB_SERVICE, &in, sizeof(in), 0), EOPNOTSUPP);
    assert_int_equal(rig_destroy(fd, id, NULL), 0);
    delete_interface();
}

/* IDs of which the first alone is bound to the device. */
struct ids {
    uint32_t bound, elsewhere, wildcard;
};

static void bind_ids(struct ids *ids)
{
    ids->wildcard = rig_listener(fd, RDMA_PS_TCP, "0.0.0.0", 0);
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &ids->bound), 0);
    assert_int_equal(rig_bind(fd, ids->bound, HOST, 0), 0);
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &ids->elsewhere), 0);
    assert_int_equal(rig_bind(fd, ids->elsewhere, "127.0.0.1", 0), 0);
}

static void removal__is_told_to_who_is_bound(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct ids ids;
    bind_ids(&ids);
    delete_interface();
    rig_expect(fd, DEVICE_REMOVAL, &event);
    assert_int_equal(event.id, ids.bound);
    assert_true(event.uid > RIG_UID);
    assert_int_equal(event.status, 0);
    is_quiet();
    is_removed(ids.bound, 1);
    assert_int_equal(rig_destroy(fd, ids.wildcard, NULL), 0);
    assert_int_equal(rig_destroy(fd, ids.elsewhere, NULL), 0);
}

/* Connects an ID whose route is resolved; returns that of the other end. */
static uint32_t establish(uint32_t from)
{
    struct rdma_ucm_event_resp event;
    assert_int_equal(rig_connect(fd, from, NULL, 0), 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    const uint32_t to = event.id;
    assert_int_equal(rig_accept(fd, to, NULL, 0), 0);
    rig_expect(fd, CONNECT_RESPONSE, NULL);
    assert_int_equal(rig_ready(fd, from), 0);
    rig_expect(fd, ESTABLISHED, NULL);
    return to;
}

/* Both ends are of this host, and of this device. */
static void removal__ends_connections(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "0.0.0.0", 0);
    uint32_t from = rig_active(fd, RDMA_PS_TCP, HOST, rig_port(fd, listener));
    uint32_t to = establish(from);
    delete_interface();
    uint32_t told[2];
    for (int i = 0; i < 2; i++) {
        rig_expect(fd, DEVICE_REMOVAL, &event);
        told[i] = event.id;
    }
    assert_true((told[0] == from && told[1] == to) || (told[0] == to && told[1] == from));
    is_quiet();          /* and nothing of a disconnect */
    is_removed(from, 4); /* address, route, response, removal */
    is_removed(to, 2);
    assert_int_equal(rig_destroy(fd, listener, NULL), 0);
}

static void removal__tells_a_peer_elsewhere(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 0), from;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &from), 0);
    assert_int_equal(rig_resolve_addr(fd, from, HOST, "127.0.0.1", rig_port(fd, listener)), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    assert_int_equal(rig_resolve_route(fd, from), 0);
    rig_expect(fd, ROUTE_RESOLVED, NULL);
    uint32_t to = establish(from);
    delete_interface();
    rig_expect(fd, DEVICE_REMOVAL, &event);
    assert_int_equal(event.id, from);
    rig_expect(fd, DISCONNECTED, &event);
    assert_int_equal(event.id, to);
    is_removed(from, 4);
    assert_int_equal(rig_destroy(fd, to, NULL), 0);
    assert_int_equal(rig_destroy(fd, listener, NULL), 0);
}

/* Its request is fetched all the same, and can only be destroyed. */
static void removal__of_a_request_that_waits(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "0.0.0.0", 0);
    uint32_t from = rig_active(fd, RDMA_PS_TCP, HOST, rig_port(fd, listener));
    struct pollfd request = {.fd = fd, .events = POLLIN};
    assert_int_equal(rig_connect(fd, from, NULL, 0), 0);
    assert_int_equal(poll(&request, 1, 30000), 1);
    delete_interface();
    rig_expect(fd, CONNECT_REQUEST, &event);
    uint32_t to = event.id;
    rig_expect(fd, DEVICE_REMOVAL, &event);
    assert_int_equal(event.id, from);
    assert_int_equal(rig_accept(fd, to, NULL, 0), ENXIO);
    is_removed(to, 0);
    is_removed(from, 3);
    assert_int_equal(rig_destroy(fd, listener, NULL), 0);
}

/* IDs bound to the one before do not come to life by it. */
static void removal__of_an_interface_that_comes_again(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint32_t before = rig_listener(fd, RDMA_PS_TCP, HOST, 0);
    uint16_t port = rig_port(fd, before);
    delete_interface();
    rig_expect(fd, DEVICE_REMOVAL, &event);
    assert_int_equal(event.id, before);
    int old = fd;
    assert_int_equal(add_interface(NULL), 0);
    uint32_t after;
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &after), 0);
    assert_int_equal(rig_bind(fd, after, HOST, port), 0); /* the port is free */
    assert_int_equal(rig_listen(fd, after, 0), 0);
    uint32_t from = rig_active(fd, RDMA_PS_TCP, HOST, port);
    assert_int_equal(rig_connect(fd, from, NULL, 0), 0);
    rig_expect(fd, CONNECT_REQUEST, &event);
    assert_int_equal(rig_reject(fd, event.id, NULL, 0), 0);
    rig_expect(fd, REJECTED, NULL);
    delete_interface();
    int current = fd;
    fd = old;
    is_removed(before, 1);
    close(old);
    fd = current;
}

static void address__another_one_is_told_to_who_is_bound(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    struct ids ids;
    bind_ids(&ids);
    assert_int_equal(system("ip address add 10.9.9.2/24 dev sw0 && ip link set sw0 mtu 1400"), 0);
    is_quiet(); /* that is no other hardware address */
    assert_int_equal(system("ip link set sw0 address 02:00:00:00:0a:0b"), 0);
    rig_expect(fd, ADDR_CHANGE, &event);
    assert_int_equal(event.id, ids.bound);
    assert_int_equal(event.status, 0);
    is_quiet();
    assert_int_equal(rig_listen(fd, ids.bound, 1), 0); /* it goes on */
    assert_int_equal(rig_destroy(fd, ids.bound, NULL), 0);
    assert_int_equal(rig_destroy(fd, ids.wildcard, NULL), 0);
    assert_int_equal(rig_destroy(fd, ids.elsewhere, NULL), 0);
    delete_interface();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, add_interface, close_channel)

int main(void)
{
    if (namespace_enter(CLONE_NEWNET)) {
        printf("SKIP: no network namespace\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        TEST(resolve__from_any_loopback_address_by_the_loopbacks_device), /* the loopback is down */
        TEST(bind__to_the_address_of_a_device_has_it),
        TEST(removal__is_told_to_who_is_bound),
        TEST(removal__ends_connections),
        TEST(removal__tells_a_peer_elsewhere),
        TEST(removal__of_a_request_that_waits),
        TEST(removal__of_an_interface_that_comes_again),
        TEST(address__another_one_is_told_to_who_is_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
