/* SPDX-License-Identifier: BSD-2-Clause */
/* Adopted memory across fork(2), vfork and posix_spawn: the child has its own copy as of the fork,
 * the parent and its peers notice nothing. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_rig.h"
#include "apart.h"

extern char **environ;

/* As the library's hook does: it first asks whether the memory is adopted. */
int madvise(void *addr, size_t len, int advice)
{
    (void)sw_adopt_may_overlap((uint64_t)(uintptr_t)addr, len);
    return (int)syscall(SYS_madvise, addr, len, advice);
}

static void *file_map(const struct sw_segment *segment)
{
    uint64_t offset, len;
    sw_segment_file_range(segment, &offset, &len);
    void *base =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, sw_segment_fd(segment), (off_t)offset);
    return base == MAP_FAILED ? NULL : base;
}

/* The child's exit status: 0 when all it looked at was right. */
static int child_status(pid_t child)
{
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void fork__child_and_parent_diverge(void **state)
{
    (void)state;
    size_t len = 13 * MIB;
    uint8_t *base = buffer_new(len);
    words_fill(base, len, 1);
    struct sw_segment *segment = adopt_one(base, len);
    assert_non_null(segment);
    uint8_t *peer = file_map(segment); /* also inherited, as a peer would have it */
    int to_child[2], to_parent[2];
    char byte = 0;
    assert_int_equal(pipe(to_child), 0);
    assert_int_equal(pipe(to_parent), 0);
    pid_t child = fork();
    if (child == 0) {
        bool private;
        mappings_within(base, len, &private);
        if (!private || words_differ(base, len, 1) != SIZE_MAX)
            _exit(1);
        words_fill(base, len, 2);
        if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1)
            _exit(2);
        _exit(words_differ(base, len, 2) == SIZE_MAX ? 0 : 3);
    }
    assert_int_equal(read(to_parent[0], &byte, 1), 1);
    assert_int_equal(words_differ(base, len, 1), SIZE_MAX);
    assert_int_equal(words_differ(peer, len, 1), SIZE_MAX);
    words_fill(peer, len, 3); /* as a peer would */
    assert_int_equal(words_differ(base, len, 3), SIZE_MAX);
    assert_int_equal(write(to_child[1], &byte, 1), 1);
    assert_int_equal(child_status(child), 0);
    sw_adopt_put(segment);
    assert_int_equal(words_differ(base, len, 3), SIZE_MAX);
    for (int i = 0; i < 2; i++) {
        close(to_child[i]);
        close(to_parent[i]);
    }
    munmap(peer, len);
    munmap(base, len);
}

/* The copies for the child then lie between what is adopted, and madvise() asks the table. */
static void fork__copies_between_two_segments(void **state)
{
    (void)state;
    const size_t len = 8 * MIB, hole = 64 * MIB;
    uint8_t *low = buffer_new(len + hole + len), *high = low + len + hole;
    assert_int_equal(munmap(low + len, hole), 0);
    words_fill(low, len, 1);
    words_fill(high, len, 2);
    struct sw_segment *first = adopt_one(low, len), *second = adopt_one(high, len);
    assert_non_null(first);
    assert_non_null(second);
    pid_t child = fork();
    if (child == 0)
        _exit(words_differ(low, len, 1) == SIZE_MAX && words_differ(high, len, 2) == SIZE_MAX ? 0
                                                                                              : 1);
    assert_int_equal(child_status(child), 0);
    sw_adopt_put(first);
    sw_adopt_put(second);
    munmap(low, len);
    munmap(high, len);
}

