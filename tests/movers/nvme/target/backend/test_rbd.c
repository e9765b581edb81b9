/* SPDX-License-Identifier: BSD-2-Clause */
/* Images of Ceph, with a double in place of librbd: what is asked of it, and what becomes of
 * errors. */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <nvme/types.h>
#include <rbd/features.h>

#include "ceph_double.h"
#include "nvme/target/backend/backend.h"
#include "nvme/target/backend/slices.h"
#include "nvme/target/backend/uring.h"
#include "nvme/wire/fabrics.h"

enum { BLOCK = 4096, WAITS = 0xffff, LOST = NVF_PATH(NVME_SC_ANA_INTERNAL_PATH_ERROR) };

static struct ceph_double *ceph;
static struct nvt_backend *backend;
static struct nvt_uring uring;
static struct nvt_slices slices;
static char error[512];
static uint16_t given_up;

static int set_up(void **state)
{
    (void)state;
    memset(ceph, 0, sizeof(*ceph));
    ceph->features = RBD_FEATURE_EXCLUSIVE_LOCK;
    ceph->cache = "false";
    ceph->size = DOUBLE_BYTES;
    nvt_slices_init(&slices);
    backend = NULL;
    given_up = 0;
    *error = '\0';
    return nvt_uring_open(&uring, 16);
}

static int tear_down(void **state)
{
    (void)state;
    if (backend)
        backend->ops->close(backend);
    const bool is_closed = nvt_backends_settle(10000) && !ceph->open;
    nvt_uring_close(&uring);
    return !is_closed;
}

static int open_image(const struct nvt_backend_setup *setup)
{
    struct nvt_backend_setup all = *setup;
    all.uring = &uring;
    all.path = all.path ? all.path : "pool/image";
    return nvt_backend_find("rbd")->open(&all, &backend, error, sizeof(error));
}

static void expect_refused(const struct nvt_backend_setup *setup, int rc, const char *words)
{
    assert_int_equal(open_image(setup), rc);
    assert_null(backend);
    if (!strstr(error, words))
        fail_msg("\"%s\" does not say \"%s\"", error, words);
    *error = '\0';
}

static uint16_t note_given_up(const struct nvt_io *io)
{
    (void)io;
    return given_up;
}

static void note_status(struct nvt_io *io, uint16_t status)
{
    *(uint16_t *)io->user = status;
}

static void begin_io(struct nvt_io *io, uint16_t *status)
{
    io->uring = &uring;
    io->slices = &slices;
    io->done = note_status;
    io->given_up = note_given_up;
    io->user = status;
    *status = WAITS;
    backend->ops->submit(backend, io);
}

static uint16_t await_io(const uint16_t *status)
{
    uint64_t moved;
    while (*status == WAITS)
        nvt_uring_reap(&uring, &moved);
    return *status;
}

static uint16_t do_io(enum nvt_io_kind kind, uint64_t offset, uint64_t len, uint8_t *data)
{
    uint16_t status;
    struct nvt_io io = {.kind = kind, .offset = offset, .len_bytes = len, .data = data};
    begin_io(&io, &status);
    return await_io(&status);
}

/* ---- opening ---- */

static void open__what_is_missing_is_told(void **state)
{
    (void)state;
    expect_refused(&(struct nvt_backend_setup){.path = "other/image"}, -ENOENT,
                   "ceph osd pool create other");
    expect_refused(&(struct nvt_backend_setup){.path = "pool/other"}, -ENOENT,
                   "rbd create --size 10G pool/other");
    expect_refused(&(struct nvt_backend_setup){.path = "pool/image@other"}, -ENOENT,
                   "rbd snap create");
    expect_refused(&(struct nvt_backend_setup){.conf = "/nonexistent"}, -ENOENT, "conf=");
    expect_refused(&(struct nvt_backend_setup){.id = "stranger"}, -EINVAL, "rbd:pool/image");
    ceph->connect = -ENOENT;
    expect_refused(&(struct nvt_backend_setup){0}, -ENOENT, "keyring");
    ceph->connect = -ETIMEDOUT;
    expect_refused(&(struct nvt_backend_setup){0}, -ETIMEDOUT, "no monitor");
    ceph->connect = -EACCES;
    expect_refused(&(struct nvt_backend_setup){.id = "me"}, -EACCES, "ceph auth caps client.me");
}

static void open__others_may_write(void **state)
{
    (void)state;
    ceph->features = 0;
    expect_refused(&(struct nvt_backend_setup){0}, -EINVAL, "rbd feature enable pool/image");
    assert_int_equal(open_image(&(struct nvt_backend_setup){.is_shared = true}), 0);
}

static void open__cache_of_the_image(void **state)
{
    (void)state;
    ceph->cache = "true";
    expect_refused(&(struct nvt_backend_setup){0}, -EINVAL, "rbd config image rm pool/image");
    assert_int_equal(open_image(&(struct nvt_backend_setup){.is_read_only = true}), 0);
    assert_true(backend->is_read_only);
}

