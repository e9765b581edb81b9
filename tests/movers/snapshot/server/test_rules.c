/* SPDX-License-Identifier: BSD-2-Clause */
/* --allow: who may do what, and what is no rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <string.h>

#include "snapshot/server/rules.h"

static struct in6_addr address_of(const char *text)
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (inet_pton(AF_INET, text, &address.s6_addr[12]) != 1)
        assert_int_equal(inet_pton(AF_INET6, text, &address), 1);
    return address;
}

static uint32_t rights_of(const struct snap_rules *rules, const char *client, const char *volume)
{
    const struct in6_addr address = address_of(client);
    return snap_rules_rights(rules, &address, volume);
}

static void add_rule(struct snap_rules *rules, const char *text)
{
    char error[256];
    assert_int_equal(snap_rules_add(rules, text, error, sizeof(error)), 0);
}

static void rules__none_are_for_all(void **state)
{
    const struct snap_rules rules = {.count = 0};
    (void)state;
    assert_int_equal(rights_of(&rules, "192.0.2.1", "run"), SNAP_MAY_READ | SNAP_MAY_WRITE);
}

static void rules__add_up(void **state)
{
    static struct snap_rules rules;
    (void)state;
    add_rule(&rules, "192.0.2.1:r");
    add_rule(&rules, "192.0.2.1:rw@run");
    add_rule(&rules, "[2001:db8::1]:rw");
    add_rule(&rules, "*:r@open");
    assert_int_equal(rights_of(&rules, "192.0.2.1", "run"), SNAP_MAY_READ | SNAP_MAY_WRITE);
    assert_int_equal(rights_of(&rules, "192.0.2.1", "other"), SNAP_MAY_READ);
    assert_int_equal(rights_of(&rules, "2001:db8::1", "any"), SNAP_MAY_READ | SNAP_MAY_WRITE);
    assert_int_equal(rights_of(&rules, "192.0.2.2", "run"), 0);
    assert_int_equal(rights_of(&rules, "192.0.2.2", "open"), SNAP_MAY_READ);
    assert_int_equal(rights_of(&rules, "192.0.2.2", NULL), SNAP_MAY_READ);
}

static void rules__that_are_none(void **state)
{
    static const char *const bad[] = {
        "",        "rw",        "192.0.2.1",      "192.0.2.1:",   "192.0.2.1:w",   ":rw",
        "host:rw", "[::1:rw",   "::1:rw",         "*:rwx",        "192.0.2.1:rw@", "*:rw@a/b",
        "*:rw@..", "192.0.2:r", "192.0.2.1:r@.x", "[192.0.2.1]:r"};
    static struct snap_rules rules;
    char error[256], longest[300];
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_true(snap_rules_add(&rules, bad[i], error, sizeof(error)) < 0);
    memset(longest, '1', sizeof(longest));
    longest[sizeof(longest) - 1] = 0;
    assert_true(snap_rules_add(&rules, longest, error, sizeof(error)) < 0);
    assert_int_equal(rules.count, 0);
    for (int i = 0; i < SNAP_RULES_MAX; i++)
        add_rule(&rules, "*:r");
    assert_true(snap_rules_add(&rules, "*:r", error, sizeof(error)) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules__none_are_for_all),
        cmocka_unit_test(rules__add_up),
        cmocka_unit_test(rules__that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
