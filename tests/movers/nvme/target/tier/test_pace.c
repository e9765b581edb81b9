/* SPDX-License-Identifier: BSD-2-Clause */
/* How much of a host's time FILE gets: a tier on media in memory. */
#include "world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum {
    BLOCK = 4096,
    STRIDE = 2 * BLOCK, /* no two blocks go to FILE together */
    LOG_BYTES = (16 << 10) + (4 << 20),
    RECORD = BLOCK + NVT_TIER_HEAD_BYTES,
    STEPS_MAX = 200000,
};

static bool has_ended;

static void paced_write_ended(struct nvt_io *io, uint16_t status)
{
    (void)io;
    assert_int_equal(status, 0);
    has_ended = true;
}

static void write_block(struct world *world, uint64_t number)
{
    static uint8_t data[BLOCK];
    struct nvt_io io = {.kind = NVT_WRITE,
                        .offset = number * STRIDE,
                        .len_bytes = BLOCK,
                        .data = data,
                        .uring = &world->uring,
                        .done = paced_write_ended};
    memset(data, (int)number + 1, sizeof(data));
    has_ended = false;
    nvt_tier_submit(world->tier, &io);
    for (uint32_t i = 0; i < STEPS_MAX && !has_ended; i++)
        world_step(world);
    assert_true(has_ended);
}

static void begin_world(struct world *world)
{
    world_make(world, 1, 1, 1024 * STRIDE, LOG_BYTES);
    assert_int_equal(world_open(world, 0, true), 0);
    for (uint32_t i = 0; i < STEPS_MAX && !nvt_tier_is_ready(world->tier); i++)
        world_step(world);
    assert_true(nvt_tier_is_ready(world->tier));
}

/* Hosts that write have the thread for themselves, but for a few writes to FILE. */
static void pace__gives_file_little_while_hosts_write(void **state)
{
    struct world world;
    uint64_t number = 0;
    (void)state;
    begin_world(&world);
    world.hosts = WORLD_BUSY;
    for (; number * RECORD < LOG_BYTES / 4; number++)
        write_block(&world, number);
    const uint64_t first = number, before = world.tier->counts.file_writes;
    for (; number * RECORD < LOG_BYTES / 16 * 7; number++) {
        write_block(&world, number);
        for (uint32_t i = 0; i < 16; i++) /* the loop turns many times for each write */
            world_step(&world);
    }
    const uint64_t written = world.tier->counts.file_writes - before;
    assert_in_range(written, 1, (number - first) / 32);
    world_free(&world);
}

/* Nothing waits for a host that has stopped. */
static void pace__gives_file_all_in_a_pause(void **state)
{
    struct world world;
    uint64_t number = 0;
    (void)state;
    begin_world(&world);
    world.hosts = WORLD_BUSY;
    for (; number * RECORD < LOG_BYTES / 16 * 7; number++)
        write_block(&world, number);
    assert_true(world.tier->end - world.tier->head > LOG_BYTES / 4);
    world.hosts = WORLD_SILENT;
    for (uint32_t i = 0;
         i < STEPS_MAX && world.tier->end - world.tier->head >= world.tier->super.ring_bytes / 4;
         i++)
        world_step(&world);
    assert_true(world.tier->end - world.tier->head < world.tier->super.ring_bytes / 4);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pace__gives_file_little_while_hosts_write),
        cmocka_unit_test(pace__gives_file_all_in_a_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
