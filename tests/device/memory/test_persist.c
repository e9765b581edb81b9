/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/persist.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "apart.h"
#include "device/memory/sync_job.h"

#define PAGES 4
static size_t page;

static FILE *text(const char *content)
{
    FILE *file = fmemopen((void *)(uintptr_t)content, strlen(content), "r");
    assert_non_null(file);
    return file;
}

static const char mounts[] =
    "21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "22 21 0:20 / /dev/shm rw,nosuid shared:2 - tmpfs tmpfs rw,size=1024k\n"
    "23 21 0:31 /home /home rw shared:3 master:1 - btrfs /dev/sdb rw,subvol=/home\n"
    "24 21 0:32 / /mnt/ssh rw - fuse.sshfs host: rw,user_id=0\n"
    "25 21 0:33 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w\n"
    "26 21 0:34 / /fast rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,volatile\n"
    "27 21 0:35 / /sys rw - sysfs sysfs rw\n"
    "28 21 0:36 / /odd\\040-\\040nfs rw - hugetlbfs nodev rw\n"
    "29 21 0:37 / /x rw - nfsx server:/ rw\n";

static bool keeps(unsigned int dev_minor)
{
    FILE *file = text(mounts);
    bool result = sw_persist_mount_keeps(file, 0, dev_minor);
    fclose(file);
    return result;
}

static void sw_persist_mount_keeps__by_type(void **state)
{
    (void)state;
    assert_false(keeps(20));
    assert_true(keeps(31));
    assert_true(keeps(32));
    assert_true(keeps(33));
    assert_false(keeps(34));
    assert_false(keeps(35));
    assert_false(keeps(36));
    assert_false(keeps(37)); /* unknown */
    assert_false(keeps(99)); /* mounted nowhere: the kernel's own, as memfd's */
    FILE *damaged = text("\n- nfs\n0:31 - nfs\n23 21 0:31 / /home rw\n");
    assert_false(sw_persist_mount_keeps(damaged, 0, 31));
    fclose(damaged);
}

static void sw_persist_is_map_sync__of_that_mapping(void **state)
{
    (void)state;
    static const char smaps[] = "7f0000000000-7f0000001000 rw-s 00000000 fe:00 12 /pmem/a\n"
                                "Size:                  4 kB\n"
                                "VmFlags: rd wr sh mr mw me ms sd \n"
                                "7f0000001000-7f0000002000 rw-s 00000000 fe:00 13 /pmem/b\n"
                                "Size:                  4 kB\n"
                                "VmFlags: rd wr sh mr mw me ms sf sd \n"
                                "7f0000002000-7f0000003000 rw-s 00000000 fe:00 14 /pmem/c\n"
                                "VmFlags: rd wr sh mr mw me ms sd sf\n";
    static const bool sync[] = {false, true, true, false};
    for (uint64_t i = 0; i < 4; i++) {
        FILE *file = text(smaps);
        assert_int_equal(sw_persist_is_map_sync(file, 0x7f0000000000 + i * 0x1000), sync[i]);
        fclose(file);
    }
}

/* A mapping of a new file of PAGES pages, at this place; NULL if there can be none. */
static uint8_t *map_file_at(void *place, const char *where, int flags)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/sidewire-test-XXXXXX", where);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return NULL;
    assert_int_equal(ftruncate(fd, (off_t)(PAGES * page)), 0);
    uint8_t *at = mmap(place, PAGES * page, PROT_READ | PROT_WRITE, flags, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    close(fd);
    unlink(path); /* what counts is the filesystem, not the name */
    return at;
}

static uint8_t *map_file(const char *where, int flags)
{
    return map_file_at(APART, where, flags);
}

static enum sw_persist of(const uint8_t *at)
{
    uint32_t disk;
    return sw_persist_of((uintptr_t)at, PAGES * page, &disk);
}

static enum sw_persist of_part(const uint8_t *at, uint64_t len_bytes)
{
    uint32_t disk;
    return sw_persist_of((uintptr_t)at, len_bytes, &disk);
}

static bool here_is_in_memory(void)
{
    struct statfs fs;
    return statfs(".", &fs) || fs.f_type == 0x01021994 /* tmpfs */ || fs.f_type == 0x858458f6;
}

