/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/ah.h"

#include <arpa/inet.h>
#include <netinet/ip.h>

#include "nic_rig.h"

static const union ibv_gid unicast6 = {.raw = {0x20, 0x01, 0x0d, 0xb8, [15] = 9}};
static const union ibv_gid loopback4 = {.raw = {[10] = 0xff, 0xff, 127, 0, 0, 1}};

static int init(struct rig *rig, struct sw_ah *ah, uint8_t index, const union ibv_gid *gid)
{
    const struct ibv_ah_attr attr = {.is_global = 1,
                                     .port_num = 1,
                                     .sl = 3,
                                     .grh = {.dgid = *gid,
                                             .sgid_index = index,
                                             .hop_limit = 5,
                                             .traffic_class = 0x12,
                                             .flow_label = 0x3abcd}};
    memset(ah, 0, sizeof(*ah));
    return sw_ah_init(ah, rig->pd, rig->ctx->netdev, &attr);
}

static void sw_gid_is_multicast__both_families(void **state)
{
    (void)state;
    union ibv_gid gid = {.raw = {0xff, 0x0e}};
    assert_true(sw_gid_is_multicast(&gid));
    assert_false(sw_gid_is_multicast(&unicast6));
    assert_false(sw_gid_is_multicast(&loopback4));
    gid = (union ibv_gid){.raw = {[10] = 0xff, 0xff, 224, 0, 0, 1}};
    assert_true(sw_gid_is_multicast(&gid));
    gid.raw[12] = 239;
    assert_true(sw_gid_is_multicast(&gid));
    gid.raw[12] = 240;
    assert_false(sw_gid_is_multicast(&gid));
    gid.raw[12] = 223;
    assert_false(sw_gid_is_multicast(&gid));
}

static void sw_ah_init__kind_of_packet(void **state)
{
    struct rig *rig = *state;
    struct sw_ah ah;
    assert_int_equal(init(rig, &ah, 0, &loopback4), 0); /* RoCE v1 */
    assert_int_equal(ah.path.wc_sl, 0);
    assert_int_equal(init(rig, &ah, 1, &loopback4), 0);
    assert_int_equal(ah.path.wc_sl, 10);
    assert_int_equal(init(rig, &ah, 1, &unicast6), 0); /* no IPv4 header can say this */
    assert_int_equal(ah.path.wc_sl, 9);
}

/* The receiver reads there which group it is for, whatever the GID's kind. */
static void sw_grh_dgid__as_sent(void **state)
{
    static const union ibv_gid gids[] = {
        {.raw = {[10] = 0xff, 0xff, 127, 0, 0, 1}},
        {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}},
        {.raw = {0x20, 0x01, 0x0d, 0xb8, [15] = 9}},
        {.raw = {0xff, 0x0e, [15] = 7}},
    };
    struct rig *rig = *state;
    struct sw_ah ah;
    uint8_t grh[SW_GRH_BYTES];
    for (uint8_t index = 0; index < 2; index++) { /* RoCE v1 and v2 */
        for (size_t i = 0; i < sizeof(gids) / sizeof(gids[0]); i++) {
            assert_int_equal(init(rig, &ah, index, &gids[i]), 0);
            sw_path_grh(&ah.path, 64, false, grh);
            const union ibv_gid dgid = sw_grh_dgid(grh);
            assert_memory_equal(dgid.raw, gids[i].raw, sizeof(dgid.raw));
        }
    }
}

static void sw_ah_init__refusals(void **state)
{
    struct rig *rig = *state;
    struct sw_ah ah;
    assert_int_equal(init(rig, &ah, 1, &loopback4), 0);
    assert_int_equal(init(rig, &ah, 126, &loopback4), -EINVAL);
    assert_int_equal(init(rig, &ah, 255, &loopback4), -EINVAL);
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .sl = 16, .grh = {.sgid_index = 1}};
    assert_int_equal(sw_ah_init(&ah, rig->pd, rig->ctx->netdev, &attr), -EINVAL);
    attr.sl = 15;
    assert_int_equal(sw_ah_init(&ah, rig->pd, rig->ctx->netdev, &attr), 0);
    attr.port_num = 0;
    assert_int_equal(sw_ah_init(&ah, rig->pd, rig->ctx->netdev, &attr), -EINVAL);
}

/* Our own address is; an address from the documentation range is nobody's. */
static void sw_ah_is_local__asked_twice(void **state)
{
    struct rig *rig = *state;
    struct sw_ah ah;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(init(rig, &ah, 1, &loopback4), 0);
        assert_true(sw_ah_is_local(&ah));
        assert_true(sw_ah_is_local(&ah));
        assert_int_equal(init(rig, &ah, 1, &unicast6), 0);
        assert_false(sw_ah_is_local(&ah));
        assert_false(sw_ah_is_local(&ah));
        assert_int_equal(sw_netdev_refresh(NULL, NULL), 0); /* the answers are looked up anew */
    }
}

static void sw_path_grh__ipv4(void **state)
{
    struct rig *rig = *state;
    static const uint8_t nothing[20];
    uint8_t bytes[SW_GRH_BYTES];
    struct sw_ah ah;
    struct iphdr ip;
    assert_int_equal(init(rig, &ah, 1, &loopback4), 0);
    sw_path_grh(&ah.path, 5, true, bytes);
    assert_memory_equal(bytes, nothing, sizeof(nothing));
    memcpy(&ip, bytes + 20, sizeof(ip));
    assert_int_equal(ip.version, 4);
    assert_int_equal(ip.ihl, 5);
    assert_int_equal(ip.tos, 0x12);
    assert_int_equal(ip.ttl, 5);
    assert_int_equal(ntohs(ip.tot_len), 20 + 8 + 12 + 8 + 4 + 8 + 4);
    assert_int_equal(ntohs(ip.frag_off), IP_DF);
    assert_int_equal(ip.saddr, htonl(INADDR_LOOPBACK));
    assert_int_equal(ip.daddr, htonl(INADDR_LOOPBACK));
    uint32_t sum = 0;
    for (int i = 20; i < 40; i += 2)
        sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
}

static void sw_path_grh__v1_and_ipv6(void **state)
{
    struct rig *rig = *state;
    struct ibv_grh grh;
    uint8_t bytes[SW_GRH_BYTES];
    struct sw_ah ah;
    for (uint8_t index = 0; index < 2; index++) { /* v1; v2 towards an address that is not IPv4 */
        assert_int_equal(init(rig, &ah, index, &unicast6), 0);
        sw_path_grh(&ah.path, 8, false, bytes);
        memcpy(&grh, bytes, sizeof(grh));
        assert_int_equal(ntohl(grh.version_tclass_flow), 6u << 28 | 0x12u << 20 | 0x3abcd);
        assert_int_equal(grh.next_hdr, index ? IPPROTO_UDP : 0x1b);
        assert_int_equal(ntohs(grh.paylen), (index ? 8 : 0) + 12 + 8 + 8 + 4);
        assert_int_equal(grh.hop_limit, 5);
        assert_memory_equal(&grh.dgid, &unicast6, 16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_gid_is_multicast__both_families),
        rig_test(sw_ah_init__kind_of_packet),
        rig_test(sw_grh_dgid__as_sent),
        rig_test(sw_ah_init__refusals),
        rig_test(sw_ah_is_local__asked_twice),
        rig_test(sw_path_grh__ipv4),
        rig_test(sw_path_grh__v1_and_ipv6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
