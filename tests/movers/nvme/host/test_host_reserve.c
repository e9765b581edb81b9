/* SPDX-License-Identifier: BSD-2-Clause */
/* Reservation commands of the host, against a played target that grants them all. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <nvme/types.h>

#include "sidewire/nvme.h"
#include "test_host_target.h"

enum { BYTES = 8192, WAIT_MS = 60000, IGNORE = 1 << 3, TYPE = 8, POWER = 30 };
#define OWN 0x1122334455667788ull
#define OTHER 0x99aabbccddeeff00ull

typedef enum sw_nvme_status submit_fn(struct sw_nvme_queue *queue, const struct sw_nvme_io *io,
                                      const struct sw_nvme_resv *resv);

static struct played *played;
static struct sw_nvme_controller *controller;
static struct sw_nvme_queue *queue;
static struct sw_nvme_mem *mem;
static struct sw_nvme_io io;

static int set_up(void **state)
{
    struct sw_nvme_options options;
    struct sw_nvme_error error;
    (void)state;
    played = played_start();
    sw_nvme_options_init(&options);
    options.traddr = "127.0.0.1";
    options.trsvcid = played_port(played);
    options.subsysnqn = "nqn.2014-08.org.example:played";
    options.connect_timeout_ms = WAIT_MS;
    options.reconnect_delay_s = 0;
    if (sw_nvme_connect(&options, &error, &controller))
        fail_msg("%s", error.text);
    assert_int_equal(sw_nvme_mem_alloc(controller, BYTES, &mem), SW_NVME_OK);
    if (sw_nvme_queue_open(controller, 0, &error, &queue))
        fail_msg("%s", error.text);
    io = (struct sw_nvme_io){
        .nsid = 1, .data = (uint8_t *)sw_nvme_mem_data(mem) + 64, .bytes = 64, .mem = mem};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_nvme_queue_close(queue);
    sw_nvme_mem_release(mem);
    assert_int_equal(sw_nvme_disconnect(controller), SW_NVME_OK);
    played_stop(played);
    return 0;
}

static struct sw_nvme_result await_result(void)
{
    struct sw_nvme_result result = {0};
    assert_int_equal(sw_nvme_queue_wait(queue, sw_nvme_deadline_ms(WAIT_MS)), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_take(queue, &result, 1), 1);
    return result;
}

/* So many keys arrive, and this dword 10. */
static void check_sent(submit_fn *submit, const struct sw_nvme_resv *resv, uint32_t cdw10, int keys)
{
    const uint64_t expected[] = {htole64(resv->key), keys > 1 ? htole64(resv->other) : ~0ull};
    memset(played_disk(played), 0xff, 64);
    assert_int_equal(submit(queue, &io, resv), SW_NVME_OK);
    assert_int_equal(await_result().status, SW_NVME_OK);
    assert_int_equal(played_reservation(played), cdw10);
    assert_memory_equal(played_disk(played), expected, sizeof(expected));
    assert_int_equal(played_disk(played)[sizeof(expected)], 0xff);
}

static void register__keys_and_action(void **state)
{
    (void)state;
    struct sw_nvme_resv resv = {.key = OWN, .other = OTHER};
    check_sent(sw_nvme_resv_register, &resv, 0, 2);
    resv.action = SW_NVME_RESV_UNREGISTER;
    resv.ignores_key = true;
    check_sent(sw_nvme_resv_register, &resv, 1 | IGNORE, 2);
    resv.action = SW_NVME_RESV_REPLACE;
    resv.power = SW_NVME_RESV_KEEP;
    check_sent(sw_nvme_resv_register, &resv, 2 | IGNORE | 3u << POWER, 2);
    assert_int_equal(played_count(played, nvme_cmd_resv_register), 3);
}

static void acquire__keys_action_and_type(void **state)
{
    (void)state;
    struct sw_nvme_resv resv = {.key = OWN, .type = SW_NVME_RESV_WRITE_EXCLUSIVE};
    check_sent(sw_nvme_resv_acquire, &resv, 1 << TYPE, 2);
    resv.other = OTHER;
    resv.action = SW_NVME_RESV_PREEMPT_ABORT;
    resv.type = SW_NVME_RESV_EXCLUSIVE_ACCESS_ALL;
    resv.ignores_key = true;
    check_sent(sw_nvme_resv_acquire, &resv, 2 | IGNORE | 6 << TYPE, 2);
    assert_int_equal(played_count(played, nvme_cmd_resv_acquire), 2);
}

