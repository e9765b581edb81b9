/* SPDX-License-Identifier: BSD-2-Clause */
/* Which files a peer may map, and how far. Device DAX itself is tried in a guest (tests/kernel). */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mappable.h"

static void sw_mappable_bytes__regular(void **state)
{
    (void)state;
    struct stat st;
    uint64_t bytes = 1;
    const int fd = memfd_create("mappable", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(sw_mappable_bytes(&st, &bytes));
    assert_int_equal(bytes, 0);
    assert_int_equal(ftruncate(fd, 12345), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(sw_mappable_bytes(&st, &bytes));
    assert_int_equal(bytes, 12345);
    close(fd);
}

static void sw_mappable_bytes__other_devices(void **state)
{
    (void)state;
    static const char *const others[] = {"/dev/null", "/dev/zero", "/", "/proc/self/fd"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct stat st;
        uint64_t bytes = 1;
        assert_int_equal(stat(others[i], &st), 0);
        assert_false(sw_mappable_bytes(&st, &bytes));
        assert_int_equal(bytes, 0);
    }
}

static void sw_dax_device_bytes__none(void **state)
{
    (void)state;
    assert_int_equal(sw_dax_device_bytes(makedev(1, 3)), 0);     /* null, of another subsystem */
    assert_int_equal(sw_dax_device_bytes(makedev(4095, 77)), 0); /* no device has this number */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_mappable_bytes__regular),
        cmocka_unit_test(sw_mappable_bytes__other_devices),
        cmocka_unit_test(sw_dax_device_bytes__none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
