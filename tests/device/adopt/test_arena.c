/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that segments share: who shares with whom, what is freed when, and what peers get. */
#include "device/adopt/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_check.h"
#include "device/adopt/adopt.h"

#define REGIONS 300

static ino_t file_of(const struct sw_segment *segment)
{
    struct stat st;
    assert_int_equal(fstat(sw_segment_fd(segment), &st), 0);
    return st.st_ino;
}

static uint64_t place_of(const struct sw_segment *segment)
{
    uint64_t offset, len_bytes;
    sw_segment_file_range(segment, &offset, &len_bytes);
    return offset;
}

static struct sw_segment *get(const void *base, size_t len, enum sw_handed_out handed)
{
    struct sw_extent extent;
    if (sw_adopt_get((uintptr_t)base, len, handed, &extent, 1, NULL) != 1)
        return NULL;
    sw_segment_grant(extent.segment, handed);
    return extent.segment;
}

static void many__share_a_descriptor(void **state)
{
    (void)state;
    struct sw_segment *segments[REGIONS];
    uint8_t *base = buffer_new(REGIONS * 2 * PAGE);
    words_fill(base, REGIONS * 2 * PAGE, 1);
    struct sw_segment *first = get(base, PAGE, SW_HANDED_OUT_WRITE);
    const int before = open_descriptors();
    segments[0] = first;
    for (size_t i = 1; i < REGIONS; i++) {
        segments[i] = get(base + i * 2 * PAGE, PAGE, SW_HANDED_OUT_WRITE);
        assert_non_null(segments[i]);
        assert_int_equal(file_of(segments[i]), file_of(first));
    }
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(file_bytes(sw_segment_fd(first)), REGIONS * PAGE);
    assert_int_equal(words_differ(base, REGIONS * 2 * PAGE, 1), SIZE_MAX);
    for (size_t i = 0; i < REGIONS; i += 2)
        sw_adopt_put(segments[i]);
    assert_int_equal(file_bytes(sw_segment_fd(segments[1])), REGIONS / 2 * PAGE);
    for (size_t i = 1; i < REGIONS; i += 2)
        sw_adopt_put(segments[i]);
    assert_int_equal(open_descriptors(), before - 1);
    assert_int_equal(words_differ(base, REGIONS * 2 * PAGE, 1), SIZE_MAX);
    munmap(base, REGIONS * 2 * PAGE);
}

/* A peer may still store to where a segment was. */
static void place__is_used_once(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(4 * PAGE);
    uint64_t last = 0;
    struct sw_segment *keeper = get(base, PAGE, SW_HANDED_OUT_WRITE);
    for (int i = 0; i < 10; i++) {
        struct sw_segment *segment = get(base + 2 * PAGE, PAGE, SW_HANDED_OUT_WRITE);
        assert_int_equal(file_of(segment), file_of(keeper));
        assert_true(place_of(segment) > last);
        last = place_of(segment);
        sw_adopt_put(segment);
    }
    sw_adopt_put(keeper);
    munmap(base, 4 * PAGE);
}

/* Pages that the program has unmapped meanwhile do not stay in the file either. */
static void leave__frees_what_is_unmapped(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(64 * PAGE), *other = buffer_new(64 * PAGE);
    words_fill(base, 64 * PAGE, 1);
    words_fill(other, 64 * PAGE, 2);
    struct sw_segment *keeper = get(other, PAGE, SW_HANDED_OUT_WRITE);
    struct sw_segment *segment = get(base, 64 * PAGE, SW_HANDED_OUT_WRITE);
    munmap(base, 64 * PAGE);
    sw_adopt_put(segment);
    assert_int_equal(file_bytes(sw_segment_fd(keeper)), PAGE);
    sw_adopt_put(keeper);
    munmap(other, 64 * PAGE);
}

