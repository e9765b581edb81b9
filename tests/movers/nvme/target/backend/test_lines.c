/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines of disks: what one that hangs leaves to others, and whose turn it is at each. */
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
#include "nvme/target/backend/lines.h"
#include "nvme/target/backend/uring.h"

enum { PLACES = 64, MANY = 100, ENTRIES = 128, SIZE = 1 << 20, BLOCK = 4096, WAITS = 0xffff };

static struct nvt_lines lines;
static struct nvt_io ios[MANY];
static struct nvt_line *had[MANY]; /* by the number of the operation; NULL: it waits, or is over */
static int order[MANY], begun, ends;
static uint16_t statuses[MANY];
static bool is_gone;

static int number_of(const struct nvt_io *io)
{
    return (int)(io - ios);
}

static void note_end(struct nvt_io *io, uint16_t status)
{
    statuses[number_of(io)] = status;
    ends++;
}

static uint16_t given_up(const struct nvt_io *io)
{
    (void)io;
    return is_gone ? NVME_SC_ABORT_REQ : 0;
}

static struct nvt_io *new_io(int i, const char *address)
{
    ios[i] = (struct nvt_io){.address = address, .done = note_end, .given_up = given_up};
    return &ios[i];
}

static int reset(void **state)
{
    (void)state;
    begun = ends = 0;
    is_gone = false;
    memset(statuses, 0xff, sizeof(statuses));
    memset(had, 0, sizeof(had));
    return 0;
}

/* ---- the lines alone ---- */

static bool take_place(struct nvt_io *io)
{
    had[number_of(io)] = nvt_lines_take(&lines);
    order[begun++] = number_of(io);
    return true;
}

static void add(int i, dev_t disk, const char *address, bool is_held)
{
    assert_true(nvt_lines_add(&lines, disk, new_io(i, address), take_place, is_held));
}

static void give(int i)
{
    struct nvt_line *line = had[i];
    had[i] = NULL;
    nvt_lines_give(&lines, line);
}

/* Each wants all, and none ends: seven disks have something. */
static void disk__that_hangs_leaves_half_of_what_others_leave(void **state)
{
    const int taken[] = {32, 16, 8, 4, 2, 1, 1, 0};
    (void)state;
    nvt_lines_open(&lines, PLACES, PLACES);
    for (unsigned disk = 0; disk < sizeof(taken) / sizeof(*taken); disk++) {
        const int before = begun;
        for (int i = before; i < before + taken[disk] + 3; i++)
            add(i, disk, "one", false);
        assert_int_equal(begun - before, taken[disk]);
    }
    nvt_lines_close(&lines);
}

static void disk__has_no_more_than_is_of_one(void **state)
{
    (void)state;
    nvt_lines_open(&lines, PLACES, 4);
    for (int i = 0; i < MANY / 2; i++)
        add(i, 1, "one", false);
    assert_int_equal(begun, 4);
    add(MANY - 1, 2, "one", false);
    assert_non_null(had[MANY - 1]);
    give(0);
    assert_int_equal(begun, 6);
    nvt_lines_close(&lines);
}

/* What one disk gives back, another one may have that waits. */
static void place__given_back_goes_to_others_too(void **state)
{
    (void)state;
    nvt_lines_open(&lines, 4, 4);
    for (int i = 0; i < 2; i++)
        add(i, 1, "one", false);
    for (int i = 2; i < 5; i++)
        add(i, 2, "one", false);
    assert_int_equal(begun, 3);
    give(0);
    assert_int_equal(begun, 4);
    assert_int_equal(order[3], 3);
    nvt_lines_close(&lines);
}

/* Each of more disks than there are places wants one all the time. */
static void place__is_had_by_disks_in_turns(void **state)
{
    enum { DISKS = 20, ROUNDS = 4 };
    int served[DISKS] = {0};
    (void)state;
    nvt_lines_open(&lines, 16, 4);
    for (int i = 0; i < DISKS * ROUNDS; i++)
        add(i, (dev_t)(1 + i % DISKS), "one", false);
    for (int i = 0; i < DISKS * (ROUNDS - 1); i++) {
        assert_in_range(begun, i + 1, MANY);
        served[order[i] % DISKS]++;
        give(order[i]);
    }
    for (int disk = 0; disk < DISKS; disk++)
        assert_in_range(served[disk], ROUNDS - 2, ROUNDS);
    nvt_lines_close(&lines);
}

