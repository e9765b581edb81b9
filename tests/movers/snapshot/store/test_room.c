/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks of a volume: given out once, in runs, data from the low end and leaves from the high. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"
#include "snapshot/store/room.h"

enum { BLOCKS = 1000, SUPERBLOCKS = 2 };

static void room__data_low_leaves_high(void **state)
{
    (void)state;
    struct snap_room room;
    uint64_t block;
    assert_int_equal(snap_room_open(&room, BLOCKS), 0);
    assert_int_equal(room.free_blocks, BLOCKS - SUPERBLOCKS);
    assert_int_equal(snap_room_take(&room, 100, &block), 100);
    assert_int_equal(block, SUPERBLOCKS);
    assert_int_equal(snap_room_take(&room, 100, &block), 100);
    assert_int_equal(block, SUPERBLOCKS + 100);
    assert_true(snap_room_take_run(&room, 7, &block));
    assert_int_equal(block, BLOCKS - 7);
    assert_true(snap_room_take_run(&room, 70, &block));
    assert_int_equal(block, BLOCKS - 77);
    assert_false(snap_room_take_run(&room, BLOCKS, &block));
    assert_int_equal(room.free_blocks, BLOCKS - SUPERBLOCKS - 277);
    snap_room_close(&room);
}

/* A long run is preferred to the holes before it; without one the longest hole will do. */
static void room__runs_are_long(void **state)
{
    (void)state;
    struct snap_room room;
    uint64_t block;
    assert_int_equal(snap_room_open(&room, BLOCKS), 0);
    assert_int_equal(snap_room_take(&room, 400, &block), 400);
    for (uint64_t at = SUPERBLOCKS; at + 10 < 400; at += 10)
        snap_room_give(&room, at, 3);
    room.low = 0;
    assert_int_equal(snap_room_take(&room, 50, &block), 50);
    assert_true(block >= 400);
    while (snap_room_take(&room, 50, &block) == 50)
        ;
    snap_room_give(&room, 703, 20);
    assert_int_equal(snap_room_take(&room, 50, &block), 20);
    assert_int_equal(block, 703);
    assert_int_equal(snap_room_take(&room, 50, &block), 3);
    snap_room_close(&room);
}

/* A random history against a plain array. */
static void room__gives_no_block_twice(void **state)
{
    (void)state;
    struct snap_room room;
    struct random random = {.state = 5};
    uint8_t owner[BLOCKS] = {1, 1};
    uint64_t is_free = BLOCKS - SUPERBLOCKS;
    assert_int_equal(snap_room_open(&room, BLOCKS), 0);
    for (uint32_t round = 0; round < 20000; round++) {
        uint64_t block = 0, count = 0, want = 1 + random_below(&random, 40);
        if (random_is(&random, 40))
            count = snap_room_take(&room, want, &block);
        else if (random_is(&random, 30))
            count = snap_room_take_run(&room, want, &block) ? want : 0;
        for (uint64_t i = 0; i < count; i++) {
            assert_true(block + i < BLOCKS);
            assert_int_equal(owner[block + i]++, 0);
        }
        is_free -= count;
        for (uint32_t i = random_below(&random, 30); count == 0 && i > 0; i--) {
            uint32_t at = SUPERBLOCKS + random_below(&random, BLOCKS - SUPERBLOCKS);
            if (owner[at] == 0)
                continue;
            snap_room_give(&room, at, 1);
            owner[at] = 0;
            is_free++;
        }
        assert_int_equal(room.free_blocks, is_free);
    }
    while (snap_room_take(&room, 5, (uint64_t[1]){0}) > 0)
        ;
    assert_int_equal(room.free_blocks, 0);
    snap_room_close(&room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room__data_low_leaves_high),
        cmocka_unit_test(room__runs_are_long),
        cmocka_unit_test(room__gives_no_block_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
