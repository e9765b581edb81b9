/* SPDX-License-Identifier: BSD-2-Clause */
/* Authentication of the host against a played target. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <nvme/types.h>

#include "../secrets.h"
#include "sidewire/nvme.h"
#include "test_host_target.h"

#define HOST_NQN "nqn.2014-08.org.example:host"
#define NQN "nqn.2014-08.org.example:played"

enum { WAIT_MS = 60000 }; /* patience, on a busy machine too */

static struct played *target;
static struct sw_nvme_options options;
static struct sw_nvme_error error;
static struct sw_nvme_controller *controller;
static struct sw_nvme_queue *queue;

static int set_up(void **state)
{
    (void)state;
    target = played_start();
    controller = NULL;
    queue = NULL;
    sw_nvme_options_init(&options);
    options.traddr = "127.0.0.1";
    options.trsvcid = played_port(target);
    options.subsysnqn = NQN;
    options.hostnqn = HOST_NQN;
    options.dhchap_secret = HOST_SECRET;
    options.connect_timeout_ms = WAIT_MS;
    options.reconnect_delay_s = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_nvme_queue_close(queue);
    assert_int_equal(sw_nvme_disconnect(controller), SW_NVME_OK);
    played_stop(target);
    return 0;
}

static void want_secrets(const char *controller_secret)
{
    played_set_secrets(target, HOST_SECRET, controller_secret, HOST_NQN, NQN);
}

static enum sw_nvme_status try_connect(void)
{
    error = (struct sw_nvme_error){0};
    return sw_nvme_connect(&options, &error, &controller);
}

static void check_flush(void)
{
    const struct sw_nvme_io io = {.nsid = 1};
    struct sw_nvme_result result;
    assert_int_equal(sw_nvme_flush(queue, &io), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_wait(queue, sw_nvme_deadline_ms(WAIT_MS)), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_take(queue, &result, 1), 1);
    assert_int_equal(result.status, SW_NVME_OK);
}

static void bring_up(void)
{
    if (try_connect() || sw_nvme_queue_open(controller, 0, &error, &queue))
        fail_msg("%s", error.text);
    check_flush();
}

static void host__proves_itself_on_each_queue(void **state)
{
    (void)state;
    want_secrets(NULL);
    bring_up();
}

static void both__prove_themselves(void **state)
{
    (void)state;
    want_secrets(CONTROLLER_SECRET);
    options.dhchap_ctrl_secret = CONTROLLER_SECRET;
    bring_up();
}

static void host__proves_itself_anew_after_a_loss(void **state)
{
    (void)state;
    want_secrets(CONTROLLER_SECRET);
    options.dhchap_ctrl_secret = CONTROLLER_SECRET;
    bring_up();
    played_set(target, MISCHIEF_CUT_ALL, 1);
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    struct sw_nvme_info info;
    do {
        sw_nvme_queue_poll(queue);
        sw_nvme_info_of(controller, &info);
    } while (!info.reconnects && sw_nvme_deadline_ms(0) < deadline);
    assert_int_equal(info.reconnects, 1);
    check_flush();
}

static void expect(enum sw_nvme_status status, const char *text)
{
    assert_int_equal(try_connect(), status);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, error.text);
    assert_null(controller);
}

static void host__without_a_secret_says_so(void **state)
{
    (void)state;
    want_secrets(NULL);
    options.dhchap_secret = NULL;
    expect(SW_NVME_AUTHENTICATION, "wants authentication");
}

static void host__with_a_wrong_secret_is_refused(void **state)
{
    (void)state;
    want_secrets(NULL);
    options.dhchap_secret = CONTROLLER_SECRET;
    expect(SW_NVME_AUTHENTICATION, "a response is wrong");
}

static void controller__has_to_prove_itself(void **state)
{
    (void)state;
    options.dhchap_ctrl_secret = CONTROLLER_SECRET;
    expect(SW_NVME_AUTHENTICATION, "does not authenticate");
    want_secrets(CONTROLLER_SECRET);
    played_set(target, MISCHIEF_AUTH_PROOF, 1);
    expect(SW_NVME_AUTHENTICATION, "does not prove");
    assert_int_equal(try_connect(), SW_NVME_OK);
}

/* Polls so seldom that the reason and the end of the connection come together. */
static void host__cut_off_with_the_answer_knows_why(void **state)
{
    (void)state;
    const struct timespec pause = {.tv_nsec = 30000000};
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    want_secrets(NULL);
    options.dhchap_secret = CONTROLLER_SECRET;
    played_set(target, MISCHIEF_AUTH_CUT, 1);
    assert_int_equal(sw_nvme_start(&options, &error, &controller), SW_NVME_OK);
    while (sw_nvme_poll(controller) != SW_NVME_DEAD && sw_nvme_deadline_ms(0) < deadline)
        nanosleep(&pause, NULL);
    sw_nvme_last_error(controller, &error);
    assert_int_equal(error.status, SW_NVME_AUTHENTICATION);
}

static void secrets__that_are_none_are_refused_at_once(void **state)
{
    (void)state;
    options.dhchap_secret = "DHHC-1:00:AAAA:";
    expect(SW_NVME_INVALID, "a secret is not valid");
    options.dhchap_secret = NULL;
    options.dhchap_ctrl_secret = CONTROLLER_SECRET;
    expect(SW_NVME_INVALID, "goes with");
}

static void hostile__exchanges(void **state)
{
    (void)state;
    played_set(target, MISCHIEF_CONCATENATION, 1);
    expect(SW_NVME_AUTHENTICATION, "secure concatenation");
    want_secrets(CONTROLLER_SECRET);
    played_set(target, MISCHIEF_AUTH_STATUS, 1);
    expect(SW_NVME_FAILED, "Internal Error");
    played_set(target, MISCHIEF_AUTH_GARBAGE, 0);
    expect(SW_NVME_AUTHENTICATION, "malformed");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(host__proves_itself_on_each_queue),
        CASE(both__prove_themselves),
        CASE(host__proves_itself_anew_after_a_loss),
        CASE(host__without_a_secret_says_so),
        CASE(host__with_a_wrong_secret_is_refused),
        CASE(controller__has_to_prove_itself),
        CASE(host__cut_off_with_the_answer_knows_why),
        CASE(secrets__that_are_none_are_refused_at_once),
        CASE(hostile__exchanges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
