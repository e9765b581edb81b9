/* SPDX-License-Identifier: BSD-2-Clause */
/* Disks that fail a write, of which the kernel tells each open file once. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <nvme/types.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/disk.h"
#include "nvme/target/backend/slices.h"
#include "nvme/target/backend/uring.h"
#include "nvme/wire/fabrics.h"

enum { BLOCK = 4096, BLOCKS = 16, WAITS = 0xffff, LOST_WRITE = NVF_MEDIA(NVME_SC_WRITE_FAULT) };

static char path[] = "/var/tmp/sidewire-disk-XXXXXX", error[512];
static struct nvt_backend *backend;
static struct nvt_uring uring;
static struct nvt_slices slices;
static int untold; /* an errno that the watching file has not been told yet */

int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags)
{
    (void)fd;
    (void)offset;
    (void)bytes;
    (void)flags;
    errno = untold;
    untold = 0;
    return errno ? -1 : 0;
}

static int flush_error, flushes,
    forgotten; /* by the process itself; of whole files, once flushed */

int fsync(int fd)
{
    flushes++;
    errno = flush_error;
    return errno ? -1 : (int)syscall(SYS_fsync, fd);
}

int posix_fadvise(int fd, off_t offset, off_t len, int advice)
{
    (void)fd;
    forgotten += flushes && !offset && !len && advice == POSIX_FADV_DONTNEED;
    return 0;
}

static int open_backend(const char *kind)
{
    const struct nvt_backend_setup setup = {.path = path, .uring = &uring};
    const int rc = nvt_backend_find(kind)->open(&setup, &backend, error, sizeof(error));
    if (!rc)
        nvt_disk_name(backend->watched, "nqn.test", 1);
    return rc;
}

static int set_up(void **state)
{
    (void)state;
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool is_made = fd >= 0 && !ftruncate(fd, BLOCKS * BLOCK);
    close(fd);
    nvt_slices_init(&slices);
    untold = flush_error = flushes = forgotten = 0;
    backend = NULL;
    return !is_made || nvt_uring_open(&uring, 16);
}

static int tear_down(void **state)
{
    (void)state;
    if (backend)
        backend->ops->close(backend);
    nvt_uring_close(&uring);
    return unlink(path);
}

static void note_status(struct nvt_io *io, uint16_t status)
{
    *(uint16_t *)io->user = status;
}

/* The status, once it is over. */
static uint16_t do_io(enum nvt_io_kind kind, bool is_durable)
{
    static _Alignas(BLOCK) uint8_t data[BLOCK];
    uint16_t status = WAITS;
    uint64_t moved;
    struct nvt_io io = {.kind = kind,
                        .is_durable = is_durable,
                        .len_bytes = kind == NVT_FLUSH ? 0 : BLOCK,
                        .data = data,
                        .uring = &uring,
                        .slices = &slices,
                        .done = note_status,
                        .user = &status};
    backend->ops->submit(backend, &io);
    while (status == WAITS) {
        nvt_uring_submit(&uring);
        nvt_uring_reap(&uring, &moved);
    }
    return status;
}

/* The flush that is told may be one of another thread, which has not said so yet. */
static void expect_failed_until_opened_again(const char *kind, bool begins_with_write)
{
    untold = ENOSPC; /* of before */
    assert_int_equal(open_backend(kind), 0);
    assert_int_equal(do_io(NVT_WRITE, false), 0);
    assert_int_equal(do_io(NVT_FLUSH, false), 0);
    assert_int_equal(do_io(NVT_WRITE, true), 0);
    assert_int_equal(nvt_disk_error(backend->watched), 0);
    untold = EIO;
    assert_int_equal(begins_with_write ? do_io(NVT_WRITE, true) : do_io(NVT_FLUSH, false),
                     LOST_WRITE);
    assert_int_equal(do_io(NVT_FLUSH, false), LOST_WRITE);
    assert_int_equal(do_io(NVT_WRITE, true), LOST_WRITE);
    assert_int_equal(do_io(NVT_WRITE, false), 0);
    assert_int_equal(do_io(NVT_READ, false), 0);
    assert_int_equal(nvt_disk_error(backend->watched), EIO);
    backend->ops->close(backend);
    assert_int_equal(open_backend(kind), 0);
    assert_int_equal(do_io(NVT_FLUSH, false), 0);
}

