/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a file of shared memory has pages, and where it has none. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/shm.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define PAGES 16

static uint64_t page_bytes(void)
{
    return (uint64_t)getpagesize();
}

static bool is_hole(int fd, uint64_t page, uint64_t count)
{
    return sw_shm_is_hole(fd, page * page_bytes(), count * page_bytes());
}

static int file_new(void)
{
    const int fd = sw_shm_create("test", PAGES * page_bytes());
    assert_true(fd >= 0);
    return fd;
}

static void hole__is_where_nothing_was_written(void **state)
{
    (void)state;
    const int fd = file_new();
    assert_true(is_hole(fd, 0, PAGES));
    assert_int_equal(pwrite(fd, "x", 1, (off_t)(3 * page_bytes())), 1);
    assert_false(is_hole(fd, 0, PAGES));
    assert_false(is_hole(fd, 3, 1));
    assert_true(is_hole(fd, 0, 3));
    assert_true(is_hole(fd, 4, PAGES - 4));
    assert_true(is_hole(fd, 3, 0));
    close(fd);
}

/* As one is that the kernel puts in the place of another, before it says so. */
static void hole__is_no_page_that_is_not_up_to_date(void **state)
{
    (void)state;
    const int fd = file_new();
    const off_t at = (off_t)(5 * page_bytes());
    assert_int_equal(fallocate(fd, 0, at, (off_t)page_bytes()), 0);
    assert_true(lseek(fd, at, SEEK_DATA) == -1 && errno == ENXIO);
    assert_false(is_hole(fd, 5, 1));
    assert_true(is_hole(fd, 6, 1));
    close(fd);
}

static void hole__is_not_told_of_what_is_no_file(void **state)
{
    (void)state;
    assert_false(is_hole(-1, 0, 1));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(hole__is_where_nothing_was_written),
        cmocka_unit_test(hole__is_no_page_that_is_not_up_to_date),
        cmocka_unit_test(hole__is_not_told_of_what_is_no_file),
    };
    if (syscall(SYS_cachestat, -1, NULL, NULL, 0) && errno == ENOSYS) {
        printf("SKIP: the kernel has no cachestat (Linux 6.5)\n");
        return 77;
    }
    return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
