/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether pages of a file are seen to be write-protected, and when they are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/shm.h"
#include "device/adopt/adopt.h"
#include "device/adopt/pagemap.h"
#include "device/adopt/uffd.h"

#define LARGE_PAGES 3
#define FILE_BYTES (LARGE_PAGES * SW_LARGE_PAGE_BYTES)

struct file_range {
    struct sw_uffd uffd;
    int pagemap;
    int fd;
    uint64_t va; /* at a large page's boundary */
};

static int file_range_make(void **state)
{
    static struct file_range range;
    const size_t reserved = FILE_BYTES + SW_LARGE_PAGE_BYTES;
    uint64_t at = (uint64_t)mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = (at + SW_LARGE_PAGE_BYTES - 1) / SW_LARGE_PAGE_BYTES * SW_LARGE_PAGE_BYTES;
    range.va = at;
    range.fd = sw_shm_create("pagemap", FILE_BYTES);
    range.pagemap = sw_pagemap_open();
    assert_int_equal(sw_uffd_open(&range.uffd), 0);
    assert_true(range.fd >= 0 && range.pagemap >= 0);
    assert_ptr_not_equal(
        mmap((void *)at, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, range.fd, 0),
        MAP_FAILED);
    memset((void *)at, 1, SW_LARGE_PAGE_BYTES); /* the others have no pages yet */
    assert_int_equal(sw_uffd_arm(&range.uffd, at, FILE_BYTES, SW_UFFD_WRITES), 0);
    *state = &range;
    return 0;
}

static int file_range_drop(void **state)
{
    struct file_range *range = *state;
    sw_uffd_disarm(&range->uffd, range->va, FILE_BYTES);
    sw_uffd_close(&range->uffd);
    munmap((void *)range->va, FILE_BYTES);
    sw_pagemap_close(range->pagemap);
    close(range->fd);
    return 0;
}

static void is_protected__only_after_it_was_asked_for(void **state)
{
    const struct file_range *range = *state;
    assert_int_equal(sw_pagemap_is_protected(range->pagemap, range->va, FILE_BYTES), 0);
    assert_int_equal(sw_uffd_protect(&range->uffd, range->va, FILE_BYTES), 0);
    assert_int_equal(sw_pagemap_is_protected(range->pagemap, range->va, FILE_BYTES), 1);
}

/* As the kernel does when a large page is unmapped at the wrong moment. */
static void is_protected__sees_one_large_page_left_out(void **state)
{
    const struct file_range *range = *state;
    for (uint64_t out = 0; out < LARGE_PAGES; out++) {
        const uint64_t at = range->va + out * SW_LARGE_PAGE_BYTES;
        assert_int_equal(sw_uffd_protect(&range->uffd, range->va, FILE_BYTES), 0);
        assert_int_equal(madvise((void *)at, SW_LARGE_PAGE_BYTES, MADV_DONTNEED), 0);
        sw_uffd_disarm(&range->uffd, at, SW_LARGE_PAGE_BYTES);
        assert_int_equal(sw_pagemap_is_protected(range->pagemap, range->va, FILE_BYTES), 0);
        assert_int_equal(sw_uffd_arm(&range->uffd, at, SW_LARGE_PAGE_BYTES, SW_UFFD_WRITES), 0);
    }
}

/* A range that begins and ends within large pages. */
static void is_protected__part_of_large_pages(void **state)
{
    const struct file_range *range = *state;
    const uint64_t page = (uint64_t)getpagesize();
    const uint64_t va = range->va + 5 * page, len = SW_LARGE_PAGE_BYTES + 3 * page;
    assert_int_equal(sw_uffd_protect(&range->uffd, va, len), 0);
    assert_int_equal(sw_pagemap_is_protected(range->pagemap, va, len), 1);
    assert_int_equal(sw_pagemap_is_protected(range->pagemap, va - page, len), 0);
}

static void is_protected__no_pagemap(void **state)
{
    const struct file_range *range = *state;
    assert_true(sw_pagemap_is_protected(-1, range->va, FILE_BYTES) < 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(is_protected__only_after_it_was_asked_for, file_range_make,
                                    file_range_drop),
    cmocka_unit_test_setup_teardown(is_protected__sees_one_large_page_left_out, file_range_make,
                                    file_range_drop),
    cmocka_unit_test_setup_teardown(is_protected__part_of_large_pages, file_range_make,
                                    file_range_drop),
    cmocka_unit_test_setup_teardown(is_protected__no_pagemap, file_range_make, file_range_drop),
};

int main(void)
{
    struct sw_uffd uffd = {.can_protect_shared = false};
    const enum sw_adopt_reason reason = sw_adopt_probe();
    if (reason != SW_ADOPT_OK) {
        printf("SKIP: %s\n", sw_adopt_reason_str(reason));
        return 77;
    }
    if (!sw_uffd_open(&uffd))
        sw_uffd_close(&uffd);
    if (!uffd.can_protect_shared) {
        puts("SKIP: this kernel does not protect shared memory (Linux 5.19)");
        return 77;
    }
    return cmocka_run_group_tests_name("pagemap", tests, NULL, NULL);
}
