/* SPDX-License-Identifier: BSD-2-Clause */
/* The owners of ports, within a process and between processes. */
#include <errno.h>
#include <unistd.h>

#include "member.h"

enum { TCP = 0x0106, UDP = 0x0111 };

static struct sw_cm_port_name name_of(const char *where, uint16_t port, bool afonly, bool reuse)
{
    return (struct sw_cm_port_name){
        .space = TCP, .port = port, .address = address(where), .afonly = afonly, .reuse = reuse};
}

static const struct rule {
    const char *one;
    bool one_afonly, one_reuse;
    const char *other;
    bool other_afonly, other_reuse;
    int error;
} rules[] = {
    {"127.0.0.1", false, false, "127.0.0.1", false, false, EADDRINUSE},
    {"127.0.0.1", false, false, "127.0.0.2", false, false, 0},
    {"127.0.0.1", false, false, "::1", false, false, 0},
    {"127.0.0.1", false, true, "127.0.0.1", false, false, EADDRINUSE},
    {"127.0.0.1", false, true, "127.0.0.1", false, true, 0},
    {"0.0.0.0", false, false, "127.0.0.1", false, false, EADDRNOTAVAIL},
    {"127.0.0.1", false, false, "0.0.0.0", false, false, EADDRNOTAVAIL},
    {"0.0.0.0", false, false, "0.0.0.0", false, false, EADDRNOTAVAIL},
    {"::", false, false, "127.0.0.1", false, false, EADDRNOTAVAIL}, /* it is of both families */
    {"::", true, false, "127.0.0.1", false, false, EADDRNOTAVAIL},
    {"::", true, false, "127.0.0.1", true, false, 0},
    {"::", true, false, "0.0.0.0", true, false, 0},
    {"::", true, false, "::1", true, false, EADDRNOTAVAIL},
    {"0.0.0.0", false, true, "127.0.0.1", false, true, 0},
    {"::1", false, false, "::1", false, false, EADDRINUSE},
};

static void follow_rules(struct member *first, struct member *second, uint16_t from)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        const struct rule *rule = &rules[i];
        uint16_t port = (uint16_t)(from + i);
        struct sw_cm_port_name one = name_of(rule->one, port, rule->one_afonly, rule->one_reuse);
        struct sw_cm_port_name other =
            name_of(rule->other, port, rule->other_afonly, rule->other_reuse);
        assert_int_equal(member_claim(first, &one, NULL), 0);
        assert_int_equal(member_claim(second, &other, NULL), -rule->error);
    }
}

static void sw_cm_port_claim__rules_within_a_process(void **state)
{
    (void)state;
    struct member member = member_start();
    follow_rules(&member, &member, 7000);
    member_stop(&member);
}

static void sw_cm_port_claim__rules_between_processes(void **state)
{
    (void)state;
    struct member one = member_start(), other = member_start();
    follow_rules(&one, &other, 7000);
    follow_rules(&one, &other,
                 40000); /* ports that might have been given without being asked for */
    member_stop(&one);
    member_stop(&other);
}

static void sw_cm_port_claim__port_spaces_are_apart(void **state)
{
    (void)state;
    struct member one = member_start(), other = member_start();
    struct sw_cm_port_name name = name_of("0.0.0.0", 7000, false, false);
    assert_int_equal(member_claim(&one, &name, NULL), 0);
    name.space = UDP;
    assert_int_equal(member_claim(&other, &name, NULL), 0);
    member_stop(&one);
    member_stop(&other);
}

static void sw_cm_port_claim__free_again_at_release_and_death(void **state)
{
    (void)state;
    struct member one = member_start(), other = member_start();
    const struct sw_cm_port_name name = name_of("0.0.0.0", 7000, false, false);
    assert_int_equal(member_claim(&one, &name, NULL), 0);
    assert_int_equal(member_claim(&other, &name, NULL), -EADDRNOTAVAIL);
    member_do(&one, &(struct order){.kind = ORDER_RELEASE, .which = 0});
    assert_int_equal(member_claim(&other, &name, NULL), 0);
    assert_int_equal(member_claim(&one, &name, NULL), -EADDRNOTAVAIL);
    member_kill(&other);
    assert_int_equal(member_claim(&one, &name, NULL), 0);
    member_stop(&one);
}

