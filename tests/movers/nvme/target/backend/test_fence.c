/* SPDX-License-Identifier: BSD-2-Clause */
/* Fences: a process that has a file is killed, and waited for, and no other one is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/serve/served.h"
#include "nvme/target/backend/fence.h"

enum { LONG_MS = 60000, SHORT_MS = 30 };

static struct nvt_backend_spec spec;
static char error[512];

static int make_file(void **state)
{
    (void)state;
    spec = (struct nvt_backend_spec){.kind = NVT_BACKEND_FILE, .path = "fence.XXXXXX"};
    const int fd = mkstemp(spec.path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    close(fd);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(spec.path);
    return 0;
}

/* A child that serves the file, by its lock or by its I/O alone, and does not end by itself. */
static struct nvt_former start_owner(bool locks, bool marks)
{
    int ready[2];
    char text[512] = "", *at;
    struct nvt_former former = {.name = "owner"};
    assert_int_equal(pipe(ready), 0);
    former.pid = fork();
    assert_true(former.pid >= 0);
    if (!former.pid) {
        const int fd = open(spec.path, O_RDWR);
        if (locks)
            flock(fd, LOCK_EX);
        if (marks)
            mover_served_mark_io(open(spec.path, O_RDWR));
        (void)!write(ready[1], "", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], text, 1), 1);
    close(ready[0]);
    close(ready[1]);
    snprintf(text, sizeof(text), "/proc/%d/stat", former.pid);
    FILE *file = fopen(text, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    at = strrchr(text, ')');
    for (int field = 2; field < 22; field++)
        at = strchr(at + 1, ' ');
    former.start_ticks = strtoull(at, NULL, 10);
    file = fopen("/proc/sys/kernel/random/boot_id", "r");
    assert_non_null(file);
    assert_non_null(fgets(text, 37, file));
    fclose(file);
    assert_int_equal(nvt_uuid_parse(text, former.boot_id), 0);
    return former;
}

static void end_owner(const struct nvt_former *owner)
{
    kill(owner->pid, SIGKILL);
    assert_int_equal(waitpid(owner->pid, NULL, 0), owner->pid);
}

static bool is_killed(const struct nvt_former *owner)
{
    int status;
    assert_int_equal(waitpid(owner->pid, &status, 0), owner->pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void fence__kills_a_stopped_owner(void **state)
{
    (void)state;
    const struct nvt_former owner = start_owner(true, true);
    kill(owner.pid, SIGSTOP);
    assert_int_equal(nvt_fence(&spec, &owner, 1, LONG_MS, error, sizeof(error)), 0);
    assert_true(is_killed(&owner));
}

static void fence__needs_no_owner(void **state)
{
    (void)state;
    assert_int_equal(nvt_fence(&spec, NULL, 0, SHORT_MS, error, sizeof(error)), 0);
    struct nvt_former owner = start_owner(true, true);
    end_owner(&owner);
    assert_int_equal(nvt_fence(&spec, &owner, 1, SHORT_MS, error, sizeof(error)), 0);
}

/* The PID is another process's by now, or that of another boot. */
static void fence__spares_other_processes(void **state)
{
    (void)state;
    const struct nvt_former owner = start_owner(true, true);
    struct nvt_former other = owner;
    other.start_ticks++;
    assert_int_equal(nvt_fence(&spec, &other, 1, SHORT_MS, error, sizeof(error)), -ETIMEDOUT);
    assert_non_null(strstr(error, "has it locked"));
    other = owner;
    other.boot_id[3] ^= 1;
    assert_int_equal(nvt_fence(&spec, &other, 1, SHORT_MS, error, sizeof(error)), -ETIMEDOUT);
    assert_int_equal(waitpid(owner.pid, NULL, WNOHANG), 0);
    end_owner(&owner);
}

/* Its lock has gone, but the kernel writes by its descriptor. */
static void fence__waits_for_io_without_a_lock(void **state)
{
    (void)state;
    const struct nvt_former writer = start_owner(false, true);
    assert_int_equal(nvt_fence(&spec, NULL, 0, SHORT_MS, error, sizeof(error)), -ETIMEDOUT);
    assert_non_null(strstr(error, "under way"));
    end_owner(&writer);
    assert_int_equal(nvt_fence(&spec, NULL, 0, LONG_MS, error, sizeof(error)), 0);
}

static void fence__is_left_out_for_tests_alone(void **state)
{
    (void)state;
    const struct nvt_former owner = start_owner(true, true);
    struct nvt_backend_spec bare = spec;
    bare.unfenced = true;
    assert_int_equal(nvt_fence(&bare, &owner, 1, SHORT_MS, error, sizeof(error)), 0);
    assert_int_equal(waitpid(owner.pid, NULL, WNOHANG), 0);
    end_owner(&owner);
}

static void look__knows_a_file_by_any_path(void **state)
{
    (void)state;
    struct nvt_backend_look first, second;
    static struct nvt_backend_spec other, missing = {.kind = NVT_BACKEND_FILE, .path = "/none/x"};
    other = spec;
    snprintf(other.path, sizeof(other.path), "./%.64s", spec.path);
    assert_int_equal(nvt_fence_look(&spec, &first, error, sizeof(error)), 0);
    assert_int_equal(nvt_fence_look(&other, &second, error, sizeof(error)), 0);
    assert_string_equal(first.medium, second.medium);
    assert_int_equal(first.size_bytes, 1 << 20);
    assert_int_equal(first.block_bytes, 4096);
    assert_int_equal(nvt_fence_look(&missing, &second, error, sizeof(error)), -ENOENT);
    missing.kind = NVT_BACKEND_NVME;
    assert_int_equal(nvt_fence_look(&missing, &second, error, sizeof(error)), -ENOENT);
    missing.kind = NVT_BACKEND_BLOCK;
    assert_int_equal(nvt_fence_look(&missing, &second, error, sizeof(error)), -ENOENT);
    snprintf(missing.path, sizeof(missing.path), "/dev/null");
    assert_int_equal(nvt_fence_look(&missing, &second, error, sizeof(error)), -ENOTBLK);
}

static void look__refuses_what_nothing_fences(void **state)
{
    (void)state;
    static const struct nvt_backend_spec wrong[] = {
        {.kind = NVT_BACKEND_RAM, .size_bytes = 4096},
        {.kind = NVT_BACKEND_NULL, .size_bytes = 4096},
    };
    struct nvt_backend_look medium;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(nvt_fence_look(&wrong[i], &medium, error, sizeof(error)), -EOPNOTSUPP);
        assert_non_null(strstr(error, "no group can serve it"));
    }
    struct nvt_backend_spec shared = spec;
    shared.shared = true;
    assert_int_equal(nvt_fence_look(&shared, &medium, error, sizeof(error)), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fence__kills_a_stopped_owner, make_file, remove_file),
        cmocka_unit_test_setup_teardown(fence__needs_no_owner, make_file, remove_file),
        cmocka_unit_test_setup_teardown(fence__spares_other_processes, make_file, remove_file),
        cmocka_unit_test_setup_teardown(fence__waits_for_io_without_a_lock, make_file, remove_file),
        cmocka_unit_test_setup_teardown(fence__is_left_out_for_tests_alone, make_file, remove_file),
        cmocka_unit_test_setup_teardown(look__knows_a_file_by_any_path, make_file, remove_file),
        cmocka_unit_test_setup_teardown(look__refuses_what_nothing_fences, make_file, remove_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
