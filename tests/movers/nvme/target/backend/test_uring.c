/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring of backends: what it tells of calls that end at once, and of those that do not. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/uring.h"

enum {
    ENTRIES = 16,
    CALLS = 5,
    BYTES = 4096,
    LONG_BYTES = 128 << 10,
    MANY = 1000,
    POSTS = 20000,
    REFUSALS_MAX = 1000
};

struct call {
    struct mover_ring_op op; /* must be first */
    int result, ends;
};

static bool refuses_when_full;
static int refusals;

/* As Linux 5.5 to 5.18 has it: nothing is taken while there is no room for completions. */
int io_uring_submit(struct io_uring *ring)
{
    static int (*real)(struct io_uring * ring);
    if (!real)
        real = (int (*)(struct io_uring *))dlsym(RTLD_NEXT, "io_uring_submit");
    if (!refuses_when_full || io_uring_cq_ready(ring) < *ring->cq.kring_entries)
        return real(ring);
    if (++refusals > REFUSALS_MAX)
        fail_msg("it waits for room that nobody makes");
    return -EBUSY;
}

static void note_end(struct mover_ring_op *op, int result)
{
    struct call *call = (struct call *)op;
    call->result = result;
    call->ends++;
}

static void open_or_skip(struct nvt_uring *uring)
{
    if (nvt_uring_open(uring, ENTRIES)) {
        print_message("SKIP: the system has no io_uring\n");
        skip();
    }
}

static void submit__calls_that_end_at_once_are_prompt(void **state)
{
    (void)state;
    struct nvt_uring uring;
    struct call calls[CALLS] = {0};
    open_or_skip(&uring);
    assert_false(nvt_uring_is_prompt(&uring));
    for (int i = 0; i < CALLS; i++) {
        calls[i].op.complete = note_end;
        io_uring_prep_nop(nvt_uring_entry(&uring, &calls[i].op));
    }
    assert_true(nvt_uring_submit(&uring));
    assert_true(nvt_uring_is_prompt(&uring));
    uint64_t moved_bytes = 0;
    while (nvt_uring_reap(&uring, &moved_bytes)) {
    }
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(calls[i].ends, 1);
    assert_int_equal(moved_bytes, 0);
    nvt_uring_close(&uring);
}

/* The caller looks for commands in between. */
static void reap__two_at_a_time(void **state)
{
    (void)state;
    struct nvt_uring uring;
    struct call calls[CALLS] = {0};
    open_or_skip(&uring);
    for (int i = 0; i < CALLS; i++) {
        calls[i].op.complete = note_end;
        io_uring_prep_nop(nvt_uring_entry(&uring, &calls[i].op));
    }
    assert_true(nvt_uring_submit(&uring));
    uint64_t moved_bytes = 0;
    for (int left = CALLS; left > 0; left -= 2) {
        assert_int_equal(nvt_uring_under_way(&uring), left);
        assert_true(nvt_uring_reap(&uring, &moved_bytes));
    }
    assert_int_equal(nvt_uring_under_way(&uring), 0);
    assert_false(nvt_uring_reap(&uring, &moved_bytes));
    nvt_uring_close(&uring);
}

static void submit__one_that_waits_is_not_prompt(void **state)
{
    (void)state;
    struct nvt_uring uring;
    struct call call = {.op.complete = note_end};
    static uint8_t from[BYTES], to[BYTES];
    int ends[2];
    uint64_t moved_bytes = 0;
    open_or_skip(&uring);
    assert_return_code(pipe(ends), 0);
    io_uring_prep_nop(nvt_uring_entry(&uring, &call.op));
    assert_true(nvt_uring_submit(&uring));
    assert_true(nvt_uring_reap(&uring, &moved_bytes));
    io_uring_prep_read(nvt_uring_entry(&uring, &call.op), ends[0], to, BYTES, 0);
    assert_true(nvt_uring_submit(&uring));
    assert_false(nvt_uring_is_prompt(&uring));
    assert_false(nvt_uring_reap(&uring, &moved_bytes));
    assert_int_equal(nvt_uring_under_way(&uring), 1);
    assert_int_equal(write(ends[1], from, BYTES), BYTES);
    while (!nvt_uring_reap(&uring, &moved_bytes))
        usleep(1000);
    assert_int_equal(call.result, BYTES);
    assert_int_equal(moved_bytes, BYTES);
    close(ends[0]);
    close(ends[1]);
    nvt_uring_close(&uring);
}