/* A child has nothing of its parent's. */
static void sw_cm_port_claim__not_kept_by_a_child(void **state)
{
    (void)state;
    struct member one = member_start(), other = member_start();
    const struct sw_cm_port_name name = name_of("0.0.0.0", 7000, false, false);
    const struct sw_cm_port_name any = name_of("0.0.0.0", 0, false, false);
    struct sw_cm_port_name same = any;
    assert_int_equal(member_claim(&one, &name, NULL), 0);
    assert_int_equal(member_claim(&one, &any, &same.port), 0);
    member_do(&one, &(struct order){.kind = ORDER_FORK, .which = 1});
    member_kill(&one);
    assert_int_equal(member_claim(&other, &name, NULL), 0);
    assert_int_equal(member_claim(&other, &same, NULL), 0);
    member_stop(&other);
}

static void sw_cm_port_claim__any_port_is_given_once(void **state)
{
    (void)state;
    enum { EACH = 200 };
    static bool given[65536];
    struct member members[3] = {member_start(), member_start(), member_start()};
    uint16_t port = 0;
    for (uint32_t i = 0; i < 2 * EACH; i++) {
        const struct sw_cm_port_name any = name_of("127.0.0.1", 0, false, false);
        assert_int_equal(member_claim(&members[i % 2], &any, &port), 0);
        assert_in_range(port, 32768, 60999);
        assert_false(given[port]);
        given[port] = true;
    }
    const struct sw_cm_port_name taken = name_of("127.0.0.1", port, false, false);
    assert_int_equal(member_claim(&members[1], &taken, NULL), -EADDRINUSE);
    assert_int_equal(member_claim(&members[2], &taken, NULL), -EADDRINUSE);
    member_stop(&members[1]);
    assert_int_equal(member_claim(&members[2], &taken, NULL), 0);
    member_stop(&members[0]);
    member_stop(&members[2]);
}

static void sw_cm_port_claim__one_of_several_at_once_gets_it(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    struct member members[COUNT];
    for (int i = 0; i < COUNT; i++)
        members[i] = member_start();
    for (uint16_t round = 0; round < 50; round++) {
        const struct order order = {
            .kind = ORDER_CLAIM,
            .name = name_of("127.0.0.1", (uint16_t)(7000 + round), false, false)};
        int winners = 0;
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(write(members[i].orders, &order, sizeof(order)), sizeof(order));
        for (int i = 0; i < COUNT; i++) {
            int rc = member_next(&members[i]).rc;
            assert_true(rc == 0 || rc == -EADDRINUSE);
            winners += rc == 0;
        }
        assert_int_equal(winners, 1);
    }
    for (int i = 0; i < COUNT; i++)
        member_stop(&members[i]);
}

static void sw_cm_port_listen__reuse_does_not_count(void **state)
{
    (void)state;
    struct member one = member_start(), other = member_start();
    const struct sw_cm_port_name name = name_of("127.0.0.1", 7000, false, true);
    struct order listen = {.kind = ORDER_LISTEN, .which = 0, .service_id = 0x1061b58};
    assert_int_equal(member_claim(&one, &name, NULL), 0);
    assert_int_equal(member_claim(&other, &name, NULL), 0);
    assert_int_equal(member_do(&one, &listen).rc, -EADDRINUSE);
    member_do(&other, &(struct order){.kind = ORDER_RELEASE, .which = 0});
    assert_int_equal(member_do(&one, &listen).rc, 0);
    member_stop(&one);
    member_stop(&other);
}

int main(void)
{
    int rc = enter_namespace();
    if (rc)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_cm_port_claim__rules_within_a_process),
        cmocka_unit_test(sw_cm_port_claim__rules_between_processes),
        cmocka_unit_test(sw_cm_port_claim__port_spaces_are_apart),
        cmocka_unit_test(sw_cm_port_claim__free_again_at_release_and_death),
        cmocka_unit_test(sw_cm_port_claim__not_kept_by_a_child),
        cmocka_unit_test(sw_cm_port_claim__any_port_is_given_once),
        cmocka_unit_test(sw_cm_port_claim__one_of_several_at_once_gets_it),
        cmocka_unit_test(sw_cm_port_listen__reuse_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