static void fork__child_starts_anew(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(8 * PAGE);
    words_fill(base, 8 * PAGE, 4);
    struct sw_segment *segment = adopt_one(base, 4 * PAGE);
    assert_non_null(segment);
    uint32_t id = sw_segment_id(segment);
    int fd = sw_segment_fd(segment);
    pid_t child = fork();
    if (child == 0) {
        if (sw_segment_find(id) || sw_segment_fd(segment) != -1 || lseek(fd, 0, SEEK_CUR) >= 0)
            _exit(1);
        sw_adopt_put(segment); /* of the parent's: harmless */
        struct sw_segment *own = adopt_one(base, 4 * PAGE);
        if (!own || words_differ(base, 8 * PAGE, 4) != SIZE_MAX)
            _exit(2);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            words_fill(base, 8 * PAGE, 5);
            _exit(0);
        }
        int status = 0;
        waitpid(grandchild, &status, 0);
        if (status || words_differ(base, 8 * PAGE, 4) != SIZE_MAX)
            _exit(3);
        bool private;
        sw_adopt_put(own);
        mappings_within(base, 8 * PAGE, &private);
        _exit(private && words_differ(base, 8 * PAGE, 4) == SIZE_MAX ? 0 : 4);
    }
    assert_int_equal(child_status(child), 0);
    sw_adopt_put(segment);
    munmap(base, 8 * PAGE);
}

static void fork__parents_memory_joins_its_mapping_again(void **state)
{
    (void)state;
    bool private;
    uint8_t *base = buffer_new(30 * MIB);
    words_fill(base, 30 * MIB, 6);
    int before = mappings_within(base, 30 * MIB, &private);
    struct sw_segment *segment = adopt_one(base + PAGE, 20 * MIB);
    assert_non_null(segment);
    pid_t child = fork();
    if (child == 0)
        _exit(mappings_within(base, 30 * MIB, &private) >= 1 && private ? 0 : 1);
    assert_int_equal(child_status(child), 0);
    sw_adopt_put(segment);
    assert_int_equal(mappings_within(base, 30 * MIB, &private), before);
    munmap(base, 30 * MIB);
}

static void fork__keeps_what_was_advised_for_forks(void **state)
{
    (void)state;
    uint8_t *absent = buffer_new(4 * PAGE), *wiped = buffer_new(4 * PAGE);
    words_fill(absent, 4 * PAGE, 7);
    words_fill(wiped, 4 * PAGE, 7);
    assert_int_equal(madvise(absent, 4 * PAGE, MADV_DONTFORK), 0);
    assert_int_equal(madvise(wiped, 4 * PAGE, MADV_WIPEONFORK), 0);
    struct sw_segment *first = adopt_one(absent, 4 * PAGE);
    struct sw_segment *second = adopt_one(wiped, 4 * PAGE);
    assert_non_null(first);
    assert_non_null(second);
    for (int round = 0; round < 2; round++) { /* while adopted, and afterwards */
        pid_t child = fork();
        if (child == 0) {
            unsigned char in_core;
            for (size_t i = 0; i < 4 * PAGE; i++) {
                if (wiped[i])
                    _exit(1);
            }
            _exit(mincore(absent, PAGE, &in_core) == -1 && errno == ENOMEM ? 0 : 2);
        }
        assert_int_equal(child_status(child), 0);
        assert_int_equal(words_differ(absent, 4 * PAGE, 7), SIZE_MAX);
        assert_int_equal(words_differ(wiped, 4 * PAGE, 7), SIZE_MAX);
        if (round == 0) {
            sw_adopt_put(first);
            sw_adopt_put(second);
        }
    }
    munmap(absent, 4 * PAGE);
    munmap(wiped, 4 * PAGE);
}

/* Pages that could not be moved back at the last put are nobody's region any more, but still must
 * not be shared with a child. */
static void fork__remainders_too(void **state)
{
    (void)state;
    bool private;
    uint8_t params[120] = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, params);
    if (ring < 0)
        skip();
    close(ring);
    uint8_t *base = buffer_new(4 * PAGE);
    words_fill(base, 4 * PAGE, 12);
    struct sw_segment *segment = adopt_one(base, 4 * PAGE);
    assert_non_null(segment);
    ring = (int)syscall(SYS_io_uring_setup, 4, params);
    sw_adopt_put(segment);
    mappings_within(base, 4 * PAGE, &private);
    assert_false(private);
    pid_t child = fork();
    if (child == 0) {
        mappings_within(base, 4 * PAGE, &private);
        bool same = words_differ(base, 4 * PAGE, 12) == SIZE_MAX;
        words_fill(base, 4 * PAGE, 13);
        _exit(private && same ? 0 : 1);
    }
    assert_int_equal(child_status(child), 0);
    assert_int_equal(words_differ(base, 4 * PAGE, 12), SIZE_MAX);
    close(ring);
    munmap(base, 4 * PAGE);
}

