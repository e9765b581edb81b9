/* SPDX-License-Identifier: BSD-2-Clause */
/* VERIFY of files, by many hosts at once: how much is under way, whose turn it is, how it ends. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <nvme/types.h>

#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/uring.h"
#include "nvme/wire/fabrics.h"

enum { ENTRIES = 128, MANY = 60, PARTS = 8, SIZE = PARTS * NVT_PART_BYTES, WAITS = 0xffff };

static struct nvt_uring uring;
static struct nvt_backend *backend;
static int file;
static struct nvt_io ios[MANY];
static uint16_t statuses[MANY];
static int ends;
static bool is_gone;
static uint64_t moved_bytes;

static int set_up(void **state)
{
    char path[64], error[256];
    (void)state;
    backend = NULL;
    if (nvt_uring_open(&uring, ENTRIES))
        return 0;
    file = memfd_create("test", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, SIZE))
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    const struct nvt_backend_setup open = {.path = path, .uring = &uring};
    ends = 0;
    is_gone = false;
    moved_bytes = 0;
    memset(statuses, 0xff, sizeof(statuses));
    return nvt_file.open(&open, &backend, error, sizeof(error));
}

static int tear_down(void **state)
{
    (void)state;
    if (!backend)
        return 0;
    nvt_file.close(backend);
    nvt_uring_close(&uring);
    return close(file);
}

static void note_end(struct nvt_io *io, uint16_t status)
{
    statuses[io - ios] = status;
    ends++;
}

static uint16_t given_up(const struct nvt_io *io)
{
    (void)io;
    return is_gone ? NVME_SC_ABORT_REQ : 0;
}

/* All of the file, or its beginning, for a host. */
static void verify(int i, const char *whose, uint64_t len_bytes)
{
    if (!backend) {
        print_message("SKIP: the system has no io_uring\n");
        skip();
    }
    ios[i] = (struct nvt_io){.kind = NVT_VERIFY,
                             .len_bytes = len_bytes,
                             .uring = &uring,
                             .host = whose,
                             .done = note_end,
                             .given_up = given_up};
    nvt_file.submit(backend, &ios[i]);
}

static uint32_t at_the_disk(void)
{
    return uring.calls.queued + nvt_uring_under_way(&uring);
}

static void run_until(int count)
{
    while (ends < count) {
        (void)nvt_uring_submit(&uring);
        (void)nvt_uring_reap(&uring, &moved_bytes);
        assert_in_range(at_the_disk(), 0, NVT_PARTS_OF_ONE);
    }
}

/* Each part under way has memory. */
static void verify__many_have_few_parts_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++)
        verify(i, "one", SIZE);
    assert_int_equal(at_the_disk(), NVT_PARTS_OF_ONE);
    run_until(MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(statuses[i], 0);
    assert_int_equal(moved_bytes, (uint64_t)MANY * SIZE);
    assert_int_equal(uring.parts.under_way, 0);
}

/* The host is gone: what is at the disk comes back, and nothing more is read. */
static void verify__ends_early_where_nobody_waits(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++)
        verify(i, "one", SIZE);
    is_gone = true;
    run_until(MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(statuses[i], NVME_SC_ABORT_REQ);
    assert_in_range(moved_bytes, 0, NVT_PARTS_OF_ONE * NVT_PART_BYTES);
}

static void verify__hosts_take_turns(void **state)
{
    (void)state;
    for (int i = 1; i < MANY; i++)
        verify(i, "one", SIZE);
    verify(0, "other", SIZE);
    while (statuses[0] == WAITS)
        run_until(ends + 1);
    assert_in_range(ends, 1, 2 * PARTS);
    run_until(MANY);
}

/* One that fails gives its place back. */
static void verify__fails_behind_the_end_of_a_file(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++)
        verify(i, "one", i % 2 ? SIZE / 2 : SIZE);
    assert_return_code(ftruncate(file, SIZE / 2), errno);
    run_until(MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(statuses[i], i % 2 ? 0 : NVF_MEDIA(NVME_SC_READ_ERROR));
    assert_int_equal(uring.parts.under_way, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(verify__many_have_few_parts_under_way),
        CASE(verify__ends_early_where_nobody_waits),
        CASE(verify__hosts_take_turns),
        CASE(verify__fails_behind_the_end_of_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