static void place__is_had_by_addresses_in_turns(void **state)
{
    (void)state;
    nvt_lines_open(&lines, PLACES, 1);
    for (int i = 1; i < MANY; i++)
        add(i, 1, "one", false);
    add(0, 1, "other", false);
    while (!had[0]) {
        assert_in_range(begun, 1, 2);
        give(order[begun - 1]);
    }
    nvt_lines_close(&lines);
}

/* The one that has memory is told by begin(), which takes a place here all the same. */
static void waiting__ends_where_nobody_wants_it(void **state)
{
    (void)state;
    nvt_lines_open(&lines, PLACES, 1);
    add(0, 1, "one", false);
    add(1, 1, "one", false);
    add(2, 1, "one", true);
    is_gone = true;
    give(0);
    assert_int_equal(ends, 1);
    assert_int_equal(statuses[1], NVME_SC_ABORT_REQ);
    assert_non_null(had[2]);
    nvt_lines_close(&lines);
}

/* None gives its place back. Those that stay keep their turns. */
static void waiting__that_nobody_wants_ends_at_a_disk_that_hangs(void **state)
{
    const int turns[] = {0, 2, 1, 4, 3};
    (void)state;
    nvt_lines_open(&lines, PLACES, 1);
    for (int i = 0; i < 3; i++)
        add(2 * i, 1, "one", false);
    add(1, 1, "other", false);
    add(3, 1, "other", false);
    add(5, 2, "one", false);
    for (int i = 6; i < 10; i++)
        add(i, 1 + i % 2, i % 3 ? "one" : "other", false);
    for (int i = 0; i < 6; i++)
        ios[i].given_up = NULL;
    is_gone = true;
    nvt_lines_end_unwanted(&lines);
    assert_int_equal(ends, 4);
    assert_int_equal(begun, 2);
    for (int i = 0; i < 5; i++) {
        assert_non_null(had[turns[i]]);
        give(turns[i]);
    }
    assert_int_equal(begun, 6);
    nvt_lines_close(&lines);
}

static void add_of(int i, const char *address, const char *host)
{
    struct nvt_io *io = new_io(i, address);
    io->host = host;
    assert_true(nvt_lines_add(&lines, 1, io, take_place, false));
}

/* The first of an address, with more of its host and without, that of a host, and one behind. */
static void waiting__leaves_its_turn_to_the_next(void **state)
{
    const int turns[] = {0, 2, 5, 7, 4, 6, 9}, gone[] = {1, 3, 8, 10, 11};
    (void)state;
    nvt_lines_open(&lines, PLACES, 1);
    add_of(0, "other", "c");
    add_of(1, "one", "a");
    add_of(2, "one", "a");
    add_of(11, "one", "a");
    add_of(3, "one", "b");
    add_of(4, "one", "b");
    add_of(5, "two", "d");
    add_of(6, "two", "d");
    add_of(8, "three", "e");
    add_of(7, "three", "f");
    add_of(9, "one", "a");
    add_of(10, "four", "g");
    is_gone = true;
    for (int i = 0; i < 5; i++) {
        assert_true(nvt_lines_has(&ios[gone[i]]));
        nvt_lines_end_io(&ios[gone[i]]);
        assert_false(nvt_lines_has(&ios[gone[i]]));
        assert_int_equal(statuses[gone[i]], NVME_SC_ABORT_REQ);
    }
    is_gone = false;
    assert_int_equal(ends, 5);
    for (int i = 0; i < 7; i++) {
        assert_non_null(had[turns[i]]);
        assert_false(nvt_lines_has(&ios[turns[i]]));
        give(turns[i]);
    }
    assert_int_equal(begun, 7);
    nvt_lines_close(&lines);
}

