/* SPDX-License-Identifier: BSD-2-Clause */
/* What sw_adopt_put() does: memory becomes plain again, once that is possible. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_rig.h"

static void put__memory_is_plain_again(void **state)
{
    (void)state;
    bool private;
    int fds = open_descriptors();
    uint8_t *base = buffer_new(20 * MIB);
    words_fill(base, 20 * MIB, 6);
    int before = mappings_within(base, 20 * MIB, &private);
    struct sw_segment *segment = adopt_whole(base + 3 * PAGE, 17 * MIB);
    words_fill(base, 20 * MIB, 7);
    sw_adopt_put(segment);
    assert_int_equal(mappings_within(base, 20 * MIB, &private), before);
    assert_true(private);
    assert_int_equal(open_descriptors(), fds);
    assert_int_equal(words_differ(base, 20 * MIB, 7), SIZE_MAX);
    assert_int_equal(madvise(base + 4 * PAGE, 9 * MIB, MADV_DONTNEED), 0);
    for (size_t at = 0; at < 9 * MIB; at += PAGE)
        assert_int_equal(base[4 * PAGE + at], 0);
    munmap(base, 20 * MIB);
}

static void put__of_memory_never_touched_is_plain_again(void **state)
{
    (void)state;
    bool private;
    uint8_t *base = buffer_new(20 * MIB);
    int before = mappings_within(base, 20 * MIB, &private);
    struct sw_segment *segment = adopt_whole(base + 3 * PAGE, 17 * MIB);
    memset(base + 5 * MIB, 1, 3 * MIB);
    sw_adopt_put(segment);
    assert_int_equal(mappings_within(base, 20 * MIB, &private), before);
    assert_true(private);
    assert_int_equal(base[5 * MIB - 1], 0);
    assert_int_equal(base[5 * MIB], 1);
    munmap(base, 20 * MIB);
}

static void put__keeps_a_changed_protection(void **state)
{
    (void)state;
    bool private;
    uint8_t *base = buffer_new(6 * PAGE);
    words_fill(base, 6 * PAGE, 8);
    struct sw_segment *segment = adopt_whole(base, 6 * PAGE);
    mprotect(base + 2 * PAGE, 2 * PAGE, PROT_READ);
    assert_ptr_equal(adopt_whole(base, 6 * PAGE), segment); /* one extent over three mappings */
    sw_adopt_put(segment);
    sw_adopt_put(segment);
    assert_int_equal(mappings_within(base, 6 * PAGE, &private), 3);
    assert_true(private);
    assert_int_equal(words_differ(base, 6 * PAGE, 8), SIZE_MAX);
    int probe[2];
    assert_int_equal(pipe(probe), 0);
    assert_int_equal(write(probe[1], "x", 1), 1);
    assert_int_equal(read(probe[0], base + 2 * PAGE, 1), -1); /* still read-only */
    assert_int_equal(errno, EFAULT);
    close(probe[0]);
    close(probe[1]);
    munmap(base, 6 * PAGE);
}