/* librbd's threads, where there is one processor. */
static void open__few_processors(void **state)
{
    (void)state;
    cpu_set_t all, one;
    int first = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    ceph->pools[0] = 2;
    ceph->pools[1] = 5; /* the configuration says so */
    const int rc = open_image(&(struct nvt_backend_setup){0});
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(rc, 0);
    assert_int_equal(ceph->pools[0], 1);
    assert_int_equal(ceph->pools[1], 5);
}

static void open__snapshot(void **state)
{
    (void)state;
    strcpy(ceph->owner, "192.0.2.1:0/1"); /* it writes elsewhere */
    assert_int_equal(open_image(&(struct nvt_backend_setup){.path = "pool/image@snap"}), 0);
    assert_true(backend->is_read_only);
    assert_string_equal(backend->medium, "rbd fsid 7 1f@4");
}

static void open__too_short(void **state)
{
    (void)state;
    ceph->size = 100;
    expect_refused(&(struct nvt_backend_setup){0}, -EINVAL, "rbd resize");
}

static void open__cluster_hangs(void **state)
{
    (void)state;
    ceph->is_stuck = true;
    expect_refused(&(struct nvt_backend_setup){.wait_ms = 20}, -ETIMEDOUT, "has not answered");
    ceph->is_stuck = false;
    while (ceph->open || !ceph->changed) /* it opens after all, and is closed */
        usleep(1000);
}

/* ---- the lock ---- */

static void lock__of_another(void **state)
{
    (void)state;
    strcpy(ceph->owner, "192.0.2.1:0/1");
    expect_refused(&(struct nvt_backend_setup){0}, -EBUSY, "192.0.2.1:0/1");
    assert_int_equal(ceph->broken, 0);
    assert_int_equal(open_image(&(struct nvt_backend_setup){.fences = true}), 0);
    assert_int_equal(ceph->broken, 1);
    assert_non_null(strstr(ceph->command, "\"addr\": \"192.0.2.1:0/1\""));
}

static void lock__fence_alone(void **state)
{
    (void)state;
    const struct nvt_backend_ops *ops = nvt_backend_find("rbd");
    const struct nvt_backend_setup setup = {.path = "pool/image"};
    assert_int_equal(ops->fence(&setup, error, sizeof(error)), 0);
    assert_int_equal(ceph->broken, 0);
    strcpy(ceph->owner, "192.0.2.1:0/1");
    assert_int_equal(ops->fence(&setup, error, sizeof(error)), 0);
    assert_int_equal(ceph->broken, 1);
    ceph->features = 0;
    assert_int_equal(ops->fence(&setup, error, sizeof(error)), -EINVAL);
    assert_non_null(strstr(error, "exclusive-lock"));
}

static void lock__look_takes_none(void **state)
{
    struct nvt_backend_look look;
    (void)state;
    strcpy(ceph->owner, "192.0.2.1:0/1");
    const struct nvt_backend_setup setup = {.path = "pool/image"};
    assert_int_equal(nvt_backend_find("rbd")->look(&setup, &look, error, sizeof(error)), 0);
    assert_int_equal(look.size_bytes, DOUBLE_BYTES);
    assert_int_equal(look.block_bytes, BLOCK);
    assert_string_equal(look.medium, "rbd fsid 7 1f");
}

/* ---- I/O ---- */

static void io__reaches_the_image(void **state)
{
    static uint8_t out[3 * BLOCK], in[3 * BLOCK];
    (void)state;
    assert_int_equal(open_image(&(struct nvt_backend_setup){0}), 0);
    assert_false(backend->is_volatile);
    memset(out, 0x5a, sizeof(out));
    assert_int_equal(do_io(NVT_WRITE, BLOCK, sizeof(out), out), 0);
    assert_memory_equal(ceph->bytes + BLOCK, out, sizeof(out));
    assert_int_equal(do_io(NVT_READ, BLOCK, sizeof(in), in), 0);
    assert_memory_equal(in, out, sizeof(out));
    assert_int_equal(do_io(NVT_FLUSH, 0, 0, NULL), 0);
    assert_int_equal(do_io(NVT_WRITE_ZEROES, 2 * BLOCK, BLOCK, NULL), 0);
    assert_int_equal(ceph->bytes[2 * BLOCK], 0);
    assert_int_equal(ceph->bytes[3 * BLOCK], 0x5a);
    assert_int_equal(do_io(NVT_DEALLOCATE, 0, DOUBLE_BYTES, NULL), 0);
    const int calls = ceph->calls;
    assert_int_equal(do_io(NVT_VERIFY, 0, DOUBLE_BYTES, NULL), 0);
    assert_int_equal(ceph->calls, calls + DOUBLE_BYTES / NVT_PART_BYTES);
}

static void io__one_that_hangs_holds_no_other(void **state)
{
    static uint8_t data[BLOCK];
    uint16_t first, second;
    uint64_t moved;
    struct nvt_io one = {.kind = NVT_WRITE, .len_bytes = BLOCK, .data = data}, two = one;
    (void)state;
    assert_int_equal(open_image(&(struct nvt_backend_setup){0}), 0);
    ceph->holds = true;
    begin_io(&one, &first);
    begin_io(&two, &second);
    assert_false(nvt_uring_reap(&uring, &moved));
    assert_int_equal(uring.awaited, 2);
    assert_int_equal(first, WAITS);
    ceph->holds = false;
    assert_int_equal(await_io(&first), 0);
    assert_int_equal(await_io(&second), 0);
    assert_int_equal(uring.awaited, 0);
}

