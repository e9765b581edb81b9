/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/faults/line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void put(struct sw_fault_line *line, uint64_t due_ns, uint32_t number)
{
    assert_true(sw_fault_line_put(line, due_ns, "to", 2, &number, sizeof(number)));
}

static uint32_t take(struct sw_fault_line *line, uint64_t now_ns)
{
    struct sw_held *held = sw_fault_line_take(line, now_ns);
    uint32_t number = UINT32_MAX;
    if (held) {
        assert_true(held->path_len == 2 && !memcmp(held->bytes, "to", 2));
        assert_int_equal(held->packet_len, sizeof(number));
        memcpy(&number, held->bytes + 2, sizeof(number));
    }
    free(held);
    return number;
}

static void sw_fault_line_take__when_due(void **state)
{
    (void)state;
    struct sw_fault_line line = {0};
    assert_int_equal(sw_fault_line_due_ns(&line), UINT64_MAX);
    put(&line, 30, 3);
    put(&line, 10, 1);
    put(&line, 20, 2);
    assert_int_equal(sw_fault_line_due_ns(&line), 10);
    assert_int_equal(take(&line, 9), UINT32_MAX);
    assert_int_equal(take(&line, 25), 1);
    assert_int_equal(take(&line, 25), 2);
    assert_int_equal(take(&line, 25), UINT32_MAX);
    assert_int_equal(take(&line, 30), 3);
    sw_fault_line_clear(&line);
}

/* All are delayed alike: none passes another. */
static void sw_fault_line_take__keeps_order_of_equals(void **state)
{
    (void)state;
    struct sw_fault_line line = {0};
    for (uint32_t i = 0; i < 1000; i++)
        put(&line, 5 + i / 100, i);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(take(&line, 100), i);
    sw_fault_line_clear(&line);
}

static void sw_fault_line_take__any_order(void **state)
{
    (void)state;
    struct sw_fault_line line = {0};
    for (uint32_t i = 0; i < 4096; i++)
        put(&line, i * 2654435761u % 4096, i);
    uint64_t last_ns = 0;
    for (uint32_t i = 0; i < 4096; i++) {
        uint64_t due_ns = sw_fault_line_due_ns(&line);
        assert_true(due_ns >= last_ns);
        last_ns = due_ns;
        assert_int_not_equal(take(&line, due_ns), UINT32_MAX);
    }
    sw_fault_line_clear(&line);
}

static void sw_fault_line_put__is_bounded(void **state)
{
    (void)state;
    struct sw_fault_line line = {0};
    for (uint32_t i = 0; i < SW_FAULT_LINE_MAX; i++)
        assert_true(sw_fault_line_put(&line, i, NULL, 0, NULL, 0));
    assert_false(sw_fault_line_put(&line, 0, NULL, 0, NULL, 0));
    assert_int_equal(line.refused, 1);
    sw_fault_line_clear(&line);
    assert_int_equal(line.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_fault_line_take__when_due),
        cmocka_unit_test(sw_fault_line_take__keeps_order_of_equals),
        cmocka_unit_test(sw_fault_line_take__any_order),
        cmocka_unit_test(sw_fault_line_put__is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
