/* SPDX-License-Identifier: BSD-2-Clause */
/* IDs before they connect: addresses, routes, options, and the errno of each misuse, which is the
 * kernel's. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../preload/namespace.h"
#include "../rig.h"

static int fd;

static int setup(void **state)
{
    (void)state;
    fd = rig_open(O_NONBLOCK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return close(fd);
}

static uint32_t create(uint16_t port_space)
{
    uint32_t id;
    assert_int_equal(rig_create(fd, port_space, &id), 0);
    return id;
}

/* The GUID as query returns it, of the loopback device. */
static uint64_t loopback_guid(void)
{
    uint64_t guid = 0;
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(list[i]), "sw_lo"))
            guid = ibv_get_device_guid(list[i]);
    ibv_free_device_list(list);
    assert_true(guid);
    return guid;
}

static void bind__takes_a_free_port(void **state)
{
    (void)state;
    struct rdma_ucm_query_addr_resp address;
    uint32_t id = create(RDMA_PS_TCP);
    assert_int_equal(rig_bind(fd, id, "127.0.0.1", 0), 0);
    assert_true(rig_port(fd, id) >= 1024);
    assert_int_equal(rig_query_addr(fd, id, &address), 0);
    assert_int_equal(address.src_size, sizeof(struct sockaddr_in));
    assert_int_equal(rig_bind(fd, id, "127.0.0.1", 0), EINVAL); /* it is bound */
}

/* A stock kernel 6.1 with rdma_rxe, asked by rdma_bind_addr() and rdma_resolve_addr() in the guest
 * of tests/kernel, for RDMA_PS_TCP and RDMA_PS_UDP:
 *
 *   bind 127.0.0.1, ::1, 0.0.0.0: verbs NULL, and after rdma_listen() still NULL
 *   resolve to it, bound to it before or not: ADDR_RESOLVED, verbs rxe0, source 127.0.0.1 or ::1
 *   bind 10.77.0.12, the address of the guest's device: verbs rxe0
 *
 * librdmacm sets verbs where the query tells a node GUID. For RDMA_PS_UDP we tell it all the same:
 * "udpong -b 127.0.0.1" and "udpong -s 127.0.0.1" end there by a segmentation fault. */
static void bind__to_loopback_names_no_device(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "::1", "127.0.0.5"};
    static const uint16_t spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP};
    for (int i = 0; i < 6; i++) {
        struct rdma_ucm_query_addr_resp address;
        uint32_t bound = create(spaces[i / 3]), id = create(spaces[i / 3]);
        assert_int_equal(rig_bind(fd, bound, hosts[i % 3], 0), 0);
        assert_int_equal(rig_bind(fd, id, hosts[i % 3], 0), 0);
        const uint64_t wanted = spaces[i / 3] == RDMA_PS_UDP && i % 3 < 2 ? loopback_guid() : 0;
        assert_int_equal(rig_query_addr(fd, id, &address), 0);
        assert_int_equal(address.node_guid, wanted);
        assert_int_equal(rig_listen(fd, id, 1), 0);
        assert_int_equal(rig_query_addr(fd, id, &address), 0);
        assert_int_equal(address.node_guid, wanted);
        assert_int_equal(rig_resolve_addr(fd, bound, NULL, hosts[i % 3], 7471), 0);
        rig_expect(fd, ADDR_RESOLVED, NULL);
        assert_int_equal(rig_query_addr(fd, bound, &address), 0);
        assert_int_equal(address.node_guid, loopback_guid());
        assert_int_equal(address.port_num, 1);
        assert_int_equal(address.pkey, 0xffff);
    }
}

static void bind__any_has_no_device(void **state)
{
    (void)state;
    struct rdma_ucm_query_addr_resp address;
    uint32_t id = create(RDMA_PS_TCP);
    assert_int_equal(rig_bind(fd, id, "0.0.0.0", 0), 0);
    assert_int_equal(rig_query_addr(fd, id, &address), 0);
    assert_int_equal(address.node_guid, 0);
    struct ib_uverbs_qp_attr attr;
    assert_int_equal(rig_init_qp_attr(fd, id, IBV_QPS_INIT, &attr), EINVAL);
}

