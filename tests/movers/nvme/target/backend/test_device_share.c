/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device that all members of a group have at once, each by a host of its own: its reservation is
 * held by all of them, and a member that was fenced is out. ioctl() is a double here: behind it is
 * reserving_device.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <nvme/types.h>

#include "nvme/target/backend/device_key.h"
#include "nvme/target/backend/fence.h"
#include "reserving_device.h"

enum { HOSTS = 4, SHORT_MS = 100 };

static const uint8_t identity[16] = {1, 2, 3, 4}, other_group[16] = {9, 9, 9, 9};
static struct reserving_device device;
static char error[512];

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

static bool may(uint8_t host, enum nvt_access access)
{
    const struct nvt_host_id id = {.bytes = {host}};
    return !nvt_reservation_allows(&device.state, &id, access);
}

/* What a member that is out does not get: to read either. */
static bool is_in(uint8_t host)
{
    assert_int_equal(may(host, NVT_ACCESS_READ), may(host, NVT_ACCESS_WRITE));
    return may(host, NVT_ACCESS_WRITE);
}

/* ---- a group with it: the member of host `n` has slot `n` ---- */

static uint64_t key_of(uint8_t host, uint64_t incarnation)
{
    return nvt_device_member_key(identity, host, incarnation);
}

static struct nvt_device device_of(uint8_t host, uint64_t incarnation)
{
    device.host = (struct nvt_host_id){.bytes = {host}};
    return (struct nvt_device){.path = "disk",
                               .key = key_of(host, incarnation),
                               .idle_key = nvt_device_idle_key(identity)};
}

static int join(uint8_t host, uint64_t incarnation)
{
    const struct nvt_device mine = device_of(host, incarnation);
    return nvt_device_join(&mine, error, sizeof(error));
}

static int fence(uint8_t host, uint64_t incarnation, uint64_t former)
{
    const struct nvt_device mine = device_of(host, incarnation);
    return nvt_device_fence(&mine, &former, 1, error, sizeof(error));
}

static void leave(uint8_t host, uint64_t incarnation)
{
    const struct nvt_device mine = device_of(host, incarnation);
    nvt_device_leave(&mine);
}

