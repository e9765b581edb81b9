/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Adoption where the system refuses what it needs: the reason is the right one, nothing is lost,
 * nobody is left waiting. Each case runs in a process of its own, under a seccomp filter.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_check.h"
#include "device/adopt/adopt.h"
#include "device/adopt/keep.h"
#include "device/adopt/uffd.h"

#define LEN (20 * MIB)

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

struct refusal {
    const char *call; /* or, for one that libseccomp may not know: */
    int number;
    int err;
    bool has_arg; /* only when argument `arg` masked is (or, for `at_least`, is at least) `value` */
    bool at_least;
    unsigned int arg;
    uint64_t mask;
    uint64_t value;
};

/* 0, or a status that says what could not be set up. */
static int refuse(const struct refusal *r)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int number = r->call ? seccomp_syscall_resolve_name(r->call) : r->number;
    uint32_t action = SCMP_ACT_ERRNO((uint32_t)r->err);
    int rc;
    if (!filter || number == __NR_SCMP_ERROR)
        return 90;
    if (!r->has_arg)
        rc = seccomp_rule_add(filter, action, number, 0);
    else if (r->at_least)
        rc = seccomp_rule_add(filter, action, number, 1,
                              SCMP_CMP64(r->arg, SCMP_CMP_GE, r->value, 0));
    else
        rc = seccomp_rule_add(filter, action, number, 1,
                              SCMP_CMP64(r->arg, SCMP_CMP_MASKED_EQ, r->mask, r->value));
    return rc || seccomp_load(filter) ? 91 : 0;
}

struct writer {
    atomic_bool stop;
    atomic_ulong rounds;
    volatile uint64_t *words;
};

static void *write_on(void *arg)
{
    struct writer *w = arg;
    while (!atomic_load(&w->stop)) {
        for (size_t i = 0; i < LEN / 8; i += PAGE / 8)
            w->words[i]++;
        atomic_fetch_add(&w->rounds, 1);
    }
    return NULL;
}

struct expectation {
    const struct refusal *refusal;
    enum sw_adopt_reason why;  /* SW_ADOPT_OK: it works nevertheless */
    bool refuse_while_adopted; /* not before */
    bool stays_shared;         /* the way back is what is refused */
    bool keep_privilege;
};

/* Adopts and puts while a thread stores; 0 or the number of the check that failed. */
static int expect(void *arg)
{
    const struct expectation *e = arg;
    struct sw_extent extents[EXTENTS_MAX];
    enum sw_adopt_reason why;
    bool private;
    pthread_t thread;
    uint8_t *base = buffer_new(LEN);
    struct writer writer = {.words = (volatile uint64_t *)base};
    if (!e->keep_privilege)
        become_nobody();
    int fds = open_descriptors() - sw_keep_count();
    if (!e->refuse_while_adopted && refuse(e->refusal))
        return 90;
    if (!e->refuse_while_adopted && e->why != SW_ADOPT_FAILED && sw_adopt_probe() != e->why)
        return 1;
    pthread_create(&thread, NULL, write_on, &writer);
    while (atomic_load(&writer.rounds) < 2)
        ;
    int n = sw_adopt_get((uint64_t)(uintptr_t)base, LEN, adopt_handed, extents, EXTENTS_MAX, &why);
    if (why != e->why || n != (e->why == SW_ADOPT_OK ? 1 : 0))
        return 10 + (int)why;
    if (e->refuse_while_adopted && refuse(e->refusal))
        return 91;
    for (int i = 0; i < n; i++)
        sw_adopt_put(extents[i].segment);
    unsigned long rounds = atomic_load(&writer.rounds);
    while (atomic_load(&writer.rounds) < rounds + 3)
        ; /* it goes on, or the alarm ends this */
    atomic_store(&writer.stop, true);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < LEN / 8; i += PAGE / 8) {
        if (writer.words[i] != writer.rounds)
            return 2;
    }
    mappings_within(base, LEN, &private);
    if (private == e->stays_shared)
        return 3;
    return open_descriptors() - sw_keep_count() == fds + e->stays_shared ? 0 : 4;
}

static const struct refusal no_userfaultfd = {.call = "userfaultfd", .err = EPERM};
static const struct refusal no_memfd = {.call = "memfd_create", .err = EPERM};
static const struct refusal no_mremap = {.call = "mremap", .err = EPERM};
static const struct refusal no_pagemap = {
    .call = "pread64", .err = EPERM, .has_arg = true, .at_least = true, .arg = 3, .value = 1 << 30};