/* Another target of a group has met it, or an operator has looked at the disk. */
static void file__hears_what_others_know(void **state)
{
    (void)state;
    assert_int_equal(open_backend("file"), 0);
    assert_int_equal(do_io(NVT_FLUSH, false), 0);
    nvt_disk_hear(backend->watched, EIO);
    assert_int_equal(do_io(NVT_FLUSH, false), LOST_WRITE);
    assert_int_equal(do_io(NVT_WRITE, false), 0);
    untold = ENOSPC; /* of before an operator's look */
    nvt_disk_hear(backend->watched, 0);
    assert_int_equal(do_io(NVT_FLUSH, false), 0);
    untold = ENOSPC;
    assert_int_equal(do_io(NVT_FLUSH, false), LOST_WRITE);
    nvt_disk_hear(NULL, EIO);
}

static void file__fails_each_flush_after_the_first(void **state)
{
    (void)state;
    expect_failed_until_opened_again("file", false);
}

static void file__fails_each_durable_write_too(void **state)
{
    (void)state;
    expect_failed_until_opened_again("file", true);
}

/* How many calls of the system it takes. */
static unsigned count_calls(enum nvt_io_kind kind, bool is_durable)
{
    const unsigned before = uring.calls.ring.sq.sqe_tail;
    assert_int_equal(do_io(kind, is_durable), 0);
    return uring.calls.ring.sq.sqe_tail - before;
}

static void file__flushes_durable_zeroes(void **state)
{
    (void)state;
    assert_int_equal(open_backend("file"), 0);
    const unsigned zeroes = count_calls(NVT_WRITE_ZEROES, false);
    assert_int_equal(count_calls(NVT_WRITE_ZEROES, true), zeroes + 1);
    untold = EIO;
    assert_int_equal(do_io(NVT_WRITE_ZEROES, false), 0);
    assert_int_equal(do_io(NVT_WRITE_ZEROES, true), LOST_WRITE);
    assert_int_equal(do_io(NVT_FLUSH, false), LOST_WRITE);
}

static void nvram__fails_each_flush_after_the_first(void **state)
{
    (void)state;
    expect_failed_until_opened_again("nvram", false);
}

/* The system's cache keeps what a disk has not taken, and says that it is clean. */
static void nvram__forgets_what_the_disk_has_not_taken(void **state)
{
    (void)state;
    flush_error = EIO;
    assert_int_equal(open_backend("nvram"), -EIO);
    assert_non_null(strstr(error, "Input/output error"));
    assert_int_equal(forgotten, 0);
    flush_error = 0;
    assert_int_equal(open_backend("nvram"), 0);
    assert_int_equal(forgotten, 1);
}

static void end_flush__keeps_what_the_flush_was_told(void **state)
{
    (void)state;
    assert_int_equal(open_backend("file"), 0);
    struct nvt_disk *disk = backend->watched;
    assert_int_equal(nvt_disk_end_flush(disk, NVT_WRITE, -ENOSPC),
                     NVME_SC_CAP_EXCEEDED | NVME_SC_DNR); /* nothing was acknowledged */
    assert_int_equal(nvt_disk_end_flush(disk, NVT_FLUSH, -EINVAL), NVME_SC_INTERNAL);
    assert_int_equal(nvt_disk_end_flush(disk, NVT_FLUSH, -ECANCELED), NVME_SC_INTERNAL);
    assert_int_equal(nvt_disk_end_flush(disk, NVT_FLUSH, -EAGAIN), NVME_SC_INTERNAL);
    assert_int_equal(nvt_disk_error(disk), 0);
    assert_int_equal(nvt_disk_end_flush(disk, NVT_FLUSH, -ENOSPC), LOST_WRITE);
    assert_int_equal(nvt_disk_end_flush(disk, NVT_FLUSH, 0), LOST_WRITE);
    assert_int_equal(nvt_disk_error(disk), ENOSPC);
}

int main(void)
{
    const int fd = mkstemp(path);
    close(fd);
    if (fd < 0 || nvt_uring_open(&uring, 16)) {
        puts("SKIP: the system has no io_uring, or no /var/tmp");
        return 77;
    }
    nvt_uring_close(&uring);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(file__fails_each_flush_after_the_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(file__hears_what_others_know, set_up, tear_down),
        cmocka_unit_test_setup_teardown(file__fails_each_durable_write_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(file__flushes_durable_zeroes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nvram__fails_each_flush_after_the_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nvram__forgets_what_the_disk_has_not_taken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(end_flush__keeps_what_the_flush_was_told, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
