/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each interposed libc call against the tree of the loopback device, in a network namespace of our
 * own where that is allowed. Runs with the library preloaded; the calls below are the ordinary ones
 * of libc. Calls that list directories are in test_directories.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <cmocka.h>

#include "loopback.h"
#include "namespace.h"
#include "read.h"

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *out);
int __xstat64(int version, const char *path, struct stat64 *out);
int __lxstat(int version, const char *path, struct stat *out);
int __lxstat64(int version, const char *path, struct stat64 *out);
int __fxstat(int version, int fd, struct stat *out);
int __fxstat64(int version, int fd, struct stat64 *out);
int __fxstatat(int version, int dirfd, const char *path, struct stat *out, int flags);
int __fxstatat64(int version, int dirfd, const char *path, struct stat64 *out, int flags);
ssize_t __readlink_chk(const char *path, char *out, size_t len, size_t out_len);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *out, size_t len, size_t out_len);
char *__realpath_chk(const char *path, char *resolved, size_t resolved_len);

#define STAT_VERSION 1 /* of struct stat in __xstat() on x86-64 */

static int in_namespace;

/* Before any constructor has run, also the library's. */
static char early_text[16];
static void early(void)
{
    int fd = open(LO "/node_type", O_RDONLY);
    strcpy(early_text, contents_of_fd(fd));
}
__attribute__((section(".preinit_array"), used)) static void (*const early_entry)(void) = early;

static void open__works_before_constructors(void **state)
{
    (void)state;
    assert_string_equal(early_text, "1: CA\n");
}