static int by_commands(void **state)
{
    (void)state;
    memset(&device, 0, sizeof(device));
    device.state.persists = true;
    device.takes_commands = true;
    device.blocks = 1024;
    *error = 0;
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

static int with_three(void)
{
    for (uint8_t host = 0; host < 3; host++)
        assert_int_equal(join(host, host + 1), 0);
    assert_int_equal(device.state.count, 3);
    return 0;
}

/* ---- joining ---- */

static void join__lets_all_members_in(void **state)
{
    (void)state;
    with_three();
    assert_true(is_in(0) && is_in(1) && is_in(2) && !is_in(3));
    assert_int_equal(device.state.rtype, NVME_RESERVATION_RTYPE_EAAR);
}

/* The device answers all but the first by a conflict, though they hold it with that one. */
static void join__where_one_holder_is_named(void **state)
{
    (void)state;
    device.names_one_holder = true;
    with_three();
    assert_int_equal(fence(1, 2, key_of(0, 1)), 0);
    assert_true(is_in(1) && is_in(2) && !is_in(0));
}

/* All have lost their power. The device has what it had, and members have other incarnations. */
static void join__after_a_loss_of_power(void **state)
{
    (void)state;
    with_three();
    assert_int_equal(join(0, 11), 0);
    assert_int_equal(join(1, 12), 0);
    assert_int_equal(fence(1, 12, key_of(0, 1)), 0); /* that has gone with its process */
    assert_true(is_in(0) && is_in(1));
    assert_int_equal(fence(1, 12, key_of(2, 3)), 0); /* it does not come back */
    assert_false(is_in(2));
    assert_int_equal(device.state.count, 2);
}

static void join__refuses_strangers(void **state)
{
    (void)state;
    const struct nvt_device theirs = {.path = "disk",
                                      .key = nvt_device_key(other_group, 0, 1),
                                      .idle_key = nvt_device_idle_key(other_group)};
    device.host = (struct nvt_host_id){.bytes = {3}};
    assert_int_equal(nvt_device_join(&theirs, error, sizeof(error)), 0);
    const uint32_t generation = device.state.generation;
    assert_int_equal(join(0, 1), -EBUSY); /* a reservation of all would let it in */
    assert_non_null(strstr(error, "not of this group"));
    device.state.rtype = 0;
    assert_int_equal(join(0, 1), -EBUSY); /* registered alone: it would hold ours with us */
    assert_int_equal(device.state.generation, generation);
    assert_true(!device.state.rtype && device.state.count == 1);
}

/* A reservation of registrants only: one of all could not be held beside it. */
static void join__refuses_another_type(void **state)
{
    (void)state;
    const struct nvt_device one = device_of(0, 1);
    assert_int_equal(nvt_device_reserve(&one, NULL, 0, error, sizeof(error)), 0);
    assert_int_equal(join(1, 2), -EBUSY);
    assert_non_null(strstr(error, "has reserved the device"));
    assert_int_equal(device.state.count, 1);
}

/* It was one of one active member, whose log is gone. Freed as docs/shared-storage.md says, it is
 * taken; and back. */
static void join__of_a_device_of_one_active_member(void **state)
{
    (void)state;
    struct nvt_device one = device_of(0, 1);
    one.key = nvt_device_key(other_group, 0, 5);
    one.idle_key = nvt_device_idle_key(other_group);
    assert_int_equal(nvt_device_reserve(&one, NULL, 0, error, sizeof(error)), 0);
    nvt_device_leave(&one);
    assert_int_equal(join(1, 2), -EBUSY);
    memset(&device.state.registrants, 0, sizeof(device.state.registrants));
    device.state.count = device.state.rtype = 0;
    assert_int_equal(join(1, 2), 0);
    assert_true(is_in(1) && !is_in(0));
    leave(1, 2);
    device.host = (struct nvt_host_id){.bytes = {0}};
    assert_int_equal(nvt_device_reserve(&one, NULL, 0, error, sizeof(error)), -EBUSY);
    assert_false(is_in(0));
}

/* By two path names: to the device they are one. */
static void join__refuses_a_second_member_of_a_host(void **state)
{
    (void)state;
    const uint64_t others[] = {key_of(1, 2), key_of(0, 1)};
    assert_int_equal(join(0, 1), 0);
    assert_int_equal(join(1, 2), 0);
    struct nvt_device second = device_of(0, 1);
    second.key = key_of(2, 3);
    second.others = others;
    second.other_count = 2;
    assert_int_equal(nvt_device_join(&second, error, sizeof(error)), -EBUSY);
    assert_non_null(strstr(error, "a host of its own"));
    assert_int_equal(fence(1, 2, key_of(0, 1)), 0); /* it is still known by that */
    assert_false(is_in(0));
}

static void join__says_what_the_device_lacks(void **state)
{
    (void)state;
    device.lacks_all_registrants = true;
    assert_int_equal(join(0, 1), -EOPNOTSUPP);
    assert_non_null(strstr(error, "reserve it for all members"));
    assert_int_equal(device.state.count, 0);
    device.lacks_reports = true;
    assert_int_equal(join(0, 1), -EOPNOTSUPP);
    assert_non_null(strstr(error, "leave --active all away"));
    assert_int_equal(device.state.count, 0);
}

/* ---- fencing ---- */

static void fence__shuts_out_one_member_alone(void **state)
{
    (void)state;
    with_three();
    assert_int_equal(fence(1, 2, key_of(0, 1)), 0);
    assert_true(!is_in(0) && is_in(1) && is_in(2));
    assert_int_equal(device.aborted, 1);
    assert_int_equal(device.state.count, 2);
    assert_int_equal(fence(2, 3, key_of(0, 1)), 0); /* it is out already */
    assert_true(!is_in(0) && is_in(1) && is_in(2));
}

/* Two suspect each other: one of them is in, and the other one knows that it is not. */
static void fence__of_a_member_that_is_out(void **state)
{
    (void)state;
    with_three();
    assert_int_equal(fence(1, 2, key_of(0, 1)), 0);
    assert_int_equal(fence(0, 1, key_of(1, 2)), -EBADE);
    assert_non_null(strstr(error, "shut this one out"));
    assert_true(!is_in(0) && is_in(1));
    leave(0, 1); /* gives nothing back */
    assert_false(is_in(0));
    assert_int_equal(join(0, 21), 0); /* started anew */
    assert_true(is_in(0) && is_in(1) && is_in(2));
}

static void fence__does_not_believe_the_device(void **state)
{
    (void)state;
    with_three();
    device.ignores_preempt = true;
    assert_int_equal(fence(1, 2, key_of(0, 1)), -EBUSY);
    assert_non_null(strstr(error, "has not ended"));
    assert_int_equal(fence(1, 2, key_of(1, 2)), -EBADE); /* its own, by chance */
}

/* `nvme resv-release` at one host. */
static void fence__reserves_what_was_released(void **state)
{
    (void)state;
    with_three();
    device.state.rtype = 0;
    assert_int_equal(fence(1, 2, key_of(0, 1)), 0);
    assert_true(!is_in(0) && is_in(1) && is_in(2));
}

/* A reservation of all goes with the last of them: what a member that is out holds would land. */
static void leave__of_the_last_keeps_the_reservation(void **state)
{
    (void)state;
    with_three();
    assert_int_equal(fence(1, 2, key_of(0, 1)), 0);
    leave(2, 3);
    leave(1, 2);
    assert_int_equal(device.state.rtype, NVME_RESERVATION_RTYPE_EAAR);
    assert_false(is_in(0));
    assert_int_equal(join(3, 4), 0); /* ends what they have left there */
    assert_int_equal(device.state.count, 1);
    assert_true(is_in(3) && !is_in(0) && !is_in(1) && !is_in(2));
    assert_int_equal(join(1, 22), 0);
    assert_true(is_in(1) && is_in(3));
}

/* ---- as members do it ---- */

static void shared_fence__reaches_the_device(void **state)
{
    (void)state;
    static struct nvt_backend_spec spec;
    const struct nvt_backend_spec *specs[] = {&spec};
    spec = (struct nvt_backend_spec){
        .kind = NVT_BACKEND_NVME, .path = "device.XXXXXX", .is_for_all = true};
    const int fd = mkstemp(spec.path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(nvt_fence_shares(&spec, error, sizeof(error)), 0);
    with_three();
    spec.reserve_key = key_of(1, 2);
    const struct nvt_former formers[] = {{.name = "first", .key = key_of(0, 1), .process = 1},
                                         {.name = "own", .key = key_of(1, 2), .process = 2}};
    device.host = (struct nvt_host_id){.bytes = {1}};
    assert_int_equal(nvt_fence_shared(specs, 1, 2, formers, 2, SHORT_MS, error, sizeof(error)), 0);
    assert_true(!is_in(0) && is_in(1) && is_in(2));
    spec.reserve_key = key_of(0, 1); /* one that is out serves nobody, with or without a former */
    device.host = (struct nvt_host_id){.bytes = {0}};
    assert_int_equal(nvt_fence_shared(specs, 1, 1, NULL, 0, SHORT_MS, error, sizeof(error)),
                     -EBADE);
    spec.reserve_key = 0; /* left out on purpose */
    assert_int_equal(nvt_fence_shared(specs, 1, 1, formers, 2, SHORT_MS, error, sizeof(error)), 0);
    assert_true(is_in(1));
    unlink(spec.path);
}

static void look__refuses_what_lacks_the_type(void **state)
{
    (void)state;
    static struct nvt_backend_spec spec = {.kind = NVT_BACKEND_NVME, .path = "/dev/null"};
    struct nvt_backend_look look;
    device.lacks_all_registrants = true;
    spec.is_for_all = false;
    assert_int_equal(nvt_fence_look(&spec, &look, error, sizeof(error)), 0);
    spec.is_for_all = true;
    assert_int_equal(nvt_fence_look(&spec, &look, error, sizeof(error)), -EOPNOTSUPP);
    assert_non_null(strstr(error, "leave --active all away"));
    device.lacks_all_registrants = false;
    assert_int_equal(nvt_fence_look(&spec, &look, error, sizeof(error)), 0);
}

/* A disk says so by REPORT CAPABILITIES. */
static void may_reserve__of_a_disk_asks_for_the_type(void **state)
{
    (void)state;
    assert_int_equal(nvt_device_may_reserve(0, "disk", true, error, sizeof(error)), 0);
    device.lacks_all_registrants = true;
    assert_int_equal(nvt_device_may_reserve(0, "disk", false, error, sizeof(error)), 0);
    assert_int_equal(nvt_device_may_reserve(0, "disk", true, error, sizeof(error)), -EOPNOTSUPP);
    assert_non_null(strstr(error, "leave --active all away"));
    device.lacks_memory = true;
    assert_int_equal(nvt_device_may_reserve(0, "disk", false, error, sizeof(error)), -EOPNOTSUPP);
    assert_non_null(strstr(error, "outlast a loss of power"));
}

static void hold__joins_and_leaves(void **state)
{
    (void)state;
    static struct nvt_backend_spec spec;
    struct nvt_backend_setup setup = {.spec = &spec, .path = "disk"};
    struct nvt_backend backend = {0};
    struct nvt_device_hold hold = {0};
    spec = (struct nvt_backend_spec){.kind = NVT_BACKEND_BLOCK,
                                     .is_for_all = true,
                                     .reserve_key = key_of(0, 1),
                                     .idle_key = nvt_device_idle_key(identity)};
    device.host = (struct nvt_host_id){.bytes = {0}};
    assert_int_equal(nvt_device_hold_begin(&hold, &setup, 0, &backend, error, sizeof(error)), 0);
    assert_int_equal(device.state.registrants[0].key, spec.reserve_key);
    assert_int_equal(nvt_backend_lost(&backend), 0);
    nvt_device_hold_end(&hold);
    assert_int_equal(device.state.registrants[0].key, spec.idle_key);
    device.lacks_reports = true;
    assert_int_equal(nvt_device_hold_begin(&hold, &setup, 0, &backend, error, sizeof(error)),
                     -EOPNOTSUPP);
    spec.kind = NVT_BACKEND_FILE; /* has nobody to register with */
    assert_int_equal(nvt_device_hold_begin(&hold, &setup, 0, &backend, error, sizeof(error)), 0);
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
        BY_ALL(join__lets_all_members_in),
        BY_ALL(join__where_one_holder_is_named),
        BY_ALL(join__after_a_loss_of_power),
        BY_ALL(join__refuses_strangers),
        BY_ALL(join__refuses_another_type),
        BY_ALL(join__of_a_device_of_one_active_member),
        BY_ALL(join__refuses_a_second_member_of_a_host),
        BY_ALL(join__says_what_the_device_lacks),
        BY_ALL(fence__shuts_out_one_member_alone),
        BY_ALL(fence__of_a_member_that_is_out),
        BY_ALL(fence__does_not_believe_the_device),
        BY_ALL(fence__reserves_what_was_released),
        BY_ALL(leave__of_the_last_keeps_the_reservation),
        BY_ALL(shared_fence__reaches_the_device),
        cmocka_unit_test_setup(look__refuses_what_lacks_the_type, by_commands),
        cmocka_unit_test_setup(may_reserve__of_a_disk_asks_for_the_type, by_scsi),
        BY_ALL(hold__joins_and_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