static void lines__are_as_many_as_disks_at_once(void **state)
{
    (void)state;
    nvt_lines_open(&lines, PLACES, 1);
    for (unsigned disk = 0; disk < MANY; disk++) {
        add((int)disk, disk, "one", false);
        give((int)disk);
    }
    assert_ptr_equal(list_first(&lines.all), lines.all.head.previous);
    nvt_lines_close(&lines);
}

/* ---- a file ---- */

static struct nvt_uring uring;
static struct nvt_backend *backend;
static int file;
static uint64_t moved_bytes;
static uint8_t data[BLOCK] __attribute__((aligned(BLOCK)));

static int open_file(void **state)
{
    char path[64], error[256];
    reset(state);
    backend = NULL;
    if (nvt_uring_open(&uring, ENTRIES))
        return 0;
    file = memfd_create("test", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, SIZE))
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    const struct nvt_backend_setup open = {.path = path, .uring = &uring};
    return nvt_file.open(&open, &backend, error, sizeof(error));
}

static int close_file(void **state)
{
    (void)state;
    if (!backend)
        return 0;
    nvt_file.close(backend);
    nvt_uring_close(&uring);
    return close(file);
}

static void submit_range(int i, enum nvt_io_kind kind, const char *address, uint64_t offset,
                         uint64_t len_bytes)
{
    if (!backend) {
        print_message("SKIP: the system has no io_uring\n");
        skip();
    }
    struct nvt_io *io = new_io(i, address);
    io->kind = kind;
    io->offset = offset;
    io->len_bytes = len_bytes;
    io->data = data;
    io->uring = &uring;
    nvt_file.submit(backend, io);
}

static void submit(int i, enum nvt_io_kind kind, const char *address)
{
    submit_range(i, kind, address, 0, kind == NVT_FLUSH ? 0 : BLOCK);
}

static uint32_t at_the_system(void)
{
    return uring.calls.queued + nvt_uring_under_way(&uring);
}

static void run_turn(void)
{
    (void)nvt_uring_submit(&uring);
    (void)nvt_uring_reap(&uring, &moved_bytes);
}

static void run_until(int count)
{
    while (ends < count)
        run_turn();
}

/* Questions, which tell nobody of their end, too. */
static void run_dry(void)
{
    while (uring.chores.taken)
        run_turn();
}

