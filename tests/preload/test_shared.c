/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real RDMA devices stay visible beside ours: with the class directories and /dev/infiniband of a
 * machine that has one, made of plain files in a mount namespace of our own. Runs with the library
 * preloaded.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "namespace.h"
#include "read.h"

static char top[] = "/tmp/sidewire-shared-XXXXXX";

static int make(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof(full), "%s%s", top, path);
    if (!text)
        return mkdir(full, 0755);
    FILE *file = fopen(full, "w");
    return file && fputs(text, file) >= 0 && !fclose(file) ? 0 : -1;
}

/* The namespace's mounts hide the files when all is mounted, and they go with it. */
static int make_machine(void)
{
    char class[256], dev[256];
    if (!mkdtemp(top) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("sidewire-test", top, "tmpfs", 0, NULL))
        return -1;
    snprintf(class, sizeof(class), "%s/class", top);
    snprintf(dev, sizeof(dev), "%s/dev", top);
    int failed = make("/class", NULL) || make("/class/infiniband", NULL) ||
                 make("/class/infiniband/mlx9_0", NULL) ||
                 make("/class/infiniband/mlx9_0/node_type", "1: real\n") ||
                 make("/class/infiniband_verbs", NULL) ||
                 make("/class/infiniband_verbs/abi_version", "6\n") ||
                 make("/class/infiniband_verbs/uverbs0", NULL) ||
                 make("/class/infiniband_verbs/uverbs0/ibdev", "mlx9_0\n") ||
                 make("/class/infiniband_verbs/uverbs3", NULL) ||
                 make("/class/infiniband_verbs/uverbs3/ibdev", "mlx9_1\n") || make("/dev", NULL) ||
                 make("/dev/infiniband", NULL) || make("/dev/infiniband/uverbs0", "real\n") ||
                 make("/dev/null", "");
    failed = failed || mount(class, "/sys/class", NULL, MS_BIND, NULL) ||
             mount(dev, "/dev", NULL, MS_BIND, NULL);
    umount2(top, MNT_DETACH);
    rmdir(top);
    return failed;
}

static void listing__shows_real_and_ours(void **state)
{
    (void)state;
    const char *names = names_of(opendir("/sys/class/infiniband"));
    assert_non_null(strstr(names, "mlx9_0 "));
    assert_non_null(strstr(names, "sw_lo "));
    names = names_of(opendir("/sys/class/infiniband_verbs"));
    const char *abi = strstr(names, "abi_version ");
    assert_non_null(abi);
    assert_null(strstr(abi + 1, "abi_version ")); /* both have it, once in the list */
    assert_non_null(strstr(names, "uverbs0 "));
    assert_non_null(strstr(names, "uverbs3 "));
    assert_non_null(strstr(names, "uverbs4 "));
    names = names_of(opendir("/dev/infiniband"));
    assert_non_null(strstr(names, "uverbs0 "));
    assert_non_null(strstr(names, "uverbs4 "));
    glob_t found;
    assert_int_equal(glob("/sys/class/infiniband/*/node_type", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 2);
    assert_string_equal(found.gl_pathv[0], "/sys/class/infiniband/mlx9_0/node_type");
    globfree(&found);
}

static void files__of_a_real_device_are_untouched(void **state)
{
    (void)state;
    assert_string_equal(contents_of_fd(open("/sys/class/infiniband/mlx9_0/node_type", O_RDONLY)),
                        "1: real\n");
    assert_string_equal(contents_of_fd(open("/dev/infiniband/uverbs0", O_RDONLY)), "real\n");
    assert_string_equal(contents_of_fd(open("/sys/class/infiniband_verbs/uverbs0/ibdev", O_RDONLY)),
                        "mlx9_0\n");
    struct stat status;
    assert_int_equal(stat("/dev/infiniband/uverbs0", &status), 0);
    assert_true(S_ISREG(status.st_mode));
    assert_int_equal(stat("/sys/class/infiniband/mlx9_1", &status), -1);
    assert_int_equal(errno, ENOENT);
    int fd = open("/dev/infiniband/new", O_WRONLY | O_CREAT,
                  0600); /* the directory is the kernel's too */
    assert_true(fd >= 0);
    close(fd);
}

static void files__of_a_real_device_are_reached_through_a_descriptor(void **state)
{
    (void)state;
    int fd = open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_string_equal(contents_of_fd(openat(fd, "mlx9_0/node_type", O_RDONLY)), "1: real\n");
    assert_string_equal(contents_of_fd(openat(fd, "sw_lo/node_type", O_RDONLY)), "1: CA\n");
    struct stat status;
    assert_int_equal(fstatat(fd, "mlx9_0", &status, 0), 0);
    assert_true(S_ISDIR(status.st_mode));
    assert_non_null(strstr(names_of(fdopendir(fd)), "mlx9_0 "));
}

static void uverbs__numbers_start_past_the_real_ones(void **state)
{
    (void)state;
    struct stat status;
    assert_int_equal(stat("/dev/infiniband/uverbs4", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    assert_int_equal(stat("/dev/infiniband/uverbs3", &status), -1);
    const char *owner = contents_of_fd(open("/sys/class/infiniband_verbs/uverbs4/ibdev", O_RDONLY));
    assert_int_equal(strncmp(owner, "sw_", 3), 0);
}

int main(void)
{
    if (namespace_enter(CLONE_NEWNS) || make_machine()) {
        fprintf(stderr, "SKIP: no mount namespace of our own (%s)\n", strerror(errno));
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listing__shows_real_and_ours),
        cmocka_unit_test(files__of_a_real_device_are_untouched),
        cmocka_unit_test(files__of_a_real_device_are_reached_through_a_descriptor),
        cmocka_unit_test(uverbs__numbers_start_past_the_real_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
