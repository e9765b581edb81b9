/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the program shares already: it is used as it is, when there is a way to a descriptor
 * of it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_rig.h"

/* The extent's file, mapped as a peer would, is the very memory at base + at. */
static void assert_same_memory(uint8_t *base, size_t at)
{
    uint64_t offset, len;
    sw_segment_file_range(extents[0].segment, &offset, &len);
    uint8_t *peer = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED,
                         sw_segment_fd(extents[0].segment), (off_t)offset);
    assert_ptr_not_equal(peer, MAP_FAILED);
    uint8_t *same =
        peer + (extents[0].offset - offset) + ((uint64_t)(uintptr_t)base + at - extents[0].va);
    uint8_t old = base[at];
    *same = (uint8_t)(old + 1);
    assert_int_equal(base[at], (uint8_t)(old + 1));
    munmap(peer, len);
}

static void shared__memfd_of_the_program(void **state)
{
    (void)state;
    int fds = open_descriptors();
    int fd = memfd_create("mine", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 9 * PAGE), 0);
    uint8_t *base = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 2 * PAGE);
    assert_int_equal(adopt_range(base + 10, 3 * PAGE, NULL), 1); /* edges are no matter here */
    assert_int_equal(extents[0].va, (uint64_t)(uintptr_t)base + 10);
    assert_int_equal(extents[0].len_bytes, 3 * PAGE);
    assert_int_equal(extents[0].offset, 2 * PAGE + 10);
    assert_int_not_equal(sw_segment_fd(extents[0].segment), fd); /* the program may close its own */
    assert_same_memory(base, 2 * PAGE);
    struct sw_segment *first = extents[0].segment;
    assert_int_equal(adopt_range(base + 3 * PAGE, PAGE, NULL), 1);
    assert_ptr_equal(extents[0].segment, first);
    sw_adopt_put(first);
    sw_adopt_put(first);
    base[0] = 1;
    close(fd);
    munmap(base, 4 * PAGE);
    assert_int_equal(open_descriptors(), fds);
}

/* A lock is of the open file: peers that have that mapped would keep it longer than the program. */
static void shared__leaves_the_lock_to_the_program(void **state)
{
    char path[] = "/var/tmp/adopt_lock-XXXXXX";
    const int fd = mkstemp(path), other = open(path, O_RDWR | O_CLOEXEC);
    (void)state;
    assert_true(fd >= 0 && other >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    uint8_t *base = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_int_equal(adopt_range(base, PAGE, NULL), 1);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
    munmap(base, PAGE);
    close(fd);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
    sw_adopt_put(extents[0].segment);
    close(other);
}

static void shared__file_by_name(void **state)
{
    (void)state;
    char name[64];
    snprintf(name, sizeof(name), "/dev/shm/sw test %d", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        skip();
    assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
    uint8_t *base = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_int_equal(adopt_range(base, 2 * PAGE, NULL), 1);
    assert_same_memory(base, PAGE);
    sw_adopt_put(extents[0].segment);
    unlink(name);
    munmap(base, 2 * PAGE);
}

static void shared__another_file_of_the_same_name(void **state)
{
    (void)state;
    enum sw_adopt_reason why;
    char name[64];
    if (getuid() == 0) /* root finds the file all the same, by its mapping */
        skip();
    snprintf(name, sizeof(name), "/dev/shm/sw other %d", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        skip();
    assert_int_equal(ftruncate(fd, PAGE), 0);
    uint8_t *base = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    unlink(name);
    close(open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    assert_int_equal(adopt_range(base, PAGE, &why), 0);
    assert_int_equal(why, SW_ADOPT_KIND);
    unlink(name);
    munmap(base, PAGE);
}

static void shared__opened_for_reading_only(void **state)
{
    (void)state;
    int fd = memfd_create("mine", MFD_CLOEXEC);
    char path[64];
    assert_int_equal(ftruncate(fd, PAGE), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int reading = open(path, O_RDONLY | O_CLOEXEC);
    close(fd);
    void *base = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reading, 0);
    assert_int_equal(adopt_range(base, PAGE, NULL), 1);
    assert_int_equal(fcntl(sw_segment_fd(extents[0].segment), F_GETFL) & O_ACCMODE, O_RDWR);
    sw_adopt_put(extents[0].segment);
    close(reading);
    munmap(base, PAGE);
}

static void shared__no_further_than_the_file(void **state)
{
    (void)state;
    enum sw_adopt_reason why;
    int fd = memfd_create("mine", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, PAGE + 100), 0);
    uint8_t *base = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_int_equal(adopt_range(base, 6 * PAGE, &why), 1);
    assert_int_equal(extents[0].len_bytes, 2 * PAGE);
    assert_int_equal(why, SW_ADOPT_KIND);
    sw_adopt_put(extents[0].segment);
    assert_int_equal(adopt_range(base + 3 * PAGE, PAGE, &why), 0);
    close(fd);
    munmap(base, 6 * PAGE);
}

/* A file without a name is reached through its mapping, by those who may. */
static void shared__without_a_name(void **state)
{
    (void)state;
    enum sw_adopt_reason why;
    int want = geteuid() == 0;
    uint8_t *base = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int n = adopt_range(base, 4 * PAGE, &why);
    assert_true(n == want || n == 0);
    assert_int_equal(why, n ? SW_ADOPT_OK : SW_ADOPT_KIND);
    if (n) {
        assert_same_memory(base, PAGE);
        sw_adopt_put(extents[0].segment);
    }
    munmap(base, 4 * PAGE);

    int id = shmget(IPC_PRIVATE, 4 * PAGE, IPC_CREAT | 0600);
    assert_true(id >= 0);
    base = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    n = adopt_range(base, 4 * PAGE, &why);
    assert_true(n == want || n == 0);
    if (n) {
        assert_same_memory(base, PAGE);
        sw_adopt_put(extents[0].segment);
    }
    shmdt(base);
}

static void shared__private_file_mapping_is_left_alone(void **state)
{
    (void)state;
    enum sw_adopt_reason why;
    int fd = memfd_create("mine", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    uint8_t *base = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    base[0] = 1;
    assert_int_equal(adopt_range(base, PAGE, &why), 0);
    assert_int_equal(why, SW_ADOPT_KIND);
    close(fd);
    munmap(base, PAGE);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shared__memfd_of_the_program),
    cmocka_unit_test(shared__leaves_the_lock_to_the_program),
    cmocka_unit_test(shared__file_by_name),
    cmocka_unit_test(shared__another_file_of_the_same_name),
    cmocka_unit_test(shared__opened_for_reading_only),
    cmocka_unit_test(shared__no_further_than_the_file),
    cmocka_unit_test(shared__without_a_name),
    cmocka_unit_test(shared__private_file_mapping_is_left_alone),
};

static int all_as_nobody(void *arg)
{
    (void)arg;
    become_nobody();
    int failed = cmocka_run_group_tests_name("adopt_shared as nobody", tests, NULL, NULL);
    fflush(NULL);
    return failed ? 1 : 0;
}

int main(void)
{
    int failed = cmocka_run_group_tests_name("adopt_shared", tests, NULL, NULL);
    return failed || (getuid() == 0 && run_in_child(all_as_nobody, NULL));
}
