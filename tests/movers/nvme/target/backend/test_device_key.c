/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device's own reservation as the fence of a group. ioctl() is a double here: behind it is
 * reserving_device.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <nvme/types.h>

#include "nvme/target/backend/device_key.h"
#include "nvme/target/backend/fence.h"
#include "nvme/wire/fabrics.h"
#include "reserving_device.h"

enum { BLOCKS = 1024, SHORT_MS = 100 };

static const uint8_t identity[16] = {1, 2, 3, 4};
static struct reserving_device device;
static char error[512];

static void be_host(uint8_t number)
{
    device.host = (struct nvt_host_id){.bytes = {number}};
}

/* In place of libc's. */
int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *argument = va_arg(args, void *);
    va_end(args);
    assert_true(fd >= 0);
    return reserving_ioctl(&device, request, argument);
}

static bool may_write(uint8_t host)
{
    const struct nvt_host_id id = {.bytes = {host}};
    return !nvt_reservation_allows(&device.state, &id, NVT_ACCESS_WRITE);
}

/* ---- a group with it ---- */

static int take(uint8_t host, uint64_t epoch, const uint64_t *formers, size_t count)
{
    const struct nvt_device taken = {.path = "disk",
                                     .key = nvt_device_key(identity, host, epoch),
                                     .idle_key = nvt_device_idle_key(identity)};
    be_host(host);
    return nvt_device_reserve(&taken, formers, count, error, sizeof(error));
}

static void leave(uint8_t host, uint64_t epoch)
{
    const struct nvt_device left = {.path = "disk",
                                    .key = nvt_device_key(identity, host, epoch),
                                    .idle_key = nvt_device_idle_key(identity)};
    be_host(host);
    nvt_device_leave(&left);
}

static int by_commands(void **state)
{
    (void)state;
    memset(&device, 0, sizeof(device));
    device.state.persists = true;
    device.takes_commands = true;
    device.blocks = BLOCKS;
    return 0;
}

static int by_ioctls(void **state)
{
    by_commands(state);
    device.takes_commands = false;
    return 0;
}

static int by_scsi(void **state)
{
    by_ioctls(state);
    device.answers_as_scsi = true;
    return 0;
}

static void reserve__shuts_out_the_former_owner(void **state)
{
    (void)state;
    const uint64_t former = nvt_device_key(identity, 0, 1);
    assert_int_equal(take(0, 1, NULL, 0), 0);
    assert_true(may_write(0) && !may_write(1));
    assert_int_equal(take(1, 2, &former, 1), 0);
    assert_true(may_write(1) && !may_write(0));
    assert_int_equal(device.aborted, 1);
    assert_int_equal(device.state.count, 1);
}

/* The reservation stays between two owners: a ghost of the first would be written else. */
static void reserve__never_lapses_between_owners(void **state)
{
    (void)state;
    const uint64_t former = nvt_device_key(identity, 0, 1);
    assert_int_equal(take(0, 1, NULL, 0), 0);
    assert_int_equal(take(1, 2, &former, 1), 0);
    leave(1, 2);
    assert_false(may_write(0));
    assert_int_equal(take(2, 3, NULL, 0), 0);
    assert_true(may_write(2) && !may_write(1) && !may_write(0));
    leave(2, 3);
    assert_int_equal(take(2, 4, NULL, 0), 0); /* the same host again */
    assert_true(may_write(2) && !may_write(1));
    assert_int_equal(device.state.count, 1);
}

/* One that was replaced amid its take ends it later: the newer owner goes on. */
static void reserve__of_an_old_epoch_takes_nothing(void **state)
{
    (void)state;
    const uint64_t first = nvt_device_key(identity, 0, 1);
    const uint64_t both[] = {first, nvt_device_key(identity, 1, 2)};
    assert_int_equal(take(0, 1, NULL, 0), 0);
    assert_int_equal(take(2, 3, both, 2), 0);
    assert_int_equal(take(1, 2, &first, 1), -EBUSY);
    assert_true(may_write(2) && !may_write(1));
    assert_int_equal(device.state.count, 1);
}

/* What is left by an owner that was preempted does no harm. */
static void leave__of_a_preempted_owner_changes_nothing(void **state)
{
    (void)state;
    const uint64_t former = nvt_device_key(identity, 0, 1);
    assert_int_equal(take(0, 1, NULL, 0), 0);
    assert_int_equal(take(1, 2, &former, 1), 0);
    leave(0, 1);
    assert_true(may_write(1) && !may_write(0));
    assert_int_equal(device.state.count, 1);
}

static void reserve__refuses_a_stranger(void **state)
{
    (void)state;
    static const uint8_t other[16] = {9};
    const struct nvt_device theirs = {
        .path = "disk", .key = nvt_device_key(other, 0, 1), .idle_key = nvt_device_idle_key(other)};
    be_host(2);
    assert_int_equal(nvt_device_reserve(&theirs, NULL, 0, error, sizeof(error)), 0);
    assert_int_equal(take(0, 1, NULL, 0), -EBUSY);
    assert_non_null(strstr(error, "not of this group"));
    assert_true(may_write(2) && !may_write(0));
    assert_int_equal(device.state.count, 1);
}