static void bind__of_foreign_addresses_fails(void **state)
{
    (void)state;
    struct rdma_ucm_bind in = {.id = create(RDMA_PS_TCP), .addr_size = 16};
    assert_int_equal(rig_bind(fd, in.id, "192.0.2.77", 0), EADDRNOTAVAIL);
    assert_int_equal(rig_bind(fd, in.id, "2001:db8::77", 0), EADDRNOTAVAIL);
    assert_int_equal(rig_bind(fd, in.id, "fe80::77", 0), EINVAL); /* on which interface? */
    in.addr.ss_family = AF_UNIX;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_BIND, &in, sizeof(in), 0), EINVAL);
    in.addr.ss_family = AF_INET;
    in.addr_size = 17;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_BIND, &in, sizeof(in), 0), EINVAL);
    in.addr_size = 16;
    in.reserved = 1;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_BIND, &in, sizeof(in), 0), EINVAL);
    assert_int_equal(rig_bind(fd, in.id, "127.0.0.1", 0), 0); /* and nothing has happened so far */
}

static void bind__by_the_old_command(void **state)
{
    (void)state;
    struct rdma_ucm_bind_ip in = {.id = create(RDMA_PS_UDP)};
    struct sockaddr_storage place;
    rig_address("::1", 0, &place);
    memcpy(&in.addr, &place, sizeof(in.addr));
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_BIND_IP, &in, sizeof(in), 0), 0);
    assert_true(rig_port(fd, in.id) >= 1024);
}

static void bind__one_port_once(void **state)
{
    (void)state;
    uint32_t one = create(RDMA_PS_TCP), other = create(RDMA_PS_TCP), udp = create(RDMA_PS_UDP);
    assert_int_equal(rig_bind(fd, one, "127.0.0.1", 0), 0);
    uint16_t port = rig_port(fd, one);
    assert_int_equal(rig_bind(fd, other, "127.0.0.1", port), EADDRINUSE);
    assert_int_equal(rig_bind(fd, other, "0.0.0.0", port), EADDRNOTAVAIL);
    assert_int_equal(rig_bind(fd, udp, "127.0.0.1", port), 0); /* another port space */
    assert_int_equal(rig_destroy(fd, one, NULL), 0);
    assert_int_equal(rig_bind(fd, other, "127.0.0.1", port), 0);
}

static void bind__shares_a_port_by_reuseaddr(void **state)
{
    (void)state;
    int yes = 1;
    uint32_t one = create(RDMA_PS_TCP), other = create(RDMA_PS_TCP);
    assert_int_equal(
        rig_set_option(fd, one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)), 0);
    assert_int_equal(
        rig_set_option(fd, other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)), 0);
    assert_int_equal(rig_bind(fd, one, "127.0.0.1", 0), 0);
    assert_int_equal(rig_bind(fd, other, "127.0.0.1", rig_port(fd, one)), 0);
    assert_int_equal(rig_listen(fd, one, 1), EADDRINUSE); /* but nobody may listen then */
}

static void bind__afib_chooses_the_port_space(void **state)
{
    (void)state;
    struct {
        uint16_t family, pkey;
        uint32_t flowinfo;
        uint8_t gid[16];
        uint64_t sid, sid_mask, scope;
    } ib = {.family = AF_IB,
            .sid = htobe64(0x0000000001060000ull),
            .sid_mask = htobe64(0xffffffffffff0000ull)};
    struct rdma_ucm_bind in = {.id = create(RDMA_PS_IB), .addr_size = sizeof(ib)};
    memcpy(&in.addr, &ib, sizeof(ib));
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_BIND, &in, sizeof(in), 0), 0);
    struct rdma_ucm_query_addr_resp address;
    assert_int_equal(rig_query_addr(fd, in.id, &address), 0);
    assert_int_equal(address.src_size, sizeof(ib));
    memcpy(&ib, &address.src_addr, sizeof(ib));
    assert_int_equal(be64toh(ib.sid) >> 16, RDMA_PS_TCP);
    assert_true(be64toh(ib.sid) & 0xffff);
    in.id = create(RDMA_PS_UDP);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_BIND, &in, sizeof(in), 0), EPROTONOSUPPORT);
}

