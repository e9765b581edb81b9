/* SPDX-License-Identifier: BSD-2-Clause */
/* A mapping goes where it is to go, whatever a library has put in the place of libc's mremap(). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/shm.h"

/* UCX's passes four arguments on: without the fifth, memory would go to address 0. */
void *mremap(void *from, size_t old_bytes, size_t new_bytes, int flags, ...)
{
    (void)from, (void)old_bytes, (void)new_bytes, (void)flags;
    errno = EINVAL;
    return MAP_FAILED;
}

static size_t page_bytes(void)
{
    return (size_t)getpagesize();
}

static char *place_new(void)
{
    char *place = mmap(NULL, page_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(place, MAP_FAILED);
    return place;
}

static void sparse__goes_where_it_is_told(void **state)
{
    (void)state;
    char *place = place_new();
    const int fd = sw_shm_create("test", page_bytes());
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    assert_ptr_equal(sw_map_sparse(place, page_bytes(), PROT_READ, MAP_SHARED, fd, 0), place);
    assert_int_equal(place[0], 'x');
    munmap(place, page_bytes());
    close(fd);
}

static void remap__of_no_bytes_makes_a_second_mapping(void **state)
{
    (void)state;
    char *place = place_new();
    const int fd = sw_shm_create("test", page_bytes());
    assert_true(fd >= 0);
    char *first = sw_shm_map(fd, page_bytes(), true);
    assert_non_null(first);
    assert_true(sw_remap(first, 0, page_bytes(), place));
    assert_int_equal(mprotect(place, page_bytes(), PROT_READ | PROT_WRITE), 0);
    first[1] = 'y';
    assert_int_equal(place[1], 'y');
    munmap(first, page_bytes());
    munmap(place, page_bytes());
    close(fd);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse__goes_where_it_is_told),
        cmocka_unit_test(remap__of_no_bytes_makes_a_second_mapping),
    };
    return cmocka_run_group_tests_name("remap", tests, NULL, NULL);
}