static void fork__already_shared_memory_stays_shared(void **state)
{
    (void)state;
    int fd = memfd_create("mine", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    uint8_t *base = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct sw_segment *segment = adopt_one(base, PAGE);
    assert_non_null(segment);
    pid_t child = fork();
    if (child == 0) {
        base[5] = 55;
        _exit(0);
    }
    assert_int_equal(child_status(child), 0);
    assert_int_equal(base[5], 55);
    sw_adopt_put(segment);
    close(fd);
    munmap(base, PAGE);
}

static void fork__protection_and_holes(void **state)
{
    (void)state;
    uint8_t *base = apart_map(8 * PAGE);
    words_fill(base, 8 * PAGE, 8);
    struct sw_segment *segment = adopt_one(base, 8 * PAGE);
    assert_non_null(segment);
    mprotect(base + 2 * PAGE, 2 * PAGE, PROT_READ);
    munmap(base + 5 * PAGE, PAGE);
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            unsigned char in_core;
            int null = memfd_create("null", 0);
            if (words_differ(base, 5 * PAGE, 8) != SIZE_MAX ||
                mincore(base + 5 * PAGE, PAGE, &in_core) != -1)
                _exit(1);
            base[0]++;
            base[7 * PAGE]++;
            if (ftruncate(null, 8) || pread(null, base + 2 * PAGE, 8, 0) != -1)
                _exit(2); /* must be read-only still */
            _exit(0);
        }
        assert_int_equal(child_status(child), 0);
        assert_int_equal(words_differ(base, 5 * PAGE, 8), SIZE_MAX);
        mprotect(base + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE);
        mprotect(base + 2 * PAGE, 2 * PAGE, PROT_READ);
    }
    sw_adopt_put(segment);
    assert_int_equal(words_differ(base, 5 * PAGE, 8), SIZE_MAX);
    munmap(base, 8 * PAGE);
}

struct counting {
    atomic_bool stop;
    _Atomic uint64_t *words;
    size_t count;
};

static void *count_all(void *arg)
{
    struct counting *c = arg;
    while (!atomic_load(&c->stop)) {
        for (size_t i = 0; i < c->count; i += 512)
            atomic_fetch_add_explicit(&c->words[i], 1, memory_order_relaxed);
    }
    return NULL;
}

/* Another thread counts on meanwhile: each word of the child lies between what it was before the
 * fork and after. */
static void fork__while_another_thread_stores(void **state)
{
    (void)state;
    size_t len = 12 * MIB;
    uint8_t *base = buffer_new(len);
    struct counting counting = {.words = (_Atomic uint64_t *)base, .count = len / 8};
    _Atomic uint64_t *words = counting.words;
    uint64_t *before = (uint64_t *)buffer_new(len);
    struct sw_segment *segment = adopt_one(base, len);
    assert_non_null(segment);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, count_all, &counting), 0);
    for (int round = 0; round < 10; round++) {
        int pipefd[2];
        assert_int_equal(pipe(pipefd), 0);
        for (size_t i = 0; i < counting.count; i += 512)
            before[i] = words[i];
        pid_t child = fork();
        if (child == 0) {
            for (size_t i = 0; i < counting.count; i += 512) {
                uint64_t word = words[i];
                if (word < before[i] || write(pipefd[1], &word, sizeof(word)) != sizeof(word))
                    _exit(1);
                words[i] = 0;
            }
            _exit(0);
        }
        close(pipefd[1]);
        for (size_t i = 0; i < counting.count; i += 512) {
            uint64_t in_child = 0;
            assert_int_equal(read(pipefd[0], &in_child, sizeof(in_child)), sizeof(in_child));
            assert_true(in_child <= words[i]);
        }
        assert_int_equal(child_status(child), 0);
        close(pipefd[0]);
    }
    atomic_store(&counting.stop, true);
    pthread_join(thread, NULL);
    sw_adopt_put(segment);
    munmap(base, len);
    munmap(before, len);
}

