/* SPDX-License-Identifier: BSD-2-Clause */
/* How much memory a process may still take, and forks of adopted memory where that is less than a
 * copy needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_rig.h"
#include "device/adopt/memory_room.h"

/* So much that half of it is more than the process uses otherwise, under a sanitizer, too. */
#define LIMITED_BYTES (96 * MIB)

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    if (!file)
        return;
    fputs(text, file);
    fclose(file);
}

/* What the limit is of: a fork must neither be killed nor share. */
static int fork_limited(void *arg)
{
    (void)arg;
    bool private;
    uint8_t *base = buffer_new(LIMITED_BYTES);
    words_fill(base, LIMITED_BYTES, 17);
    struct sw_segment *segment = adopt_one(base, LIMITED_BYTES);
    if (!segment)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        bool same = words_differ(base, LIMITED_BYTES, 17) == SIZE_MAX;
        memset(base, 0xcc, MIB);
        _exit(same ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    mappings_within(base, LIMITED_BYTES, &private);
    bool same = words_differ(base, LIMITED_BYTES, 17) == SIZE_MAX;
    sw_adopt_put(segment);
    return status ? 10 + status : !same ? 2 : private ? 0 : 3;
}

static int fork_in_cgroup(void *dir)
{
    char number[32];
    snprintf(number, sizeof(number), "%d", getpid());
    write_file(dir, "cgroup.procs", number);
    return fork_limited(NULL);
}

/* Half as much again as is registered: a copy would get the process killed. */
static void fork__in_a_cgroup_with_a_limit(void **state)
{
    (void)state;
    static const char *const mounts[] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"};
    static const char *const limits[] = {"memory.limit_in_bytes", "memory.max"};
    char dir[128], limit[32];
    for (int i = 0; i < 2; i++) {
        char path[200];
        snprintf(dir, sizeof(dir), "%s/sidewire-test-%d", mounts[i], getpid());
        if (mkdir(dir, 0755))
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, limits[i]);
        if (access(path, W_OK)) {
            rmdir(dir);
            continue;
        }
        snprintf(limit, sizeof(limit), "%lu", LIMITED_BYTES + LIMITED_BYTES / 2);
        write_file(dir, limits[i], limit);
        int status = run_in_child(fork_in_cgroup, dir);
        for (int tries = 0; rmdir(dir) && tries < 100; tries++)
            usleep(10000);
        assert_int_equal(status, 0);
        return;
    }
    print_message("no memory cgroup can be made here\n");
    skip();
}

struct fake {
    const char *dir, *name, *text;
};

/* What each version of the files says, in a directory of our own. */
static uint64_t room_of(const struct fake *files, size_t count)
{
    char root[] = "/tmp/sidewire-room-XXXXXX", path[256], command[300];
    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < count; i++) {
        snprintf(command, sizeof(command), "mkdir -p %s%s", root, files[i].dir);
        assert_int_equal(system(command), 0);
        snprintf(path, sizeof(path), "%s%s", root, files[i].dir);
        write_file(path, files[i].name, files[i].text);
    }
    sw_memory_room_root = root;
    uint64_t room = sw_memory_room();
    sw_memory_room_root = "";
    snprintf(command, sizeof(command), "rm -r %s", root);
    assert_int_equal(system(command), 0);
    return room;
}

#define ROOM_OF(...)                      \
    room_of((struct fake[]){__VA_ARGS__}, \
            sizeof((struct fake[]){__VA_ARGS__}) / sizeof(struct fake))
#define MEMINFO                                                         \
    {                                                                   \
        "/proc", "meminfo", "MemTotal: 9 kB\nMemAvailable:   1000 kB\n" \
    }

static void room__least_of_all_limits(void **state)
{
    (void)state;
    assert_int_equal(ROOM_OF({"/proc/self", "cgroup", "0::/a/b\n"}), SW_MEMORY_ROOM_UNKNOWN);
    assert_int_equal(ROOM_OF(MEMINFO), 1000 * 1024);
    /* version 2: memory.high of an ancestor */
    assert_int_equal(ROOM_OF(MEMINFO, {"/proc/self", "cgroup", "0::/a/b\n"},
                             {"/sys/fs/cgroup/a/b", "memory.max", "max\n"},
                             {"/sys/fs/cgroup/a/b", "memory.current", "10\n"},
                             {"/sys/fs/cgroup/a", "memory.max", "100000\n"},
                             {"/sys/fs/cgroup/a", "memory.high", "50000\n"},
                             {"/sys/fs/cgroup/a", "memory.current", "30000\n"}),
                     20000);
    /* the page cache gives way */
    assert_int_equal(
        ROOM_OF(MEMINFO, {"/proc/self", "cgroup", "0::/a\n"},
                {"/sys/fs/cgroup/a", "memory.max", "100000\n"},
                {"/sys/fs/cgroup/a", "memory.current", "90000\n"},
                {"/sys/fs/cgroup/a", "memory.stat", "anon 1\ninactive_file 500\nactive_file 70\n"}),
        10570);
    /* version 1, in a container that sees its own cgroup as the root */
    assert_int_equal(ROOM_OF(MEMINFO, {"/proc/self", "cgroup", "3:cpu:/x\n4:memory:/docker/x\n"},
                             {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "7000\n"},
                             {"/sys/fs/cgroup/memory", "memory.usage_in_bytes", "8000\n"}),
                     0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fork__in_a_cgroup_with_a_limit),
    cmocka_unit_test(room__least_of_all_limits),
};

static int all_as_nobody(void *arg)
{
    (void)arg;
    become_nobody();
    int failed = cmocka_run_group_tests_name("memory_room as nobody", tests, NULL, NULL);
    fflush(NULL);
    return failed ? 1 : 0;
}

int main(void)
{
    if (adopt_is_refused())
        return 77;
    int failed = cmocka_run_group_tests_name("memory_room", tests, NULL, NULL);
    return failed || (getuid() == 0 && run_in_child(all_as_nobody, NULL));
}
