/* SPDX-License-Identifier: BSD-2-Clause */
/* Disks that hang or fail: what syncs the memory of their files is in this file. */
#include "device/memory/sync_job.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <semaphore.h>

#include "device/memory/persist.h"

enum { HUNG = 1, FINE, UNMAPPED, BAD, BAD_TOO, BAD_LATE, UNREAD, REMAPPED, GOING, TRIES = 200 };
enum { DISKS = 6, ONE_OF_FULL = 100, BAD_OF_FULL, SEVERAL_OF_FULL, ALIKE_ELSEWHERE, FULL = 7 };

static sem_t told, is_mended, late_began, fine_synced, read_began, may_read;
static bool is_remapped, is_gone;

/* As the kernel does it: the first msync is told of the error, the next ones find clean pages. */
int sw_persist_sync(uint64_t va, uint64_t len_bytes)
{
    static bool was_told, was_late;
    (void)len_bytes;
    while (va == HUNG && sem_wait(&is_mended))
        ;
    if (va == UNMAPPED)
        return -ENOMEM;
    if (va == BAD && !was_told) {
        was_told = true;
        return -EIO;
    }
    if (va == BAD_LATE && !was_late) {
        was_late = true; /* the error is taken, and the one who is to have it is slow to say so */
        sem_post(&late_began);
        while (sem_wait(&fine_synced))
            ;
        return -ENOSPC;
    }
    if (va == REMAPPED)
        is_remapped = true;
    if (va == GOING && !is_gone) {
        is_gone = true;
        return -ENOMEM;
    }
    return va == REMAPPED || va == BAD_OF_FULL || va == SEVERAL_OF_FULL ? -EIO : 0;
}

/* BAD and BAD_TOO are of one file. Reading that of UNREAD takes long. */
struct sw_persist_file sw_persist_file_of(uint64_t va, uint64_t len_bytes)
{
    struct sw_persist_file file = {.ino = va, .dev_major = 1, .is_whole = va != UNMAPPED};
    (void)len_bytes;
    if (va == UNREAD) {
        sem_post(&read_began);
        while (sem_wait(&may_read))
            ;
    }
    if (va == GOING && is_gone)
        file.is_whole = false;
    if (va == ONE_OF_FULL || va == BAD_OF_FULL || va == SEVERAL_OF_FULL)
        file.dev_major = FULL;
    if (va == BAD_TOO || va == SEVERAL_OF_FULL)
        file.ino = va == BAD_TOO ? BAD : 0;
    if (va == UNREAD || (va == REMAPPED && is_remapped))
        file.ino = FINE;
    return file;
}