static const struct refusal no_second_chunk = {.call = "pwrite64",
                                               .err = ENOSPC,
                                               .has_arg = true,
                                               .at_least = true,
                                               .arg = 3,
                                               .value = 9 * MIB};
static const struct refusal no_protection = {.call = "ioctl",
                                             .err = EPERM,
                                             .has_arg = true,
                                             .arg = 1,
                                             .mask = UINT32_MAX,
                                             .value = UFFDIO_WRITEPROTECT};
static const struct refusal no_shared_mapping = {.call = "mmap",
                                                 .err = ENOMEM,
                                                 .has_arg = true,
                                                 .arg = 3,
                                                 .mask = MAP_SHARED | MAP_FIXED,
                                                 .value = MAP_SHARED | MAP_FIXED};
static const struct refusal no_process_vm = {.call = "process_vm_readv", .err = EPERM};
static const struct refusal no_keeping = {.call = "madvise",
                                          .err = ENOMEM,
                                          .has_arg = true,
                                          .arg = 2,
                                          .mask = UINT32_MAX,
                                          .value = MADV_DONTFORK};
static const struct refusal no_seeking = {.call = "lseek",
                                          .err = ENXIO,
                                          .has_arg = true,
                                          .arg = 2,
                                          .mask = UINT32_MAX,
                                          .value = SEEK_DATA};
static const struct refusal no_cachestat = {.number = SYS_cachestat, .err = ENOSYS};

static void run(const struct refusal *refusal, enum sw_adopt_reason why)
{
    struct expectation e = {.refusal = refusal, .why = why};
    assert_int_equal(run_in_child(expect, &e), 0);
}

/* As an ordinary user and, where that is root, with its rights: pages then move in another order.
 */
static void run_both(const struct refusal *refusal, enum sw_adopt_reason why)
{
    struct expectation e = {.refusal = refusal, .why = why, .keep_privilege = true};
    run(refusal, why);
    assert_int_equal(run_in_child(expect, &e), 0);
}

static void run_on_return(const struct refusal *refusal, bool stays_shared)
{
    struct expectation e = {.refusal = refusal,
                            .why = SW_ADOPT_OK,
                            .refuse_while_adopted = true,
                            .stays_shared = stays_shared};
    assert_int_equal(run_in_child(expect, &e), 0);
}

static void denied__userfaultfd(void **state)
{
    (void)state;
    run(&no_userfaultfd, SW_ADOPT_NO_UFFD);
}

static void denied__memfd_falls_back_to_a_file_of_tmpfs(void **state)
{
    (void)state;
    run(&no_memfd, SW_ADOPT_OK);
}

static int no_memfd_no_tmpfile(void *arg)
{
    (void)arg;
    const struct refusal no_tmpfile = {.call = "openat",
                                       .err = EOPNOTSUPP,
                                       .has_arg = true,
                                       .arg = 2,
                                       .mask = O_TMPFILE,
                                       .value = O_TMPFILE};
    struct expectation e = {.refusal = &no_memfd, .why = SW_ADOPT_NO_MEMFD};
    int rc = refuse(&no_tmpfile);
    return rc ? rc : expect(&e);
}

static void denied__memfd_and_unnamed_files(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(no_memfd_no_tmpfile, NULL), 0);
}

static void denied__steps_on_the_way(void **state)
{
    (void)state;
    run_both(&no_mremap, SW_ADOPT_FAILED);
    run_both(&no_pagemap, SW_ADOPT_FAILED);
    run(&no_protection, SW_ADOPT_FAILED);
    run_both(&no_shared_mapping, SW_ADOPT_FAILED);
    run_both(&no_process_vm, SW_ADOPT_OK);
    run_both(&no_keeping, SW_ADOPT_FAILED);
}

/* Large pages are copied by another call than small ones. */
static int no_second_chunk_at_all(void *arg)
{
    struct expectation e = {
        .refusal = &no_second_chunk, .why = SW_ADOPT_FAILED, .keep_privilege = *(bool *)arg};
    int rc = refuse(&no_process_vm);
    return rc ? rc : expect(&e);
}

static void denied__second_chunk(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool keep_privilege = i;
        assert_int_equal(run_in_child(no_second_chunk_at_all, &keep_privilege), 0);
    }
}

static void denied__way_back(void **state)
{
    (void)state;
    run_on_return(&no_userfaultfd, false); /* one is kept */
    run_on_return(&no_mremap, true);
    run_on_return(&no_protection, true);
    run_on_return(&no_memfd, false);
}

