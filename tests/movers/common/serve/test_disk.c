/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages of the cache that are served: the disk has taken them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/serve/disk.h"

enum { PAGES = 64, HELD_FIRST = 20, HELD = 7, SYS_CACHESTAT = 451 /* Linux 6.5 */ };

static int flushes, fails_from;
static uint64_t dirty_pages; /* at the last flush, where the kernel tells */

int fsync(int fd)
{
    const struct {
        uint64_t offset, len;
    } all = {0, 0};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } found;
    dirty_pages = syscall(SYS_CACHESTAT, fd, &all, &found, 0) ? UINT64_MAX : found.dirty;
    flushes++;
    if (!fails_from || flushes < fails_from)
        return (int)syscall(SYS_fsync, fd);
    errno = EIO;
    return -1;
}

static uint64_t unwritten_at; /* a place that the file system never reads from the disk */

int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    struct fiemap *map = va_arg(list, struct fiemap *);
    va_end(list);
    assert_int_equal(request, FS_IOC_FIEMAP);
    (void)fd;
    map->fm_mapped_extents = unwritten_at >= map->fm_start;
    map->fm_extents[0] = (struct fiemap_extent){
        .fe_logical = unwritten_at, .fe_length = 512, .fe_flags = FIEMAP_EXTENT_UNWRITTEN};
    return 0;
}

/* The kernel takes pages for clean after a write of them failed. Those that are mapped stay. */
static void disk__pages_that_are_kept_are_written_again(void **state)
{
    char path[] = "/var/tmp/disk-XXXXXX";
    const int fd = mkstemp(path);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct mover_disk disk;
    (void)state;
    assert_true(fd >= 0);
    unlink(path);
    for (size_t i = 0; i < PAGES; i++)
        assert_int_equal(pwrite(fd, "page", 4, (off_t)(i * page)), 4);
    assert_int_equal(ftruncate(fd, PAGES * (off_t)page), 0);
    fsync(fd);
    char *held = mmap(NULL, HELD * page, PROT_READ, MAP_SHARED, fd, (off_t)(HELD_FIRST * page));
    assert_true(held != MAP_FAILED);
    for (size_t i = 0; i < HELD; i++)
        assert_memory_equal(held + i * page, "page", 4);
    flushes = 0;
    unwritten_at = (HELD_FIRST + HELD) * page;
    assert_int_equal(mover_disk_open(fd, true, &disk), 0);
    mover_disk_close(&disk);
    assert_int_equal(flushes, 2);
    assert_true(dirty_pages >= HELD);
    for (size_t i = 0; i < HELD; i++)
        assert_memory_equal(held + i * page, "page", 4);
    unwritten_at = (HELD_FIRST + HELD) * page - 512;
    assert_int_equal(mover_disk_open(fd, true, &disk), -EBUSY);
    assert_non_null(strstr(mover_disk_why(-EBUSY), "fuser"));
    flushes = 0;
    fails_from = 2;
    assert_int_equal(mover_disk_open(fd, true, &disk), -EIO);
    munmap(held, HELD * page);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disk__pages_that_are_kept_are_written_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
