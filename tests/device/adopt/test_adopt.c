/* SPDX-License-Identifier: BSD-2-Clause */
/* What sw_adopt_get() does to private memory: extents, sharing, limits. The return to plain memory
 * is in test_adopt_put.c. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_rig.h"
#include "apart.h"
#include "device/adopt/adopt_config.h"

static void get__leaves_out_partial_pages(void **state)
{
    (void)state;
    enum sw_adopt_reason why;
    uint8_t *base = buffer_new(4 * PAGE);
    words_fill(base, 4 * PAGE, 1);
    assert_int_equal(adopt_range(base + 100, 2 * PAGE, &why), 1);
    assert_int_equal(extents[0].va, (uint64_t)(uintptr_t)base + PAGE);
    assert_int_equal(extents[0].len_bytes, PAGE);
    assert_int_equal(why, SW_ADOPT_PARTIAL_PAGE);
    sw_adopt_put(extents[0].segment);
    assert_int_equal(adopt_range(base + 8, PAGE, &why), 0);
    assert_int_equal(why, SW_ADOPT_PARTIAL_PAGE);
    assert_int_equal(adopt_range(base + 8, 0, &why), 0);
    assert_int_equal(words_differ(base, 4 * PAGE, 1), SIZE_MAX);
    munmap(base, 4 * PAGE);
}

static void get__keeps_contents_at_any_size_and_place(void **state)
{
    (void)state;
    static const size_t sizes[] = {PAGE, 3 * PAGE, 2 * MIB, 2 * MIB + PAGE, 9 * MIB, 20 * MIB};
    size_t room = 24 * MIB;
    uint8_t *base = buffer_new(room);
    words_fill(base, room, 2);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t shift = 0; shift < 3; shift++) {
            uint8_t *at = base + PAGE + shift * 37 * PAGE;
            struct sw_segment *segment = adopt_whole(at, sizes[i]);
            assert_int_equal(words_differ(base, room, 2), SIZE_MAX);
            sw_adopt_put(segment);
            assert_int_equal(words_differ(base, room, 2), SIZE_MAX);
        }
    }
    munmap(base, room);
}

static void peer_send_fd(int sock, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
    assert_int_equal(sendmsg(sock, &msg, 0), 1);
}

/* Gets a descriptor, an offset and a length; adds 1 to each word there when told, once per byte. */
static void peer_main(int sock)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    uint64_t range[2];
    int fd;
    if (recvmsg(sock, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
        _exit(1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
    if (read(sock, range, sizeof(range)) != sizeof(range))
        _exit(2);
    uint64_t *words = mmap(NULL, range[1], PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)range[0]);
    if (words == MAP_FAILED)
        _exit(3);
    while (read(sock, &byte, 1) == 1) {
        for (uint64_t i = 0; i < range[1] / sizeof(*words); i++)
            words[i]++;
        if (write(sock, &byte, 1) != 1)
            _exit(4);
    }
    _exit(0);
}

static void get__peer_and_program_see_each_others_stores(void **state)
{
    (void)state;
    size_t len = 3 * MIB;
    uint8_t *base = buffer_new(len);
    uint64_t *words = (uint64_t *)base;
    int socks[2], status;
    char byte = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
    pid_t peer = fork();
    if (peer == 0) {
        close(socks[0]);
        peer_main(socks[1]);
    }
    close(socks[1]);
    struct sw_segment *segment = adopt_whole(base, len);
    uint64_t range[2];
    sw_segment_file_range(segment, &range[0], &range[1]);
    peer_send_fd(socks[0], sw_segment_fd(segment));
    assert_int_equal(write(socks[0], range, sizeof(range)), sizeof(range));
    for (uint64_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < len / sizeof(*words); i++)
            words[i] += 10;
        assert_int_equal(write(socks[0], &byte, 1), 1);
        assert_int_equal(read(socks[0], &byte, 1), 1);
        for (size_t i = 0; i < len / sizeof(*words); i++)
            assert_int_equal(words[i], 11 * (round + 1));
    }
    sw_adopt_put(segment);
    /* A peer's later stores to the file do not reach the program any more. */
    assert_int_equal(write(socks[0], &byte, 1), 1);
    assert_int_equal(read(socks[0], &byte, 1), 1);
    for (size_t i = 0; i < len / sizeof(*words); i++)
        assert_int_equal(words[i], 33);
    close(socks[0]);
    waitpid(peer, &status, 0);
    assert_int_equal(status, 0);
    munmap(base, len);
}

