/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/direct/process/silence.h"

enum { STOPPED = 100 };

static const uint64_t start_ns = 1000 * SW_NS_PER_S;

static void silence__the_first_is_waited_for(void **state)
{
    (void)state;
    const struct sw_silence silence = {0};
    assert_int_equal(sw_silence_patience(&silence, start_ns), SW_SILENCE_MAX_NS);
}

static void silence__many_cost_little_more_than_one(void **state)
{
    (void)state;
    struct sw_silence silence = {0};
    uint64_t now_ns = start_ns;
    for (int i = 0; i < STOPPED; i++) {
        const uint64_t patience_ns = sw_silence_patience(&silence, now_ns);
        assert_in_range(patience_ns, SW_SILENCE_MIN_NS, SW_SILENCE_MAX_NS);
        now_ns += patience_ns;
        sw_silence_note(&silence, now_ns, patience_ns);
    }
    assert_true(now_ns - start_ns < SW_SILENCE_MAX_NS + STOPPED * SW_SILENCE_MIN_NS * 2);
}

static void silence__is_forgotten(void **state)
{
    (void)state;
    struct sw_silence silence = {0};
    sw_silence_note(&silence, start_ns, SW_SILENCE_MAX_NS);
    assert_int_equal(sw_silence_patience(&silence, start_ns), SW_SILENCE_MIN_NS);
    const uint64_t forgets_ns = SW_SILENCE_FORGETS * SW_SILENCE_MAX_NS;
    assert_int_equal(sw_silence_patience(&silence, start_ns + forgets_ns / 2),
                     SW_SILENCE_MAX_NS / 2);
    assert_int_equal(sw_silence_patience(&silence, start_ns + forgets_ns), SW_SILENCE_MAX_NS);
}

static void silence__has_a_bound(void **state)
{
    (void)state;
    struct sw_silence silence = {0};
    for (int i = 0; i < STOPPED; i++) /* threads that wait at once */
        sw_silence_note(&silence, start_ns, SW_SILENCE_MAX_NS);
    const uint64_t forgets_ns = SW_SILENCE_FORGETS * SW_SILENCE_MAX_NS;
    assert_int_equal(sw_silence_patience(&silence, start_ns + forgets_ns), SW_SILENCE_MAX_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence__the_first_is_waited_for),
        cmocka_unit_test(silence__many_cost_little_more_than_one),
        cmocka_unit_test(silence__is_forgotten),
        cmocka_unit_test(silence__has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
