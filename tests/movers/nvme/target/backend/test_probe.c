/* SPDX-License-Identifier: BSD-2-Clause */
/* Files whose disk hangs, or has much to write: fsync() here waits until it is let go. */
#include "nvme/target/backend/probe.h"

#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>

enum { SIZE = 1 << 20, FOR_LONG_MS = 60000 };

static char path[] = "/var/tmp/sidewire-probe-XXXXXX";
static const char without_direct[] = "/proc/self/status"; /* the cache's, whatever is asked for */
static sem_t is_asked, goes_on, has_gone_on;
static _Atomic bool hangs;
static _Atomic int flush_error;

int fsync(int fd)
{
    (void)fd;
    if (hangs) {
        sem_post(&is_asked);
        sem_wait(&goes_on);
        sem_post(&has_gone_on);
    }
    errno = flush_error;
    return errno ? -1 : 0;
}

static bool has_blocks(void)
{
    struct stat st;
    return !stat(path, &st) && st.st_blocks;
}

static void probe__fills_what_nobody_serves(void **state)
{
    (void)state;
    const int served = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(served, LOCK_SH | LOCK_NB), 0);
    assert_int_equal(nvt_probe(path, true, true, FOR_LONG_MS), 0);
    assert_false(has_blocks());
    close(served);
    assert_int_equal(nvt_probe(path, true, false, FOR_LONG_MS), 0);
    assert_false(has_blocks());
    assert_int_equal(nvt_probe(path, true, true, FOR_LONG_MS), 0);
    assert_true(has_blocks());
}

/* The one that was left ends by itself: the sanitizer tells. */
static void probe__is_left_where_the_disk_hangs(void **state)
{
    (void)state;
    hangs = true;
    assert_int_equal(nvt_probe(path, true, false, 1), -ETIMEDOUT);
    assert_int_equal(nvt_probe(path, false, false, FOR_LONG_MS), 0);
    sem_wait(&is_asked);
    hangs = false;
    sem_post(&goes_on);
    sem_wait(&has_gone_on);
    assert_int_equal(nvt_probe(path, true, false, FOR_LONG_MS), 0);
}

/* The system tells it once: whoever opens the file then does not hear of it. */
static void probe__tells_what_the_disk_did_not_take(void **state)
{
    (void)state;
    flush_error = EIO;
    assert_int_equal(nvt_probe(path, true, true, FOR_LONG_MS), -EIO);
    assert_int_equal(nvt_probe(path, false, false, FOR_LONG_MS), 0);
    assert_int_equal(nvt_probe(without_direct, false, false, FOR_LONG_MS), -EIO);
    flush_error = EINVAL; /* of a file that has no such call */
    assert_int_equal(nvt_probe(path, true, true, FOR_LONG_MS), 0);
    flush_error = 0;
}

static void probe__leaves_errors_to_the_opener(void **state)
{
    (void)state;
    assert_int_equal(nvt_probe("/nowhere/at/all", true, true, FOR_LONG_MS), 0);
}

int main(void)
{
    const int file = mkstemp(path);
    if (file < 0 || ftruncate(file, SIZE)) {
        puts("SKIP: no /var/tmp");
        return 77;
    }
    close(file);
    sem_init(&is_asked, 0, 0);
    sem_init(&goes_on, 0, 0);
    sem_init(&has_gone_on, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probe__fills_what_nobody_serves),
        cmocka_unit_test(probe__is_left_where_the_disk_hangs),
        cmocka_unit_test(probe__tells_what_the_disk_did_not_take),
        cmocka_unit_test(probe__leaves_errors_to_the_opener),
    };
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failures;
}
