/* SPDX-License-Identifier: BSD-2-Clause */
/* Rules as they are written, whom they are for, and whether they fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "pmem/server/rules.h"

static char error[256];

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in *four = (void *)&out;
    struct sockaddr_in6 *six = (void *)&out;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
        out.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1)
        out.ss_family = AF_INET6;
    return out;
}

static uint64_t mask_of(const struct pms_rules *rules, const char *client)
{
    const struct sockaddr_storage a = address(client);
    return pms_rules_of(rules, (const struct sockaddr *)&a);
}

static void add__each_part_is_read(void **state)
{
    (void)state;
    struct pms_rules rules = {0};
    assert_int_equal(pms_rules_add(&rules, "192.0.2.1:4K-1M:rw", error, sizeof(error)), 0);
    assert_int_equal(pms_rules_add(&rules, "[2001:db8::1]:*:r", error, sizeof(error)), 0);
    assert_int_equal(pms_rules_add(&rules, "*:1G-:w", error, sizeof(error)), 0);
    assert_int_equal(rules.count, 3);
    assert_int_equal(rules.rules[0].offset, 4096);
    assert_int_equal(rules.rules[0].end, 1 << 20);
    assert_int_equal(rules.rules[0].rights, SW_PMEM_READ | SW_PMEM_WRITE);
    assert_int_equal(rules.rules[1].rights, SW_PMEM_READ);
    assert_int_equal(rules.rules[2].offset, 1 << 30);
    assert_true(rules.rules[2].end == UINT64_MAX);
}

static void add__what_is_no_rule_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "*",
        "*:*",
        "*:*:",
        "*:*:x",
        "*:*:wr",
        "*:4-4:r",
        "*:8-4:r",
        "*:4:r",
        "host:*:r",
        "2001:db8::1:*:r",
        "[::1:*:r",
        "[]:*:r",
        "*:-1-:r",
        "*:1Q-:r",
        "*:0-99999999999999999999:r",
        "1.2.3.4.5:*:r",
    };
    struct pms_rules rules = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(pms_rules_add(&rules, bad[i], error, sizeof(error)), -EINVAL);
    assert_int_equal(rules.count, 0);
}

static void add__no_more_than_have_room(void **state)
{
    (void)state;
    struct pms_rules rules = {0};
    for (int i = 0; i < PMS_RULES_MAX; i++)
        assert_int_equal(pms_rules_add(&rules, "*:*:r", error, sizeof(error)), 0);
    assert_int_equal(pms_rules_add(&rules, "*:*:r", error, sizeof(error)), -EINVAL);
    assert_true(mask_of(&rules, "192.0.2.1") == UINT64_MAX);
}

static void of__an_address_and_its_family(void **state)
{
    (void)state;
    struct pms_rules rules = {0};
    pms_rules_add(&rules, "192.0.2.1:*:rw", error, sizeof(error));
    pms_rules_add(&rules, "[2001:db8::1]:*:rw", error, sizeof(error));
    pms_rules_add(&rules, "192.0.2.1:0-1:r", error, sizeof(error));
    assert_int_equal(mask_of(&rules, "192.0.2.1"), 5);
    assert_int_equal(mask_of(&rules, "192.0.2.2"), 0);
    assert_int_equal(mask_of(&rules, "2001:db8::1"), 2);
    assert_int_equal(mask_of(&rules, "2001:db8::2"), 0);
}

static void fit__within_the_region(void **state)
{
    (void)state;
    struct pms_rules rules = {0};
    pms_rules_add(&rules, "*:*:rw", error, sizeof(error));
    pms_rules_add(&rules, "*:8K-16K:r", error, sizeof(error));
    assert_int_equal(pms_rules_fit(&rules, "a", 16384, error, sizeof(error)), 0);
    assert_int_equal(pms_rules_fit(&rules, "a", 16383, error, sizeof(error)), -EINVAL);
    static struct pms_rules behind;
    pms_rules_add(&behind, "*:16K-:r", error, sizeof(error));
    assert_int_equal(pms_rules_fit(&behind, "a", 16384, error, sizeof(error)), -EINVAL);
}

static void region__has_rules_of_its_own(void **state)
{
    (void)state;
    struct pms_rules rules = {0};
    pms_rules_add(&rules, "*:*:r", error, sizeof(error));
    assert_int_equal(pms_rules_add(&rules, "192.0.2.1:1M-:rw@big", error, sizeof(error)), 0);
    assert_int_equal(pms_rules_fit(&rules, "small", 4096, error, sizeof(error)), 0);
    assert_int_equal(pms_rules_fit(&rules, "big", 4096, error, sizeof(error)), -EINVAL);
    const uint64_t mask = mask_of(&rules, "192.0.2.1");
    assert_int_equal(pms_rules_rights(&rules, mask, "small"), SW_PMEM_READ);
    assert_int_equal(pms_rules_rights(&rules, mask, "big"), SW_PMEM_READ | SW_PMEM_WRITE);
    assert_int_equal(pms_rules_rights(&rules, mask_of(&rules, "192.0.2.2"), "big"), SW_PMEM_READ);
    assert_int_equal(pms_rules_add(&rules, "*:*:r@", error, sizeof(error)), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add__each_part_is_read),
        cmocka_unit_test(add__what_is_no_rule_is_refused),
        cmocka_unit_test(add__no_more_than_have_room),
        cmocka_unit_test(of__an_address_and_its_family),
        cmocka_unit_test(fit__within_the_region),
        cmocka_unit_test(region__has_rules_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
