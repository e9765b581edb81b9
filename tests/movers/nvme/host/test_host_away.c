/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue that is opened while the controller is away: no time is waited for that is in vain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sidewire/nvme.h"
#include "test_host_target.h"

enum { WAIT_MS = 60000, LONGER_S = 2 * WAIT_MS / 1000 };

static struct played *played;
static struct sw_nvme_options options;
static struct sw_nvme_error error;
static struct sw_nvme_controller *controller;
static struct sw_nvme_queue *queue;

static int set_up(void **state)
{
    (void)state;
    played = played_start();
    sw_nvme_options_init(&options);
    options.traddr = "127.0.0.1";
    options.trsvcid = played_port(played);
    options.subsysnqn = "nqn.2014-08.org.example:played";
    options.connect_timeout_ms = WAIT_MS;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(sw_nvme_disconnect(controller), SW_NVME_OK);
    played_stop(played);
    return 0;
}

/* Connects, and is cut off. */
static void lose_controller(enum sw_nvme_state expected)
{
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    if (sw_nvme_connect(&options, &error, &controller))
        fail_msg("%s", error.text);
    played_set(played, MISCHIEF_CUT_ALL, 1);
    while (sw_nvme_poll(controller) == SW_NVME_LIVE && sw_nvme_deadline_ms(0) < deadline)
        ;
    assert_int_equal(sw_nvme_state_of(controller), expected);
}

static void open__of_one_that_is_given_up(void **state)
{
    (void)state;
    options.ctrl_loss_tmo_s = 0;
    lose_controller(SW_NVME_DEAD);
    assert_int_equal(sw_nvme_queue_open(controller, 0, &error, &queue), SW_NVME_UNREACHABLE);
    assert_int_equal(error.status, SW_NVME_UNREACHABLE);
}

static void open__before_it_is_tried_again(void **state)
{
    (void)state;
    options.reconnect_delay_s = LONGER_S;
    lose_controller(SW_NVME_LOST);
    assert_int_equal(sw_nvme_queue_open(controller, 0, &error, &queue), SW_NVME_UNREACHABLE);
    assert_int_equal(error.status, SW_NVME_UNREACHABLE);
}

static void open__of_one_that_comes_back(void **state)
{
    (void)state;
    options.reconnect_delay_s = 1;
    lose_controller(SW_NVME_LOST);
    if (sw_nvme_queue_open(controller, 0, &error, &queue))
        fail_msg("%s", error.text);
    sw_nvme_queue_close(queue);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(open__of_one_that_is_given_up),
        CASE(open__before_it_is_tried_again),
        CASE(open__of_one_that_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
