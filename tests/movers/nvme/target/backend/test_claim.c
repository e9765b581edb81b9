/* SPDX-License-Identifier: BSD-2-Clause */
/* Claims on files, where locks are lost to others as they are changed: what locks is here. */
#include "nvme/target/backend/claim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>

#include "common/serve/served.h"
#include "nvme/target/backend/backend.h"

static int refusals; /* of the next calls */

int mover_served_open(const char *path, int flags, const struct mover_serving *how, char *error,
                      size_t error_bytes)
{
    (void)how;
    (void)error;
    (void)error_bytes;
    return open(path, flags | O_CLOEXEC);
}

int mover_served_lock(int fd, const char *path, const struct mover_serving *how, char *error,
                      size_t error_bytes)
{
    (void)fd;
    (void)path;
    (void)how;
    (void)error;
    (void)error_bytes;
    return refusals && refusals-- ? -EBUSY : 0;
}

static int claimed = -1; /* the descriptor that has it */

int mover_served_claim(const char *path, int flags, const struct mover_serving *how, int *fd,
                       char *error, size_t error_bytes)
{
    assert_false(how->is_shared);
    assert_false(fcntl(claimed, F_GETFD) >= 0);
    *fd = claimed = mover_served_open(path, flags, how, error, error_bytes);
    return 0;
}

static bool is_claimed(void)
{
    return fcntl(claimed, F_GETFD) >= 0;
}

static char error[64];

static const struct nvt_backend_setup writes = {.path = "/dev/null"},
                                      shares = {.path = "/dev/null", .is_shared = true};

static struct nvt_claim *take(const struct nvt_backend_setup *setup)
{
    struct nvt_claim *claim;
    assert_int_equal(nvt_claim_take(setup, &claim, error, sizeof(error)), 0);
    return claim;
}

/* How many calls are refused, and whether the namespace that was to leave may go on then. */
static bool stays_after(int refused)
{
    struct nvt_claim *claim = take(&writes), *other = NULL;
    nvt_claim_leave(claim);
    refusals = refused;
    assert_int_equal(nvt_claim_take(&shares, &other, error, sizeof(error)), -EBUSY);
    assert_int_equal(refusals, 0);
    const bool stays = nvt_claim_stay(claim);
    nvt_claim_release(claim);
    return stays;
}

static void claim__stays_where_it_has_its_lock_back(void **state)
{
    (void)state;
    assert_true(stays_after(1));
}

static void claim__does_not_stay_where_another_server_has_the_lock(void **state)
{
    (void)state;
    assert_false(stays_after(2));
}

static void claim__has_a_lock_that_was_lost_again(void **state)
{
    (void)state;
    struct nvt_claim *claim = take(&writes), *other = NULL;
    nvt_claim_leave(claim);
    refusals = 2;
    assert_int_equal(nvt_claim_take(&shares, &other, error, sizeof(error)), -EBUSY);
    refusals = 1;
    assert_int_equal(nvt_claim_take(&writes, &other, error, sizeof(error)), -EBUSY);
    other = take(&writes);
    nvt_claim_release(other);
    assert_true(nvt_claim_stay(claim));
    nvt_claim_release(claim);
}

/* Beside its lock, which it has from the one that shared it. */
static void claim__is_of_the_device_once_it_is_not_shared(void **state)
{
    (void)state;
    struct nvt_claim *claim = take(&shares), *other = NULL;
    assert_false(is_claimed());
    nvt_claim_leave(claim);
    refusals = 1;
    assert_int_equal(nvt_claim_take(&writes, &other, error, sizeof(error)), -EBUSY);
    assert_false(is_claimed());
    other = take(&writes);
    assert_true(is_claimed());
    nvt_claim_release(claim);
    assert_true(is_claimed());
    nvt_claim_leave(other);
    claim = take(&shares);
    assert_false(is_claimed());
    nvt_claim_leave(claim);
    nvt_claim_release(other);
    other = take(&writes);
    nvt_claim_release(claim);
    assert_true(is_claimed());
    nvt_claim_release(other);
    assert_false(is_claimed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claim__stays_where_it_has_its_lock_back),
        cmocka_unit_test(claim__does_not_stay_where_another_server_has_the_lock),
        cmocka_unit_test(claim__has_a_lock_that_was_lost_again),
        cmocka_unit_test(claim__is_of_the_device_once_it_is_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
