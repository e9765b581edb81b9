/* SPDX-License-Identifier: BSD-2-Clause */
/* The device list and everything a program may ask of a device, against what the kernel says of its
 * interface. */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

static void device_list__one_for_each_interface_up(void **state)
{
    (void)state;
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    assert_non_null(list);
    assert_null(list[count]);

    struct ifaddrs *addrs;
    assert_int_equal(getifaddrs(&addrs), 0);
    for (const struct ifaddrs *at = addrs; at; at = at->ifa_next) {
        char want[IF_NAMESIZE + 3];
        int found = 0;
        snprintf(want, sizeof(want), "sw_%s", at->ifa_name);
        for (int i = 0; i < count; i++)
            found += !strcmp(ibv_get_device_name(list[i]), want);
        assert_int_equal(found, (at->ifa_flags & IFF_UP) != 0);
    }
    freeifaddrs(addrs);
    ibv_free_device_list(list);
}

static void device_list__pointers_outlive_it(void **state)
{
    (void)state;
    struct ibv_device **list = ibv_get_device_list(NULL);
    assert_non_null(list);
    struct ibv_device *first = list[0];
    assert_non_null(first);
    ibv_free_device_list(list);
    struct ibv_context *ctx = ibv_open_device(first);
    assert_non_null(ctx);
    assert_ptr_equal(ctx->device, first);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void device__fields_that_programs_read(void **state)
{
    (void)state;
    struct ibv_device **list = ibv_get_device_list(NULL);
    assert_non_null(list);
    for (int i = 0; list[i]; i++) {
        const struct ibv_device *device = list[i];
        if (strncmp(device->name, "sw_", 3))
            continue; /* a real device */
        assert_int_equal(device->node_type, IBV_NODE_CA);
        assert_int_equal(device->transport_type, IBV_TRANSPORT_IB);
        assert_int_equal(strncmp(device->dev_name, "uverbs", 6), 0);
        assert_non_null(strstr(device->ibdev_path, device->name));
        assert_non_null(strstr(device->dev_path, device->dev_name));
        assert_true(ibv_get_device_guid(list[i]) != 0);
        assert_true(ibv_get_device_index(list[i]) >= 0);
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(device->dev_name, list[j]->dev_name);
            assert_true(ibv_get_device_guid(list[i]) != ibv_get_device_guid(list[j]));
        }
    }
    ibv_free_device_list(list);
}