static void resolve_addr__finds_source_and_device(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    for (int i = 0; i < 2; i++) {
        struct rdma_ucm_query_addr_resp address;
        struct sockaddr_storage wanted;
        uint32_t id = create(RDMA_PS_TCP);
        assert_int_equal(rig_resolve_addr(fd, id, NULL, hosts[i], 7471), 0);
        rig_expect(fd, ADDR_RESOLVED, NULL);
        assert_int_equal(rig_query_addr(fd, id, &address), 0);
        assert_int_equal(address.node_guid, loopback_guid());
        rig_address(hosts[i], 7471, &wanted);
        assert_memory_equal(&address.dst_addr, &wanted, address.dst_size);
        rig_address(hosts[i], rig_port(fd, id), &wanted);
        assert_memory_equal(&address.src_addr, &wanted, address.src_size);
        assert_int_equal(rig_resolve_addr(fd, id, NULL, hosts[i], 7471), EINVAL); /* again */
    }
}

static void resolve_addr__zero_is_this_host(void **state)
{
    (void)state;
    struct rdma_ucm_query_addr_resp address;
    uint32_t id = create(RDMA_PS_TCP);
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "0.0.0.0", 7471), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    assert_int_equal(rig_query_addr(fd, id, &address), 0);
    assert_int_equal(address.node_guid, loopback_guid());
}

static void resolve_addr__errors(void **state)
{
    (void)state;
    uint32_t id = create(RDMA_PS_TCP);
    assert_int_equal(rig_resolve_addr(fd, 60000, NULL, "127.0.0.1", 1), ENOENT);
    assert_int_equal(rig_resolve_addr(fd, id, "::1", "127.0.0.1", 1), EINVAL);
    id = create(RDMA_PS_TCP);
    assert_int_equal(rig_resolve_addr(fd, id, "192.0.2.77", "127.0.0.1", 1), EADDRNOTAVAIL);
    assert_int_equal(rig_resolve_route(fd, id), EINVAL); /* no device */
    assert_false(rig_has_event(fd));
}

static void resolve_route__needs_an_address_and_time(void **state)
{
    (void)state;
    struct rdma_ucm_resolve_route in = {.id = create(RDMA_PS_TCP)};
    assert_int_equal(rig_resolve_addr(fd, in.id, NULL, "127.0.0.1", 7471), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &in, sizeof(in), 0), EINVAL);
    assert_int_equal(rig_connect(fd, in.id, NULL, 0), EINVAL); /* too early */
    assert_int_equal(rig_resolve_route(fd, in.id), 0);
    rig_expect(fd, ROUTE_RESOLVED, NULL);
    assert_int_equal(rig_resolve_route(fd, in.id), EINVAL); /* again */
}

static void query__path_and_route(void **state)
{
    (void)state;
    union {
        struct rdma_ucm_query_path_resp head;
        uint8_t room[sizeof(struct rdma_ucm_query_path_resp) + 2 * sizeof(struct ib_path_rec_data)];
    } paths;
    struct rdma_ucm_query_route_resp route;
    const uint8_t gid[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    uint32_t id = rig_active(fd, RDMA_PS_TCP, "127.0.0.1", 7471);
    struct rdma_ucm_query in = {
        .response = (uintptr_t)&paths, .id = id, .option = RDMA_USER_CM_QUERY_PATH};
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY, &in, sizeof(in), sizeof(paths)), 0);
    assert_int_equal(paths.head.num_paths, 1);
    assert_int_equal(paths.head.path_data[0].flags,
                     IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL);
    assert_memory_equal((uint8_t *)paths.head.path_data[0].path_rec + 8, gid, 16);
    assert_memory_equal((uint8_t *)paths.head.path_data[0].path_rec + 24, gid, 16);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY, &in, sizeof(in), 4), ENOSPC);
    in.option = 77;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY, &in, sizeof(in), 400), ENOSYS);

    in.response = (uintptr_t)&route;
    in.option = 0;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, &in, sizeof(in), sizeof(route)),
                     0);
    assert_int_equal(route.num_paths, 1);
    assert_int_equal(route.node_guid, loopback_guid());
    assert_memory_equal(route.ib_route[0].dgid, gid, 16);
    assert_int_equal(route.ib_route[0].pkey, 0xffff);
    assert_true(route.ib_route[0].mtu >= IBV_MTU_256 && route.ib_route[0].mtu <= IBV_MTU_4096);
    assert_int_equal(route.dst_addr.sin6_port, htons(7471));
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, &in, sizeof(in), 8), ENOSPC);
}