static void open__all_spellings_read_the_file(void **state)
{
    (void)state;
    const char *path = LO "/ports/1/gids/0";
    int class_fd = open("/sys/class", O_RDONLY | O_DIRECTORY);
    int port_fd = open(LO "/ports/1", O_RDONLY | O_DIRECTORY);
    const char *from_class = "infiniband/sw_lo/ports/1/gids/0";
    assert_true(class_fd >= 0 && port_fd >= 0);
    assert_string_equal(contents_of_fd(open(path, O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(open64(path, O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(__open_2(path, O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(__open64_2(path, O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(openat(AT_FDCWD, path, O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(openat(class_fd, from_class, O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(openat64(class_fd, from_class, O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(__openat_2(port_fd, "gids/0", O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(__openat64_2(port_fd, "./gids//0", O_RDONLY)), GID_0);
    assert_string_equal(contents_of_fd(openat(port_fd, "../../ports/1/gids/0", O_RDONLY)), GID_0);
    assert_string_equal(contents_of_stream(fopen(path, "r")), GID_0);
    assert_string_equal(contents_of_stream(fopen64(path, "re")), GID_0);
    FILE *stream = fopen("/dev/null", "r");
    assert_string_equal(contents_of_stream(freopen(path, "r", stream)), GID_0);
    stream = fopen("/dev/null", "r");
    assert_string_equal(contents_of_stream(freopen64(path, "r", stream)), GID_0);
    close(class_fd);
    close(port_fd);
}

static void open__understands_every_form_of_a_path(void **state)
{
    (void)state;
    assert_string_equal(contents_of_fd(open("//sys/class//infiniband/./sw_lo/node_type", 0)),
                        "1: CA\n");
    assert_string_equal(contents_of_fd(open("/sys/class/infiniband/sw_none/../sw_lo/node_type", 0)),
                        "error 2");
    assert_string_equal(contents_of_fd(open(REAL_LO "/subsystem/sw_lo/node_type", 0)), "1: CA\n");
    assert_string_equal(contents_of_fd(open(LO "/device/infiniband/sw_lo/node_type", 0)),
                        "1: CA\n");
    char cwd[PATH_MAX];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_int_equal(chdir("/sys/class"), 0);
    assert_string_equal(contents_of_fd(open("infiniband/sw_lo/node_type", 0)), "1: CA\n");
    assert_string_equal(contents_of_fd(open("../class/infiniband/sw_lo/node_type", 0)), "1: CA\n");
    assert_int_equal(chdir(cwd), 0);
}

static void open__fails_as_the_kernel_does(void **state)
{
    (void)state;
    const struct {
        const char *path;
        int flags;
        int error;
    } cases[] = {
        {LO "/nothing", O_RDONLY, ENOENT},
        {LO "/nothing", O_WRONLY | O_CREAT, EACCES},
        {LO "/nothing/file", O_WRONLY | O_CREAT, ENOENT},
        {LO "/node_type/below", O_RDONLY, ENOTDIR},
        {LO "/node_type/", O_RDONLY, ENOTDIR},
        {LO "/node_type", O_RDONLY | O_DIRECTORY, ENOTDIR},
        {LO "/node_type", O_WRONLY, EACCES},
        {LO "/node_type", O_RDWR | O_CREAT, EACCES},
        {LO "/node_type", O_RDONLY | O_CREAT | O_EXCL, EEXIST},
        {LO "/ports", O_RDWR, EISDIR},
        {LO, O_RDONLY | O_NOFOLLOW, ELOOP},
        {LO "/ports/1/gids/128", O_RDONLY, ENOENT},
        {LO "/ports/1/gids/00", O_RDONLY, ENOENT},
        {LO "/ports/2/state", O_RDONLY, ENOENT},
        {LO "/device/net/lo0", O_RDONLY, ENOENT},
        {"/sys/class/infiniband/sw_none", O_RDONLY, ENOENT},
        {"/sys/class/infiniband/sw_none/node_type", O_RDONLY, ENOENT},
        {"/dev/infiniband/uverbs", O_RDWR, ENOENT},
        {"/dev/infiniband/uverbs255", O_RDWR, ENOENT},
        {"/dev/infiniband/uverbs00", O_RDWR, ENOENT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        errno = 0;
        int fd = open(cases[i].path, cases[i].flags, 0600);
        if (fd >= 0 || errno != cases[i].error)
            fail_msg("%s, flags %#x: fd %d errno %d, not %d", cases[i].path, cases[i].flags, fd,
                     errno, cases[i].error);
    }
    assert_int_equal(creat(LO "/node_type", 0600), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(creat64(LO "/nothing", 0600), -1);
    assert_int_equal(errno, EACCES);
    assert_null(fopen(LO "/node_type", "w"));
    assert_int_equal(errno, EACCES);
    assert_null(fopen(LO "/node_type", "?"));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(open(NULL, O_RDONLY), -1);
    assert_int_equal(errno, EFAULT);
}

static void open__gives_an_ordinary_descriptor(void **state)
{
    (void)state;
    int fd = open(LO "/node_type", O_RDONLY);
    int other = open(LO "/node_type", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_GETFD), 0);
    assert_int_equal(fcntl(other, F_GETFD), FD_CLOEXEC);
    char text[8] = "";
    assert_int_equal(read(fd, text, 3), 3);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(read(fd, text, sizeof(text)), 6);
    assert_int_equal(write(fd, "x", 1), -1);
    close(other);
    close(fd);
    errno = 77;
    close(open(LO "/node_type", O_RDONLY));
    assert_int_equal(errno, 77);
}

static void files__say_what_the_kernel_would(void **state)
{
    (void)state;
    const struct {
        const char *path;
        const char *text;
    } cases[] = {
        {LO "/node_type", "1: CA\n"},
        {LO "/fw_ver", SW_VERSION "\n"},
        {LO "/board_id", "sidewire\n"},
        {LO "/hca_type", "sidewire\n"},
        {LO "/node_desc", "sidewire\n"},
        {LO "/uevent", "NAME=sw_lo\n"},
        {LO "/device/vendor", "0x5357\n"},
        {LO "/device/device", "0x0001\n"},
        {LO "/device/numa_node", "-1\n"},
        {LO "/ports/1/state", "4: ACTIVE\n"},
        {LO "/ports/1/phys_state", "5: LinkUp\n"},
        {LO "/ports/1/rate", "100 Gb/sec (4X EDR)\n"},
        {LO "/ports/1/lid", "0x0\n"},
        {LO "/ports/1/sm_lid", "0x0\n"},
        {LO "/ports/1/cap_mask", "0x04010000\n"},
        {LO "/ports/1/link_layer", "Ethernet\n"},
        {LO "/ports/1/pkeys/0", "0xffff\n"},
        {LO "/ports/1/gids/0", GID_0},
        {LO "/ports/1/gids/1", GID_0},
        {LO "/ports/1/gids/127", "0000:0000:0000:0000:0000:0000:0000:0000\n"},
        {LO "/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"},
        {LO "/ports/1/gid_attrs/types/1", "RoCE v2\n"},
        {LO "/ports/1/gid_attrs/types/127", "error 22"},
        {LO "/ports/1/gid_attrs/ndevs/1", "lo\n"},
        {LO "/ports/1/gid_attrs/ndevs/127", "error 22"},
        {LO "/ports/1/counters/port_xmit_data", "0\n"},
        {LO "/ports/1/hw_counters/lifespan", "10\n"},
        {"/sys/class/infiniband_verbs/abi_version", "6\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = contents_of_fd(open(cases[i].path, O_RDONLY));
        if (strcmp(text, cases[i].text))
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].path, text, cases[i].text);
    }
    char guid[32];
    strcpy(guid, contents_of_fd(open(LO "/node_guid", O_RDONLY)));
    assert_int_equal(strlen(guid), 20);
    assert_string_equal(contents_of_fd(open(LO "/sys_image_guid", O_RDONLY)), guid);
    unsigned int index = 0;
    assert_int_equal(sscanf(contents_of_fd(open(LO "/device/net/lo/ifindex", 0)), "%u", &index), 1);
    assert_int_equal(index, 1); /* the loopback's, in every namespace */
}

/* The number of the loopback's uverbs device. */
static int uverbs_number(void)
{
    for (int i = 0; i < 256; i++) {
        char path[64];
        snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/uverbs%d/ibdev", i);
        if (!strcmp(contents_of_fd(open(path, O_RDONLY)), "sw_lo\n"))
            return i;
    }
    fail_msg("no uverbs device belongs to sw_lo");
    return -1;
}

static void uverbs__looks_like_a_character_device(void **state)
{
    (void)state;
    int number = uverbs_number();
    char path[64], expected[64];
    struct stat status;
    snprintf(path, sizeof(path), "/dev/infiniband/uverbs%d", number);
    assert_int_equal(stat(path, &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    assert_int_equal(major(status.st_rdev), 231);
    assert_int_equal(minor(status.st_rdev), 192 + number);
    assert_int_equal(access(path, R_OK | W_OK), 0);
    assert_int_equal(access(path, X_OK), -1);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    close(fd);
    snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/uverbs%d/dev", number);
    snprintf(expected, sizeof(expected), "231:%d\n", 192 + number);
    assert_string_equal(contents_of_fd(open(path, O_RDONLY)), expected);
    snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/uverbs%d/device/net", number);
    assert_string_equal(names_of(opendir(path)), "lo ");
}

static void check_mode(const char *call, int result, mode_t mode, mode_t expected)
{
    if (result || mode != expected)
        fail_msg("%s: result %d errno %d mode %o, not %o", call, result, errno, mode, expected);
}

#define CHECK_FIELD(call, field, expected)           \
    do {                                             \
        int result_ = call;                          \
        check_mode(#call, result_, field, expected); \
    } while (0)
#define CHECK(call, buffer, expected) CHECK_FIELD(call, (buffer).st_mode, expected)
#define CHECK_X(call, expected) CHECK_FIELD(call, x.stx_mode, expected)

static void stat__all_spellings_agree(void **state)
{
    (void)state;
    const mode_t dir = S_IFDIR | 0755, link = S_IFLNK | 0777, file = S_IFREG | 0444;
    const char *path = LO "/node_type";
    struct stat a;
    struct stat64 b;
    CHECK(stat(LO, &a), a, dir);
    CHECK(stat64(LO, &b), b, dir);
    CHECK(lstat(LO, &a), a, link);
    CHECK(lstat64(LO, &b), b, link);
    CHECK(stat(path, &a), a, file);
    CHECK(lstat(path, &a), a, file);
    CHECK(lstat(LO "/", &a), a, dir);
    CHECK(__xstat(STAT_VERSION, LO, &a), a, dir);
    CHECK(__xstat64(STAT_VERSION, LO, &b), b, dir);
    CHECK(__lxstat(STAT_VERSION, LO, &a), a, link);
    CHECK(__lxstat64(STAT_VERSION, LO, &b), b, link);
    int fd = open(LO, O_RDONLY | O_DIRECTORY);
    CHECK(fstatat(fd, "node_type", &a, 0), a, file);
    CHECK(fstatat64(fd, "../sw_lo", &b, 0), b, dir);
    CHECK(fstatat(AT_FDCWD, LO, &a, AT_SYMLINK_NOFOLLOW), a, link);
    CHECK(fstatat(fd, "", &a, AT_EMPTY_PATH), a, dir);
    CHECK(__fxstatat(STAT_VERSION, fd, "node_type", &a, 0), a, file);
    CHECK(__fxstatat64(STAT_VERSION, fd, "", &b, AT_EMPTY_PATH), b, dir);
    CHECK(fstat(fd, &a), a, dir);
    CHECK(fstat64(fd, &b), b, dir);
    CHECK(__fxstat(STAT_VERSION, fd, &a), a, dir);
    CHECK(__fxstat64(STAT_VERSION, fd, &b), b, dir);
    struct statx x;
    CHECK_X(statx(fd, "node_type", 0, STATX_ALL, &x), file);
    CHECK_X(statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &x), dir);
    CHECK_X(statx(AT_FDCWD, LO, AT_SYMLINK_NOFOLLOW, STATX_ALL, &x), link);
    close(fd);
    assert_int_equal(stat(LO "/nothing", &a), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(statx(AT_FDCWD, LO "/node_type/x", 0, STATX_ALL, &x), -1);
    assert_int_equal(errno, ENOTDIR);
}

/* Programs such as cp and find compare what they opened with what they saw before. */
static void stat__and_fstat_are_of_the_same_file(void **state)
{
    (void)state;
    struct stat by_path, by_fd, by_alias;
    int fd = open(LO "/node_type", O_RDONLY);
    int twin = dup(fd);
    assert_int_equal(stat(LO "/node_type", &by_path), 0);
    assert_int_equal(stat(REAL_LO "/node_type", &by_alias), 0);
    assert_int_equal(fstat(twin, &by_fd), 0);
    assert_int_equal(by_path.st_ino, by_fd.st_ino);
    assert_int_equal(by_path.st_dev, by_fd.st_dev);
    assert_int_equal(by_path.st_ino, by_alias.st_ino);
    assert_int_equal(stat(LO "/hca_type", &by_alias), 0);
    assert_true(by_path.st_ino != by_alias.st_ino);
    close(twin);
    close(fd);
}

static void access__knows_rights(void **state)
{
    (void)state;
    assert_int_equal(access(LO "/node_type", R_OK), 0);
    assert_int_equal(access(LO "/node_type", W_OK), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(access(LO, R_OK | X_OK), 0);
    assert_int_equal(euidaccess(LO "/ports/1", F_OK), 0);
    assert_int_equal(eaccess(LO "/ports/2", F_OK), -1);
    assert_int_equal(errno, ENOENT);
    int fd = open(LO, O_RDONLY | O_DIRECTORY);
    assert_int_equal(faccessat(fd, "node_type", R_OK, 0), 0);
    assert_int_equal(faccessat(fd, "nothing", R_OK, AT_EACCESS), -1);
    close(fd);
}

static void readlink__all_spellings_agree(void **state)
{
    (void)state;
    const char *target = "../../devices/virtual/infiniband/sw_lo";
    size_t len = strlen(target);
    char text[256] = "";
    int fd = open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY);
    assert_int_equal(readlink(LO, text, sizeof(text)), len);
    assert_memory_equal(text, target, len);
    memset(text, 0, sizeof(text));
    assert_int_equal(readlinkat(fd, "sw_lo", text, sizeof(text)), len);
    assert_memory_equal(text, target, len);
    assert_int_equal(__readlink_chk(LO, text, 5, sizeof(text)), 5);
    assert_int_equal(__readlinkat_chk(fd, "sw_lo", text, sizeof(text), sizeof(text)), len);
    assert_int_equal(readlink(LO "/node_type", text, sizeof(text)), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(readlink(LO "/nothing", text, sizeof(text)), -1);
    assert_int_equal(errno, ENOENT);
    close(fd);
}

static void realpath__resolves_our_links(void **state)
{
    (void)state;
    char buffer[PATH_MAX];
    assert_string_equal(realpath(LO, buffer), REAL_LO);
    assert_string_equal(realpath("/sys/class/infiniband/../infiniband/sw_lo/ports", buffer),
                        REAL_LO "/ports");
    assert_string_equal(__realpath_chk(LO "/device", buffer, sizeof(buffer)),
                        "/sys/devices/virtual/sidewire/lo");
    char *made = realpath(LO "/node_type", NULL);
    assert_string_equal(made, REAL_LO "/node_type");
    free(made);
    made = canonicalize_file_name(LO);
    assert_string_equal(made, REAL_LO);
    free(made);
    assert_null(realpath(LO "/nothing", buffer));
    assert_int_equal(errno, ENOENT);
    /* Out of the tree into the kernel's. */
    assert_string_equal(realpath(LO "/device/net/lo", buffer), "/sys/devices/virtual/net/lo");
}

static void xattr__there_is_none(void **state)
{
    (void)state;
    char value[16];
    assert_int_equal(getxattr(LO, "user.x", value, sizeof(value)), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(lgetxattr(LO "/nothing", "user.x", value, sizeof(value)), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(listxattr(LO, value, sizeof(value)), 0);
    assert_int_equal(llistxattr(LO, value, sizeof(value)), 0);
}

static void fork__the_child_sees_the_same(void **state)
{
    (void)state;
    int fd = open(LO, O_RDONLY | O_DIRECTORY);
    pid_t child = fork();
    if (!child) {
        int inherited = strcmp(contents_of_fd(openat(fd, "node_type", O_RDONLY)), "1: CA\n");
        int opened = strcmp(contents_of_fd(open(LO "/ports/1/gids/0", O_RDONLY)), GID_0);
        _exit(!!inherited + 2 * !!opened);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(fd);
}

static void files__follow_the_interface(void **state)
{
    (void)state;
    if (!in_namespace) {
        print_message("skipped: no network namespace of our own (unshare is refused)\n");
        skip();
    }
    assert_int_equal(system("ip addr add 10.8.0.1/32 dev lo"), 0);
    const char *last = NULL;
    char path[128];
    int index = 0;
    for (; index < 128; index += 2) {
        snprintf(path, sizeof(path), LO "/ports/1/gids/%d", index);
        last = contents_of_fd(open(path, O_RDONLY));
        if (strstr(last, ":ffff:0a08:0001\n"))
            break;
    }
    assert_in_range(index, 2, 126);
    assert_int_equal(system("ip addr del 10.8.0.1/32 dev lo"), 0);
    assert_null(strstr(contents_of_fd(open(path, O_RDONLY)), "ffff"));
    assert_int_equal(system("ip link set lo down"), 0);
    assert_string_equal(contents_of_fd(open(LO "/ports/1/state", O_RDONLY)), "1: DOWN\n");
    assert_int_equal(system("ip link set lo up"), 0);
    assert_string_equal(contents_of_fd(open(LO "/ports/1/state", O_RDONLY)), "4: ACTIVE\n");
}

static void paths__of_others_go_to_libc(void **state)
{
    (void)state;
    struct stat status;
    assert_int_equal(stat("/sys/class/net/lo", &status), 0);
    assert_int_equal(stat("/sys/class/infinibandage", &status), -1);
    assert_int_equal(errno, ENOENT);
    char name[] = "/tmp/sidewire-hooks-XXXXXX";
    assert_non_null(mkdtemp(name));
    char path[128];
    snprintf(path, sizeof(path), "%s/infiniband", name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0640);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640 & ~umask(umask(022)));
    close(fd);
    assert_string_equal(names_of(opendir(name)), "infiniband ");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(name), 0);
}

int main(void)
{
    if (!if_nametoindex("lo")) {
        fprintf(stderr, "no interface lo\n");
        return 77;
    }
    in_namespace = !namespace_enter(CLONE_NEWNET) && !system("ip link set lo up");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open__works_before_constructors),
        cmocka_unit_test(open__all_spellings_read_the_file),
        cmocka_unit_test(open__understands_every_form_of_a_path),
        cmocka_unit_test(open__fails_as_the_kernel_does),
        cmocka_unit_test(open__gives_an_ordinary_descriptor),
        cmocka_unit_test(files__say_what_the_kernel_would),
        cmocka_unit_test(uverbs__looks_like_a_character_device),
        cmocka_unit_test(stat__all_spellings_agree),
        cmocka_unit_test(stat__and_fstat_are_of_the_same_file),
        cmocka_unit_test(access__knows_rights),
        cmocka_unit_test(readlink__all_spellings_agree),
        cmocka_unit_test(realpath__resolves_our_links),
        cmocka_unit_test(xattr__there_is_none),
        cmocka_unit_test(fork__the_child_sees_the_same),
        cmocka_unit_test(files__follow_the_interface),
        cmocka_unit_test(paths__of_others_go_to_libc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
