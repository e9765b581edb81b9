/* SPDX-License-Identifier: BSD-2-Clause */
/* `nvram:` on a file system that is full, and a file that gets holes or becomes shorter. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <nvme/types.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/guard.h"
#include "nvme/target/backend/slices.h"
#include "nvme/target/backend/uring.h"
#include "nvme/wire/fabrics.h"

enum { PAGE = 4096, FS_BYTES = 1 << 20, SIZE = 256 << 10, WAITS = 0xffff };
enum {
    FULL = NVME_SC_CAP_EXCEEDED | NVME_SC_DNR,
    LOST_WRITE = NVF_MEDIA(NVME_SC_WRITE_FAULT),
    LOST_READ = NVF_MEDIA(NVME_SC_READ_ERROR),
};

static char folder[] = "/tmp/sidewire-nvram-XXXXXX", path[64], other_path[64];
static struct nvt_backend *backend;
static struct nvt_uring uring;
static struct nvt_slices slices;
static int file;
static char error[512];
static struct sigaction guard; /* cmocka puts its own in the place, before each test */

static int make_file(uint64_t bytes)
{
    file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return file < 0 || ftruncate(file, (off_t)bytes);
}

static int open_backend(void)
{
    const struct nvt_backend_setup setup = {.path = path};
    sigaction(SIGBUS, &guard, NULL);
    return nvt_backend_find("nvram")->open(&setup, &backend, error, sizeof(error));
}

/* A file system of one MiB for this process. */
static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "%s/disk", folder);
    snprintf(other_path, sizeof(other_path), "%s/other", folder);
    nvt_slices_init(&slices);
    backend = NULL;
    return mount("none", folder, "tmpfs", 0, "size=1m") || nvt_uring_open(&uring, 16);
}

static int tear_down(void **state)
{
    (void)state;
    if (backend)
        backend->ops->close(backend);
    nvt_uring_close(&uring);
    close(file);
    return umount2(folder, MNT_DETACH);
}

static void fill_file_system(void)
{
    static const uint8_t page[PAGE];
    const int fd = open(other_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, page, sizeof(page)) == sizeof(page)) {
    }
    close(fd);
}

static uint64_t free_bytes(void)
{
    struct statvfs fs;
    assert_int_equal(statvfs(folder, &fs), 0);
    return (uint64_t)fs.f_bfree * fs.f_frsize;
}

static void note_status(struct nvt_io *io, uint16_t status)
{
    *(uint16_t *)io->user = status;
}

/* The status, once it is over. */
static uint16_t do_io(struct nvt_io io)
{
    uint16_t status = WAITS;
    uint64_t moved;
    io.uring = &uring;
    io.slices = &slices;
    io.done = note_status;
    io.user = &status;
    backend->ops->submit(backend, &io);
    while (nvt_slices_run(&slices, 0)) {
    }
    while (status == WAITS) {
        nvt_uring_submit(&uring);
        nvt_uring_reap(&uring, &moved);
    }
    return status;
}

static uint16_t do_pages(enum nvt_io_kind kind, uint64_t page, uint64_t pages)
{
    static uint8_t data[SIZE];
    return do_io((struct nvt_io){
        .kind = kind, .offset = page * PAGE, .len_bytes = pages * PAGE, .data = data});
}

/* What the target asks for before a NIC moves data from or to there. */
static uint16_t reach(enum nvt_io_kind kind, uint64_t page, uint64_t pages)
{
    const struct nvt_io io = {.kind = kind, .offset = page * PAGE, .len_bytes = pages * PAGE};
    return backend->ops->reach(backend, &io);
}

static void open__takes_all_blocks_of_the_file(void **state)
{
    (void)state;
    struct stat stat;
    assert_int_equal(make_file(SIZE), 0);
    assert_int_equal(open_backend(), 0);
    assert_int_equal(fstat(file, &stat), 0);
    assert_int_equal(stat.st_blocks * 512, SIZE);
    fill_file_system();
    assert_int_equal(do_pages(NVT_WRITE, 0, SIZE / PAGE), 0);
    assert_int_equal(do_pages(NVT_DEALLOCATE, 0, SIZE / PAGE), 0);
    assert_int_equal(reach(NVT_WRITE, 0, SIZE / PAGE), 0); /* it has kept them */
}

static void open__holes_on_a_full_file_system_are_refused(void **state)
{
    (void)state;
    assert_int_equal(make_file(4 * FS_BYTES), 0);
    const uint64_t before = free_bytes();
    assert_int_equal(open_backend(), -ENOSPC);
    assert_non_null(strstr(error, path));
    assert_non_null(strstr(error, "4 MiB of holes"));
    assert_non_null(strstr(error, "truncate -s"));
    assert_int_equal(free_bytes(), before);
    assert_int_equal(ftruncate(file, SIZE), 0);
    fill_file_system();
    assert_int_equal(open_backend(), -ENOSPC);
}