static void reserve__says_what_the_device_lacks(void **state)
{
    (void)state;
    device.lacks_reservations = true;
    assert_int_equal(take(0, 1, NULL, 0), -EOPNOTSUPP);
    assert_non_null(strstr(error, "cannot register there"));
}

/* ---- the fence, with it ---- */

static void fence__reserves_a_namespace(void **state)
{
    (void)state;
    static struct nvt_backend_spec spec;
    spec = (struct nvt_backend_spec){.kind = NVT_BACKEND_NVME, .path = "device.XXXXXX"};
    const int fd = mkstemp(spec.path);
    assert_true(fd >= 0);
    close(fd);
    be_host(0);
    spec.reserve_key = nvt_device_key(identity, 0, 1);
    spec.idle_key = nvt_device_idle_key(identity);
    assert_int_equal(nvt_fence(&spec, NULL, 0, SHORT_MS, error, sizeof(error)), 0);
    const struct nvt_former former = {.name = "first", .key = spec.reserve_key};
    spec.reserve_key = nvt_device_key(identity, 1, 2);
    be_host(1);
    assert_int_equal(nvt_fence(&spec, &former, 1, SHORT_MS, error, sizeof(error)), 0);
    assert_true(may_write(1) && !may_write(0));
    nvt_fence_undo(&spec); /* it could not be opened */
    assert_false(may_write(0));
    assert_int_equal(device.state.registrants[0].key, spec.idle_key);
    spec.unfenced = true;
    be_host(2);
    assert_int_equal(nvt_fence(&spec, &former, 1, SHORT_MS, error, sizeof(error)), 0);
    assert_false(may_write(2));
    unlink(spec.path);
}

static void look__tells_which_device(void **state)
{
    (void)state;
    static const struct nvt_backend_spec spec = {.kind = NVT_BACKEND_NVME, .path = "/dev/null"};
    struct nvt_backend_look look;
    assert_int_equal(nvt_fence_look(&spec, &look, error, sizeof(error)), 0);
    assert_string_equal(look.medium, "nvme nguid ab000000000000000000000000000000");
    assert_int_equal(look.size_bytes, 4 << 20);
    assert_int_equal(look.block_bytes, 4096);
    device.lacks_memory = true;
    assert_int_equal(nvt_fence_look(&spec, &look, error, sizeof(error)), -EOPNOTSUPP);
    assert_non_null(strstr(error, "outlast a loss of power"));
    device.lacks_reservations = true;
    assert_int_equal(nvt_fence_look(&spec, &look, error, sizeof(error)), -EOPNOTSUPP);
    assert_non_null(strstr(error, "has no reservations, so"));
}

static void hold__ends_all_behind_a_conflict(void **state)
{
    (void)state;
    static struct nvt_backend_spec spec = {.kind = NVT_BACKEND_BLOCK};
    struct nvt_backend_setup setup = {.spec = &spec};
    struct nvt_backend backend = {0};
    struct nvt_device_hold hold = {0};
    assert_int_equal(nvt_device_hold_begin(&hold, &setup, 0, &backend, error, sizeof(error)), 0);
    assert_int_equal(nvt_device_note_conflict(&hold), 0); /* in no group it is the host's */
    assert_int_equal(nvt_backend_lost(&backend), 0);
    spec.reserve_key = nvt_device_key(identity, 0, 1);
    assert_int_equal(nvt_device_hold_begin(&hold, &setup, 0, &backend, error, sizeof(error)), 0);
    assert_int_equal(nvt_device_lost_status(&hold), 0);
    const uint16_t elsewhere = NVF_PATH(NVME_SC_ANA_INTERNAL_PATH_ERROR);
    assert_int_equal(nvt_device_note_conflict(&hold), elsewhere);
    assert_int_equal(nvt_device_lost_status(&hold), elsewhere);
    assert_int_equal(nvt_backend_lost(&backend), EBADE);
    nvt_device_hold_end(&hold); /* asks the device for nothing */
    assert_int_equal(device.state.generation, 0);
}

int main(void)
{
#define BY_ALL(name)                                      \
    {#name " (commands)", name, by_commands, NULL, NULL}, \
        {#name " (ioctls)", name, by_ioctls, NULL, NULL}, \
    {                                                     \
#name " (SCSI)", name, by_scsi, NULL, NULL        \
    }
    const struct CMUnitTest tests[] = {
        BY_ALL(reserve__shuts_out_the_former_owner),
        BY_ALL(reserve__never_lapses_between_owners),
        BY_ALL(reserve__of_an_old_epoch_takes_nothing),
        BY_ALL(leave__of_a_preempted_owner_changes_nothing),
        BY_ALL(reserve__refuses_a_stranger),
        BY_ALL(reserve__says_what_the_device_lacks),
        cmocka_unit_test_setup(fence__reserves_a_namespace, by_commands),
        cmocka_unit_test_setup(look__tells_which_device, by_commands),
        cmocka_unit_test_setup(hold__ends_all_behind_a_conflict, by_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