static void query__gid_has_service_ids(void **state)
{
    (void)state;
    struct rdma_ucm_query_addr_resp response;
    uint32_t id = rig_active(fd, RDMA_PS_TCP, "::1", 7471);
    struct rdma_ucm_query in = {
        .response = (uintptr_t)&response, .id = id, .option = RDMA_USER_CM_QUERY_GID};
    uint8_t ib[48];
    uint64_t sid;
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY, &in, sizeof(in), sizeof(response)), 0);
    assert_int_equal(response.dst_size, sizeof(ib));
    memcpy(ib, &response.dst_addr, sizeof(ib));
    memcpy(&sid, ib + 24, sizeof(sid));
    assert_int_equal(be64toh(sid), (uint64_t)RDMA_PS_TCP << 16 | 7471);
    assert_memory_equal(ib + 8, &in6addr_loopback, 16);
}

static void init_qp_attr__before_a_connection(void **state)
{
    (void)state;
    struct ib_uverbs_qp_attr attr;
    uint32_t rc = rig_active(fd, RDMA_PS_TCP, "127.0.0.1", 7471);
    assert_int_equal(rig_init_qp_attr(fd, rc, IBV_QPS_INIT, &attr), 0);
    assert_int_equal(attr.qp_attr_mask,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    assert_int_equal(attr.port_num, 1);
    assert_int_equal(rig_init_qp_attr(fd, rc, IBV_QPS_ERR + 1, &attr), EINVAL);
    uint32_t ud = rig_active(fd, RDMA_PS_UDP, "127.0.0.1", 7471);
    assert_int_equal(rig_init_qp_attr(fd, ud, IBV_QPS_INIT, &attr), 0);
    assert_int_equal(attr.qp_attr_mask,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    assert_int_equal(attr.qkey, 0x01234567);
    uint32_t ipoib = rig_active(fd, RDMA_PS_IPOIB, "127.0.0.1", 7471);
    assert_int_equal(rig_init_qp_attr(fd, ipoib, IBV_QPS_INIT, &attr), EINVAL); /* no group */
}

static void set_option__sizes_and_states(void **state)
{
    (void)state;
    int number = 1;
    uint8_t byte = 14;
    const uint32_t level = RDMA_OPTION_ID;
    uint32_t id = create(RDMA_PS_TCP), ud = create(RDMA_PS_UDP);
    assert_int_equal(rig_set_option(fd, id, level, RDMA_OPTION_ID_TOS, &byte, 1), 0);
    assert_int_equal(rig_set_option(fd, id, level, RDMA_OPTION_ID_TOS, &byte, 2), EINVAL);
    assert_int_equal(rig_set_option(fd, id, level, RDMA_OPTION_ID_TOS, NULL, 1), EFAULT);
    assert_int_equal(rig_set_option(fd, id, level, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), 0);
    assert_int_equal(rig_set_option(fd, ud, level, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), EINVAL);
    assert_int_equal(rig_set_option(fd, id, level, RDMA_OPTION_ID_AFONLY, &number, 4), 0);
    assert_int_equal(rig_set_option(fd, id, level, RDMA_OPTION_ID_AFONLY, &number, 1), EINVAL);
    assert_int_equal(rig_set_option(fd, id, level, 99, &number, 4), ENOSYS);
    assert_int_equal(rig_set_option(fd, id, 99, 0, &number, 4), ENOSYS);
    assert_int_equal(rig_set_option(fd, id, RDMA_OPTION_IB, 99, &number, 4), ENOSYS);
    assert_int_equal(rig_set_option(fd, 60000, level, 0, &byte, 1), ENOENT);
    assert_int_equal(rig_bind(fd, id, "127.0.0.1", 0), 0);
    assert_int_equal(rig_listen(fd, id, 0), 0);
    assert_int_equal(rig_set_option(fd, id, level, RDMA_OPTION_ID_REUSEADDR, &number, 4), EINVAL);
    assert_int_equal(rig_set_option(fd, id, level, RDMA_OPTION_ID_AFONLY, &number, 4), EINVAL);
}

static void set_option__path_resolves_the_route(void **state)
{
    (void)state;
    struct ib_path_rec_data path[2] = {
        {.flags = IB_PATH_ALTERNATE},
        {.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL}};
    const uint32_t name = RDMA_OPTION_IB_PATH;
    uint32_t id = create(RDMA_PS_TCP);
    assert_int_equal(rig_set_option(fd, id, RDMA_OPTION_IB, name, path, sizeof(path)), EINVAL);
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "127.0.0.1", 7471), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    assert_int_equal(rig_set_option(fd, id, RDMA_OPTION_IB, name, path, 7), EINVAL);
    assert_int_equal(rig_set_option(fd, id, RDMA_OPTION_IB, name, path, sizeof(path[0])), EINVAL);
    assert_int_equal(rig_set_option(fd, id, RDMA_OPTION_IB, name, path, sizeof(path)), 0);
    rig_expect(fd, ROUTE_RESOLVED, NULL);
}

static void listen__binds_and_is_final(void **state)
{
    (void)state;
    uint32_t id = create(RDMA_PS_TCP);
    assert_int_equal(rig_listen(fd, id, 1), 0); /* on any address and port */
    assert_true(rig_port(fd, id) >= 1024);
    assert_int_equal(rig_listen(fd, id, 1), EINVAL);
    assert_int_equal(rig_bind(fd, id, "127.0.0.1", 0), EINVAL);
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "127.0.0.1", 7471), EINVAL);
    assert_int_equal(rig_connect(fd, id, NULL, 0), EINVAL);
}

