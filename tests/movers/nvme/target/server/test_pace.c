/* SPDX-License-Identifier: BSD-2-Clause */
/* How a thread of the target shares its time: numbers alone, no clock and no disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nvme/target/server/pace.h"

enum { SPIN_US = 100, MS = 1000000, FEW = 4, MANY = 5 };
#define SPIN_NS (SPIN_US * 1000ull)
#define DISK_NS 20000ull
#define LONG_NS (30 * SPIN_NS)

/* Commands are looked for after each two answers of a disk that works while it is asked. */
static void ends_more__only_where_requests_end_at_once(void **state)
{
    (void)state;
    assert_false(nvt_pace_ends_more(false, 0));
    assert_true(nvt_pace_ends_more(true, 0));
    assert_true(nvt_pace_ends_more(true, (256 << 10) - 1));
    assert_false(nvt_pace_ends_more(true, 256 << 10));
}

static void spin_ns__by_what_is_at_the_disk(void **state)
{
    (void)state;
    const struct nvt_pace pace = {.spin_us = SPIN_US}, short_pace = {.spin_us = 5};
    assert_int_equal(nvt_pace_spin_ns(&pace, 0, 1), SPIN_NS);
    assert_int_equal(nvt_pace_spin_ns(&pace, 1, 1), DISK_NS);
    assert_int_equal(nvt_pace_spin_ns(&pace, FEW, 1), DISK_NS);
    assert_int_equal(nvt_pace_spin_ns(&pace, MANY, 1), LONG_NS);
    assert_int_equal(nvt_pace_spin_ns(&short_pace, FEW, 1), 5000);
}

/* Also for a while after its last request, but not while a disk works, too. */
static void note_library__yields(void **state)
{
    (void)state;
    struct nvt_pace pace = {.spin_us = SPIN_US};
    nvt_pace_note_library(&pace, 5 * MS);
    assert_int_equal(nvt_pace_spin_ns(&pace, 0, 5 * MS), 0);
    assert_int_equal(nvt_pace_spin_ns(&pace, 0, 6 * MS - 1), 0);
    assert_int_equal(nvt_pace_spin_ns(&pace, 0, 6 * MS), SPIN_NS);
    assert_int_equal(nvt_pace_spin_ns(&pace, 1, 5 * MS), DISK_NS);
}

static void yields__until_it_is_silent(void **state)
{
    (void)state;
    struct nvt_pace pace = {.spin_us = SPIN_US};
    assert_false(nvt_pace_yields(&pace, 0, 1));
    nvt_pace_note_library(&pace, 5 * MS);
    assert_true(nvt_pace_yields(&pace, 0, 6 * MS - 1));
    assert_false(nvt_pace_yields(&pace, 1, 5 * MS));
    assert_false(nvt_pace_yields(&pace, 0, 6 * MS));
}

static void note_pause__in_vain_takes_patience_away(void **state)
{
    (void)state;
    struct nvt_pace pace = {.spin_us = SPIN_US};
    nvt_pace_note_pause(&pace, MANY, MS, LONG_NS + 1);
    assert_int_equal(nvt_pace_spin_ns(&pace, MANY, MS), SPIN_NS);
    assert_int_equal(nvt_pace_spin_ns(&pace, MANY, 101ull * MS - 1), SPIN_NS);
    assert_int_equal(nvt_pace_spin_ns(&pace, MANY, 101ull * MS), LONG_NS);
    assert_int_equal(nvt_pace_spin_ns(&pace, FEW, MS), DISK_NS);
}

/* A pause that it had the patience for, and one in which few were at the disk. */
static void note_pause__keeps_patience(void **state)
{
    (void)state;
    struct nvt_pace pace = {.spin_us = SPIN_US};
    nvt_pace_note_pause(&pace, MANY, MS, LONG_NS);
    nvt_pace_note_pause(&pace, FEW, MS, 1000ull * MS);
    assert_int_equal(nvt_pace_spin_ns(&pace, MANY, MS), LONG_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_more__only_where_requests_end_at_once),
        cmocka_unit_test(spin_ns__by_what_is_at_the_disk),
        cmocka_unit_test(note_library__yields),
        cmocka_unit_test(yields__until_it_is_silent),
        cmocka_unit_test(note_pause__in_vain_takes_patience_away),
        cmocka_unit_test(note_pause__keeps_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