static void run_all(void)
{
    run_until(MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(statuses[i], 0);
    assert_int_equal(uring.chores.taken + uring.moves.taken, 0);
}

/* Each would have a worker of the system, in the order they come. */
static void chores__of_a_file_are_few_at_the_system(void **state)
{
    const enum nvt_io_kind kinds[] = {NVT_FLUSH, NVT_WRITE_ZEROES, NVT_DEALLOCATE};
    (void)state;
    for (int i = 0; i < MANY; i++)
        submit(i, kinds[i % 3], "one");
    assert_int_equal(at_the_system(), uring.chores.taken);
    assert_in_range(at_the_system(), 1, 16);
    run_all();
}

static void chores__of_addresses_take_turns(void **state)
{
    (void)state;
    for (int i = 1; i < MANY; i++)
        submit(i, NVT_FLUSH, "one");
    submit(0, NVT_FLUSH, "other");
    while (statuses[0] == WAITS)
        run_until(ends + 1);
    assert_in_range(ends, 1, 34);
    run_all();
}

/* They have all places of the disk, and take as long as they are. */
static void expect_long_let_others_between(enum nvt_io_kind kind)
{
    enum { LONG = 16 };
    for (int i = 1; i <= LONG; i++)
        submit_range(i, kind, "one", 0, 1ull << 40);
    submit(0, NVT_FLUSH, "other");
    run_until(1);
    assert_int_equal(statuses[0], 0);
    is_gone = true;
    run_until(LONG + 1);
    for (int i = 1; i <= LONG; i++)
        assert_int_equal(statuses[i], NVME_SC_ABORT_REQ);
}

static void chores__that_are_long_let_others_between(void **state)
{
    expect_long_let_others_between(NVT_WRITE_ZEROES);
    reset(state);
    expect_long_let_others_between(NVT_DEALLOCATE);
}

static uint8_t byte_at(uint64_t at)
{
    uint8_t byte = WAITS & 0xff;
    assert_int_equal(pread(file, &byte, 1, (off_t)at), 1);
    return byte;
}

/* Pieces begin and end at multiples of 32 MiB, or of 256. */
static void expect_reaches_all_of_its_range(enum nvt_io_kind kind)
{
    const uint64_t begin = (31ull << 20) + BLOCK, len_bytes = 600ull << 20, end = begin + len_bytes;
    assert_int_equal(ftruncate(file, 1 << 30), 0);
    for (uint64_t at = 1 << 20; at < 1 << 30; at += 1 << 20)
        for (int before = 0; before < 2; before++)
            assert_int_equal(pwrite(file, "x", 1, (off_t)at - before), 1);
    assert_int_equal(pwrite(file, "xx", 2, (off_t)begin - 1), 2);
    assert_int_equal(pwrite(file, "xx", 2, (off_t)end - 1), 2);
    submit_range(0, kind, "one", begin, len_bytes);
    run_until(ends + 1);
    assert_int_equal(statuses[0], 0);
    assert_int_equal(byte_at(begin - 1), 'x');
    assert_int_equal(byte_at(end), 'x');
    assert_int_equal(lseek(file, (off_t)begin, SEEK_DATA), end);
}

static void chores__that_are_long_reach_all_of_their_range(void **state)
{
    (void)state;
    expect_reaches_all_of_its_range(NVT_WRITE_ZEROES);
    expect_reaches_all_of_its_range(NVT_DEALLOCATE);
}

/* Files in memory have no answer at once: the system says so first, or has it. */
static void moves__that_may_hang_leave_workers_to_others(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++)
        submit(i, i % 2 ? NVT_WRITE : NVT_READ, "one");
    while (ends < MANY) {
        assert_in_range(uring.moves.taken, 0, (uring.moves.places + 1) / 2);
        run_until(ends + 1);
    }
    run_all();
}

static void chores__nobody_wants_end_before_those_at_the_system(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++)
        submit(i, NVT_FLUSH, "one");
    const uint32_t at_once = at_the_system();
    is_gone = true;
    nvt_uring_end_unwanted(&uring);
    assert_int_equal(ends, MANY - at_once);
    run_until(MANY);
    uint32_t served = 0;
    for (int i = 0; i < MANY; i++)
        served += !statuses[i];
    assert_int_equal(served, at_once);
}

/* The answer comes behind them, and no later one is asked for meanwhile. */
static void length__waits_with_the_chores_of_its_disk(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++)
        submit(i, NVT_FLUSH, "one");
    const uint32_t before = at_the_system();
    assert_int_equal(nvt_file.size_bytes(backend), SIZE);
    assert_int_equal(at_the_system(), before);
    assert_int_equal(ftruncate(file, 2 * SIZE), 0);
    run_until(MANY);
    run_dry();
    assert_int_equal(nvt_file.size_bytes(backend), 2 * SIZE);
    run_dry();
}

#define PURE(name) cmocka_unit_test_setup(name, reset)
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_file, close_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PURE(disk__that_hangs_leaves_half_of_what_others_leave),
        PURE(disk__has_no_more_than_is_of_one),
        PURE(place__given_back_goes_to_others_too),
        PURE(place__is_had_by_disks_in_turns),
        PURE(place__is_had_by_addresses_in_turns),
        PURE(waiting__ends_where_nobody_wants_it),
        PURE(waiting__that_nobody_wants_ends_at_a_disk_that_hangs),
        PURE(waiting__leaves_its_turn_to_the_next),
        PURE(lines__are_as_many_as_disks_at_once),
        CASE(chores__of_a_file_are_few_at_the_system),
        CASE(chores__of_addresses_take_turns),
        CASE(chores__that_are_long_let_others_between),
        CASE(chores__that_are_long_reach_all_of_their_range),
        CASE(moves__that_may_hang_leave_workers_to_others),
        CASE(chores__nobody_wants_end_before_those_at_the_system),
        CASE(length__waits_with_the_chores_of_its_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
