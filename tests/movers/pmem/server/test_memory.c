/* SPDX-License-Identifier: BSD-2-Clause */
/* Files as a server opens them: made by several at a time, and with holes on a full disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pmem/server/memory.h"

enum { SIZE = 256 << 10, FS_BYTES = 1 << 20, SERVERS = 8, ROUNDS = 20 };

static char folder[] = "/tmp/sidewire-memory-XXXXXX", path[64], error[512];

static int open_memory(uint64_t create_bytes, struct pms_memory *memory)
{
    const struct pms_memory_setup setup = {.create_bytes = create_bytes};
    return pms_memory_open(path, &setup, memory, error, sizeof(error));
}

/* What the servers share: they begin together, and nobody ends before all have tried. */
struct race {
    int begun, served, locked_out, other;
};

static void serve_in_race(struct race *race)
{
    struct pms_memory memory;
    __atomic_add_fetch(&race->begun, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&race->begun, __ATOMIC_SEQ_CST) < SERVERS)
        sched_yield();
    const int code = open_memory(SIZE, &memory);
    int *count = &race->other;
    if (!code && memory.bytes == SIZE)
        count = &race->served;
    else if (code == -EBUSY && strstr(error, "has it locked"))
        count = &race->locked_out;
    else
        fprintf(stderr, "%s\n", error);
    __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    while (race->served + race->locked_out + race->other < SERVERS)
        usleep(1000);
}

static void create__by_several_at_a_time(void **state)
{
    (void)state;
    struct race *race =
        mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(race != MAP_FAILED);
    for (int round = 0; round < ROUNDS; round++) {
        memset(race, 0, sizeof(*race));
        for (int i = 0; i < SERVERS; i++) {
            if (fork())
                continue;
            serve_in_race(race);
            _exit(0);
        }
        while (wait(NULL) > 0) {
        }
        assert_int_equal(race->other, 0);
        assert_int_equal(race->served, 1);
        unlink(path);
    }
    munmap(race, sizeof(*race));
}

/* As a server leaves it that was killed before it filled it. */
static void create__fills_an_empty_file(void **state)
{
    (void)state;
    struct pms_memory memory;
    struct stat st;
    close(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(open_memory(0, &memory), -EINVAL);
    if (open_memory(SIZE, &memory))
        fail_msg("%s", error);
    assert_int_equal(memory.bytes, SIZE);
    pms_memory_close(&memory);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_blocks * 512, SIZE);
}

static void create__leaves_nothing_where_there_is_no_room(void **state)
{
    (void)state;
    struct pms_memory memory;
    assert_int_equal(open_memory(2 * FS_BYTES, &memory), -ENOSPC);
    assert_int_equal(access(path, F_OK), -1);
}

/* Blocks behind its end fill no hole. */
static void holes__are_refused_with_blocks_behind_the_end(void **state)
{
    (void)state;
    static const uint8_t page[4096];
    struct pms_memory memory;
    struct stat st;
    char other[80];
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, SIZE) | fallocate(fd, FALLOC_FL_KEEP_SIZE, SIZE, SIZE), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_blocks * 512, SIZE);
    snprintf(other, sizeof(other), "%s-other", path);
    const int rest = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (write(rest, page, sizeof(page)) == sizeof(page)) {
    }
    assert_int_equal(open_memory(0, &memory), -ENOSPC);
    if (!strstr(error, "256 KiB of it are holes"))
        fail_msg("%s", error);
    assert_int_equal(unlink(other) | close(rest), 0);
    if (open_memory(0, &memory)) /* there is room again */
        fail_msg("%s", error);
    pms_memory_close(&memory);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_blocks * 512, 2 * SIZE);
    close(fd);
}

/* A file system of one MiB for this process. */
static int mount_folder(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "%s/region", folder);
    return mount("none", folder, "tmpfs", 0, "size=1m");
}

static int unmount_folder(void **state)
{
    (void)state;
    return umount2(folder, MNT_DETACH);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, mount_folder, unmount_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(create__by_several_at_a_time),
        CASE(create__fills_an_empty_file),
        CASE(create__leaves_nothing_where_there_is_no_room),
        CASE(holes__are_refused_with_blocks_behind_the_end),
    };
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        !mkdtemp(folder))
        return 77; /* not root */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