static void connection__commands_need_one(void **state)
{
    (void)state;
    uint32_t id = rig_active(fd, RDMA_PS_TCP, "127.0.0.1", 7471);
    struct rdma_ucm_connect connect = {.id = id};
    struct rdma_ucm_notify notify = {.id = id, .event = IBV_EVENT_COMM_EST};
    struct rdma_ucm_reject reject = {.id = id, .reason = 5};
    assert_int_equal(rig_accept(fd, id, NULL, 0), EINVAL);
    assert_int_equal(rig_ready(fd, id), EINVAL);
    assert_int_equal(rig_reject(fd, id, NULL, 0), EINVAL);
    assert_int_equal(rig_disconnect(fd, id), EINVAL);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_NOTIFY, &notify, sizeof(notify), 0), EINVAL);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_REJECT, &reject, sizeof(reject), 0), EINVAL);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_CONNECT, &connect, sizeof(connect), 0),
                     EINVAL); /* not marked valid */
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_CONNECT, &connect, 16, 0), EINVAL);
}

static int join(uint32_t id, const char *address, uint16_t flags, uint32_t *group)
{
    struct rdma_ucm_create_id_resp response = {0};
    struct sockaddr_storage place;
    rig_address(address, 0, &place);
    struct rdma_ucm_join_mcast in = {.response = (uintptr_t)&response,
                                     .uid = 4711,
                                     .id = id,
                                     .addr_size = sizeof(struct sockaddr_in),
                                     .join_flags = flags};
    memcpy(&in.addr, &place, sizeof(in.addr));
    int rc = rig_command(fd, RDMA_USER_CM_CMD_JOIN_MCAST, &in, sizeof(in), sizeof(response));
    *group = response.id;
    return rc;
}