static void sw_persist_of__files(void **state)
{
    (void)state;
    if (here_is_in_memory())
        skip();
    uint8_t *shared = map_file(".", MAP_SHARED), *private = map_file(".", MAP_PRIVATE);
    assert_non_null(shared);
    assert_non_null(private);
    assert_int_equal(of(shared), SW_PERSIST_BY_SYNC);
    assert_int_equal(of_part(shared + 100, 1), SW_PERSIST_BY_SYNC);
    assert_int_equal(of(private), SW_PERSIST_NONE);
    /* All of it must be. */
    assert_ptr_not_equal(mmap(shared + page, page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                         MAP_FAILED);
    assert_int_equal(of(shared), SW_PERSIST_NONE);
    assert_int_equal(of_part(shared, page), SW_PERSIST_BY_SYNC);
    assert_int_equal(of_part(shared + 2 * page, page), SW_PERSIST_BY_SYNC);
    munmap(shared + page, page);
    assert_int_equal(of(shared), SW_PERSIST_NONE);
    munmap(shared, PAGES * page);
    munmap(private, PAGES * page);
}

/* Files of one file system have it in common; one that lies elsewhere has another one. */
static void sw_persist_of__says_whose_disk(void **state)
{
    (void)state;
    uint32_t disk = 0, part = 0, none = 1;
    if (here_is_in_memory())
        skip();
    uint8_t *shared = map_file(".", MAP_SHARED);
    sw_persist_of((uintptr_t)shared, PAGES * page, &disk);
    assert_int_equal(sw_persist_of((uintptr_t)shared + page, page, &part), SW_PERSIST_BY_SYNC);
    sw_persist_of((uintptr_t)state, 1, &none);
    assert_int_not_equal(disk, 0);
    assert_int_equal(disk, part);
    assert_int_equal(none, 0);
    assert_int_equal(sw_persist_how(sw_persist_word(SW_PERSIST_BY_SYNC, disk)), SW_PERSIST_BY_SYNC);
    assert_int_equal(sw_persist_disk(sw_persist_word(SW_PERSIST_BY_SYNC, 0xffffff)), 0xffffff);
    munmap(shared, PAGES * page);
}

static void sw_persist_of__memory(void **state)
{
    (void)state;
    const int flags[] = {MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED | MAP_ANONYMOUS};
    for (size_t i = 0; i < 2; i++) {
        uint8_t *at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, flags[i], -1, 0);
        assert_ptr_not_equal(at, MAP_FAILED);
        assert_int_equal(of(at), SW_PERSIST_NONE);
        munmap(at, PAGES * page);
    }
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)(PAGES * page)), 0);
    uint8_t *at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_int_equal(of(at), SW_PERSIST_NONE);
    munmap(at, PAGES * page);
    close(fd);
    at = map_file("/dev/shm", MAP_SHARED);
    if (at) {
        assert_int_equal(of(at), SW_PERSIST_NONE);
        munmap(at, PAGES * page);
    }
    uint8_t stack[64];
    assert_int_equal(of_part(stack, sizeof(stack)), SW_PERSIST_NONE);
    assert_int_equal(of_part(NULL, 1), SW_PERSIST_NONE);
    assert_int_equal(of_part(NULL, 0), SW_PERSIST_BY_SYNC);
}

static void sw_persist_sync__whole_pages(void **state)
{
    (void)state;
    uint8_t *at = map_file(".", MAP_SHARED);
    assert_non_null(at);
    munmap(at + page, page);
    const uint64_t va = (uintptr_t)at;
    assert_int_equal(sw_persist_sync(va, page), 0);
    assert_int_equal(sw_persist_sync(va + page - 1, 1), 0);
    assert_int_equal(sw_persist_sync(va + page - 1, 2), -ENOMEM);
    assert_int_equal(sw_persist_sync(va + 2 * page + 5, 2 * page - 5), 0);
    assert_int_equal(sw_persist_sync(va + 2 * page, 0), 0);
    munmap(at, PAGES * page);
}

static struct sw_persist_file file_of(const uint8_t *at, size_t pages)
{
    return sw_persist_file_of((uintptr_t)at, pages * page);
}

/* Two files of one file system, one beside the other, and then one that lies elsewhere. */
static void sw_persist_file_of__several(void **state)
{
    (void)state;
    uint8_t *at = apart_map(3 * PAGES * page);
    map_file_at(at, ".", MAP_SHARED | MAP_FIXED);
    map_file_at(at + PAGES * page, ".", MAP_SHARED | MAP_FIXED);
    if (here_is_in_memory() ||
        !map_file_at(at + 2 * PAGES * page, "/dev/shm", MAP_SHARED | MAP_FIXED))
        skip();
    const struct sw_persist_file first = file_of(at, PAGES), second = file_of(at + PAGES * page, 1),
                                 other = file_of(at + 2 * PAGES * page, 1),
                                 both = file_of(at, 2 * PAGES), all = file_of(at, 3 * PAGES);
    assert_true(first.is_whole && both.is_whole && all.is_whole);
    assert_true(sw_persist_is_same_file(&first, &first));
    assert_false(sw_persist_is_same_file(&first, &second));
    assert_true(sw_persist_is_same_file(&both, &first));
    assert_true(sw_persist_is_same_file(&second, &both));
    assert_false(sw_persist_is_same_file(&both, &other));
    assert_true(sw_persist_is_same_file(&all, &first));
    assert_true(sw_persist_is_same_file(&other, &all));
    munmap(at + page, page);
    const struct sw_persist_file holed = file_of(at, PAGES + 1), sound = file_of(at, 1);
    assert_false(holed.is_whole);
    assert_true(sound.is_whole);
    assert_true(sw_persist_is_same_file(&holed, &second));
    assert_false(sw_persist_is_same_file(&holed, &other));
    munmap(at, 3 * PAGES * page);
}

