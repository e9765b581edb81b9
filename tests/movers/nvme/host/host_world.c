/* SPDX-License-Identifier: BSD-2-Clause */
#include "host_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

int world_set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    *w = (struct world){.target = played_start()};
    sw_nvme_options_init(&w->options);
    w->options.traddr = "127.0.0.1";
    w->options.trsvcid = played_port(w->target);
    w->options.subsysnqn = "nqn.2014-08.org.example:played";
    w->options.connect_timeout_ms = WAIT_MS;
    w->options.reconnect_delay_s = 0;
    *state = w;
    return 0;
}

int world_tear_down(void **state)
{
    struct world *w = *state;
    sw_nvme_queue_close(w->queue);
    sw_nvme_mem_release(w->mem);
    assert_int_equal(sw_nvme_disconnect(w->controller), SW_NVME_OK);
    played_stop(w->target);
    return 0;
}

void world_bring_up(struct world *w)
{
    const enum sw_nvme_status status = sw_nvme_connect(&w->options, &w->error, &w->controller);
    if (status)
        fail_msg("%s", w->error.text);
    assert_int_equal(sw_nvme_mem_alloc(w->controller, BYTES, &w->mem), SW_NVME_OK);
    w->data = sw_nvme_mem_data(w->mem);
    if (sw_nvme_queue_open(w->controller, 0, &w->error, &w->queue))
        fail_msg("%s", w->error.text);
}

struct sw_nvme_result world_run_one(struct world *w, submit *op, uint64_t lba, uint32_t blocks)
{
    const struct sw_nvme_io io = {.nsid = 1,
                                  .lba = lba,
                                  .blocks = blocks,
                                  .data = w->data,
                                  .bytes = blocks * PLAYED_BLOCK,
                                  .mem = w->mem,
                                  .arg = w};
    struct sw_nvme_result result = {0};
    assert_int_equal(op(w->queue, &io), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_wait(w->queue, sw_nvme_deadline_ms(WAIT_MS)), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_take(w->queue, &result, 1), 1);
    assert_ptr_equal(result.arg, w);
    return result;
}

void world_fill(uint8_t *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 7 + seed + i / 251);
}

void world_check_moves(struct world *w)
{
    static uint8_t expected[BYTES];
    /* In capsule and inline, in capsule, by RDMA READ. */
    const uint32_t blocks[] = {1, 8, 64};
    for (unsigned i = 0; i < 3; i++) {
        const size_t bytes = blocks[i] * PLAYED_BLOCK;
        world_fill(expected, bytes, i);
        memcpy(w->data, expected, bytes);
        assert_int_equal(world_run_one(w, sw_nvme_write, 10, blocks[i]).status, SW_NVME_OK);
        assert_memory_equal(played_disk(w->target) + 10 * PLAYED_BLOCK, expected, bytes);
        memset(w->data, 0, bytes);
        assert_int_equal(world_run_one(w, sw_nvme_read, 10, blocks[i]).status, SW_NVME_OK);
        assert_memory_equal(w->data, expected, bytes);
    }
}

static void count_end(void *arg, const struct sw_nvme_result *result)
{
    struct tally *tally = arg;
    tally->ended++;
    tally->ok += result->status == SW_NVME_OK;
    tally->maybe += result->status == SW_NVME_MAYBE_DONE;
    tally->not_done += result->status == SW_NVME_NOT_DONE;
    tally->other += result->status != SW_NVME_OK && result->status != SW_NVME_MAYBE_DONE &&
                    result->status != SW_NVME_NOT_DONE;
}

void tally_submit(struct world *w, struct tally *tally, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct sw_nvme_io io = {.nsid = 1,
                                      .lba = i % 100,
                                      .blocks = 1,
                                      .data = w->data + (i % 100) * PLAYED_BLOCK,
                                      .bytes = PLAYED_BLOCK,
                                      .mem = w->mem,
                                      .done = count_end,
                                      .arg = tally};
        enum sw_nvme_status status;
        while ((status = (i & 1 ? sw_nvme_read : sw_nvme_write)(w->queue, &io)) == SW_NVME_AGAIN)
            assert_int_equal(sw_nvme_queue_wait(w->queue, sw_nvme_deadline_ms(WAIT_MS)),
                             SW_NVME_OK);
        if (status)
            return;
        tally->submitted++;
    }
}

void tally_wait(struct world *w, struct tally *tally)
{
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    while (tally->ended < tally->submitted)
        assert_int_not_equal(sw_nvme_queue_wait(w->queue, deadline), SW_NVME_TIMEOUT);
    assert_int_equal(tally->ended, tally->submitted);
    assert_int_equal(sw_nvme_queue_used(w->queue), 0);
}