static void release__key_action_and_type(void **state)
{
    (void)state;
    struct sw_nvme_resv resv = {.key = OWN, .type = SW_NVME_RESV_EXCLUSIVE_ACCESS_REGISTRANTS};
    check_sent(sw_nvme_resv_release, &resv, 4 << TYPE, 1);
    resv.action = SW_NVME_RESV_CLEAR;
    resv.type = 0;
    check_sent(sw_nvme_resv_release, &resv, 1, 1);
    assert_int_equal(played_count(played, nvme_cmd_resv_release), 2);
}

static void report__is_extended_and_as_long_as_asked(void **state)
{
    (void)state;
    uint8_t *report = io.data;
    memset(played_disk(played), 0x5a, 256);
    memset(report, 0, 256);
    io.bytes = 128;
    assert_int_equal(sw_nvme_resv_report(queue, &io), SW_NVME_OK);
    assert_int_equal(await_result().status, SW_NVME_OK);
    assert_int_equal(played_reservation(played), 1ull << 32 | (128 / 4 - 1));
    assert_memory_equal(report, played_disk(played), 128);
    assert_int_equal(report[128], 0);
}

static void arguments__are_checked(void **state)
{
    (void)state;
    static const struct {
        submit_fn *submit;
        struct sw_nvme_resv resv;
    } wrong[] = {
        {sw_nvme_resv_register, {.action = 3}},
        {sw_nvme_resv_register, {.type = 1}},
        {sw_nvme_resv_register, {.power = 1}},
        {sw_nvme_resv_register, {.power = 4}},
        {sw_nvme_resv_acquire, {.type = 0}},
        {sw_nvme_resv_acquire, {.type = 7}},
        {sw_nvme_resv_acquire, {.type = 1, .action = 3}},
        {sw_nvme_resv_acquire, {.type = 1, .power = 2}},
        {sw_nvme_resv_release, {.type = 0}},
        {sw_nvme_resv_release, {.type = 7, .action = SW_NVME_RESV_CLEAR}},
        {sw_nvme_resv_release, {.type = 1, .action = 2}},
        {sw_nvme_resv_release, {.type = 1, .other = 1}},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_int_equal(wrong[i].submit(queue, &io, &wrong[i].resv), SW_NVME_INVALID);
    const struct sw_nvme_resv resv = {.key = OWN};
    io.bytes = 63;
    assert_int_equal(sw_nvme_resv_report(queue, &io), SW_NVME_INVALID);
    /* Keys take nothing of what `bytes` says: they are as long as they are. */
    io.data = (uint8_t *)sw_nvme_mem_data(mem) + BYTES - 15;
    assert_int_equal(sw_nvme_resv_register(queue, &io, &resv), SW_NVME_NOT_REGISTERED);
    io.mem = NULL;
    assert_int_equal(sw_nvme_resv_register(queue, &io, &resv), SW_NVME_NOT_REGISTERED);
    assert_int_equal(sw_nvme_queue_used(queue), 0);
}

static void loss__keys_are_not_sent_again(void **state)
{
    (void)state;
    const struct sw_nvme_resv resv = {.key = OWN, .type = SW_NVME_RESV_WRITE_EXCLUSIVE};
    played_set(played, MISCHIEF_CUT, 1);
    assert_int_equal(sw_nvme_resv_acquire(queue, &io, &resv), SW_NVME_OK);
    assert_int_equal(await_result().status, SW_NVME_MAYBE_DONE);
    for (unsigned i = 0; i < 2; i++) { /* once it is back; the second one is lost, and sent again */
        assert_int_equal(sw_nvme_resv_report(queue, &io), SW_NVME_OK);
        assert_int_equal(await_result().status, SW_NVME_OK);
        assert_int_equal(played_count(played, nvme_cmd_resv_report), 1 + 2 * i);
        played_set(played, MISCHIEF_CUT, 1);
    }
    played_set(played, MISCHIEF_NONE, 0);
    assert_int_equal(played_count(played, nvme_cmd_resv_acquire), 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(register__keys_and_action),    CASE(acquire__keys_action_and_type),
        CASE(release__key_action_and_type), CASE(report__is_extended_and_as_long_as_asked),
        CASE(arguments__are_checked),       CASE(loss__keys_are_not_sent_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
