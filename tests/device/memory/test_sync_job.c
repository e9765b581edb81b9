/* SPDX-License-Identifier: BSD-2-Clause */
/* Disks that hang: what syncs the memory of their files is in this file. */
#include "device/memory/sync_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <semaphore.h>

#include "device/memory/persist.h"

enum { HUNG = 1, FINE, TRIES = 200, DISKS = 6 };

static sem_t told, is_mended;

int sw_persist_sync(uint64_t va, uint64_t len_bytes)
{
    (void)len_bytes;
    while (va == HUNG && sem_wait(&is_mended))
        ;
    return 0;
}

static void tell(void)
{
    sem_post(&told);
}

static uint32_t hang(uint64_t owner)
{
    uint32_t started = 0;
    for (uint32_t i = 0; i < TRIES; i++) {
        struct sw_sync_job *job = sw_sync_job_start(owner, HUNG, 1, tell);
        if (!job)
            continue;
        started++;
        sw_sync_job_drop(job); /* its peer has gone, its thread has not */
    }
    return started;
}

static void expect_served(uint64_t owner)
{
    int rc = 1;
    struct sw_sync_job *job = sw_sync_job_start(owner, FINE, 1, tell);
    assert_non_null(job);
    while (sem_wait(&told))
        ;
    assert_true(sw_sync_job_ended(job, &rc));
    assert_int_equal(rc, 0);
    sw_sync_job_drop(job);
}

static void hung__leave_something_to_others(void **state)
{
    (void)state;
    uint32_t hung = 0;
    for (uint64_t owner = 1; owner <= DISKS; owner++) {
        const uint32_t started = hang(owner);
        assert_true(started > 0 && started < TRIES);
        hung += started;
        expect_served(DISKS + 1);
    }
    assert_null(sw_sync_job_start(1, FINE, 1, tell));
    for (uint32_t i = 0; i < hung; i++)
        sem_post(&is_mended);
    for (uint32_t i = 0; i < hung; i++)
        while (sem_wait(&told))
            ;
    expect_served(1);
}

int main(void)
{
    sem_init(&told, 0, 0);
    sem_init(&is_mended, 0, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(hung__leave_something_to_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
