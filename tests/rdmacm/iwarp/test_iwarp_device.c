/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iWARP devices as connection management has them, in a network namespace of the test's own: what
 * they say of themselves, interfaces that come and go, routes.
 *
 * test_iwarp_device [late]: with SIDEWIRE_DEVICES, the first iWARP device comes late
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
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

#define HOST "10.9.9.1"

/* ---- the device ---- */

static void device__has_what_iwarp_has(void **state)
{
    (void)state;
    struct ibv_context *context = open_device("iw_lo");
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    uint16_t pkey;
    assert_int_equal(ibv_query_device(context, &device), 0);
    assert_int_equal(device.max_sge_rd, 1);
    assert_int_equal(device.max_qp_rd_atom, 128);
    assert_int_equal(device.atomic_cap, IBV_ATOMIC_NONE);
    assert_int_equal(device.max_mcast_grp, 0);
    assert_int_equal(device.max_pkeys, 0);
    assert_int_equal(ibv_query_port(context, 1, &port), 0);
    assert_int_equal(port.gid_tbl_len, 1);
    assert_int_equal(port.pkey_tbl_len, 0);
    assert_int_equal(port.max_msg_sz, 1u << 31);
    assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_int_equal(ibv_query_gid(context, 1, 0, &gid), 0);
    assert_int_not_equal(ibv_query_gid(context, 1, 1, &gid), 0);
    assert_int_not_equal(ibv_query_pkey(context, 1, 0, &pkey), 0);
    assert_int_equal(ibv_close_device(context), 0);
}

static void device__refuses_what_iwarp_has_not(void **state)
{
    (void)state;
    static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND};
    struct end end;
    open_end(&end, "iw_lo");
    struct ibv_ah_attr address = {.is_global = 1, .port_num = 1};
    union ibv_gid group = {.raw = {0xff, 0x0e}};
    errno = 0;
    assert_null(ibv_create_ah(end.pd, &address));
    assert_int_equal(errno, EOPNOTSUPP);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct ibv_qp_init_attr init = {.send_cq = end.cq,
                                        .recv_cq = end.cq,
                                        .cap = {.max_send_wr = 1, .max_send_sge = 1},
                                        .qp_type = types[i]};
        assert_null(ibv_create_qp(end.pd, &init));
        assert_int_equal(errno, EOPNOTSUPP);
    }
    struct ibv_xrcd_init_attr domain = {.comp_mask =
                                            IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                        .fd = -1,
                                        .oflags = O_CREAT};
    assert_null(ibv_open_xrcd(end.context, &domain));
    assert_int_equal(errno, EOPNOTSUPP);
    assert_int_not_equal(ibv_attach_mcast(end.qp, &group, 0), 0);
    close_end(&end);
}

/* ---- interfaces that come and go ---- */

#define TRIES 3000 /* 10 ms each */

/* Returns when it is known here: then IDs can be bound to its address. */
static void add_interface(void)
{
    uint32_t id;
    int rc, tries = 0;
    assert_int_equal(system("ip link add sw0 address 02:00:00:00:01:01 type veth peer name sw1 && "
                            "ip link set sw1 up && ip link set sw0 up && "
                            "ip address add " HOST "/24 dev sw0"),
                     0);
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    while ((rc = rig_bind(fd, id, HOST, 0)) && ++tries < TRIES)
        usleep(10000);
    assert_int_equal(rc, 0);
    assert_int_equal(rig_destroy(fd, id, NULL), 0);
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

static int try_tcp(uint16_t port)
{
    struct sockaddr_storage to;
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rig_address("127.0.0.1", port, &to);
    const int rc = connect(peer, (struct sockaddr *)&to, sizeof(struct sockaddr_in)) ? errno : 0;
    close(peer);
    return rc;
}

/* A listener at any address follows the devices soon, though not at once. */
static void await_tcp(uint16_t port, int wanted)
{
    int rc, tries = 0;
    while ((rc = try_tcp(port)) != wanted && ++tries < TRIES)
        usleep(10000);
    assert_int_equal(rc, wanted);
}

/* The first iWARP device comes after the listener, and the last one goes before it. */
static void added__the_first_of_its_kind(void **state)
{
    (void)state;
    struct connection c = {.listener = rig_listener(fd, RDMA_PS_TCP, "0.0.0.0", 4)};
    const uint16_t port = rig_port(fd, c.listener);
    assert_int_equal(try_tcp(port), ECONNREFUSED);
    for (int round = 0; round < 2; round++) {
        add_interface();
        await_tcp(port, 0);
        make_connection(&c, HOST, "iw_sw0");
        delete_interface();
        rig_expect(fd, DEVICE_REMOVAL, NULL);
        rig_expect(fd, DEVICE_REMOVAL, NULL);
        is_quiet();
        await_tcp(port, ECONNREFUSED);
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
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY, &in, sizeof(in), sizeof(answer)), 0);
    memcpy(out[0], (uint8_t *)&answer.src_addr + 8, 16); /* struct sockaddr_ib */
    memcpy(out[1], (uint8_t *)&answer.dst_addr + 8, 16);
}