bool sw_persist_is_same_file(const struct sw_persist_file *a, const struct sw_persist_file *b)
{
    const bool is_any = !a->dev_major || !b->dev_major;
    return is_any || (a->dev_major == b->dev_major && (!a->ino || !b->ino || a->ino == b->ino));
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

static int sync_range(uint64_t owner, uint64_t va)
{
    int rc = 1;
    struct sw_sync_job *job = sw_sync_job_start(owner, va, 1, tell);
    assert_non_null(job);
    while (sem_wait(&told))
        ;
    assert_true(sw_sync_job_ended(job, &rc));
    sw_sync_job_drop(job);
    return rc;
}

static void expect_served(uint64_t owner)
{
    assert_int_equal(sync_range(owner, FINE), 0);
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

/* The disk of one file fails once: all that is flushed there afterwards may be lost. */
static void failed__fails_each_later_one_of_the_file(void **state)
{
    (void)state;
    assert_int_equal(sync_range(1, BAD_TOO), 0);
    assert_int_equal(sync_range(1, UNMAPPED), -ENOMEM); /* no disk has failed */
    assert_int_equal(sync_range(1, UNMAPPED), -ENOMEM);
    assert_int_equal(sync_range(1, BAD), -EIO);
    assert_int_equal(sync_range(1, BAD), -EIO);
    assert_int_equal(sync_range(2, BAD_TOO), -EIO);
    assert_int_equal(sync_range(2, FINE), 0);
}

/* Two at once: the kernel tells one of them, and the other one is done first. */
static void failed__fails_those_beside_it(void **state)
{
    (void)state;
    int rc = 1;
    struct sw_sync_job *first = sw_sync_job_start(1, BAD_LATE, 1, tell);
    while (sem_wait(&late_began))
        ;
    struct sw_sync_job *second = sw_sync_job_start(1, BAD_LATE, 1, tell);
    expect_served(2); /* of another file: waits for neither */
    assert_false(sw_sync_job_ended(first, &rc));
    assert_false(sw_sync_job_ended(second, &rc));
    sem_post(&fine_synced);
    for (int i = 0; i < 2; i++)
        while (sem_wait(&told))
            ;
    assert_true(sw_sync_job_ended(first, &rc));
    assert_int_equal(rc, -ENOSPC);
    assert_true(sw_sync_job_ended(second, &rc));
    assert_int_equal(rc, -ENOSPC);
    sw_sync_job_drop(first);
    sw_sync_job_drop(second);
}

/* A job that reads which file it has holds up no other, also not one of that file. */
static void job__reads_its_file_beside_others(void **state)
{
    (void)state;
    int rc = 1;
    struct sw_sync_job *unread = sw_sync_job_start(1, UNREAD, 1, tell);
    while (sem_wait(&read_began))
        ;
    expect_served(2);
    assert_false(sw_sync_job_ended(unread, &rc));
    sem_post(&may_read);
    while (sem_wait(&told))
        ;
    assert_true(sw_sync_job_ended(unread, &rc));
    assert_int_equal(rc, 0);
    sw_sync_job_drop(unread);
}

/* Another file is mapped there when the first one's msync returns. */
static void failed__is_the_file_of_before(void **state)
{
    (void)state;
    assert_int_equal(sync_range(1, REMAPPED), -EIO);
    assert_int_equal(sync_range(1, FINE), 0);
    is_remapped = false;
    assert_int_equal(sync_range(1, REMAPPED), -EIO);
}

/* The program unmaps it between the look at it and its msync: no disk has failed. */
static void failed__is_none_that_went_meanwhile(void **state)
{
    (void)state;
    assert_int_equal(sync_range(1, GOING), -ENOMEM);
    assert_int_equal(sync_range(1, GOING), 0); /* mapped anew */
}

/* Which of several files has failed, nobody knows: but it was one of their disk. */
static void failed__fails_all_of_a_disk_at_most(void **state)
{
    (void)state;
    assert_int_equal(sync_range(FULL, BAD_OF_FULL), -EIO);
    assert_int_equal(sync_range(FULL, ONE_OF_FULL), 0);
    assert_int_equal(sync_range(FULL, SEVERAL_OF_FULL), -EIO);
    assert_int_equal(sync_range(FULL, ONE_OF_FULL), -EIO);
    assert_int_equal(sync_range(1, ALIKE_ELSEWHERE), 0);
}

/* There is no thread to be had. The caller has other peers to serve, so it does not do the work. */
static void job__without_a_thread_is_none(void **state)
{
    (void)state;
    pthread_attr_t before, huge;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_getattr_default_np(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    int started = 0;
    for (int i = 0; i < TRIES; i++)
        started += sw_sync_job_start(1, FINE, 1, tell) != NULL;
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    while (!sem_trywait(&told))
        started++;
    assert_int_equal(started, 0);
    expect_served(1);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&before);
}

int main(void)
{
    sem_init(&told, 0, 0);
    sem_init(&is_mended, 0, 0);
    sem_init(&late_began, 0, 0);
    sem_init(&fine_synced, 0, 0);
    sem_init(&read_began, 0, 0);
    sem_init(&may_read, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hung__leave_something_to_others),
        cmocka_unit_test(failed__fails_each_later_one_of_the_file),
        cmocka_unit_test(failed__fails_those_beside_it),
        cmocka_unit_test(job__without_a_thread_is_none),
        cmocka_unit_test(failed__is_the_file_of_before),
        cmocka_unit_test(failed__is_none_that_went_meanwhile),
        cmocka_unit_test(failed__fails_all_of_a_disk_at_most),
        cmocka_unit_test(job__reads_its_file_beside_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