static void io__errors(void **state)
{
    static uint8_t data[BLOCK];
    (void)state;
    assert_int_equal(open_image(&(struct nvt_backend_setup){0}), 0);
    ceph->result = -EIO;
    assert_int_equal(do_io(NVT_WRITE, 0, BLOCK, data), NVF_MEDIA(NVME_SC_WRITE_FAULT));
    assert_int_equal(do_io(NVT_READ, 0, BLOCK, data), NVF_MEDIA(NVME_SC_READ_ERROR));
    assert_int_equal(do_io(NVT_VERIFY, 0, DOUBLE_BYTES, NULL), NVF_MEDIA(NVME_SC_READ_ERROR));
    ceph->result = -ENOSPC;
    assert_int_equal(do_io(NVT_WRITE_ZEROES, 0, BLOCK, NULL), NVME_SC_CAP_EXCEEDED | NVME_SC_DNR);
    ceph->result = BLOCK / 2; /* the image has become shorter */
    assert_int_equal(do_io(NVT_READ, 0, BLOCK, data), NVF_MEDIA(NVME_SC_READ_ERROR));
    ceph->result = 0;
    assert_int_equal(do_io(NVT_READ, DOUBLE_BYTES, BLOCK, data), NVME_SC_INTERNAL);
    assert_int_equal(nvt_backend_lost(backend), 0);
    assert_int_equal(do_io(NVT_READ, 0, BLOCK, data), 0);
}

/* Long ones look between two requests whether anybody wants them. */
static void io__given_up_between_pieces(void **state)
{
    uint16_t status;
    struct nvt_io io = {.kind = NVT_DEALLOCATE, .len_bytes = (uint64_t)DOUBLE_BYTES << 10};
    (void)state;
    assert_int_equal(open_image(&(struct nvt_backend_setup){0}), 0);
    ceph->size = (uint64_t)DOUBLE_BYTES << 10;
    begin_io(&io, &status);
    assert_int_equal(await_io(&status), NVME_SC_INTERNAL); /* longer than the double's image */
    io.len_bytes = DOUBLE_BYTES;
    given_up = NVME_SC_ABORT_REQ;
    begin_io(&io, &status);
    assert_int_equal(await_io(&status), 0); /* it was one piece, which had begun */
}

static void expect_lost(int result)
{
    static uint8_t data[BLOCK];
    assert_int_equal(open_image(&(struct nvt_backend_setup){0}), 0);
    ceph->result = result;
    assert_int_equal(do_io(NVT_WRITE, 0, BLOCK, data), LOST);
    assert_int_equal(nvt_backend_lost(backend), -result);
    const int calls = ceph->calls;
    ceph->result = 0;
    assert_int_equal(do_io(NVT_READ, 0, BLOCK, data), LOST);
    assert_int_equal(ceph->calls, calls);
}

static void lost__blocklisted(void **state)
{
    (void)state;
    expect_lost(-ESHUTDOWN);
}

static void lost__lock_is_gone(void **state)
{
    (void)state;
    expect_lost(-EROFS);
}

static void size__told_by_the_cluster(void **state)
{
    (void)state;
    assert_int_equal(open_image(&(struct nvt_backend_setup){0}), 0);
    ceph->size = 2 * DOUBLE_BYTES + 100;
    assert_int_equal(backend->ops->size_bytes(backend), DOUBLE_BYTES);
    ceph->changed(ceph->changed_arg);
    assert_int_equal(backend->ops->size_bytes(backend), 2 * DOUBLE_BYTES);
}

#define WITH_DOUBLE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DOUBLE(open__what_is_missing_is_told),
        WITH_DOUBLE(open__others_may_write),
        WITH_DOUBLE(open__cache_of_the_image),
        WITH_DOUBLE(open__few_processors),
        WITH_DOUBLE(open__snapshot),
        WITH_DOUBLE(open__too_short),
        WITH_DOUBLE(open__cluster_hangs),
        WITH_DOUBLE(lock__of_another),
        WITH_DOUBLE(lock__fence_alone),
        WITH_DOUBLE(lock__look_takes_none),
        WITH_DOUBLE(io__reaches_the_image),
        WITH_DOUBLE(io__one_that_hangs_holds_no_other),
        WITH_DOUBLE(io__errors),
        WITH_DOUBLE(io__given_up_between_pieces),
        WITH_DOUBLE(lost__blocklisted),
        WITH_DOUBLE(lost__lock_is_gone),
        WITH_DOUBLE(size__told_by_the_cluster),
    };
    void *library = dlopen("librbd.so.1", RTLD_NOW);
    ceph = library ? dlsym(library, "ceph_double") : NULL;
    if (!ceph) {
        fprintf(stderr, "the double is not in the way: see LD_LIBRARY_PATH in meson.build\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