/* The process has no descriptor left to read it by. */
static void sw_persist_file_of__unknown_may_be_any(void **state)
{
    (void)state;
    uint8_t *at = map_file(".", MAP_SHARED);
    struct rlimit before, none;
    const struct sw_persist_file known = file_of(at, PAGES);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const struct sw_persist_file unknown = file_of(at, PAGES);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(sw_persist_is_same_file(&unknown, &known));
    assert_true(sw_persist_is_same_file(&known, &unknown));
    assert_false(unknown.is_whole);
    munmap(at, PAGES * page);
}

static int told[2];

static void tell(void)
{
    assert_int_equal(write(told[1], "x", 1), 1);
}

static void sw_sync_job__ends_and_tells(void **state)
{
    (void)state;
    uint8_t *at = map_file(".", MAP_SHARED);
    assert_non_null(at);
    for (int i = 0; i < 100; i++) {
        bool bad = i % 2;
        char byte;
        int rc = 1;
        /* The last page's end is no mapping of ours. */
        struct sw_sync_job *job =
            sw_sync_job_start(1, bad ? 0 : (uintptr_t)at, bad ? page : PAGES * page, tell);
        assert_non_null(job);
        assert_int_equal(read(told[0], &byte, 1), 1);
        assert_true(sw_sync_job_ended(job, &rc));
        assert_int_equal(rc, bad ? -ENOMEM : 0);
        sw_sync_job_drop(job);
    }
    munmap(at, PAGES * page);
}

static void sw_sync_job__dropped_before_it_ends(void **state)
{
    (void)state;
    uint8_t *at = map_file(".", MAP_SHARED);
    assert_non_null(at);
    int started = 0;
    for (int i = 0; i < 1000; i++) {
        struct sw_sync_job *job = sw_sync_job_start(1, (uintptr_t)at, PAGES * page, tell);
        if (!job) /* too many at once */
            continue;
        started++;
        sw_sync_job_drop(job);
    }
    char byte;
    assert_true(started > 0);
    for (int i = 0; i < started; i++)
        assert_int_equal(read(told[0], &byte, 1), 1);
    munmap(at, PAGES * page);
}

static void sw_persist_bar_of__resource_files(void **state)
{
    (void)state;
    char bar[SW_PERSIST_BAR_MAX];
    assert_true(sw_persist_bar_of("/sys/devices/pci0000:00/0000:00:04.0/resource2", bar));
    assert_string_equal(bar, "0000:00:04.0/2");
    assert_true(
        sw_persist_bar_of("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:1f.7/resource4_wc", bar));
    assert_string_equal(bar, "0000:3b:1f.7/4");
    static const char *const others[] = {
        "/sys/devices/pci0000:00/0000:00:04.0/resource",
        "/sys/devices/pci0000:00/0000:00:04.0/resource6",
        "/sys/devices/pci0000:00/0000:00:04.0/resource0_resize",
        "/sys/devices/pci0000:00/0000:00:04.0/rom",
        "/sys/devices/pci0000:00/resource2",
        "/home/0000:00:04.0/resource2",
        "resource2",
        "",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(sw_persist_bar_of(others[i], bar));
}

static void sw_persist_is_listed__whole_names(void **state)
{
    (void)state;
    const char *bar = "0000:00:04.0/2";
    assert_false(sw_persist_is_listed(NULL, bar));
    assert_false(sw_persist_is_listed("", bar));
    assert_true(sw_persist_is_listed("0000:00:04.0/2", bar));
    assert_true(sw_persist_is_listed("0000:01:00.0/4,0000:00:04.0/2", bar));
    assert_false(sw_persist_is_listed("0000:00:04.0/21,0000:00:04.0", bar));
    assert_false(sw_persist_is_listed(",,", bar));
}

int main(void)
{
    page = (size_t)getpagesize();
    if (pipe(told))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_persist_mount_keeps__by_type),
        cmocka_unit_test(sw_persist_is_map_sync__of_that_mapping),
        cmocka_unit_test(sw_persist_bar_of__resource_files),
        cmocka_unit_test(sw_persist_is_listed__whole_names),
        cmocka_unit_test(sw_persist_of__files),
        cmocka_unit_test(sw_persist_of__says_whose_disk),
        cmocka_unit_test(sw_persist_of__memory),
        cmocka_unit_test(sw_persist_sync__whole_pages),
        cmocka_unit_test(sw_persist_file_of__several),
        cmocka_unit_test(sw_persist_file_of__unknown_may_be_any),
        cmocka_unit_test(sw_sync_job__ends_and_tells),
        cmocka_unit_test(sw_sync_job__dropped_before_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