/* A process that gets the file gets all that is in it. */
static void classes__do_not_share(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(10 * PAGE);
    struct sw_segment *written = get(base, PAGE, SW_HANDED_OUT_WRITE);
    struct sw_segment *kept = get(base + 2 * PAGE, PAGE, SW_HANDED_OUT_NOT);
    struct sw_segment *kept_too = get(base + 4 * PAGE, PAGE, SW_HANDED_OUT_NOT);
    struct sw_segment *read = get(base + 6 * PAGE, PAGE, SW_HANDED_OUT_READ);
    assert_int_not_equal(file_of(written), file_of(kept));
    assert_int_not_equal(file_of(written), file_of(read));
    assert_int_not_equal(file_of(kept), file_of(kept_too));
    assert_int_not_equal(file_of(kept), file_of(read));
    struct sw_segment *const all[] = {written, kept, kept_too, read};
    for (int i = 0; i < 4; i++)
        sw_adopt_put(all[i]);
    munmap(base, 10 * PAGE);
}

static int mode_of(const struct sw_segment *segment)
{
    int fd = sw_segment_hand_out(segment);
    int mode = fd < 0 ? -1 : fcntl(fd, F_GETFL) & O_ACCMODE;
    if (fd >= 0)
        close(fd);
    return mode;
}

/* Beyond the descriptors that files of their own may have: what is read shares, and stays so. */
static int with_few_descriptors(void *arg)
{
    (void)arg;
    const struct rlimit limit = {64, 64};
    uint8_t *base = buffer_new(80 * PAGE);
    struct sw_segment *own[8];
    if (setrlimit(RLIMIT_NOFILE, &limit) || sw_arena_files_max() != 8)
        return 1;
    for (int i = 0; i < 8; i++)
        own[i] = get(base + (size_t)i * 2 * PAGE, PAGE, SW_HANDED_OUT_NOT);
    struct sw_segment *read = get(base + 20 * PAGE, PAGE, SW_HANDED_OUT_READ);
    struct sw_segment *too = get(base + 22 * PAGE, PAGE, SW_HANDED_OUT_READ);
    if (!read || !too || file_of(read) != file_of(too) || mode_of(read) != O_RDONLY)
        return 2;
    sw_segment_grant(read, SW_HANDED_OUT_WRITE);
    if (mode_of(read) != O_RDONLY || mode_of(too) != O_RDONLY)
        return 3;
    if (get(base + 24 * PAGE, PAGE, SW_HANDED_OUT_NOT))
        return 4; /* peers map it perhaps one day, perhaps never */
    struct sw_segment *written = get(base + 26 * PAGE, PAGE, SW_HANDED_OUT_WRITE);
    if (!written || mode_of(written) != O_RDWR)
        return 5;
    if (mode_of(own[0]) != -1)
        return 6;
    sw_segment_grant(own[0], SW_HANDED_OUT_WRITE); /* a receive was posted there */
    return mode_of(own[0]) == O_RDWR ? 0 : 7;
}

static void growth__only_in_files_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(with_few_descriptors, NULL), 0);
}

/* Nobody is killed by SIGXFSZ for a place behind the limit. */
static int with_small_files(void *arg)
{
    (void)arg;
    struct rlimit limit = {16 * PAGE, RLIM_INFINITY};
    uint8_t *base = buffer_new(64 * PAGE);
    struct sw_segment *segments[8];
    memset(base, 1, 64 * PAGE);
    segments[0] = get(base, PAGE, SW_HANDED_OUT_WRITE); /* in a file as large as can be */
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 1; i < 8; i++)
        if (!(segments[i] = get(base + (size_t)i * 6 * PAGE, 5 * PAGE, SW_HANDED_OUT_WRITE)))
            return 1;
    if (get(base + 47 * PAGE, 17 * PAGE, SW_HANDED_OUT_WRITE))
        return 2;
    limit.rlim_cur = PAGE;
    setrlimit(RLIMIT_FSIZE, &limit);
    if (!get(base + 58 * PAGE, PAGE, SW_HANDED_OUT_WRITE) ||
        get(base + 61 * PAGE, 2 * PAGE, SW_HANDED_OUT_WRITE))
        return 3;
    for (int i = 0; i < 8; i++)
        sw_adopt_put(segments[i]);
    for (size_t i = 0; i < 64 * PAGE; i++)
        if (base[i] != 1)
            return 4;
    return 0;
}