static void open_device__context(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open(), *again = rig_open();
    assert_ptr_not_equal(ctx, again);
    assert_true(ctx->async_fd >= 0 && ctx->async_fd != again->async_fd);
    assert_true(ctx->num_comp_vectors >= 1);
    assert_ptr_equal(ctx->abi_compat, __VERBS_ABI_IS_EXTENDED);
    assert_false(rig_readable(ctx->async_fd, 0));

    const int fds[] = {ctx->async_fd, ctx->cmd_fd, again->async_fd, again->cmd_fd};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
    assert_int_equal(ibv_close_device(again), 0);
    assert_int_equal(fcntl(fds[2], F_GETFD), -1);
    assert_int_equal(fcntl(fds[3], F_GETFD), -1);
    assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void query_device__limits(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open();
    struct ibv_device_attr attr;
    memset(&attr, 0xee, sizeof(attr));
    assert_int_equal(ibv_query_device(ctx, &attr), 0);
    assert_int_equal(attr.phys_port_cnt, 1);
    assert_true(attr.node_guid == ibv_get_device_guid(ctx->device));
    assert_true(attr.max_qp > 0 && attr.max_qp_wr > 0 && attr.max_sge > 0 && attr.max_cq > 0);
    assert_true(attr.max_cqe > 0 && attr.max_mr > 0 && attr.max_pd > 0 && attr.max_srq > 0);
    assert_true(attr.max_qp_rd_atom > 0 && attr.max_pkeys == 1 && attr.max_mr_size > 1u << 30);
    /* No vendor whose private paths a program might try. */
    assert_true(attr.vendor_id != 0 && attr.vendor_id != 0x02c9 && attr.vendor_id != 0x15b3 &&
                attr.vendor_id != 0x1d0f);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void query_device_ex__sizes(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open();
    struct ibv_device_attr_ex attr;
    struct ibv_query_device_ex_input input = {0};
    struct verbs_context *verbs = verbs_get_ctx(ctx);
    assert_int_equal(ibv_query_device_ex(ctx, &input, &attr), 0);
    assert_int_equal(attr.orig_attr.phys_port_cnt, 1);
    assert_int_equal(attr.phys_port_cnt_ex, 1);

    /* A program with shorter structs: nothing behind them is touched. */
    memset(&attr, 0xee, sizeof(attr));
    assert_int_equal(verbs->query_device_ex(ctx, NULL, &attr, sizeof(attr.orig_attr)), 0);
    assert_int_equal(attr.orig_attr.phys_port_cnt, 1);
    assert_int_equal(attr.phys_port_cnt_ex, 0xeeeeeeeeu);
    assert_int_equal(verbs->query_device_ex(ctx, NULL, &attr, sizeof(attr.orig_attr) - 1), EINVAL);
    /* With longer ones: what we do not know is zero. */
    struct {
        struct ibv_device_attr_ex known;
        uint64_t more[4];
    } longer;
    memset(&longer, 0xee, sizeof(longer));
    assert_int_equal(verbs->query_device_ex(ctx, NULL, &longer.known, sizeof(longer)), 0);
    assert_true(longer.more[0] == 0 && longer.more[3] == 0);
    input.comp_mask = 1;
    assert_int_equal(verbs->query_device_ex(ctx, &input, &attr, sizeof(attr)), EINVAL);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void query_port__inline_and_function(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open();
    struct ibv_port_attr attr, old;
    memset(&attr, 0xee, sizeof(attr));
    assert_int_equal(ibv_query_port(ctx, 1, &attr), 0);
    assert_int_equal(attr.state, IBV_PORT_ACTIVE);
    assert_int_equal(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_true(attr.gid_tbl_len > 0 && attr.pkey_tbl_len == 1 && attr.max_msg_sz >= 1u << 30);
    assert_int_equal(attr.phys_state, 5);
    assert_int_equal(attr.lid, 0);
    assert_int_equal(ibv_query_port(ctx, 0, &attr), EINVAL);
    assert_int_equal(ibv_query_port(ctx, 2, &attr), EINVAL);

    /* The function of the same name writes 48 bytes. */
    memset(&old, 0xee, sizeof(old));
    assert_int_equal((ibv_query_port)(ctx, 1, (struct _compat_ibv_port_attr *)&old), 0);
    assert_int_equal(old.port_cap_flags2, 0xeeee);
    memset(&attr, 0, sizeof(attr));
    assert_int_equal(ibv_query_port(ctx, 1, &attr), 0);
    assert_memory_equal(&old, &attr, 48);
    assert_int_equal((ibv_query_port)(ctx, 2, (struct _compat_ibv_port_attr *)&old), EINVAL);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static union ibv_gid gid_of(const struct sockaddr *addr)
{
    union ibv_gid gid = {.raw = {0}};
    if (addr->sa_family == AF_INET6) {
        memcpy(gid.raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
    } else {
        gid.raw[10] = gid.raw[11] = 0xff;
        memcpy(gid.raw + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
    }
    return gid;
}

static int count_gid(const struct ibv_gid_entry *entries, ssize_t count, const union ibv_gid *gid,
                     uint32_t type)
{
    int found = 0;
    for (ssize_t i = 0; i < count; i++)
        found += entries[i].gid_type == type && !memcmp(&entries[i].gid, gid, sizeof(*gid));
    return found;
}

static void check_gids_of(struct ibv_context *ctx, const char *ifname)
{
    static struct ibv_gid_entry entries[256];
    const ssize_t count = ibv_query_gid_table(ctx, entries, 256, 0);
    assert_true(count >= 0);
    struct ifaddrs *addrs;
    ssize_t want = 0;
    assert_int_equal(getifaddrs(&addrs), 0);
    for (const struct ifaddrs *at = addrs; at; at = at->ifa_next) {
        if (strcmp(at->ifa_name, ifname) || !at->ifa_addr ||
            (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6))
            continue;
        const union ibv_gid gid = gid_of(at->ifa_addr);
        assert_int_equal(count_gid(entries, count, &gid, IBV_GID_TYPE_ROCE_V1), 1);
        assert_int_equal(count_gid(entries, count, &gid, IBV_GID_TYPE_ROCE_V2), 1);
        want += 2;
    }
    freeifaddrs(addrs);
    assert_int_equal(count, want); /* and no others */
    for (ssize_t i = 0; i < count; i++) {
        assert_int_equal(entries[i].ndev_ifindex, if_nametoindex(ifname));
        assert_int_equal(entries[i].port_num, 1);
        struct ibv_gid_entry alone;
        union ibv_gid gid;
        assert_int_equal(ibv_query_gid_ex(ctx, 1, entries[i].gid_index, &alone, 0), 0);
        assert_memory_equal(&alone, &entries[i], sizeof(alone));
        assert_int_equal(ibv_query_gid(ctx, 1, (int)entries[i].gid_index, &gid), 0);
        assert_memory_equal(&gid, &entries[i].gid, sizeof(gid));
    }
}

static void query_gid_table__is_what_getifaddrs_says(void **state)
{
    (void)state;
    struct ibv_device **list = ibv_get_device_list(NULL);
    assert_non_null(list);
    for (int i = 0; list[i]; i++) {
        if (strncmp(list[i]->name, "sw_", 3))
            continue;
        struct ibv_context *ctx = ibv_open_device(list[i]);
        assert_non_null(ctx);
        check_gids_of(ctx, list[i]->name + 3);
        assert_int_equal(ibv_close_device(ctx), 0);
    }
    ibv_free_device_list(list);
}

static void query_gid__errors(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open();
    struct ibv_port_attr port;
    union ibv_gid gid, zero = {.raw = {0}};
    struct ibv_gid_entry entry;
    assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
    const int last = port.gid_tbl_len - 1;

    memset(&gid, 0xee, sizeof(gid));
    assert_int_equal(ibv_query_gid(ctx, 1, last, &gid), 0); /* empty: zeros */
    assert_memory_equal(&gid, &zero, sizeof(gid));
    assert_int_equal(ibv_query_gid_ex(ctx, 1, (uint32_t)last, &entry, 0), ENODATA);

    assert_int_equal(ibv_query_gid(ctx, 1, last + 1, &gid), -1);
    assert_int_equal(ibv_query_gid(ctx, 1, -1, &gid), -1);
    assert_int_equal(ibv_query_gid(ctx, 2, 0, &gid), -1);
    assert_int_equal(ibv_query_gid_ex(ctx, 1, (uint32_t)last + 1, &entry, 0), EINVAL);
    assert_int_equal(ibv_query_gid_ex(ctx, 1, UINT32_MAX, &entry, 0), EINVAL);
    assert_int_equal(ibv_query_gid_ex(ctx, 2, 0, &entry, 0), EINVAL);
    assert_int_equal(ibv_query_gid_ex(ctx, 1, 0, &entry, 1), EINVAL);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void query_gid_table__sizes(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open();
    static struct ibv_gid_entry entries[256];
    static uint8_t raw[64 * 256];
    struct ibv_gid_entry first;
    const ssize_t count = ibv_query_gid_table(ctx, entries, 256, 0);
    assert_true(count >= 2);
    assert_int_equal(ibv_query_gid_table(ctx, entries, (size_t)count, 0), count);
    assert_int_equal(ibv_query_gid_table(ctx, entries, (size_t)count - 1, 0), -EINVAL);
    assert_int_equal(ibv_query_gid_table(ctx, entries, 0, 0), -EINVAL);
    assert_int_equal(ibv_query_gid_table(ctx, entries, 256, 1), -EINVAL);

    /* Entries of an older and of a newer program. */
    assert_int_equal(ibv_query_gid_ex(ctx, 1, entries[0].gid_index, &first, 0), 0);
    memset(raw, 0xee, sizeof(raw));
    assert_int_equal(_ibv_query_gid_table(ctx, (struct ibv_gid_entry *)raw, 256, 0, 16), count);
    assert_memory_equal(raw, &first.gid, 16);
    assert_int_equal(raw[count * 16], 0xee);
    memset(raw, 0xee, sizeof(raw));
    assert_int_equal(_ibv_query_gid_table(ctx, (struct ibv_gid_entry *)raw, 256, 0, 64), count);
    assert_memory_equal(raw, &first, sizeof(first));
    assert_int_equal(raw[sizeof(first)], 0);
    assert_int_equal(raw[63], 0);
    assert_int_equal(raw[count * 64], 0xee);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void query_pkey__default_only(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open();
    __be16 pkey = 0;
    assert_int_equal(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
    assert_int_equal(pkey, htobe16(0xffff));
    assert_int_equal(ibv_query_pkey(ctx, 1, 1, &pkey), -1);
    assert_int_equal(ibv_query_pkey(ctx, 1, -1, &pkey), -1);
    assert_int_equal(ibv_query_pkey(ctx, 2, 0, &pkey), -1);
    assert_int_equal(ibv_get_pkey_index(ctx, 1, htobe16(0xffff)), 0);
    assert_int_equal(ibv_get_pkey_index(ctx, 1, htobe16(0x1234)), -1);
    assert_int_equal(ibv_close_device(ctx), 0);
}

static void helpers__names_and_rates(void **state)
{
    (void)state;
    assert_string_equal(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
    assert_non_null(strcasestr(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
    assert_non_null(ibv_node_type_str(IBV_NODE_CA));
    assert_non_null(ibv_event_type_str(IBV_EVENT_GID_CHANGE));
    assert_int_equal(ibv_rate_to_mbps(IBV_RATE_10_GBPS), 10000);
    assert_int_equal(mbps_to_ibv_rate(10000), IBV_RATE_10_GBPS);
    assert_int_equal(ibv_rate_to_mult(IBV_RATE_10_GBPS), 4);
    assert_int_equal(mult_to_ibv_rate(4), IBV_RATE_10_GBPS);
}

static void fork__needs_no_preparation(void **state)
{
    (void)state;
    assert_int_equal(ibv_fork_init(), 0);
    assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_list__one_for_each_interface_up),
        cmocka_unit_test(device_list__pointers_outlive_it),
        cmocka_unit_test(device__fields_that_programs_read),
        cmocka_unit_test(open_device__context),
        cmocka_unit_test(query_device__limits),
        cmocka_unit_test(query_device_ex__sizes),
        cmocka_unit_test(query_port__inline_and_function),
        cmocka_unit_test(query_gid_table__is_what_getifaddrs_says),
        cmocka_unit_test(query_gid__errors),
        cmocka_unit_test(query_gid_table__sizes),
        cmocka_unit_test(query_pkey__default_only),
        cmocka_unit_test(helpers__names_and_rates),
        cmocka_unit_test(fork__needs_no_preparation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
