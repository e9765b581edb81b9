// SPDX-License-Identifier: BSD-2-Clause
// The ring of a pipe between a writer and a reader that share no memory: requests are copies.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "transfer/pipe/ring.h"

enum { BYTES = 4096, MESSAGE_MAX = 1024 };

struct world {
    struct pipe_out out;
    struct pipe_in in;
    uint64_t arrived; // what the device says of the writer's requests
};

static void world_make(struct world *world)
{
    *world = (struct world){.out = {.mirror = calloc(1, BYTES), .bytes = BYTES},
                            .in = {.ring = calloc(1, BYTES), .bytes = BYTES}};
}

static void world_free(struct world *world)
{
    free(world->out.mirror);
    free(world->in.ring);
}

// All of a record but its mark, then the mark.
static void carry_record(struct world *world, const struct pipe_record *record, bool has_mark)
{
    uint8_t *from = world->out.mirror + record->offset, *to = world->in.ring + record->offset;
    memcpy(to + 4, from + 4, record->bytes - 4);
    if (has_mark)
        memcpy(to, from, 4);
}

static bool send_filled(struct world *world, uint32_t bytes, uint8_t value)
{
    struct pipe_record records[2];
    const unsigned count = pipe_out_reserve(&world->out, bytes, records);
    if (!count)
        return false;
    const struct pipe_record *record = &records[count - 1];
    memset(world->out.mirror + record->offset + PIPE_HEAD, value, bytes);
    for (unsigned i = 0; i < count; i++)
        carry_record(world, &records[i], true);
    world->out.reclaimed = world->out.produced;
    return true;
}

static void expect_filled(struct world *world, uint32_t bytes, uint8_t value)
{
    const uint8_t *message;
    uint32_t length;
    assert_int_equal(pipe_in_look(&world->in, MESSAGE_MAX, &message, &length), PIPE_MESSAGE);
    assert_int_equal(length, bytes);
    for (uint32_t i = 0; i < length; i++)
        assert_int_equal(message[i], value);
    pipe_in_drop(&world->in, length);
}

static enum pipe_look look_again(struct world *world)
{
    const uint8_t *message;
    uint32_t length;
    return pipe_in_look(&world->in, MESSAGE_MAX, &message, &length);
}

static void reserve__many_laps_with_messages_that_look_like_marks(void **state)
{
    (void)state;
    struct world world;
    unsigned seed = 7;
    world_make(&world);
    for (int i = 0; i < 20000; i++) {
        // 0x80 is the first byte of a mark's last: old bytes must not be taken for one.
        const uint32_t bytes = (uint32_t)rand_r(&seed) % (MESSAGE_MAX + 1);
        const uint8_t value = i % 3 ? 0x80 : (uint8_t)i;
        assert_true(send_filled(&world, bytes, value));
        expect_filled(&world, bytes, value);
        assert_int_equal(look_again(&world), PIPE_EMPTY);
        if (pipe_in_owes(&world.in)) {
            world.in.told = world.in.consumed;
            assert_true(pipe_out_credit(&world.out, world.in.told));
        }
    }
    world_free(&world);
}

static void reserve__no_further_than_the_peer_has_read(void **state)
{
    (void)state;
    struct world world;
    int sent = 0;
    world_make(&world);
    while (send_filled(&world, 56, 1))
        sent++;
    assert_int_equal(sent, BYTES / PIPE_LINE);
    expect_filled(&world, 56, 1);
    assert_false(send_filled(&world, 56, 2)); // it was read, but nobody said so
    assert_true(pipe_out_credit(&world.out, world.in.consumed));
    assert_true(send_filled(&world, 56, 2));
    assert_false(send_filled(&world, 0, 2));
    world_free(&world);
}

static void reserve__not_what_a_request_still_reads(void **state)
{
    (void)state;
    struct world world;
    struct pipe_record records[2];
    world_make(&world);
    while (send_filled(&world, 56, 1))
        expect_filled(&world, 56, 1);
    world.out.reclaimed = 0;
    assert_true(pipe_out_credit(&world.out, world.in.consumed));
    assert_int_equal(pipe_out_reserve(&world.out, 1, records), 0);
    world.out.reclaimed = PIPE_LINE;
    assert_int_equal(pipe_out_reserve(&world.out, 1, records), 1);
    world_free(&world);
}

static void credit__of_what_cannot_be(void **state)
{
    (void)state;
    struct world world;
    world_make(&world);
    assert_true(send_filled(&world, 200, 1));
    assert_false(pipe_out_credit(&world.out, 1));
    assert_false(pipe_out_credit(&world.out, world.out.produced + PIPE_LINE));
    assert_true(pipe_out_credit(&world.out, PIPE_LINE));
    assert_false(pipe_out_credit(&world.out, 0));
    world_free(&world);
}

static void look__before_the_mark_has_come(void **state)
{
    (void)state;
    struct world world;
    struct pipe_record records[2];
    world_make(&world);
    world.out.marks = world.in.marks = 0x010203; // no byte of it is 0
    assert_int_equal(pipe_out_reserve(&world.out, 100, records), 1);
    carry_record(&world, records, false);
    assert_int_equal(look_again(&world), PIPE_EMPTY);
    for (int part = 0; part < 4; part++) { // byte by byte, the worst that a device may do
        assert_int_equal(look_again(&world), PIPE_EMPTY);
        world.in.ring[part ^ 3] = world.out.mirror[part ^ 3];
    }
    assert_int_equal(look_again(&world), PIPE_MESSAGE);
    world_free(&world);
}

static void look__at_lengths_that_lie(void **state)
{
    (void)state;
    const uint32_t lies[] = {MESSAGE_MAX + 1, 0x7fffffff, 0xfffffffe};
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        struct world world;
        world_make(&world);
        assert_true(send_filled(&world, 5, 1));
        put_le32(world.in.ring + 4, lies[i]);
        assert_int_equal(look_again(&world), PIPE_BROKEN);
        world_free(&world);
    }
    struct world world; // one that would lie across the end
    world_make(&world);
    while (world.out.produced < BYTES - PIPE_LINE) {
        assert_true(send_filled(&world, 5, 1));
        expect_filled(&world, 5, 1);
    }
    assert_true(send_filled(&world, 5, 1));
    put_le32(world.in.ring + BYTES - PIPE_LINE + 4, 57);
    assert_int_equal(look_again(&world), PIPE_BROKEN);
    world_free(&world);
}

static void look__at_a_pad_that_comes_alone(void **state)
{
    (void)state;
    struct world world;
    world_make(&world);
    put_le32(world.in.ring + 4, PIPE_PAD);
    put_le32(world.in.ring, 1u << 31);
    assert_int_equal(look_again(&world), PIPE_EMPTY);
    assert_int_equal(world.in.consumed, BYTES);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserve__many_laps_with_messages_that_look_like_marks),
        cmocka_unit_test(reserve__no_further_than_the_peer_has_read),
        cmocka_unit_test(reserve__not_what_a_request_still_reads),
        cmocka_unit_test(credit__of_what_cannot_be),
        cmocka_unit_test(look__before_the_mark_has_come),
        cmocka_unit_test(look__at_lengths_that_lie),
        cmocka_unit_test(look__at_a_pad_that_comes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