static void reap__takes_a_few_at_a_time(void **state)
{
    (void)state;
    struct nvt_uring uring;
    struct call calls[CALLS] = {0};
    int ends = 0;
    uint64_t moved_bytes = 0;
    open_or_skip(&uring);
    for (int i = 0; i < CALLS; i++) {
        calls[i].op.complete = note_end;
        io_uring_prep_nop(nvt_uring_entry(&uring, &calls[i].op));
    }
    assert_true(nvt_uring_submit(&uring));
    assert_true(nvt_uring_reap(&uring, &moved_bytes));
    for (int i = 0; i < CALLS; i++)
        ends += calls[i].ends;
    assert_in_range(ends, 1, CALLS - 1);
    nvt_uring_close(&uring);
}

/* Many more than the kernel has room for, before any of them is looked at. */
static void entry__is_there_where_completions_have_no_room(void **state)
{
    (void)state;
    struct nvt_uring uring;
    static struct call calls[MANY];
    uint64_t moved_bytes = 0;
    open_or_skip(&uring);
    refuses_when_full = true;
    refusals = 0;
    for (int i = 0; i < MANY; i++) {
        calls[i] = (struct call){.op.complete = note_end};
        io_uring_prep_nop(nvt_uring_entry(&uring, &calls[i].op));
        assert_int_equal(calls[i / 2].ends, 0);
    }
    assert_true(refusals > 0);
    while (nvt_uring_submit(&uring) || nvt_uring_reap(&uring, &moved_bytes)) {
    }
    refuses_when_full = false;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(calls[i].ends, 1);
    assert_int_equal(nvt_uring_under_way(&uring), 0);
    nvt_uring_close(&uring);
}

/* Its data takes long to move, and the disk is to have the host's next command before that of the
 * next one is moved. */
static void reap__one_long_call_at_a_time(void **state)
{
    (void)state;
    struct nvt_uring uring;
    struct call calls[CALLS] = {0};
    static uint8_t to[LONG_BYTES];
    uint64_t moved_bytes = 0;
    open_or_skip(&uring);
    const int file = memfd_create("test", MFD_CLOEXEC);
    assert_return_code(file, errno);
    assert_return_code(ftruncate(file, LONG_BYTES), errno);
    for (int i = 0; i < CALLS; i++) {
        calls[i].op.complete = note_end;
        io_uring_prep_read(nvt_uring_entry(&uring, &calls[i].op), file, to, LONG_BYTES, 0);
    }
    assert_true(nvt_uring_submit(&uring));
    for (int left = CALLS; left > 0; left--) {
        assert_int_equal(nvt_uring_under_way(&uring), left);
        while (!nvt_uring_reap(&uring, &moved_bytes))
            usleep(1000);
    }
    assert_int_equal(nvt_uring_under_way(&uring), 0);
    assert_int_equal(moved_bytes, (uint64_t)CALLS * LONG_BYTES);
    close(file);
    nvt_uring_close(&uring);
}

/* ---- how long a file is ---- */

static void take_answer(struct nvt_uring *uring)
{
    uint64_t moved_bytes = 0;
    assert_true(nvt_uring_submit(uring));
    while (nvt_uring_under_way(uring))
        if (!nvt_uring_reap(uring, &moved_bytes))
            usleep(1000);
}