static void get__same_region_twice_shares_a_segment(void **state)
{
    (void)state;
    bool private;
    uint8_t *base = buffer_new(4 * PAGE);
    words_fill(base, 4 * PAGE, 3);
    struct sw_segment *first = adopt_whole(base, 4 * PAGE);
    struct sw_segment *second = adopt_whole(base, 4 * PAGE);
    assert_ptr_equal(first, second);
    uint32_t id = sw_segment_id(first);
    assert_int_not_equal(id, 0);
    struct sw_segment *found = sw_segment_find(id);
    assert_ptr_equal(found, first);
    sw_adopt_put(first);
    sw_adopt_put(second);
    mappings_within(base, 4 * PAGE, &private);
    assert_false(private); /* the reference of find */
    sw_adopt_put(found);
    mappings_within(base, 4 * PAGE, &private);
    assert_true(private);
    assert_null(sw_segment_find(id));
    assert_null(sw_segment_find(0));
    assert_int_not_equal(sw_segment_id(adopt_whole(base, 4 * PAGE)), id);
    sw_adopt_put(extents[0].segment);
    assert_int_equal(words_differ(base, 4 * PAGE, 3), SIZE_MAX);
    munmap(base, 4 * PAGE);
}

static void get__overlap_adopts_only_the_gaps(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(10 * PAGE);
    words_fill(base, 10 * PAGE, 4);
    struct sw_segment *middle = adopt_whole(base + 3 * PAGE, 2 * PAGE);
    assert_int_equal(adopt_range(base + PAGE, 8 * PAGE, NULL), 3);
    struct sw_segment *left = extents[0].segment, *right = extents[2].segment;
    assert_ptr_equal(extents[1].segment, middle);
    assert_int_equal(extents[0].va, (uint64_t)(uintptr_t)base + PAGE);
    assert_int_equal(extents[0].len_bytes, 2 * PAGE);
    assert_int_equal(extents[1].len_bytes, 2 * PAGE);
    assert_int_equal(extents[2].len_bytes, 4 * PAGE);
    /* A region that begins and ends within adopted pages reaches all of its bytes. */
    assert_int_equal(adopt_range(base + PAGE + 100, 3 * PAGE, NULL), 2);
    assert_int_equal(extents[0].va, (uint64_t)(uintptr_t)base + PAGE + 100);
    assert_int_equal(extents[0].len_bytes, 2 * PAGE - 100);
    uint64_t place, len_bytes;
    sw_segment_file_range(left, &place, &len_bytes);
    assert_int_equal(extents[0].offset, place + 100);
    assert_int_equal(extents[1].len_bytes, PAGE + 100);
    sw_adopt_put(extents[0].segment);
    sw_adopt_put(extents[1].segment);
    sw_adopt_put(middle);
    sw_adopt_put(middle);
    sw_adopt_put(left);
    sw_adopt_put(right);
    bool private;
    assert_int_equal(mappings_within(base, 10 * PAGE, &private), 1);
    assert_true(private);
    assert_int_equal(words_differ(base, 10 * PAGE, 4), SIZE_MAX);
    munmap(base, 10 * PAGE);
}

/* Whether the page is this process's alone: some kernels give one to who only reads, others the
 * zero page (Documentation/admin-guide/mm/pagemap.rst). */
static bool is_own_page(const uint8_t *at)
{
    uint64_t entry = 0;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    assert_true(pagemap >= 0);
    assert_int_equal(
        pread(pagemap, &entry, sizeof(entry), (off_t)((uintptr_t)at / PAGE * sizeof(entry))),
        sizeof(entry));
    close(pagemap);
    return entry >> 63 && entry >> 56 & 1;
}

static void get__sparse_region_costs_its_resident_pages(void **state)
{
    (void)state;
    size_t len = 1024 * MIB, step = 10 * MIB + PAGE, touched = 0;
    uint8_t *base =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    madvise(base, len, MADV_NOHUGEPAGE);
    volatile uint8_t sum = 0;
    for (size_t at = 5 * PAGE; at < len; at += step) {
        base[at] = (uint8_t)(at / step + 1);
        sum = (uint8_t)(sum + base[at + MIB]);
        touched += 1 + is_own_page(base + at + MIB);
    }
    struct sw_segment *segment = adopt_whole(base, len);
    /* One page more is allowed: the first. */
    assert_in_range(file_bytes(sw_segment_fd(segment)), touched * PAGE, (touched + 1) * PAGE);
    for (size_t at = 5 * PAGE; at < len; at += step)
        assert_int_equal(base[at], (uint8_t)(at / step + 1));
    base[700 * MIB] = 77;
    sw_adopt_put(segment);
    for (size_t at = 5 * PAGE; at < len; at += step)
        assert_int_equal(base[at], (uint8_t)(at / step + 1));
    assert_int_equal(base[700 * MIB], 77);
    munmap(base, len);
}

