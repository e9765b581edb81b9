/* SPDX-License-Identifier: BSD-2-Clause */
/* The knobs of page adoption, and which descriptors count as pinning memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/adopt/adopt_config.h"
#include "device/adopt/pinned.h"

static void parse_size__units(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    assert_true(sw_adopt_parse_size("0", &bytes));
    assert_int_equal(bytes, 0);
    assert_true(sw_adopt_parse_size("4096", &bytes));
    assert_int_equal(bytes, 4096);
    assert_true(sw_adopt_parse_size("64K", &bytes));
    assert_int_equal(bytes, 65536);
    assert_true(sw_adopt_parse_size("3m", &bytes));
    assert_int_equal(bytes, 3 << 20);
    assert_true(sw_adopt_parse_size("16G", &bytes));
    assert_int_equal(bytes, UINT64_C(16) << 30);
    assert_true(sw_adopt_parse_size("2T", &bytes));
    assert_int_equal(bytes, UINT64_C(2) << 40);
}

static void parse_size__refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "K", "-1", " 1", "1.5G", "1Q", "1KB", "20000000T", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint64_t bytes = 7;
        assert_false(sw_adopt_parse_size(texts[i], &bytes));
        assert_int_equal(bytes, 7);
    }
}

static void config__from_the_environment(void **state)
{
    (void)state;
    const struct sw_adopt_config *config = sw_adopt_config();
    assert_false(config->enabled);
    assert_int_equal(config->max_bytes, 5 << 20);
}

static void pinned_target__means_to_pin(void **state)
{
    (void)state;
    assert_true(sw_pinned_target("anon_inode:[io_uring]"));
    assert_true(sw_pinned_target("/dev/vfio/12"));
    assert_true(sw_pinned_target("anon_inode:[vfio-device]"));
    assert_true(sw_pinned_target("/dev/nvidia0"));
    assert_true(sw_pinned_target("/dev/nvidia-uvm"));
    assert_true(sw_pinned_target("/dev/kfd"));
    assert_true(sw_pinned_target("/dev/dri/renderD128"));
    assert_true(sw_pinned_target("anon_inode:kvm-vm"));
    assert_true(sw_pinned_target("/dev/infiniband/uverbs0"));
    assert_false(sw_pinned_target("anon_inode:[eventfd]"));
    assert_false(sw_pinned_target("anon_inode:[userfaultfd]"));
    assert_false(sw_pinned_target("/dev/null"));
    assert_false(sw_pinned_target("/dev/dri/card0"));
    assert_false(sw_pinned_target("/tmp/dev/vfio/1"));
    assert_false(sw_pinned_target(""));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_size__units),
        cmocka_unit_test(parse_size__refused),
        cmocka_unit_test(config__from_the_environment),
        cmocka_unit_test(pinned_target__means_to_pin),
    };
    setenv("SIDEWIRE_ADOPT", "never", 1);
    setenv("SIDEWIRE_ADOPT_MAX", "5M", 1);
    return cmocka_run_group_tests_name("adopt_config", tests, NULL, NULL);
}