static void *adopt_again_and_again(void *arg)
{
    struct counting *c = arg;
    struct sw_extent own[EXTENTS_MAX];
    uint64_t len = c->count * 8;
    while (!atomic_load(&c->stop)) {
        int n =
            sw_adopt_get((uint64_t)(uintptr_t)c->words, len, adopt_handed, own, EXTENTS_MAX, NULL);
        for (int i = 0; i < n; i++)
            sw_adopt_put(own[i].segment);
    }
    return NULL;
}

static void fork__while_another_thread_adopts(void **state)
{
    (void)state;
    size_t len = 3 * MIB;
    uint8_t *base = buffer_new(len);
    words_fill(base, len, 9);
    struct counting churn = {.words = (_Atomic uint64_t *)base, .count = len / 8};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, adopt_again_and_again, &churn), 0);
    for (int round = 0; round < 50; round++) {
        pid_t child = fork();
        if (child == 0) {
            bool private;
            mappings_within(base, len, &private);
            bool same = words_differ(base, len, 9) == SIZE_MAX;
            memset(base, 0, len);
            _exit(private && same ? 0 : 1);
        }
        assert_int_equal(child_status(child), 0);
    }
    atomic_store(&churn.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(words_differ(base, len, 9), SIZE_MAX);
    munmap(base, len);
}

static void fork__that_fails_changes_nothing(void **state)
{
    (void)state;
    if (getuid() == 0)
        skip(); /* no limit holds for root; main() runs this as nobody too */
    uint8_t *base = buffer_new(4 * PAGE);
    words_fill(base, 4 * PAGE, 10);
    struct sw_segment *segment = adopt_one(base, 4 * PAGE);
    assert_non_null(segment);
    struct rlimit old, none = {0};
    getrlimit(RLIMIT_NPROC, &old);
    none.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_NPROC, &none);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    setrlimit(RLIMIT_NPROC, &old);
    assert_int_equal(child, -1);
    assert_int_equal(words_differ(base, 4 * PAGE, 10), SIZE_MAX);
    assert_non_null(adopt_one(base, 4 * PAGE));
    sw_adopt_put(segment);
    sw_adopt_put(segment);
    assert_int_equal(words_differ(base, 4 * PAGE, 10), SIZE_MAX);
    munmap(base, 4 * PAGE);
}

static pid_t vfork_and_exit(void)
{
    pid_t child = vfork();
    if (child == 0)
        _exit(0);
    return child;
}

static void spawn__memory_stays_adopted(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(4 * PAGE);
    words_fill(base, 4 * PAGE, 11);
    struct sw_segment *segment = adopt_one(base, 4 * PAGE);
    assert_non_null(segment);
    uint8_t *peer = file_map(segment);
    pid_t child;
    char *argv[] = {"true", NULL};
    assert_int_equal(posix_spawnp(&child, "true", NULL, NULL, argv, environ), 0);
    assert_int_equal(child_status(child), 0);
    assert_int_equal(system("exit 3"), 3 << 8);
    assert_int_equal(child_status(vfork_and_exit()), 0);
    peer[17] = 99;
    assert_int_equal(base[17], 99);
    sw_adopt_put(segment);
    munmap(peer, 4 * PAGE);
    munmap(base, 4 * PAGE);
}

/* Descriptors and /proc were there when the memory was registered. */
static void no_descriptors(void)
{
    struct rlimit none = {3, 3};
    setrlimit(RLIMIT_NOFILE, &none);
    while (dup(2) >= 0)
        ;
}

static void no_proc(void)
{
    if (chroot("/var/empty") && chroot("/run"))
        abort();
}

