/* SPDX-License-Identifier: BSD-2-Clause */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "link/roce/port/rx_buffers.h"

enum { LONG = SW_RX_BUFFERS_WORTH };

struct rig {
    struct sw_rx_buffers buffers;
    int ends[2];
};

static int open_rig(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_true(sw_rx_buffers_open(&rig->buffers));
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, rig->ends), 0);
    *state = rig;
    return 0;
}

static int close_rig(void **state)
{
    struct rig *rig = *state;
    close(rig->ends[0]);
    close(rig->ends[1]);
    sw_rx_buffers_close(&rig->buffers);
    free(rig);
    return 0;
}

static void send_of(struct rig *rig, uint8_t value, uint32_t len_bytes)
{
    static uint8_t bytes[LONG];
    memset(bytes, value, sizeof(bytes));
    assert_int_equal(send(rig->ends[0], bytes, len_bytes, 0), len_bytes);
}

static void is_of(const uint8_t *bytes, uint8_t value, uint32_t len_bytes)
{
    for (uint32_t i = 0; i < len_bytes; i++)
        assert_int_equal(bytes[i], value);
}

static void comes(struct rig *rig, uint32_t want, uint32_t count)
{
    assert_int_equal(sw_rx_buffers_fill(&rig->buffers, rig->ends[1], want, true), count);
}

static void rx_buffers__messages_come_into_the_same_rooms(void **state)
{
    struct rig *rig = *state;
    send_of(rig, 1, LONG);
    send_of(rig, 2, 5);
    comes(rig, 4, 2);
    const uint8_t *first = sw_rx_buffers_bytes(&rig->buffers, 0),
                  *second = sw_rx_buffers_bytes(&rig->buffers, 1);
    assert_int_equal(sw_rx_buffers_len(&rig->buffers, 0), LONG);
    assert_int_equal(sw_rx_buffers_len(&rig->buffers, 1), 5);
    is_of(first, 1, LONG);
    is_of(second, 2, 5);
    for (uint32_t i = 0; i < 2; i++) {
        (void)sw_rx_buffers_hold(&rig->buffers, i);
        sw_rx_buffers_pass(&rig->buffers, i); /* nobody has held it */
    }
    send_of(rig, 3, 7);
    comes(rig, 1, 1);
    assert_ptr_equal(sw_rx_buffers_bytes(&rig->buffers, 0), first);
    assert_ptr_equal(sw_rx_buffers_bytes(&rig->buffers, 1), second);
    is_of(first, 3, 7);
    assert_true(sw_rx_buffers_fill(&rig->buffers, rig->ends[1], 1, true) < 0);
    assert_true(sw_rx_buffers_fill(&rig->buffers, rig->ends[1], 3, true) < 0);
}

static void rx_buffers__what_is_held_stays_as_it_is(void **state)
{
    struct rig *rig = *state;
    send_of(rig, 1, LONG);
    send_of(rig, 2, LONG);
    comes(rig, 2, 2);
    const uint8_t *held = sw_rx_buffers_bytes(&rig->buffers, 0);
    struct sw_hold *hold = sw_rx_buffers_hold(&rig->buffers, 0);
    hold->users += 2;
    sw_rx_buffers_pass(&rig->buffers, 0);
    for (uint32_t round = 0; round < 3 * SW_RX_BUFFERS_SPARE; round++) {
        send_of(rig, 3, LONG);
        send_of(rig, 4, LONG);
        comes(rig, 2, 2);
        is_of(sw_rx_buffers_bytes(&rig->buffers, 0), 3, LONG);
        is_of(sw_rx_buffers_bytes(&rig->buffers, 1), 4, LONG);
        is_of(held, 1, LONG);
        hold->users -= round == 100; /* one of two */
        struct sw_hold *again = sw_rx_buffers_hold(&rig->buffers, round % 2);
        again->users++;
        sw_rx_buffers_pass(&rig->buffers, round % 2);
        again->users--;
    }
    hold->users--;
}

static void rx_buffers__there_is_an_end_to_holding(void **state)
{
    struct rig *rig = *state;
    struct sw_hold *holds[SW_RX_BUFFERS_SPARE];
    const uint8_t *rooms[SW_RX_BUFFERS_SPARE];
    for (uint32_t i = 0; i < SW_RX_BUFFERS_SPARE; i++) {
        send_of(rig, (uint8_t)i, LONG);
        comes(rig, 1, 1);
        rooms[i] = sw_rx_buffers_bytes(&rig->buffers, 0);
        holds[i] = sw_rx_buffers_hold(&rig->buffers, 0);
        assert_non_null(holds[i]);
        holds[i]->users++;
        sw_rx_buffers_pass(&rig->buffers, 0);
    }
    send_of(rig, 0xff, LONG);
    comes(rig, 1, 1);
    assert_null(sw_rx_buffers_hold(&rig->buffers, 0));
    sw_rx_buffers_pass(&rig->buffers, 0);
    for (uint32_t i = 0; i < SW_RX_BUFFERS_SPARE; i++)
        is_of(rooms[i], (uint8_t)i, LONG);
    holds[40]->users--;
    struct sw_hold *hold = sw_rx_buffers_hold(&rig->buffers, 0);
    assert_non_null(hold);
    hold->users++;
    sw_rx_buffers_pass(&rig->buffers, 0);
    assert_ptr_equal(sw_rx_buffers_bytes(&rig->buffers, 0), rooms[40]);
}

static void rx_buffers__short_messages_are_not_held(void **state)
{
    struct rig *rig = *state;
    send_of(rig, 1, LONG - 1);
    comes(rig, 1, 1);
    assert_null(sw_rx_buffers_hold(&rig->buffers, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rx_buffers__messages_come_into_the_same_rooms, open_rig,
                                        close_rig),
        cmocka_unit_test_setup_teardown(rx_buffers__what_is_held_stays_as_it_is, open_rig,
                                        close_rig),
        cmocka_unit_test_setup_teardown(rx_buffers__there_is_an_end_to_holding, open_rig,
                                        close_rig),
        cmocka_unit_test_setup_teardown(rx_buffers__short_messages_are_not_held, open_rig,
                                        close_rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