static void join__tells_the_address_of_the_group(void **state)
{
    (void)state;
    const uint8_t gid[16] = {[10] = 0xff, 0xff, 239, 1, 2, 3};
    struct rdma_ucm_event_resp event;
    struct rdma_ucm_destroy_id_resp left = {0};
    uint32_t group, id = create(RDMA_PS_UDP), reported;
    assert_int_equal(join(id, "239.1.2.3", 0, &group), EINVAL); /* on which device? */
    assert_int_equal(rig_resolve_addr(fd, id, NULL, "127.0.0.1", 7471), 0);
    rig_expect(fd, ADDR_RESOLVED, NULL);
    assert_int_equal(join(id, "239.1.2.3", 2, &group), EINVAL); /* not a way to join */
    assert_int_equal(join(id, "0.0.0.0", 0, &group), EINVAL);
    assert_int_equal(join(id, "239.1.2.3", 0, &group), 0);
    rig_expect(fd, MULTICAST_JOIN, &event);
    assert_int_equal(event.uid, 4711);
    assert_int_equal(event.id, group);
    assert_int_equal(event.param.ud.qp_num, 0xffffff);
    assert_int_equal(event.param.ud.qkey, 0x01234567);
    assert_memory_equal(event.param.ud.ah_attr.grh.dgid, gid, 16);
    assert_int_equal(event.param.ud.ah_attr.is_global, 1);
    struct rdma_ucm_destroy_id leave = {.response = (uintptr_t)&left, .id = group};
    assert_int_equal(
        rig_command(fd, RDMA_USER_CM_CMD_LEAVE_MCAST, &leave, sizeof(leave), sizeof(left)), 0);
    assert_int_equal(left.events_reported, 1);
    assert_int_equal(
        rig_command(fd, RDMA_USER_CM_CMD_LEAVE_MCAST, &leave, sizeof(leave), sizeof(left)), ENOENT);
    assert_int_equal(join(id, "239.1.2.4", 1, &group), 0); /* goes with its ID, event and all */
    assert_int_equal(rig_destroy(fd, id, &reported), 0);
    assert_int_equal(reported, 2); /* that it was resolved, and the first group */
    assert_false(rig_has_event(fd));
}

/* Linux 6.17: RDMA_CM_EVENT_USER and _INTERNAL, with one argument of 64 bits. */
static void write_cm_event__is_read_from_the_channel(void **state)
{
    (void)state;
    struct rdma_ucm_event_resp event;
    uint32_t reported;
    struct rig_write_cm_event in = {
        .id = create(RDMA_PS_TCP), .event = USER, .status = 77, .arg = 0x1122334455667788};
    assert_int_equal(rig_command(fd, RIG_CMD_WRITE_CM_EVENT, &in, sizeof(in), 0), 0);
    uint32_t id = in.id;
    in.id = 60000;
    assert_int_equal(rig_command(fd, RIG_CMD_WRITE_CM_EVENT, &in, sizeof(in), 0), ENOENT);
    in.id = id;
    in.event = ESTABLISHED; /* nobody makes these but the connection manager */
    assert_int_equal(rig_command(fd, RIG_CMD_WRITE_CM_EVENT, &in, sizeof(in), 0), EINVAL);
    in.event = INTERNAL;
    in.arg = 1;
    assert_int_equal(rig_command(fd, RIG_CMD_WRITE_CM_EVENT, &in, sizeof(in), 0), 0);
    rig_expect(fd, USER, &event);
    assert_int_equal(event.id, id);
    assert_true(event.uid > RIG_UID);
    assert_int_equal(event.status, 77);
    uint64_t arg;
    memcpy(&arg, &event.param, sizeof(arg));
    assert_true(arg == 0x1122334455667788);
    rig_expect(fd, INTERNAL, &event);
    assert_int_equal(rig_destroy(fd, id, &reported), 0);
    assert_int_equal(reported, 2);
}