/* In a process of its own, because what `starve` takes does not come back: its child has a copy. */
static int fork_starved(void (*starve)(void))
{
    uint8_t *base = apart_map(9 * MIB), *other = buffer_new(4 * PAGE);
    words_fill(base, 9 * MIB, 14);
    words_fill(other, 4 * PAGE, 15);
    struct sw_segment *segment = adopt_one(base, 9 * MIB);
    struct sw_segment *second = adopt_one(other, 4 * PAGE);
    uint8_t *peer = segment ? file_map(segment) : NULL;
    if (!peer || !second)
        return 1;
    munmap(base + MIB, PAGE); /* so that the parts must be found */
    starve();
    pid_t child = fork();
    if (child == 0) {
        unsigned char in_core;
        if (words_differ(base, MIB, 14) != SIZE_MAX ||
            words_differ(other, 4 * PAGE, 15) != SIZE_MAX)
            _exit(1);
        if (mincore(base + MIB, PAGE, &in_core) != -1)
            _exit(2);
        memset(base, 0xcc, MIB);
        memset(base + MIB + PAGE, 0xcc, 7 * MIB);
        memset(other, 0xcc, 4 * PAGE);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    bool kept =
        words_differ(base, MIB, 14) == SIZE_MAX && words_differ(other, 4 * PAGE, 15) == SIZE_MAX;
    return status ? 10 + WEXITSTATUS(status) : kept ? 0 : 2;
}

static int fork_without_descriptors(void *arg)
{
    (void)arg;
    return fork_starved(no_descriptors);
}

static int fork_in_chroot(void *arg)
{
    (void)arg;
    return fork_starved(no_proc);
}

static void fork__without_descriptors(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(fork_without_descriptors, NULL), 0);
}

static void fork__in_a_chroot(void **state)
{
    (void)state;
    if (getuid())
        skip(); /* only root may; main() runs this as root too */
    assert_int_equal(run_in_child(fork_in_chroot, NULL), 0);
}

/* No handler runs: the child lacks the memory, but never shares it. */
static void fork__raw_clone_does_not_share(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(4 * PAGE);
    words_fill(base, 4 * PAGE, 16);
    struct sw_segment *segment = adopt_one(base, 4 * PAGE);
    assert_non_null(segment);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        unsigned char in_core;
        syscall(SYS_exit_group, mincore(base, PAGE, &in_core) == -1 && errno == ENOMEM ? 0 : 1);
    }
    assert_int_equal(child_status(child), 0);
    assert_int_equal(words_differ(base, 4 * PAGE, 16), SIZE_MAX);
    sw_adopt_put(segment);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        syscall(SYS_exit_group, base[0] == *(volatile uint8_t *)base ? 0 : 1);
    assert_int_equal(child_status(child), 0);
    munmap(base, 4 * PAGE);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fork__child_and_parent_diverge),
    cmocka_unit_test(fork__copies_between_two_segments),
    cmocka_unit_test(fork__child_starts_anew),
    cmocka_unit_test(fork__parents_memory_joins_its_mapping_again),
    cmocka_unit_test(fork__keeps_what_was_advised_for_forks),
    cmocka_unit_test(fork__remainders_too),
    cmocka_unit_test(fork__already_shared_memory_stays_shared),
    cmocka_unit_test(fork__protection_and_holes),
    cmocka_unit_test(fork__while_another_thread_stores),
    cmocka_unit_test(fork__while_another_thread_adopts),
    cmocka_unit_test(fork__that_fails_changes_nothing),
    cmocka_unit_test(spawn__memory_stays_adopted),
    cmocka_unit_test(fork__without_descriptors),
    cmocka_unit_test(fork__in_a_chroot),
    cmocka_unit_test(fork__raw_clone_does_not_share),
};

static int all_as_nobody(void *arg)
{
    (void)arg;
    become_nobody();
    int failed = cmocka_run_group_tests_name("adopt_fork as nobody", tests, NULL, NULL);
    fflush(NULL);
    return failed ? 1 : 0;
}

int main(void)
{
    if (adopt_is_refused())
        return 77;
    int failed = cmocka_run_group_tests_name("adopt_fork", tests, NULL, NULL);
    return failed || (getuid() == 0 && run_in_child(all_as_nobody, NULL));
}
