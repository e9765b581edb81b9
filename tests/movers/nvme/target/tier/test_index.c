/* SPDX-License-Identifier: BSD-2-Clause */
/* The index beside an array that has the same for each unit. */
#include "nvme/target/tier/index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { UNITS = 1024, STEPS = 30000, EXTENTS = 4096 };

struct unit {
    uint64_t position;
    uint32_t skip;
    enum nvt_tier_kind kind;
};

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*state >> 8) * below >> 24);
}

static void compare_with_units(const struct nvt_tier_index *index, const struct unit *units)
{
    uint64_t at = 0, dirty = 0, oldest = UINT64_MAX;
    struct nvt_tier_extent extent;
    while (nvt_tier_index_next(index, at, &extent)) {
        for (; at < extent.offset; at++)
            assert_int_equal(units[at].position, 0);
        assert_true(extent.len_bytes > 0);
        for (uint64_t i = 0; i < extent.len_bytes; i++, at++) {
            assert_int_equal(units[at].position, extent.position);
            assert_int_equal(units[at].kind, extent.kind);
            if (extent.kind == NVT_TIER_WRITE)
                assert_int_equal(units[at].skip, extent.skip_bytes + i);
        }
        dirty += extent.len_bytes;
        oldest = extent.position < oldest ? extent.position : oldest;
    }
    for (; at < UNITS; at++)
        assert_int_equal(units[at].position, 0);
    assert_int_equal(index->dirty_bytes, dirty);
    assert_int_equal(nvt_tier_index_oldest(index), oldest);
}

static void next_before_as_units(const struct nvt_tier_index *index, const struct unit *units,
                                 uint64_t position)
{
    uint64_t at = 0;
    struct nvt_tier_extent extent;
    while (nvt_tier_index_next_before(index, at, position, &extent)) {
        for (; at < extent.offset; at++)
            assert_true(!units[at].position || units[at].position >= position);
        assert_true(extent.position < position);
        at = extent.offset + extent.len_bytes;
    }
    for (; at < UNITS; at++)
        assert_true(!units[at].position || units[at].position >= position);
}

static void index__is_as_an_array(void **state)
{
    struct nvt_tier_index index;
    static struct unit units[UNITS];
    uint32_t seed = 1;
    (void)state;
    assert_int_equal(nvt_tier_index_open(&index, EXTENTS), 0);
    for (uint64_t position = 1; position < STEPS; position++) {
        uint32_t at = draw(&seed, UNITS);
        const uint32_t room = draw(&seed, 8) ? 32 : UNITS;
        uint32_t count = 1 + draw(&seed, room);
        count = count > UNITS - at ? UNITS - at : count;
        struct nvt_tier_extent again;
        if (draw(&seed, 3) == 0 && nvt_tier_index_next(&index, at, &again)) {
            at = (uint32_t)again.offset;
            count = (uint32_t)again.len_bytes;
        }
        const enum nvt_tier_kind kind = draw(&seed, 6) ? NVT_TIER_WRITE : NVT_TIER_ZEROES;
        const struct nvt_tier_extent extent = {
            .offset = at, .len_bytes = count, .position = position, .kind = kind};
        nvt_tier_index_put(&index, &extent);
        for (uint32_t i = 0; i < count; i++)
            units[at + i] = (struct unit){position, i, kind};
        if (draw(&seed, 64) == 0) {
            const uint64_t before = position - draw(&seed, 200) * (position > 200);
            while (nvt_tier_index_drop(&index, before, 1 + draw(&seed, 8)))
                ;
            for (uint32_t i = 0; i < UNITS; i++)
                if (units[i].position < before)
                    units[i] = (struct unit){0};
        }
        if (draw(&seed, 16) == 0) {
            compare_with_units(&index, units);
            next_before_as_units(&index, units, position - draw(&seed, 100) * (position > 100));
        }
    }
    nvt_tier_index_close(&index);
}

/* Each put needs two at most, also where all are taken but these. */
static void index__keeps_within_its_extents(void **state)
{
    struct nvt_tier_index index;
    uint32_t seed = 7;
    (void)state;
    assert_int_equal(nvt_tier_index_open(&index, 16), 0);
    for (uint64_t position = 1; position < 5000; position++) {
        while (nvt_tier_index_left(&index) < 2)
            nvt_tier_index_drop(&index, position, 1);
        const struct nvt_tier_extent extent = {.offset = draw(&seed, 100),
                                               .len_bytes = 1 + draw(&seed, 40),
                                               .position = position,
                                               .kind = NVT_TIER_WRITE};
        nvt_tier_index_put(&index, &extent);
    }
    nvt_tier_index_drop(&index, UINT64_MAX, UINT32_MAX);
    assert_int_equal(nvt_tier_index_left(&index), 16);
    assert_int_equal(index.dirty_bytes, 0);
    nvt_tier_index_close(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index__is_as_an_array),
        cmocka_unit_test(index__keeps_within_its_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
