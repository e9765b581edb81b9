/* SPDX-License-Identifier: BSD-2-Clause */
/* What is remembered of hosts: that TCP is the way there, or may be. */
#include "link/paired/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A host in a network of its own for each test, as what is known stays. */
static struct in6_addr host(uint8_t network, uint32_t number)
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff, [12] = network}};
    address.s6_addr[14] = (uint8_t)(number >> 8);
    address.s6_addr[15] = (uint8_t)number;
    return address;
}

static void sw_hosts_is_found__that_host_alone(void **state)
{
    (void)state;
    const struct in6_addr one = host(10, 1), other = host(10, 2);
    assert_false(sw_hosts_is_found(&one));
    sw_hosts_note_found(&one);
    assert_true(sw_hosts_is_found(&one));
    assert_false(sw_hosts_is_found(&other));
}

static void sw_hosts_wants_copy__once_two_were_said_again(void **state)
{
    (void)state;
    const struct in6_addr one = host(11, 1), other = host(11, 2);
    assert_false(sw_hosts_wants_copy(&one, false));
    assert_false(sw_hosts_wants_copy(&one, true));
    assert_true(sw_hosts_wants_copy(&one, true));
    assert_true(sw_hosts_wants_copy(&one, false));
    assert_false(sw_hosts_wants_copy(&other, false));
    assert_false(sw_hosts_is_found(&one)); /* datagrams of programs must not come twice */
    sw_hosts_note_message(&one, false);
    assert_false(sw_hosts_wants_copy(&one, false));
    assert_false(sw_hosts_wants_copy(&one, true));
}

static void sw_hosts_wants_copy__who_sends_by_tcp_is_answered_so(void **state)
{
    (void)state;
    const struct in6_addr one = host(12, 1);
    sw_hosts_note_stream(&one);
    sw_hosts_note_message(&one, false);
    assert_true(sw_hosts_wants_copy(&one, false));
    assert_false(sw_hosts_is_found(&one));
}

static void sw_hosts_wants_datagrams__whose_messages_come_by_tcp_alone(void **state)
{
    (void)state;
    const struct in6_addr one = host(14, 1), other = host(14, 2);
    sw_hosts_note_message(&one, true); /* nothing is known of it */
    assert_false(sw_hosts_wants_datagrams(&one));
    sw_hosts_note_stream(&one);
    assert_false(sw_hosts_wants_datagrams(&one)); /* it may send by both ways */
    sw_hosts_note_message(&one, true);
    assert_true(sw_hosts_wants_datagrams(&one));
    assert_false(sw_hosts_wants_datagrams(&other));
    assert_false(sw_hosts_is_found(&one)); /* connections have a rule of their own */
    sw_hosts_note_message(&one, false);
    assert_false(sw_hosts_wants_datagrams(&one));
    sw_hosts_note_found(&one);
    assert_true(sw_hosts_wants_datagrams(&one));
}

static void sw_hosts_note_stream__strangers_push_out_what_was_not_used(void **state)
{
    (void)state;
    const struct in6_addr kept = host(13, 0), lost = host(13, 1);
    sw_hosts_note_stream(&lost);
    for (uint32_t i = 2; i < 600; i++) {
        const struct in6_addr stranger = host(13, i);
        sw_hosts_note_found(&kept);
        sw_hosts_note_stream(&stranger);
    }
    assert_true(sw_hosts_is_found(&kept));
    assert_false(sw_hosts_wants_copy(&lost, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_hosts_is_found__that_host_alone),
        cmocka_unit_test(sw_hosts_wants_copy__once_two_were_said_again),
        cmocka_unit_test(sw_hosts_wants_copy__who_sends_by_tcp_is_answered_so),
        cmocka_unit_test(sw_hosts_wants_datagrams__whose_messages_come_by_tcp_alone),
        cmocka_unit_test(sw_hosts_note_stream__strangers_push_out_what_was_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
