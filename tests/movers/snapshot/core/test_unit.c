/* SPDX-License-Identifier: BSD-2-Clause */
/* The state cut into units: each byte of each range is in one piece, and no two pieces overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "snapshot/core/unit.h"

enum { MIB = 1 << 20 };

static void check_units(const struct snap_cut *cut, const uint64_t *bytes)
{
    uint64_t *seen = test_calloc(cut->ranges_count + 1u, sizeof *seen);
    uint64_t blocks = 0;
    for (uint32_t u = 0; u < cut->units_count; u++) {
        uint32_t end = 0;
        const struct snap_cut_unit *unit = &cut->units[u];
        assert_true(unit->pieces > 0);
        for (uint32_t p = unit->first_piece; p < unit->first_piece + unit->pieces; p++) {
            const struct snap_cut_piece *piece = &cut->pieces[p];
            assert_true(piece->bytes > 0 && piece->unit_offset >= end);
            assert_true(unit->pieces == 1 || bytes[piece->range] < SNAP_UNIT_SHARED_BELOW);
            assert_int_equal(piece->range_offset, seen[piece->range]);
            if (piece->range_offset == 0) {
                assert_int_equal(cut->places[piece->range].unit, u);
                assert_int_equal(cut->places[piece->range].offset, piece->unit_offset);
            }
            seen[piece->range] += piece->bytes;
            end = piece->unit_offset + piece->bytes;
        }
        assert_true(end <= cut->unit_bytes);
        assert_int_equal(unit->blocks, snap_blocks_of(end));
        blocks += unit->blocks;
    }
    assert_int_equal(blocks, cut->state_blocks);
    for (uint32_t i = 0; i < cut->ranges_count; i++)
        assert_int_equal(seen[i], bytes[i]);
    test_free(seen);
}

static void cut__large_ranges_have_units_of_their_own(void **state)
{
    (void)state;
    uint64_t bytes[] = {5 * MIB + 1, SNAP_UNIT_SHARED_BELOW, 2 * MIB};
    struct snap_cut cut;
    assert_int_equal(snap_cut_make(&cut, bytes, 3, 2 * MIB), 0);
    assert_int_equal(cut.units_count, 5);
    assert_int_equal(cut.units[2].blocks, 257);
    check_units(&cut, bytes);
    snap_cut_free(&cut);
}

static void cut__small_ranges_share_units(void **state)
{
    (void)state;
    uint64_t bytes[200];
    for (uint32_t i = 0; i < 200; i++)
        bytes[i] = i % 3 == 0 ? 0 : (i * 7919u) % (SNAP_UNIT_SHARED_BELOW - 1) + 1;
    bytes[100] = 3 * MIB;
    struct snap_cut cut;
    assert_int_equal(snap_cut_make(&cut, bytes, 200, MIB), 0);
    assert_true(cut.units_count < 12);
    check_units(&cut, bytes);
    snap_cut_free(&cut);
}

static void cut__nothing_is_no_unit(void **state)
{
    (void)state;
    uint64_t bytes[] = {0};
    struct snap_cut cut;
    assert_int_equal(snap_cut_make(&cut, bytes, 1, MIB), 0);
    assert_int_equal(cut.units_count, 0);
    check_units(&cut, bytes);
    snap_cut_free(&cut);
}

static void cut__refuses_what_is_too_large(void **state)
{
    (void)state;
    struct snap_cut cut;
    uint64_t bytes[] = {UINT64_MAX, (uint64_t)SNAP_UNITS_MAX * MIB, 100000};
    assert_int_equal(snap_cut_make(&cut, bytes, 1, MIB), -EINVAL);
    assert_int_equal(snap_cut_make(&cut, bytes + 1, 2, MIB), -EINVAL);
    assert_int_equal(snap_cut_make(&cut, bytes + 2, 1, 3 * MIB), -EINVAL);
    assert_int_equal(snap_cut_make(&cut, bytes + 2, 1, MIB / 2), -EINVAL);
    assert_int_equal(snap_cut_make(&cut, bytes + 2, 1, 8 * MIB), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut__large_ranges_have_units_of_their_own),
        cmocka_unit_test(cut__small_ranges_share_units),
        cmocka_unit_test(cut__nothing_is_no_unit),
        cmocka_unit_test(cut__refuses_what_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