static struct nvt_backend *open_file(struct nvt_uring *uring, int fd)
{
    char path[64], error[256];
    struct nvt_backend *backend = NULL;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const struct nvt_backend_setup setup = {.path = path, .block_bytes = BYTES, .uring = uring};
    if (nvt_file.open(&setup, &backend, error, sizeof(error)))
        fail_msg("%s", error);
    return backend;
}

/* Whatever its memory has from before. */
static void ring__is_empty_when_it_is_opened(void **state)
{
    (void)state;
    struct mover_ring ring;
    struct nvt_uring uring;
    open_or_skip(&uring);
    memset(&ring, 0xff, sizeof(ring));
    assert_true(mover_ring_open(&ring, 4, 0, -1) < 0);
    mover_ring_close(&ring);
    memset(&ring, 0xff, sizeof(ring));
    assert_int_equal(mover_ring_open(&ring, 4, 0, uring.event_fd), 0);
    assert_int_equal(ring.queued + ring.under_way, 0);
    assert_int_equal(ring.fixed_bytes, 0);
    mover_ring_close(&ring);
    nvt_uring_close(&uring);
}

static void is_fixed__only_what_lies_wholly_in_the_registered_memory(void **state)
{
    (void)state;
    struct nvt_uring uring;
    uint8_t *memory =
        mmap(NULL, LONG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    open_or_skip(&uring);
    assert_false(mover_ring_is_fixed(&uring.calls, memory, 1));
    mover_ring_register(&uring.calls, memory, LONG_BYTES);
    if (uring.calls.fixed_bytes) { /* else the system allows no such memory here */
        assert_true(mover_ring_is_fixed(&uring.calls, memory, LONG_BYTES));
        assert_true(mover_ring_is_fixed(&uring.calls, memory + LONG_BYTES - 1, 1));
        assert_false(mover_ring_is_fixed(&uring.calls, memory + 1, LONG_BYTES));
        assert_false(mover_ring_is_fixed(&uring.calls, memory + LONG_BYTES, 1));
        assert_false(mover_ring_is_fixed(&uring.calls, memory - 1, 1));
    }
    nvt_uring_close(&uring);
    munmap(memory, LONG_BYTES);
}

/* A file system that hangs is one that does not answer. */
static void length__is_asked_for_without_waiting(void **state)
{
    (void)state;
    struct nvt_uring uring;
    open_or_skip(&uring);
    const int fd = memfd_create("test", MFD_CLOEXEC);
    assert_return_code(ftruncate(fd, BYTES), errno);
    struct nvt_backend *backend = open_file(&uring, fd);
    assert_return_code(ftruncate(fd, 2 * BYTES), errno);
    for (int i = 0; i < 3; i++)
        assert_int_equal(nvt_file.size_bytes(backend), BYTES);
    take_answer(&uring);
    assert_int_equal(nvt_file.size_bytes(backend), 2 * BYTES);
    nvt_file.close(backend); /* with a question under way */
    take_answer(&uring);
    close(fd);
    nvt_uring_close(&uring);
}

static void refuse_file(struct nvt_uring *uring, const char *path, const char *said)
{
    char error[256] = "";
    struct nvt_backend *backend = NULL;
    const struct nvt_backend_setup setup = {.path = path, .uring = uring};
    assert_true(nvt_file.open(&setup, &backend, error, sizeof(error)) < 0);
    if (!strstr(error, said))
        fail_msg("%s, not %s", error, said);
}

static void open__says_what_is_there_instead(void **state)
{
    (void)state;
    struct nvt_uring uring;
    open_or_skip(&uring);
    refuse_file(&uring, "/dev/null", "is no plain file, nor anything else");
    refuse_file(&uring, "/proc/self/nowhere", "truncate -s SIZE");
    nvt_uring_close(&uring);
}

/* Accesses that make faults do not make it near. */
static void length__of_a_far_device_is_far_behind_faults_too(void **state)
{
    (void)state;
    struct nvt_backend far = {.ops = &nvt_nvme}, near = {.ops = &nvt_file}, *faulty;
    assert_int_equal(nvt_faulty_wrap(&far, 1, 0, &faulty), 0);
    assert_true(faulty->ops->is_size_far);
    free(faulty);
    assert_int_equal(nvt_faulty_wrap(&near, 1, 0, &faulty), 0);
    assert_false(faulty->ops->is_size_far);
    free(faulty);
}

/* Another thread's part of an operation; whether it has woken the owner. */
static bool post_wakes(struct nvt_uring *uring, struct call *call)
{
    eventfd_t count;
    nvt_uring_await(uring);
    nvt_uring_post(uring, &call->op, BYTES);
    return !eventfd_read(uring->event_fd, &count);
}

static void post__wakes_who_is_not_awake(void **state)
{
    (void)state;
    struct nvt_uring uring;
    struct call call = {.op.complete = note_end};
    uint64_t moved_bytes = 0;
    open_or_skip(&uring);
    assert_true(post_wakes(&uring, &call));
    assert_true(nvt_uring_reap(&uring, &moved_bytes));
    nvt_uring_rouse(&uring);
    assert_false(post_wakes(&uring, &call));
    nvt_uring_doze(&uring); /* and looks */
    assert_true(nvt_uring_reap(&uring, &moved_bytes));
    assert_true(post_wakes(&uring, &call));
    assert_true(nvt_uring_reap(&uring, &moved_bytes));
    assert_int_equal(call.ends, 3);
    nvt_uring_close(&uring);
}

struct posting {
    struct nvt_uring *uring;
    struct call *calls;
};

static void *post_many(void *arg)
{
    const struct posting *posting = arg;
    for (int i = 0; i < POSTS; i++) {
        nvt_uring_post(posting->uring, &posting->calls[i].op, 0);
        sched_yield();
    }
    return NULL;
}

/* It would hang if it slept through one. */
static void post__none_is_slept_through(void **state)
{
    (void)state;
    struct nvt_uring uring;
    struct posting posting = {&uring, calloc(POSTS, sizeof(struct call))};
    pthread_t poster;
    uint64_t moved_bytes = 0;
    assert_non_null(posting.calls);
    open_or_skip(&uring);
    for (int i = 0; i < POSTS; i++) {
        posting.calls[i].op.complete = note_end;
        nvt_uring_await(&uring);
    }
    assert_int_equal(pthread_create(&poster, NULL, post_many, &posting), 0);
    while (uring.awaited) {
        struct pollfd ready = {.fd = uring.event_fd, .events = POLLIN};
        eventfd_t count;
        nvt_uring_doze(&uring);
        if (!nvt_uring_reap(&uring, &moved_bytes) && poll(&ready, 1, -1) == 1)
            (void)eventfd_read(uring.event_fd, &count);
        nvt_uring_rouse(&uring);
        while (nvt_uring_reap(&uring, &moved_bytes))
            ;
    }
    pthread_join(poster, NULL);
    for (int i = 0; i < POSTS; i++)
        assert_int_equal(posting.calls[i].ends, 1);
    free(posting.calls);
    nvt_uring_close(&uring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(submit__calls_that_end_at_once_are_prompt),
        cmocka_unit_test(reap__two_at_a_time),
        cmocka_unit_test(submit__one_that_waits_is_not_prompt),
        cmocka_unit_test(reap__takes_a_few_at_a_time),
        cmocka_unit_test(entry__is_there_where_completions_have_no_room),
        cmocka_unit_test(reap__one_long_call_at_a_time),
        cmocka_unit_test(ring__is_empty_when_it_is_opened),
        cmocka_unit_test(is_fixed__only_what_lies_wholly_in_the_registered_memory),
        cmocka_unit_test(length__is_asked_for_without_waiting),
        cmocka_unit_test(open__says_what_is_there_instead),
        cmocka_unit_test(length__of_a_far_device_is_far_behind_faults_too),
        cmocka_unit_test(post__wakes_who_is_not_awake),
        cmocka_unit_test(post__none_is_slept_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