static void put__after_the_program_unmapped_or_mapped_anew(void **state)
{
    (void)state;
    int fds = open_descriptors();
    uint8_t *base = buffer_new(8 * PAGE);
    words_fill(base, 8 * PAGE, 9);
    struct sw_segment *segment = adopt_whole(base, 8 * PAGE);
    munmap(base, 2 * PAGE);
    uint8_t *fresh = mmap(base + 4 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(fresh, 0x5a, 2 * PAGE);
    sw_adopt_put(segment);
    for (size_t i = 0; i < 2 * PAGE; i++)
        assert_int_equal(fresh[i], 0x5a);
    for (size_t i = 2 * PAGE / 8; i < PAGE;
         i++) { /* the words of the other pages are as they were */
        if (i >= 4 * PAGE / 8 && i < 6 * PAGE / 8)
            continue;
        assert_int_equal(((uint64_t *)base)[i], (i + 1) * 0x9e3779b97f4a7c15ull ^ 9);
    }
    assert_int_equal(open_descriptors(), fds);
    munmap(base, 8 * PAGE);

    base = buffer_new(2 * MIB);
    segment = adopt_whole(base, 2 * MIB);
    munmap(base, 2 * MIB);
    sw_adopt_put(segment);
    assert_int_equal(open_descriptors(), fds);
}

/* A region that leaked, its memory freed and the addresses used again: the new memory is not
 * mistaken for the old. */
static void get__does_not_take_new_memory_for_an_old_segment(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(4 * PAGE);
    struct sw_segment *old = adopt_whole(base, 4 * PAGE);
    mmap(base, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    words_fill(base, 4 * PAGE, 10);
    struct sw_segment *new = adopt_whole(base, 4 * PAGE);
    assert_ptr_not_equal(new, old);
    sw_adopt_put(old);
    assert_int_equal(words_differ(base, 4 * PAGE, 10), SIZE_MAX);
    uint64_t word = 0, place, len_bytes;
    sw_segment_file_range(new, &place, &len_bytes);
    assert_int_equal(pread(sw_segment_fd(new), &word, sizeof(word), (off_t)place), sizeof(word));
    assert_int_equal(word, *(uint64_t *)base);
    sw_adopt_put(new);
    assert_int_equal(words_differ(base, 4 * PAGE, 10), SIZE_MAX);
    munmap(base, 4 * PAGE);
}

static void put__survives_a_program_that_closes_all_descriptors(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(4 * PAGE);
    words_fill(base, 4 * PAGE, 11);
    struct sw_segment *segment = adopt_whole(base, 4 * PAGE);
    int fd = sw_segment_fd(segment);
    close(fd);
    assert_int_equal(sw_segment_fd(segment), -1);
    int other = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(dup2(other, fd), fd);
    sw_adopt_put(segment);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0); /* not closed as if it were ours */
    assert_int_equal(words_differ(base, 4 * PAGE, 11), SIZE_MAX);
    close(other);
    close(fd);
    munmap(base, 4 * PAGE);
}

static int io_uring_open(void)
{
    uint8_t params[120] = {0};
    return (int)syscall(SYS_io_uring_setup, 4, params);
}

static void get__pinned_by_an_io_uring(void **state)
{
    (void)state;
    enum sw_adopt_reason why;
    bool private;
    int ring = io_uring_open();
    if (ring < 0)
        skip();
    uint8_t *base = buffer_new(4 * PAGE);
    assert_int_equal(adopt_range(base, 4 * PAGE, &why), 0);
    assert_int_equal(why, SW_ADOPT_PINNED);
    close(ring);

    /* Opened while memory is adopted: it stays shared, and returns when that is possible again. */
    words_fill(base, 4 * PAGE, 13);
    struct sw_segment *segment = adopt_whole(base, 4 * PAGE);
    uint32_t id = sw_segment_id(segment);
    ring = io_uring_open();
    sw_adopt_put(segment);
    mappings_within(base, 4 * PAGE, &private);
    assert_false(private);
    assert_null(sw_segment_find(id));
    assert_int_equal(sw_segment_id(adopt_whole(base, 4 * PAGE)), id); /* in use again as it is */
    sw_adopt_put(segment);
    close(ring);
    assert_int_equal(adopt_range(base, 0, &why), 0); /* any call tries again */
    mappings_within(base, 4 * PAGE, &private);
    assert_true(private);
    assert_int_equal(words_differ(base, 4 * PAGE, 13), SIZE_MAX);
    munmap(base, 4 * PAGE);
}

/* Descriptors that stay open for all adoptions are opened by the first: the cases count
 * descriptors. */
static int adopt_first(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(4 * PAGE);
    sw_adopt_put(adopt_whole(base, 4 * PAGE));
    return munmap(base, 4 * PAGE);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(put__memory_is_plain_again),
        cmocka_unit_test(put__of_memory_never_touched_is_plain_again),
        cmocka_unit_test(put__keeps_a_changed_protection),
        cmocka_unit_test(put__after_the_program_unmapped_or_mapped_anew),
        cmocka_unit_test(get__does_not_take_new_memory_for_an_old_segment),
        cmocka_unit_test(put__survives_a_program_that_closes_all_descriptors),
        cmocka_unit_test(get__pinned_by_an_io_uring),
    };
    setenv("SIDEWIRE_ADOPT_MAX", "4G", 1); /* also on a small machine */
    if (adopt_is_refused())
        return 77;
    return cmocka_run_group_tests_name("adopt_put", tests, adopt_first, NULL);
}