static void file_size__has_a_limit(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(with_small_files, NULL), 0);
}

/* By a raw system call: what is adopted next lies in another file, and all comes back. */
static void descriptor__closed_by_the_program(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(4 * PAGE);
    words_fill(base, 4 * PAGE, 1);
    struct sw_segment *before = get(base, PAGE, SW_HANDED_OUT_WRITE);
    const ino_t file = file_of(before);
    syscall(SYS_close, sw_segment_fd(before));
    struct sw_segment *after = get(base + 2 * PAGE, PAGE, SW_HANDED_OUT_WRITE);
    assert_non_null(after);
    assert_int_not_equal(file_of(after), file);
    assert_int_equal(sw_segment_fd(before), -1);
    sw_adopt_put(before);
    sw_adopt_put(after);
    assert_int_equal(words_differ(base, 4 * PAGE, 1), SIZE_MAX);
    munmap(base, 4 * PAGE);
}

static void neighbours__come_and_go_one_by_one(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(64 * PAGE);
    struct sw_segment *segments[64];
    bool all_private;
    words_fill(base, 64 * PAGE, 3);
    for (size_t i = 0; i < 64; i++)
        assert_non_null(segments[i] = get(base + i * PAGE, PAGE, SW_HANDED_OUT_WRITE));
    assert_int_equal(words_differ(base, 64 * PAGE, 3), SIZE_MAX);
    for (size_t i = 0; i < 64; i++)
        sw_adopt_put(segments[i * 37 % 64]);
    assert_int_equal(words_differ(base, 64 * PAGE, 3), SIZE_MAX);
    assert_int_equal(mappings_within(base, 64 * PAGE, &all_private), 1);
    assert_true(all_private);
    munmap(base, 64 * PAGE);
}

/* Large pages move whole wherever in the file they come to lie. */
static void large__lie_as_in_memory(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(16 * MIB), *small = buffer_new(PAGE);
    words_fill(base, 16 * MIB, 4);
    struct sw_segment *keeper = get(small, PAGE, SW_HANDED_OUT_WRITE);
    struct sw_segment *first = get(base + PAGE, 5 * MIB, SW_HANDED_OUT_WRITE);
    struct sw_segment *second = get(base + 8 * MIB, 7 * MIB + PAGE, SW_HANDED_OUT_WRITE);
    assert_int_equal(file_of(first), file_of(second));
    assert_int_equal((place_of(first) - (uintptr_t)(base + PAGE)) % (2 * MIB), 0);
    assert_int_equal((place_of(second) - (uintptr_t)(base + 8 * MIB)) % (2 * MIB), 0);
    assert_int_equal(words_differ(base, 16 * MIB, 4), SIZE_MAX);
    sw_adopt_put(first);
    sw_adopt_put(second);
    assert_int_equal(words_differ(base, 16 * MIB, 4), SIZE_MAX);
    sw_adopt_put(keeper);
    munmap(base, 16 * MIB);
    munmap(small, PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many__share_a_descriptor),
        cmocka_unit_test(place__is_used_once),
        cmocka_unit_test(leave__frees_what_is_unmapped),
        cmocka_unit_test(classes__do_not_share),
        cmocka_unit_test(growth__only_in_files_of_their_own),
        cmocka_unit_test(file_size__has_a_limit),
        cmocka_unit_test(descriptor__closed_by_the_program),
        cmocka_unit_test(neighbours__come_and_go_one_by_one),
        cmocka_unit_test(large__lie_as_in_memory),
    };
    if (sw_adopt_probe() != SW_ADOPT_OK) {
        printf("SKIP: %s\n", sw_adopt_reason_str(sw_adopt_probe()));
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
