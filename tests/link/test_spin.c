/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the engine goes on looking after it has worked for a peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/spin.h"

static uint64_t now_ns;

static int setup(void **state)
{
    (void)state;
    now_ns = 1;
    return 0;
}

/* Works, and finds nothing for as long as it goes on. Whether it went on at all. */
static bool work_in_vain(struct sw_spin *spin)
{
    const bool said = sw_spin_goes_on(spin), did = sw_spin_round(spin, true, ++now_ns);
    assert_int_equal(said, did);
    if (did)
        assert_true(sw_spin_round(spin, false, now_ns + SW_SPIN_NS - 1));
    now_ns += SW_SPIN_NS;
    assert_false(sw_spin_round(spin, false, now_ns));
    return did;
}

static void goes_on_from_the_last_work(void **state)
{
    (void)state;
    struct sw_spin spin = {0};
    assert_false(sw_spin_round(&spin, false, now_ns));
    for (int i = 0; i < 100; i++) {
        assert_true(sw_spin_round(&spin, true, now_ns));
        now_ns += SW_SPIN_NS - 1;
        assert_true(sw_spin_round(&spin, false, now_ns));
    }
    assert_false(sw_spin_round(&spin, false, now_ns + 1));
}

static void in_vain_it_is_left_out_mostly(void **state)
{
    (void)state;
    struct sw_spin spin = {0};
    int done = 0;
    for (int i = 0; i < 1000; i++)
        done += work_in_vain(&spin);
    assert_in_range(done, 5, 30);
}

static void and_taken_up_again(void **state)
{
    (void)state;
    struct sw_spin spin = {0};
    int waited = 0, done = 0;
    while (work_in_vain(&spin))
        ;
    for (; !sw_spin_round(&spin, true, ++now_ns) && waited < 1000; waited++)
        ;
    assert_in_range(waited, 1, 100);
    assert_true(sw_spin_round(&spin, true, ++now_ns)); /* while it goes on */
    assert_false(sw_spin_round(&spin, false, now_ns += SW_SPIN_NS));
    for (int i = 0; i < 3; i++)
        done += work_in_vain(&spin);
    assert_int_equal(done, 3); /* four in vain, with the one before */
    assert_false(work_in_vain(&spin));
}

static void expects_until_it_is_there(void **state)
{
    (void)state;
    struct sw_spin spin = {0};
    assert_false(sw_spin_await(&spin, false, now_ns)); /* nothing was announced */
    assert_false(sw_spin_await(&spin, true, now_ns));
    for (int i = 0; i < 100; i++) {
        sw_spin_begin(&spin, now_ns);
        now_ns += SW_SPIN_NS - 1;
        assert_true(sw_spin_await(&spin, false, now_ns));
        assert_false(sw_spin_await(&spin, true, now_ns));
        assert_false(sw_spin_await(&spin, false, now_ns));
    }
    sw_spin_begin(&spin, now_ns);
    assert_false(sw_spin_await(&spin, false, now_ns + SW_SPIN_NS));
}

/* As from a peer that shares the processor with this one. */
static void what_is_announced_and_does_not_come_is_mostly_left_out(void **state)
{
    (void)state;
    struct sw_spin spin = {0};
    int done = 0, waited = 0;
    for (int i = 0; i < 1000; i++) {
        sw_spin_begin(&spin, ++now_ns);
        done += sw_spin_await(&spin, false, now_ns);
        now_ns += SW_SPIN_NS;
        assert_false(sw_spin_await(&spin, false, now_ns));
    }
    assert_in_range(done, 5, 30);
    for (; !spin.since_ns && waited < 1000; waited++)
        sw_spin_begin(&spin, ++now_ns);
    assert_in_range(waited, 0, 100);
    assert_false(sw_spin_await(&spin, true, now_ns)); /* it came: all is well again */
    sw_spin_begin(&spin, ++now_ns);
    assert_true(sw_spin_await(&spin, false, now_ns));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(goes_on_from_the_last_work, setup),
        cmocka_unit_test_setup(in_vain_it_is_left_out_mostly, setup),
        cmocka_unit_test_setup(and_taken_up_again, setup),
        cmocka_unit_test_setup(expects_until_it_is_there, setup),
        cmocka_unit_test_setup(what_is_announced_and_does_not_come_is_mostly_left_out, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