/* As the kernel answers while it replaces a page: there is nothing in the file. */
static int all_seems_a_hole(void *arg)
{
    struct expectation e = {.refusal = &no_seeking,
                            .why = SW_ADOPT_OK,
                            .refuse_while_adopted = true,
                            .keep_privilege = true};
    int rc = *(bool *)arg ? 0 : refuse(&no_cachestat);
    return rc ? rc : expect(&e);
}

static void denied__what_seems_a_hole_is_read(void **state)
{
    (void)state;
    run_on_return(&no_seeking, false);
    for (int i = 0; i < 2; i++) {
        bool has_cachestat = i;
        assert_int_equal(run_in_child(all_seems_a_hole, &has_cachestat), 0);
    }
}

/* A move of several mappings at once loses pages when it is interrupted. Here it is refused. */
static int pieces_at_once(void *arg)
{
    (void)arg;
    const size_t half = MIB / 2;
    const struct refusal no_long_move = {.call = "mremap",
                                         .err = EIO,
                                         .has_arg = true,
                                         .at_least = true,
                                         .arg = 1,
                                         .value = half + 1};
    struct sw_extent extents[EXTENTS_MAX];
    bool private;
    uint8_t *base = buffer_new(2 * half);
    const uint64_t va = (uint64_t)(uintptr_t)base;
    words_fill(base, 2 * half, 1);
    if (sw_adopt_get(va, 2 * half, adopt_handed, extents, EXTENTS_MAX, NULL) != 1)
        return 1;
    sw_adopt_advise(va + half, half, MADV_WIPEONFORK); /* of private memory only */
    if (refuse(&no_long_move))
        return 90;
    sw_adopt_put(extents[0].segment);
    mappings_within(base, 2 * half, &private);
    if (!private)
        return 2;
    return words_differ(base, 2 * half, 1) == SIZE_MAX ? 0 : 3;
}

static void denied__moving_pieces_at_once(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(pieces_at_once, NULL), 0);
}

/* Without a copy the child does not have the memory; it never shares it. */
static int fork_without_copy(void *arg)
{
    (void)arg;
    struct sw_extent extents[EXTENTS_MAX];
    const struct refusal no_pread = {.call = "pread64", .err = ENOMEM};
    uint8_t *base = buffer_new(LEN);
    words_fill(base, LEN, 1);
    if (sw_adopt_get((uint64_t)(uintptr_t)base, LEN, adopt_handed, extents, EXTENTS_MAX, NULL) != 1)
        return 1;
    if (refuse(&no_pread))
        return 90;
    pid_t child = fork();
    if (child == 0) {
        unsigned char in_core;
        _exit(mincore(base, PAGE, &in_core) == -1 && errno == ENOMEM ? 0 : 1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status)
        return 2;
    return words_differ(base, LEN, 1) == SIZE_MAX ? 0 : 3;
}

static void denied__copy_for_a_fork(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LOG", "error", 1);
    assert_int_equal(run_in_child(fork_without_copy, NULL), 0);
    unsetenv("SIDEWIRE_LOG");
}

/* Memory under a userfaultfd of the program's own is the program's business. */
static int own_userfaultfd(void *arg)
{
    (void)arg;
    struct sw_uffd own;
    struct sw_extent extents[EXTENTS_MAX];
    enum sw_adopt_reason why;
    uint8_t *base = buffer_new(4 * PAGE);
    uint64_t va = (uint64_t)(uintptr_t)base;
    if (sw_uffd_open(&own) || sw_uffd_arm(&own, va + 2 * PAGE, PAGE, SW_UFFD_MISSING))
        return 1;
    if (sw_adopt_get(va + 2 * PAGE, PAGE, adopt_handed, extents, EXTENTS_MAX, &why) != 0 ||
        why != SW_ADOPT_FAILED)
        return 2;
    return sw_adopt_get(va, PAGE, adopt_handed, extents, EXTENTS_MAX, &why) == 1 ? 0 : 3;
}

static void denied__by_the_programs_own_userfaultfd(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(own_userfaultfd, NULL), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(denied__userfaultfd),
        cmocka_unit_test(denied__memfd_falls_back_to_a_file_of_tmpfs),
        cmocka_unit_test(denied__memfd_and_unnamed_files),
        cmocka_unit_test(denied__steps_on_the_way),
        cmocka_unit_test(denied__second_chunk),
        cmocka_unit_test(denied__way_back),
        cmocka_unit_test(denied__what_seems_a_hole_is_read),
        cmocka_unit_test(denied__moving_pieces_at_once),
        cmocka_unit_test(denied__copy_for_a_fork),
        cmocka_unit_test(denied__by_the_programs_own_userfaultfd),
    };
    return cmocka_run_group_tests_name("adopt_denied", tests, NULL, NULL);
}
