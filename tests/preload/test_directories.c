/* SPDX-License-Identifier: BSD-2-Clause */
/* The interposed calls that list directories, against the tree of the loopback device, in a network
 * namespace of our own where that is allowed. Runs with the library preloaded. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "loopback.h"
#include "namespace.h"
#include "read.h"

static void readdir__lists_a_directory(void **state)
{
    (void)state;
    assert_string_equal(names_of(opendir(LO "/device/net")), "lo ");
    assert_string_equal(names_of(opendir(LO "/ports")), "1 ");
    assert_string_equal(names_of(opendir(LO "/ports/1/gid_attrs")), "ndevs types ");
    int fd = open(LO "/ports/1/pkeys", O_RDONLY | O_DIRECTORY);
    assert_string_equal(names_of(fdopendir(fd)), "0 ");
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* closedir closed it */
    assert_non_null(strstr(names_of(opendir("/sys/class/infiniband")), "sw_lo "));
    assert_non_null(strstr(names_of(opendir("/dev/infiniband")), "uverbs"));
    assert_null(opendir(LO "/node_type"));
    assert_int_equal(errno, ENOTDIR);
    assert_null(opendir(LO "/nothing"));
    assert_int_equal(errno, ENOENT);

    DIR *dir = opendir(LO "/ports/1/gids");
    int count = 0;
    while (readdir64(dir))
        count++;
    assert_int_equal(count, 128 + 2);
    rewinddir(dir);
    const struct dirent *entry = readdir(dir);
    assert_string_equal(entry->d_name, "0");
    assert_int_equal(entry->d_type, DT_REG);
    long at = telldir(dir);
    assert_string_equal(readdir(dir)->d_name, "1");
    seekdir(dir, at);
    assert_string_equal(readdir(dir)->d_name, "1");
    struct stat status;
    assert_int_equal(fstat(dirfd(dir), &status), 0);
    assert_true(S_ISDIR(status.st_mode));
    assert_string_equal(contents_of_fd(openat(dirfd(dir), "0", O_RDONLY)), GID_0);
    closedir(dir);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void readdir_r__lists_a_directory(void **state)
{
    (void)state;
    DIR *dir = opendir(LO "/ports");
    struct dirent entry, *result;
    struct dirent64 entry64, *result64;
    assert_int_equal(readdir_r(dir, &entry, &result), 0);
    assert_ptr_equal(result, &entry);
    assert_string_equal(entry.d_name, "1");
    assert_int_equal(readdir64_r(dir, &entry64, &result64), 0);
    assert_string_equal(entry64.d_name, ".");
    assert_int_equal(readdir_r(dir, &entry, &result), 0);
    assert_int_equal(readdir_r(dir, &entry, &result), 0);
    assert_null(result);
    closedir(dir);
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int not_hidden64(const struct dirent64 *entry)
{
    return entry->d_name[0] != '.';
}

static void scandir__sorts_and_filters(void **state)
{
    (void)state;
    struct dirent **list;
    assert_int_equal(scandir(LO "/ports/1/gid_attrs", &list, not_hidden, alphasort), 2);
    assert_string_equal(list[0]->d_name, "ndevs");
    assert_string_equal(list[1]->d_name, "types");
    free(list[0]);
    free(list[1]);
    free(list);
    struct dirent64 **list64;
    assert_int_equal(scandir64(LO "/ports", &list64, not_hidden64, NULL), 1);
    free(list64[0]);
    free(list64);
    int fd = open(LO, O_RDONLY | O_DIRECTORY);
    assert_int_equal(scandirat(fd, "ports", &list, not_hidden, versionsort), 1);
    free(list[0]);
    free(list);
    assert_int_equal(scandirat64(fd, "ports", &list64, not_hidden64, NULL), 1);
    free(list64[0]);
    free(list64);
    close(fd);
    assert_int_equal(scandir(LO "/nothing", &list, NULL, NULL), -1);
    assert_int_equal(errno, ENOENT);
}

static void glob__finds_ours_and_the_kernels(void **state)
{
    (void)state;
    glob_t found;
    assert_int_equal(glob("/sys/class/infiniband/sw_l*/ports/*/rate", 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_string_equal(found.gl_pathv[0], LO "/ports/1/rate");
    globfree(&found);
    assert_int_equal(glob("/sys/class/infiniband/*/nothing", 0, NULL, &found), GLOB_NOMATCH);
    glob64_t found64;
    assert_int_equal(glob64("/sys/class/net/l[o]", 0, NULL, &found64), 0);
    assert_int_equal(found64.gl_pathc, 1);
    globfree64(&found64);
    assert_int_equal(glob("/proc/self/stat", 0, NULL, &found), 0);
    globfree(&found);
}

int main(void)
{
    if (!if_nametoindex("lo")) {
        fprintf(stderr, "SKIP: no interface lo\n");
        return 77;
    }
    if (!namespace_enter(CLONE_NEWNET) && system("ip link set lo up"))
        fprintf(stderr, "the loopback of our own network stays down\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readdir__lists_a_directory),
        cmocka_unit_test(readdir_r__lists_a_directory),
        cmocka_unit_test(scandir__sorts_and_filters),
        cmocka_unit_test(glob__finds_ours_and_the_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
