/* SPDX-License-Identifier: BSD-2-Clause */
/* A working directory in the tree, and the kernel's directories that the tree hangs in. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "loopback.h"
#include "read.h"

static int back(void **state)
{
    (void)state;
    return chdir("/");
}

static void chdir__relative_paths_start_there(void **state)
{
    (void)state;
    char cwd[PATH_MAX];
    struct stat by_dot, by_path;
    assert_int_equal(chdir(LO), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), REAL_LO);
    assert_string_equal(contents_of_fd(open("node_type", O_RDONLY)), "1: CA\n");
    assert_string_equal(contents_of_fd(openat(AT_FDCWD, "ports/1/lid", O_RDONLY)), "0x0\n");
    assert_string_equal(contents_of_fd(open("../sw_lo/fw_ver", O_RDONLY)), SW_VERSION "\n");
    assert_int_equal(stat(".", &by_dot), 0);
    assert_int_equal(stat(LO "/", &by_path), 0);
    assert_int_equal(by_dot.st_ino, by_path.st_ino);
    assert_non_null(strstr(names_of(opendir(".")), "node_guid "));
    assert_int_equal(chdir("ports"), 0);
    assert_string_equal(names_of(opendir(".")), "1 ");
    assert_int_equal(chdir("../.."), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), "/sys/devices/virtual/infiniband");
    assert_int_equal(chdir("../../../class/infiniband"), 0);
    assert_string_equal(contents_of_fd(open("sw_lo/hw_rev", O_RDONLY)), "0x1\n");
}

static void chdir__out_of_the_tree(void **state)
{
    (void)state;
    char cwd[PATH_MAX];
    assert_int_equal(chdir(LO "/device/net"), 0);
    assert_int_equal(chdir("lo"), 0); /* a link of ours to the kernel's */
    assert_non_null(strstr(getcwd(cwd, sizeof(cwd)), "/net/lo"));
    assert_true(open("node_type", O_RDONLY) < 0);
    assert_int_equal(chdir("/sys/class/infiniband"), 0);
    assert_int_equal(chdir(".."), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), "/sys/class");
    assert_int_equal(chdir("net"), 0);
    assert_int_equal(access("lo", F_OK), 0);
}

static void chdir__fails_as_the_kernel_does(void **state)
{
    (void)state;
    static char before[PATH_MAX], after[PATH_MAX];
    assert_int_equal(chdir(LO), 0);
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir("nothing"), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(chdir("node_type"), -1);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(chdir("/nonexistent"), -1);
    assert_int_equal(errno, ENOENT);
    assert_string_equal(getcwd(after, sizeof(after)), before);
}

static void fchdir__of_ours_and_others(void **state)
{
    (void)state;
    char cwd[PATH_MAX];
    int ours = open(LO "/ports", O_RDONLY | O_DIRECTORY), tmp = open("/tmp", O_RDONLY);
    assert_true(ours >= 0 && tmp >= 0);
    assert_int_equal(fchdir(ours), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), REAL_LO "/ports");
    assert_string_equal(contents_of_fd(open("1/sm_lid", O_RDONLY)), "0x0\n");
    assert_int_equal(fchdir(tmp), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), "/tmp");
    close(ours);
    close(tmp);
}

static void getcwd__sizes(void **state)
{
    (void)state;
    char cwd[sizeof(REAL_LO)];
    assert_int_equal(chdir(LO), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), REAL_LO);
    assert_null(getcwd(cwd, sizeof(cwd) - 1));
    assert_int_equal(errno, ERANGE);
    assert_null(getcwd(cwd, 0));
    assert_int_equal(errno, EINVAL);
    char *own = getcwd(NULL, 0), *name = get_current_dir_name();
    assert_string_equal(own, REAL_LO);
    assert_string_equal(name, REAL_LO);
    free(own);
    free(name);
}

static int shell(const char *script)
{
    int status = system(script);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What a shell started: its directory goes with $PWD, but not with one that is stale. */
static void exec__takes_the_directory_along(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* a shell that is not sanitized cannot load a library that is */
#endif
    assert_int_equal(shell("cd " LO "/ports/1 && test \"$(cat link_layer)\" = Ethernet"), 0);
    assert_int_equal(shell("cd " LO " && cd .. && test \"$(ls -d sw_lo)\" = sw_lo"), 0);
    assert_int_equal(shell("cd / && PWD=" LO " /bin/sh -c 'test ! -e node_type'"), 0);
    assert_int_equal(shell("cd /tmp && PWD=" LO " /bin/pwd -P | grep -qx /tmp"), 0);
}

static void list__parents_of_the_roots(void **state)
{
    (void)state;
    static const struct {
        const char *dir, *name;
    } places[] = {{"/sys/class", "infiniband"},
                  {"/sys/class/", "infiniband_verbs"},
                  {"/dev", "infiniband"},
                  {"/sys/devices/virtual", "sidewire"}};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        DIR *stream = opendir(places[i].dir);
        int seen = 0, others = 0;
        assert_non_null(stream);
        for (struct dirent *entry; (entry = readdir(stream));) {
            seen += !strcmp(entry->d_name, places[i].name);
            others += entry->d_name[0] != '.';
        }
        assert_int_equal(seen, 1);
        assert_true(others > 2); /* and the kernel's */
        struct stat by_fd, by_path;
        assert_int_equal(fstat(dirfd(stream), &by_fd), 0);
        assert_int_equal(stat(places[i].dir, &by_path), 0);
        assert_int_equal(by_fd.st_ino, by_path.st_ino);
        closedir(stream);
    }
    assert_int_equal(chdir("/sys/class"), 0);
    assert_non_null(strstr(names_of(opendir(".")), "infiniband "));
    glob_t found;
    assert_int_equal(glob("/sys/cl*/infini*/sw_lo", 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    globfree(&found);
    assert_null(opendir("/sys/nothing"));
}

int main(void)
{
    if (access(LO, F_OK)) {
        fprintf(stderr, "no device on the interface lo\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(chdir__relative_paths_start_there, back),
        cmocka_unit_test_teardown(chdir__out_of_the_tree, back),
        cmocka_unit_test_teardown(chdir__fails_as_the_kernel_does, back),
        cmocka_unit_test_teardown(fchdir__of_ours_and_others, back),
        cmocka_unit_test_teardown(getcwd__sizes, back),
        cmocka_unit_test_teardown(exec__takes_the_directory_along, back),
        cmocka_unit_test_teardown(list__parents_of_the_roots, back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