/* How much of [base, base + len) is mapped by large pages of a shared file. */
static size_t large_bytes(const uint8_t *base, size_t len)
{
    char line[512];
    size_t sum = 0, kib;
    uint64_t start = 0, end = 0;
    FILE *smaps = fopen("/proc/self/smaps", "re");
    while (smaps && fgets(line, sizeof(line), smaps)) {
        uint64_t from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            start = from;
            end = to;
        }
        if (start >= (uintptr_t)base && end <= (uintptr_t)base + len &&
            sscanf(line, "ShmemPmdMapped: %zu kB", &kib) == 1)
            sum += kib * 1024;
    }
    if (smaps)
        fclose(smaps);
    return sum;
}

/* Whether this kernel makes large pages of a shared file when asked. */
static bool large_pages_possible(void)
{
    int fd = memfd_create("large", MFD_CLOEXEC);
    uint8_t *room = mmap(NULL, 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *large = room + (2 * MIB - (uintptr_t)room % (2 * MIB)) % (2 * MIB);
    bool possible =
        !ftruncate(fd, 2 * MIB) &&
        mmap(large, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == large &&
        pwrite(fd, "", 1, 0) == 1 && !madvise(large, 2 * MIB, 25 /* MADV_COLLAPSE */);
    munmap(room, 4 * MIB);
    close(fd);
    return possible;
}

static void get__dense_memory_is_in_large_pages(void **state)
{
    (void)state;
    if (!large_pages_possible() || !sw_adopt_config()->large_pages)
        skip();
    uint8_t *base = buffer_new(64 * MIB);
    words_fill(base, 64 * MIB, 14);
    struct sw_segment *segment = adopt_whole(base + PAGE, 62 * MIB);
    size_t large = large_bytes(base, 64 * MIB);
    assert_int_equal(words_differ(base, 64 * MIB, 14), SIZE_MAX);
    sw_adopt_put(segment);
    assert_int_equal(words_differ(base, 64 * MIB, 14), SIZE_MAX);
    munmap(base, 64 * MIB);
    /* Not all where the machine is so busy that making them was given up. */
    assert_in_range(large, 16 * MIB, 62 * MIB);
}

static void get__read_only_and_inaccessible_memory(void **state)
{
    (void)state;
    enum sw_adopt_reason why;
    bool private;
    uint8_t *base = buffer_new(6 * PAGE);
    words_fill(base, 6 * PAGE, 5);
    mprotect(base, 2 * PAGE, PROT_READ);
    mprotect(base + 2 * PAGE, 2 * PAGE, PROT_NONE);
    assert_int_equal(adopt_range(base, 6 * PAGE, &why), 2);
    assert_int_equal(why, SW_ADOPT_KIND);
    assert_int_equal(extents[0].len_bytes, 2 * PAGE);
    assert_int_equal(extents[1].va, (uint64_t)(uintptr_t)base + 4 * PAGE);
    sw_adopt_put(extents[0].segment);
    sw_adopt_put(extents[1].segment);
    mprotect(base, 6 * PAGE, PROT_READ);
    mappings_within(base, 6 * PAGE, &private);
    assert_true(private);
    assert_int_equal(words_differ(base, 6 * PAGE, 5), SIZE_MAX);
    munmap(base, 6 * PAGE);
}

static void get__several_mappings_several_extents(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(6 * PAGE);
    int fd = memfd_create("mine", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 8 * PAGE), 0);
    assert_ptr_equal(mmap(base + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          fd, 5 * PAGE),
                     base + 2 * PAGE);
    assert_int_equal(adopt_range(base + 8, 6 * PAGE - 16, NULL), 3);
    assert_int_equal(extents[0].va, (uint64_t)(uintptr_t)base + PAGE);
    assert_int_equal(extents[0].len_bytes, PAGE);
    assert_int_equal(extents[1].va, (uint64_t)(uintptr_t)base + 2 * PAGE);
    assert_int_equal(extents[1].len_bytes, 2 * PAGE);
    assert_int_equal(extents[1].offset, 5 * PAGE);
    assert_int_equal(extents[2].len_bytes, PAGE);
    struct sw_extent kept[3];
    memcpy(kept, extents, sizeof(kept));
    /* No more than there is room for. */
    enum sw_adopt_reason why;
    assert_int_equal(
        sw_adopt_get((uint64_t)(uintptr_t)base, 6 * PAGE, adopt_handed, extents, 1, &why), 1);
    assert_int_equal(why, SW_ADOPT_TOO_LARGE);
    sw_adopt_put(extents[0].segment);
    for (int i = 0; i < 3; i++)
        sw_adopt_put(kept[i].segment);
    close(fd);
    munmap(base, 6 * PAGE);
}

static void get__unmapped_and_wrapping_ranges(void **state)
{
    (void)state;
    enum sw_adopt_reason why;
    uint8_t *base = apart_map(4 * PAGE);
    munmap(base + PAGE, 2 * PAGE);
    assert_int_equal(adopt_range(base, 4 * PAGE, &why), 2);
    assert_int_equal(why, SW_ADOPT_KIND);
    sw_adopt_put(extents[0].segment);
    sw_adopt_put(extents[1].segment);
    assert_int_equal(sw_adopt_get(UINT64_MAX - 10, 100, adopt_handed, extents, EXTENTS_MAX, &why),
                     0);
    munmap(base, PAGE);
    munmap(base + 3 * PAGE, PAGE);
}

static void get__locked_memory_stays_locked(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(3 * MIB);
    if (mlock(base, 3 * MIB) || !madvise(base, PAGE, MADV_DONTNEED))
        skip(); /* not allowed, or a sanitizer made it do nothing */
    words_fill(base, 3 * MIB, 12);
    struct sw_segment *segment = adopt_whole(base, 3 * MIB);
    assert_int_equal(madvise(base, PAGE, MADV_DONTNEED), -1); /* refused for locked memory only */
    sw_adopt_put(segment);
    assert_int_equal(madvise(base, PAGE, MADV_DONTNEED), -1);
    assert_int_equal(words_differ(base, 3 * MIB, 12), SIZE_MAX);
    munmap(base, 3 * MIB);
}

static int never_in_child(void *arg)
{
    (void)arg;
    enum sw_adopt_reason why;
    setenv("SIDEWIRE_ADOPT", "never", 1);
    uint8_t *base = buffer_new(4 * PAGE);
    if (adopt_range(base, 4 * PAGE, &why) != 0 || why != SW_ADOPT_DISABLED)
        return 1;
    if (sw_adopt_probe() != SW_ADOPT_DISABLED)
        return 2;
    /* Memory that already is shared needs no adoption. */
    int fd = memfd_create("mine", 0);
    if (ftruncate(fd, PAGE))
        return 3;
    void *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    return adopt_range(shared, PAGE, &why) == 1 ? 0 : 4;
}

static int max_in_child(void *arg)
{
    (void)arg;
    enum sw_adopt_reason why;
    setenv("SIDEWIRE_ADOPT_MAX", "64K", 1);
    uint8_t *base = buffer_new(256 * 1024);
    if (adopt_range(base, 68 * 1024, &why) != 0 || why != SW_ADOPT_TOO_LARGE)
        return 1;
    if (adopt_range(base, 40 * 1024, &why) != 1 || why != SW_ADOPT_OK)
        return 2;
    struct sw_segment *segment = extents[0].segment;
    if (adopt_range(base + 128 * 1024, 40 * 1024, &why) != 0 || why != SW_ADOPT_TOO_LARGE)
        return 3;
    sw_adopt_put(segment);
    return adopt_range(base + 128 * 1024, 64 * 1024, &why) == 1 ? 0 : 4;
}

/* The knobs are read once: these run before this process has read them. */
static int knobs_checked[2];

static void knob__never(void **state)
{
    (void)state;
    assert_int_equal(knobs_checked[0], 0);
}

static void knob__max(void **state)
{
    (void)state;
    assert_int_equal(knobs_checked[1], 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(get__leaves_out_partial_pages),
        cmocka_unit_test(get__keeps_contents_at_any_size_and_place),
        cmocka_unit_test(get__peer_and_program_see_each_others_stores),
        cmocka_unit_test(get__same_region_twice_shares_a_segment),
        cmocka_unit_test(get__overlap_adopts_only_the_gaps),
        cmocka_unit_test(get__sparse_region_costs_its_resident_pages),
        cmocka_unit_test(get__dense_memory_is_in_large_pages),
        cmocka_unit_test(get__read_only_and_inaccessible_memory),
        cmocka_unit_test(get__several_mappings_several_extents),
        cmocka_unit_test(get__unmapped_and_wrapping_ranges),
        cmocka_unit_test(get__locked_memory_stays_locked),
        cmocka_unit_test(knob__never),
        cmocka_unit_test(knob__max),
    };
    setenv("SIDEWIRE_ADOPT_MAX", "4G", 1); /* also on a small machine */
    knobs_checked[0] = run_in_child(never_in_child, NULL);
    knobs_checked[1] = run_in_child(max_in_child, NULL);
    if (adopt_is_refused())
        return 77;
    return cmocka_run_group_tests_name("adopt", tests, NULL, NULL);
}
