/* SPDX-License-Identifier: BSD-2-Clause */
/* ftw() and nftw() see our tree as they see the kernel's, and leave all else to libc. */
#include <errno.h>
#include <ftw.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define CLASS "/sys/class/infiniband"
#define PORT "/sys/devices/virtual/infiniband/sw_lo/ports/1"

/* What was visited: "kind:path " each; those of which the path has `wanted`. */
static char log_of_visits[1 << 20];
static const char *wanted;
static int stop_at, action;

static const char *kind_name(int kind)
{
    switch (kind) {
    case FTW_F:
        return "f";
    case FTW_D:
        return "d";
    case FTW_DP:
        return "dp";
    case FTW_SL:
        return "l";
    case FTW_NS:
        return "ns";
    default:
        return "?";
    }
}

static int note(const char *path, const struct stat *info, int kind)
{
    size_t len = strlen(log_of_visits);
    if (strstr(path, wanted))
        snprintf(log_of_visits + len, sizeof(log_of_visits) - len, "%s:%s ", kind_name(kind), path);
    if (kind == FTW_F)
        assert_true(S_ISREG(info->st_mode) || !strstr(path, "infiniband/sw_lo"));
    return 0;
}

static int note_more(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    note(path, info, kind);
    if (strcmp(path, "/"))
        assert_int_equal(path[place->base - 1], '/');
    assert_null(strchr(path + place->base, '/'));
    return stop_at && place->level == stop_at ? action : 0;
}

static const char *walked(int result)
{
    assert_int_equal(result, 0);
    return log_of_visits;
}

static int begin(void **state)
{
    (void)state;
    log_of_visits[0] = '\0';
    wanted = "/";
    stop_at = 0;
    return 0;
}

static void nftw__before_and_after_its_entries(void **state)
{
    (void)state;
    wanted = "gid_attrs";
    const char *visits = walked(nftw(PORT "/", note_more, 4, FTW_PHYS));
    assert_memory_equal(visits, "d:" PORT "/gid_attrs d:" PORT "/gid_attrs/ndevs ", 60);
    assert_non_null(strstr(visits, "f:" PORT "/gid_attrs/types/1 "));
    begin(NULL);
    wanted = "gid_attrs";
    visits = walked(nftw64(PORT, (void *)note_more, 1, FTW_PHYS | FTW_DEPTH));
    const char *types = strstr(visits, "dp:" PORT "/gid_attrs/types ");
    assert_true(types && types > strstr(visits, "f:" PORT "/gid_attrs/types/1 "));
    assert_true(types < strstr(visits, "dp:" PORT "/gid_attrs "));
    assert_null(strstr(visits, " d:"));
}

static void nftw__links(void **state)
{
    (void)state;
    wanted = "sw_lo";
    assert_string_equal(walked(nftw(CLASS, note_more, 4, FTW_PHYS)), "l:" CLASS "/sw_lo ");
    begin(NULL);
    wanted = "sw_lo";
    const char *visits = walked(nftw(CLASS "/sw_lo", note_more, 4, 0)); /* follows them */
    assert_memory_equal(visits, "d:" CLASS "/sw_lo ", strlen("d:" CLASS "/sw_lo "));
    assert_non_null(strstr(visits, "f:" CLASS "/sw_lo/ports/1/gids/0 "));
    assert_null(strstr(visits, "subsystem/sw_lo ")); /* in no circle */
}

static void ftw__has_no_flags(void **state)
{
    (void)state;
    wanted = "/state";
    assert_string_equal(walked(ftw(PORT, note, 4)), "f:" PORT "/state ");
    begin(NULL);
    wanted = "/state";
    assert_string_equal(walked(ftw64(PORT, (void *)note, 4)), "f:" PORT "/state ");
}

/* From a directory of the kernel's that has ours in it. */
static void nftw__from_above(void **state)
{
    (void)state;
    wanted = "/sw_lo";
    const char *visits = walked(nftw("/sys/class", note_more, 4, FTW_PHYS));
    assert_non_null(strstr(visits, "l:" CLASS "/sw_lo "));
    begin(NULL);
    wanted = "/lo";
    visits = walked(nftw("/sys/class", note_more, 4, FTW_PHYS)); /* and the kernel's own */
    assert_non_null(strstr(visits, "/sys/class/net/lo "));
}

static void nftw__return_values(void **state)
{
    (void)state;
    stop_at = 1;
    action = 42;
    assert_int_equal(nftw(PORT, note_more, 4, FTW_PHYS), 42);
    begin(NULL);
    stop_at = 1;
    action = FTW_SKIP_SUBTREE;
    const char *visits = walked(nftw(PORT, note_more, 4, FTW_PHYS | FTW_ACTIONRETVAL));
    assert_non_null(strstr(visits, "d:" PORT "/gids "));
    assert_null(strstr(visits, "/gids/"));
    assert_non_null(strstr(visits, "f:" PORT "/state "));
    begin(NULL);
    stop_at = 1;
    action = FTW_SKIP_SIBLINGS;
    visits = walked(nftw(PORT, note_more, 4, FTW_PHYS | FTW_ACTIONRETVAL));
    assert_null(strstr(visits, "f:" PORT "/state "));
    stop_at = 1;
    action = FTW_STOP;
    assert_int_equal(nftw(PORT, note_more, 4, FTW_PHYS | FTW_ACTIONRETVAL), FTW_STOP);
    errno = 0;
    assert_int_equal(nftw(CLASS "/nothing", note_more, 4, FTW_PHYS), -1);
    assert_int_equal(errno, ENOENT);
}

static int beside(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    struct stat here;
    (void)info;
    (void)kind;
    if (place->level > 0) { /* the name alone leads there */
        assert_int_equal(lstat(path + place->base, &here), 0);
        assert_int_equal(here.st_ino, info->st_ino);
    }
    return 0;
}

static void nftw__changes_directory(void **state)
{
    (void)state;
    char before[512], after[512];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(nftw(PORT, beside, 4, FTW_PHYS | FTW_CHDIR), 0);
    assert_non_null(getcwd(after, sizeof(after)));
    assert_string_equal(before, after);
}

static void nftw__of_others_goes_to_libc(void **state)
{
    (void)state;
    char dir[] = "/tmp/sidewire-walk-XXXXXX", file[64], want[160];
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/infiniband", dir);
    assert_int_equal(mkdir(file, 0700), 0);
    snprintf(want, sizeof(want), "d:%s d:%s ", dir, file);
    assert_string_equal(walked(nftw(dir, note_more, 4, FTW_PHYS)), want);
    begin(NULL);
    assert_string_equal(walked(ftw(dir, note, 4)), want);
    assert_int_equal(rmdir(file), 0);
    assert_int_equal(rmdir(dir), 0);
}

#define walk_test(function) cmocka_unit_test_setup(function, begin)

int main(void)
{
    if (!if_nametoindex("lo")) {
        fprintf(stderr, "no interface lo\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        walk_test(nftw__before_and_after_its_entries),
        walk_test(nftw__links),
        walk_test(ftw__has_no_flags),
        walk_test(nftw__from_above),
        walk_test(nftw__return_values),
        walk_test(nftw__changes_directory),
        walk_test(nftw__of_others_goes_to_libc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