/* As a kernel's RoCE device, which has no subnet administrator. */
static void resolve_ib_service__is_for_infiniband(void **state)
{
    (void)state;
    struct rig_resolve_ib_service in = {.id = create(RDMA_PS_TCP), .service_id = 1, .flags = 1};
    uint32_t found = 99;
    struct rdma_ucm_query query = {
        .response = (uintptr_t)&found, .id = in.id, .option = RIG_QUERY_IB_SERVICE};
    assert_int_equal(rig_command(fd, RIG_CMD_RESOLVE_IB_SERVICE, &in, sizeof(in), 0), EINVAL);
    assert_int_equal(rig_bind(fd, in.id, "127.0.0.1", 0), 0); /* on which device? */
    assert_int_equal(rig_command(fd, RIG_CMD_RESOLVE_IB_SERVICE, &in, sizeof(in), 0), EINVAL);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY, &query, sizeof(query), 3), ENOSPC);
    assert_int_equal(rig_command(fd, RDMA_USER_CM_CMD_QUERY, &query, sizeof(query), sizeof(found)),
                     0);
    assert_int_equal(found, 0);
}

static void ids__fit_librdmacm(void **state)
{
    (void)state;
    uint32_t first = create(RDMA_PS_TCP), id = first;
    for (int i = 0; i < 70000; i++) { /* numbers come around and stay below 65536 */
        assert_int_equal(rig_create(fd, RDMA_PS_TCP, &id), 0);
        assert_true(id < 65536);
        assert_int_not_equal(id, first);
        assert_int_equal(rig_destroy(fd, id, NULL), 0);
    }
}

/* The IDs of a channel go with its last descriptor: their ports are free again. */
static void close__of_the_last_descriptor_destroys_ids(void **state)
{
    (void)state;
    int first = rig_open(0), twin = dup(first), other = rig_open(0);
    uint32_t id, rival;
    assert_int_equal(rig_create(first, RDMA_PS_TCP, &id), 0);
    assert_int_equal(rig_bind(first, id, "127.0.0.1", 0), 0);
    uint16_t port = rig_port(first, id);
    close(first);
    usleep(20000);
    assert_int_equal(rig_create(other, RDMA_PS_TCP, &rival), 0);
    assert_int_equal(rig_bind(other, rival, "127.0.0.1", port), EADDRINUSE);
    assert_int_equal(rig_port(twin, id), port);
    close(twin);
    int rc = EADDRINUSE;
    for (int i = 0; i < 500 && rc == EADDRINUSE; i++) {
        usleep(10000);
        rc = rig_bind(other, rival, "127.0.0.1", port);
    }
    assert_int_equal(rc, 0);
    close(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bind__takes_a_free_port),
        TEST(bind__to_loopback_names_no_device),
        TEST(bind__any_has_no_device),
        TEST(bind__of_foreign_addresses_fails),
        TEST(bind__by_the_old_command),
        TEST(bind__one_port_once),
        TEST(bind__shares_a_port_by_reuseaddr),
        TEST(bind__afib_chooses_the_port_space),
        TEST(resolve_addr__finds_source_and_device),
        TEST(resolve_addr__zero_is_this_host),
        TEST(resolve_addr__errors),
        TEST(resolve_route__needs_an_address_and_time),
        TEST(query__path_and_route),
        TEST(query__gid_has_service_ids),
        TEST(init_qp_attr__before_a_connection),
        TEST(set_option__sizes_and_states),
        TEST(set_option__path_resolves_the_route),
        TEST(listen__binds_and_is_final),
        TEST(connection__commands_need_one),
        TEST(join__tells_the_address_of_the_group),
        TEST(write_cm_event__is_read_from_the_channel),
        TEST(resolve_ib_service__is_for_infiniband),
        TEST(ids__fit_librdmacm),
        TEST(close__of_the_last_descriptor_destroys_ids),
    };
    /* A network where addresses for documentation are nobody's. Where it is refused, they rarely
     * are anybody's in that of the machine. */
    (void)namespace_own_network();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
