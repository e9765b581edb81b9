/* SPDX-License-Identifier: BSD-2-Clause */
/* A job of the fio engine against a played target: requests of any length and number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <nvme/types.h>

#include "../host/test_host_target.h"
#include "nvme/fio/job.h"

enum {
    REQUESTS = 100,
    QUEUE = 16,
    COMMAND_BLOCKS = 256, /* of the played target: 128 KiB */
    LONG_BLOCKS = 2 * COMMAND_BLOCKS + 88,
    LONG_BYTES = LONG_BLOCKS * PLAYED_BLOCK,
    WAIT_MS = 10000,
};

struct world {
    struct played *played;
    struct nvj_target target;
    struct sw_nvme_error error;
    struct nvj_job *job;
    uint8_t *data; /* LONG_BYTES for each request */
};

static int set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    *w = (struct world){.played = played_start()};
    sw_nvme_options_init(&w->target.options);
    w->target.options.traddr = "127.0.0.1";
    w->target.options.trsvcid = played_port(w->played);
    w->target.options.subsysnqn = "nqn.2014-08.org.example:played";
    w->target.options.queue_size = QUEUE;
    w->target.options.reconnect_delay_s = 0;
    if (nvj_open(&w->target, REQUESTS, false, &w->error, &w->job))
        fail_msg("%s", w->error.text);
    w->data = nvj_alloc(w->job, (size_t)REQUESTS * LONG_BYTES);
    assert_non_null(w->data);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    nvj_close(w->job);
    played_stop(w->played);
    return 0;
}

static void submit(struct world *w, uint32_t index, enum nvj_kind kind, uint64_t blocks)
{
    struct nvj_request *request = nvj_request_at(w->job, index);
    assert_non_null(request);
    request->arg = w;
    request->kind = kind;
    request->lba = 5;
    request->blocks = blocks;
    request->data = w->data + (size_t)index * LONG_BYTES;
    request->flags = 0;
    nvj_submit(request);
}

/* Each of the first `count` requests ends once. Returns how many of them failed. */
static uint32_t take_all(struct world *w, uint32_t count)
{
    bool has_ended[REQUESTS] = {false};
    uint32_t failed = 0;
    assert_int_equal(nvj_wait(w->job, count, sw_nvme_deadline_ms(WAIT_MS)), count);
    for (uint32_t i = 0; i < count; i++) {
        struct nvj_request *request = nvj_take(w->job);
        assert_non_null(request);
        const uint32_t index = (uint32_t)(request - nvj_request_at(w->job, 0));
        assert_true(index < count && !has_ended[index]);
        has_ended[index] = true;
        failed += request->result.status != SW_NVME_OK;
    }
    assert_null(nvj_take(w->job));
    return failed;
}

static void fill(uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 7 + i / 251);
}

static void long__goes_in_several_commands(void **state)
{
    struct world *w = *state;
    fill(w->data, LONG_BYTES);
    submit(w, 0, NVJ_WRITE, LONG_BLOCKS);
    assert_int_equal(take_all(w, 1), 0);
    assert_int_equal(played_count(w->played, nvme_cmd_write), 3);
    assert_memory_equal(played_disk(w->played) + 5 * PLAYED_BLOCK, w->data, LONG_BYTES);
    memset(w->data, 0, LONG_BYTES);
    submit(w, 0, NVJ_READ, LONG_BLOCKS);
    assert_int_equal(take_all(w, 1), 0);
    assert_memory_equal(played_disk(w->played) + 5 * PLAYED_BLOCK, w->data, LONG_BYTES);
}

static void many__wait_for_room(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < REQUESTS; i++)
        submit(w, i, i == 50 ? NVJ_FLUSH : NVJ_READ, i == 50 ? 0 : i % 2 ? LONG_BLOCKS : 1);
    assert_int_equal(take_all(w, REQUESTS), 0);
    assert_int_equal(played_count(w->played, nvme_cmd_read), 3 * REQUESTS / 2 + REQUESTS / 2 - 1);
    assert_int_equal(played_count(w->played, nvme_cmd_flush), 1);
}

static void many__under_losses(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (i % 30 == 10)
            played_set(w->played, MISCHIEF_CUT_ALL, 1);
        submit(w, i, i % 3 ? NVJ_READ : NVJ_WRITE, i % 2 ? LONG_BLOCKS : 1);
    }
    assert_int_equal(take_all(w, REQUESTS), 0);
    /* The last cut may come after the last answer. */
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    while (!nvj_reconnects(w->job) && sw_nvme_deadline_ms(0) < deadline)
        nvj_wait(w->job, 1, sw_nvme_deadline_ms(10));
    assert_true(nvj_reconnects(w->job) >= 1);
}

static void failed__command_fails_its_request_alone(void **state)
{
    struct world *w = *state;
    played_set(w->played, MISCHIEF_STATUS, 1);
    for (uint32_t i = 0; i < 10; i++)
        submit(w, i, NVJ_READ, LONG_BLOCKS);
    assert_int_equal(take_all(w, 10), 1);
}

static void failed__trim_without_dataset_management(void **state)
{
    struct world *w = *state;
    assert_false(nvj_namespace_of(w->job)->trims);
    submit(w, 0, NVJ_TRIM, 8);
    assert_int_equal(take_all(w, 1), 1);
}

static void freed__ends_what_is_under_way(void **state)
{
    struct world *w = *state;
    uint32_t failed = 0;
    played_set(w->played, MISCHIEF_SILENT, 0);
    for (uint32_t i = 0; i < REQUESTS; i++)
        submit(w, i, NVJ_READ, LONG_BLOCKS);
    nvj_free(w->job);
    struct nvj_request *request;
    while ((request = nvj_take(w->job)))
        failed += request->result.status != SW_NVME_OK;
    assert_int_equal(failed, REQUESTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(long__goes_in_several_commands, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many__wait_for_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many__under_losses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failed__command_fails_its_request_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failed__trim_without_dataset_management, set_up, tear_down),
        cmocka_unit_test_setup_teardown(freed__ends_what_is_under_way, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