static uint64_t query_guid(uint32_t id)
{
    struct rdma_ucm_query_addr_resp answer;
    struct rdma_ucm_query in = {
        .response = (uintptr_t)&answer, .id = id, .option = RDMA_USER_CM_QUERY_ADDR};
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY, &in, sizeof(in), sizeof(answer)), 0);
    return answer.node_guid;
}

/* No device has the address: who calls it and who is called there have the loopback's. */
static void request__to_another_address_of_the_loopback(void **state)
{
    (void)state;
    struct connection c = {.listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.2", 4)};
    make_connection(&c, "127.0.0.2", "iw_lo");
    assert_int_equal(query_guid(c.to), query_guid(c.from));
    end_connection(&c);
}

/* Nobody answers for that address, until the kernel is told of a neighbour. */
static void query__gids_are_hardware_addresses(void **state)
{
    (void)state;
    static const uint8_t own[16] = {2, 0, 0, 0, 1, 1}, other[16] = {2, 0, 0, 0, 1, 2};
    struct rdma_ucm_query_route_resp route;
    uint8_t gids[2][16];
    uint32_t id;
    add_interface();
    assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "10.9.9.2", 4711), 0);
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "10.9.9.2", 4711), EINVAL); /* it goes on */
    assert_false(rig_has_event(fd));
    assert_int_equal(
        system("ip neighbour replace 10.9.9.2 lladdr 02:00:00:00:01:02 dev sw0 nud reachable"), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    query_gids(id, gids);
    assert_memory_equal(gids[0], own, 16);
    assert_memory_equal(gids[1], other, 16);
    assert_int_equal(rig_resolve_route(fd, id), 0);
    rig_expect(fd, ROUTE_RESOLVED, NULL);
    struct rdma_ucm_query in = {.response = (uintptr_t)&route, .id = id};
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, &in, sizeof(in), sizeof(route)),
                     0);
    assert_int_equal(route.num_paths, 0);
    assert_memory_equal(route.ib_route[0].sgid, own, 16);
    assert_memory_equal(route.ib_route[0].dgid, other, 16);
    destroy_ids(&id, 1);
    delete_interface();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_channel, close_channel)

int main(int argc, char **argv)
{
    (void)argv;
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return 77;
    }
    if (argc == 1) /* its device comes before that of the loopback */
        assert_int_equal(system("ip link add eth7 type veth peer name eth8 && ip link set eth8 up "
                                "&& ip link set eth7 up && ip address add 10.9.8.1/24 dev eth7"),
                         0);
    const struct CMUnitTest tests[] = {
        TEST(device__has_what_iwarp_has),
        TEST(device__refuses_what_iwarp_has_not),
        TEST(added__a_listener_at_any_address_has_it),
        TEST(removed__the_queue_pair_is_flushed),
        TEST(request__to_another_address_of_the_loopback),
        TEST(query__gids_are_hardware_addresses),
    };
    const struct CMUnitTest late[] = {TEST(added__the_first_of_its_kind)};
    return argc > 1 ? cmocka_run_group_tests(late, NULL, NULL)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