/* Blocks behind its end fill no hole. */
static void open__blocks_behind_the_end_fill_no_hole(void **state)
{
    (void)state;
    struct stat stat;
    assert_int_equal(make_file(SIZE), 0);
    assert_int_equal(fallocate(file, FALLOC_FL_KEEP_SIZE, SIZE, SIZE), 0);
    assert_int_equal(fstat(file, &stat), 0);
    assert_int_equal(stat.st_blocks * 512, SIZE);
    fill_file_system();
    assert_int_equal(open_backend(), -ENOSPC);
    assert_non_null(strstr(error, "1 MiB of holes"));
    assert_int_equal(unlink(other_path), 0);
    assert_int_equal(open_backend(), 0);
    assert_int_equal(fstat(file, &stat), 0);
    assert_int_equal(stat.st_blocks * 512, 2 * SIZE);
}

static void write__to_a_hole_on_a_full_file_system_fails_alone(void **state)
{
    (void)state;
    assert_int_equal(make_file(SIZE), 0);
    assert_int_equal(open_backend(), 0);
    assert_int_equal(
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE, 2 * PAGE), 0);
    fill_file_system();
    assert_int_equal(do_pages(NVT_WRITE, 3, 1), FULL);
    assert_int_equal(reach(NVT_WRITE, 1, 2), FULL);
    assert_int_equal(do_pages(NVT_WRITE, 4, 1), 0);
    assert_int_equal(reach(NVT_WRITE, 0, 2), 0);
    assert_int_equal(unlink(other_path), 0);
    assert_int_equal(do_pages(NVT_WRITE, 3, 1), 0); /* there is room again */
    assert_int_equal(reach(NVT_WRITE, 1, 2), 0);
}

static void io__behind_the_end_of_a_shorter_file_fails_alone(void **state)
{
    (void)state;
    assert_int_equal(make_file(SIZE), 0);
    assert_int_equal(open_backend(), 0);
    assert_int_equal(do_pages(NVT_WRITE, 0, SIZE / PAGE), 0);
    assert_int_equal(ftruncate(file, 4 * PAGE), 0);
    assert_int_equal(do_pages(NVT_READ, 0, SIZE / PAGE), LOST_READ);
    assert_int_equal(do_pages(NVT_VERIFY, 0, SIZE / PAGE), LOST_READ);
    assert_int_equal(do_pages(NVT_WRITE, 3, 2), LOST_WRITE);
    assert_int_equal(reach(NVT_READ, 3, 2), LOST_READ);
    assert_int_equal(reach(NVT_WRITE, 3, 2), LOST_WRITE);
    assert_int_equal(do_pages(NVT_FLUSH, 0, 0), 0);
    assert_int_equal(do_pages(NVT_READ, 0, 4), 0);
    assert_int_equal(do_pages(NVT_VERIFY, 0, 4), 0);
    assert_int_equal(do_pages(NVT_WRITE_ZEROES, 0, 4), 0);
    assert_int_equal(ftruncate(file, SIZE), 0);
    assert_int_equal(do_pages(NVT_WRITE, 0, SIZE / PAGE), 0); /* it is back */
}

/* A disk may take long. */
static void flush__waits_off_the_loop(void **state)
{
    (void)state;
    uint16_t status = WAITS;
    uint64_t moved;
    struct nvt_io io = {.kind = NVT_FLUSH,
                        .uring = &uring,
                        .slices = &slices,
                        .done = note_status,
                        .user = &status};
    assert_int_equal(make_file(SIZE), 0);
    assert_int_equal(open_backend(), 0);
    backend->ops->submit(backend, &io);
    assert_int_equal(status, WAITS);
    while (status == WAITS) {
        nvt_uring_submit(&uring);
        nvt_uring_reap(&uring, &moved);
    }
    assert_int_equal(status, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(open__takes_all_blocks_of_the_file),
        CASE(open__holes_on_a_full_file_system_are_refused),
        CASE(open__blocks_behind_the_end_fill_no_hole),
        CASE(write__to_a_hole_on_a_full_file_system_fails_alone),
        CASE(io__behind_the_end_of_a_shorter_file_fails_alone),
        CASE(flush__waits_off_the_loop),
    };
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
        printf("SKIP: no mount namespace: %s\n", strerror(errno));
        return 77;
    }
    if (!mkdtemp(folder) || nvt_guard_open() || sigaction(SIGBUS, NULL, &guard))
        return 1;
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failures;
}
