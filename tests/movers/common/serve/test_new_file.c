/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that a server makes, and servers that are killed while they do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/serve/new_file.h"

enum { FILE_BYTES = 1 << 20 };

static const struct mover_serving alone;
static char path[64];
static bool lacks_allocation; /* the file system leaves it to libc, which writes to each block */
static bool is_killed_amid;

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    int (*const next)(int, int, off_t, off_t) =
        (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate64");
    if (!lacks_allocation)
        return next(fd, mode, offset, len);
    errno = EOPNOTSUPP;
    return -1;
}

int posix_fallocate(int fd, off_t offset, off_t len)
{
    (void)offset;
    for (off_t at = 0; at < len; at += 4096) {
        if (is_killed_amid && at >= len / 2)
            _exit(0);
        if (pwrite(fd, "", 1, at) != 1)
            return errno;
    }
    return pwrite(fd, "", 1, len - 1) == 1 ? 0 : errno;
}

static bool is_full; /* the file system, but for what files have already */

int fstatvfs(int fd, struct statvfs *fs)
{
    int (*const next)(int, struct statvfs *) =
        (int (*)(int, struct statvfs *))dlsym(RTLD_NEXT, "fstatvfs64");
    const int rc = next(fd, fs);
    if (is_full)
        fs->f_bavail = 0;
    return rc;
}

static int open_file(void)
{
    char error[256] = "";
    const int fd = mover_new_file_open(path, O_RDWR, FILE_BYTES, &alone, error, sizeof(error));
    if (fd < 0)
        fail_msg("%s", error);
    return fd;
}

static void begin(void)
{
    snprintf(path, sizeof(path), "/var/tmp/new_file-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd); /* an empty one is as good as none */
}

static void new_file__has_its_size_after_a_kill(void **state)
{
    struct stat st;
    int status;
    (void)state;
    begin();
    for (int lacks = 0; lacks < 2; lacks++) {
        assert_int_equal(truncate(path, 0), 0);
        lacks_allocation = lacks;
        const pid_t child = fork();
        if (!child) {
            is_killed_amid = true;
            open_file();
            abort();
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        const int fd = open_file();
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, FILE_BYTES);
        close(fd);
    }
    unlink(path);
}

/* It left all blocks, and no size. */
static void new_file__takes_the_blocks_of_a_killed_server(void **state)
{
    char error[256] = "";
    struct stat st;
    (void)state;
    begin();
    lacks_allocation = false;
    is_full = true;
    assert_int_equal(mover_new_file_open(path, O_RDWR, FILE_BYTES, &alone, error, sizeof(error)),
                     -ENOSPC);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, FILE_BYTES)) {
        close(fd);
        unlink(path);
        is_full = false;
        skip();
    }
    close(fd);
    fd = open_file();
    is_full = false;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, FILE_BYTES);
    close(fd);
    unlink(path);
}

/* Without a writer its open() would not return. */
static void new_file__is_no_pipe(void **state)
{
    char error[256] = "";
    (void)state;
    begin();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(10);
    assert_int_equal(mover_new_file_open(path, O_RDONLY, 0, &alone, error, sizeof(error)), -EINVAL);
    alarm(0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_file__has_its_size_after_a_kill),
        cmocka_unit_test(new_file__takes_the_blocks_of_a_killed_server),
        cmocka_unit_test(new_file__is_no_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
