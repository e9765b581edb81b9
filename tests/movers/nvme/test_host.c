/* SPDX-License-Identifier: BSD-2-Clause */
/* The host against a played target: what works, what a hostile target gets, what a loss does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <nvme/types.h>
#include <poll.h>

#include "sidewire/nvme.h"
#include "test_host_target.h"

enum { BYTES = 65536, WAIT_MS = 60000 }; /* patience, on a busy machine too */

struct world {
    struct played *target;
    struct sw_nvme_options options;
    struct sw_nvme_error error;
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    uint8_t *data;
};

static int set_up(void **state)
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

static int tear_down(void **state)
{
    struct world *w = *state;
    sw_nvme_queue_close(w->queue);
    sw_nvme_mem_release(w->mem);
    assert_int_equal(sw_nvme_disconnect(w->controller), SW_NVME_OK);
    played_stop(w->target);
    return 0;
}

static void bring_up(struct world *w)
{
    const enum sw_nvme_status status = sw_nvme_connect(&w->options, &w->error, &w->controller);
    if (status)
        fail_msg("%s", w->error.text);
    assert_int_equal(sw_nvme_mem_alloc(w->controller, BYTES, &w->mem), SW_NVME_OK);
    w->data = sw_nvme_mem_data(w->mem);
    if (sw_nvme_queue_open(w->controller, 0, &w->error, &w->queue))
        fail_msg("%s", w->error.text);
}

typedef enum sw_nvme_status submit(struct sw_nvme_queue *queue, const struct sw_nvme_io *io);

static struct sw_nvme_result run_one(struct world *w, submit *op, uint64_t lba, uint32_t blocks)
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

static void fill(uint8_t *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 7 + seed + i / 251);
}

static void check_moves(struct world *w)
{
    static uint8_t expected[BYTES];
    /* In capsule and inline, in capsule, by RDMA READ. */
    const uint32_t blocks[] = {1, 8, 64};
    for (unsigned i = 0; i < 3; i++) {
        const size_t bytes = blocks[i] * PLAYED_BLOCK;
        fill(expected, bytes, i);
        memcpy(w->data, expected, bytes);
        assert_int_equal(run_one(w, sw_nvme_write, 10, blocks[i]).status, SW_NVME_OK);
        assert_memory_equal(played_disk(w->target) + 10 * PLAYED_BLOCK, expected, bytes);
        memset(w->data, 0, bytes);
        assert_int_equal(run_one(w, sw_nvme_read, 10, blocks[i]).status, SW_NVME_OK);
        assert_memory_equal(w->data, expected, bytes);
    }
}

static void moves__sleeping(void **state)
{
    bring_up(*state);
    check_moves(*state);
}

static void moves__spinning(void **state)
{
    struct world *w = *state;
    bring_up(w);
    sw_nvme_queue_close(w->queue);
    assert_int_equal(sw_nvme_queue_open(w->controller, SW_NVME_SPIN_FOREVER, &w->error, &w->queue),
                     SW_NVME_OK);
    check_moves(w);
}

static void moves__without_capsules(void **state)
{
    struct world *w = *state;
    played_set(w->target, MISCHIEF_NO_CAPSULE, 0);
    bring_up(w);
    check_moves(w);
}

static void moves__flush_and_zeroes(void **state)
{
    struct world *w = *state;
    bring_up(w);
    fill(w->data, PLAYED_BLOCK, 1);
    assert_int_equal(run_one(w, sw_nvme_write, 3, 1).status, SW_NVME_OK);
    assert_int_equal(run_one(w, sw_nvme_flush, 0, 0).status, SW_NVME_OK);
    assert_int_equal(run_one(w, sw_nvme_write_zeroes, 3, 1).status, SW_NVME_OK);
    assert_int_equal(played_disk(w->target)[3 * PLAYED_BLOCK + 5], 0);
}

static void errors__out_of_range(void **state)
{
    struct world *w = *state;
    bring_up(w);
    const struct sw_nvme_result result = run_one(w, sw_nvme_read, PLAYED_BLOCKS, 1);
    assert_int_equal(result.status, SW_NVME_FAILED);
    assert_int_equal(result.nvme_status & 0x7ff, NVME_SC_LBA_RANGE);
    assert_string_equal(sw_nvme_code_text(result.nvme_status), "LBA Out of Range");
}

static void errors__arguments(void **state)
{
    struct world *w = *state;
    bring_up(w);
    struct sw_nvme_io io = {.nsid = 1, .blocks = 1, .data = w->data, .bytes = 512, .mem = w->mem};
    io.blocks = 0;
    assert_int_equal(sw_nvme_read(w->queue, &io), SW_NVME_INVALID);
    io.blocks = 1;
    io.data = w->data + BYTES - 511;
    assert_int_equal(sw_nvme_read(w->queue, &io), SW_NVME_NOT_REGISTERED);
    io.data = &io;
    assert_int_equal(sw_nvme_write(w->queue, &io), SW_NVME_NOT_REGISTERED);
    io.mem = NULL;
    assert_int_equal(sw_nvme_write(w->queue, &io), SW_NVME_NOT_REGISTERED);
    assert_int_equal(sw_nvme_queue_wait(w->queue, sw_nvme_deadline_ms(1)), SW_NVME_AGAIN);
}

struct tally {
    struct world *w;
    unsigned ended, submitted, ok, maybe, not_done, other;
    bool resubmits;
};

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

static void submit_all(struct world *w, struct tally *tally, unsigned count)
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

static void wait_all(struct world *w, struct tally *tally)
{
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    while (tally->ended < tally->submitted)
        assert_int_not_equal(sw_nvme_queue_wait(w->queue, deadline), SW_NVME_TIMEOUT);
    assert_int_equal(tally->ended, tally->submitted);
    assert_int_equal(sw_nvme_queue_used(w->queue), 0);
}

static void depth__callbacks(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    bring_up(w);
    assert_int_equal(sw_nvme_queue_depth(w->queue), 63);
    submit_all(w, &tally, 5000);
    wait_all(w, &tally);
    assert_int_equal(tally.ok, 5000);
}

static void depth__frozen_head(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    bring_up(w);
    played_set(w->target, MISCHIEF_HEAD_FROZEN, 0);
    submit_all(w, &tally, 1000);
    wait_all(w, &tally);
    assert_int_equal(tally.ok, 1000);
    assert_int_equal(sw_nvme_state_of(w->controller), SW_NVME_LIVE);
}

static void depth__head_ahead(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    bring_up(w);
    played_set(w->target, MISCHIEF_HEAD_AHEAD, 0);
    submit_all(w, &tally, 1000);
    wait_all(w, &tally);
    assert_int_equal(tally.ok, 1000);
}

/* The queue ends, the controller comes back, and the request is sent again. */
static void hostile(void **state, enum mischief mischief)
{
    struct world *w = *state;
    struct sw_nvme_info info;
    bring_up(w);
    played_set(w->target, mischief, 1);
    assert_int_equal(run_one(w, sw_nvme_write, 1, 1).status, SW_NVME_OK);
    /* What is wrong may come behind what is right. */
    assert_int_equal(run_one(w, sw_nvme_read, 1, 1).status, SW_NVME_OK);
    sw_nvme_info_of(w->controller, &info);
    assert_true(info.reconnects >= 1);
    check_moves(w);
}

static void hostile__wrong_cid(void **state)
{
    hostile(state, MISCHIEF_WRONG_CID);
}

static void hostile__stale_cid(void **state)
{
    hostile(state, MISCHIEF_STALE_CID);
}

static void hostile__short(void **state)
{
    hostile(state, MISCHIEF_SHORT);
}

static void hostile__long(void **state)
{
    hostile(state, MISCHIEF_LONG);
}

static void hostile__too_long(void **state)
{
    hostile(state, MISCHIEF_TOO_LONG);
}

static void hostile__head_huge(void **state)
{
    hostile(state, MISCHIEF_HEAD_HUGE);
}

static void hostile__answers_twice(void **state)
{
    hostile(state, MISCHIEF_TWICE);
}

static void loss__cut(void **state)
{
    hostile(state, MISCHIEF_CUT);
}

static void loss__silence(void **state)
{
    struct world *w = *state;
    w->options.io_timeout_ms = 300;
    hostile(state, MISCHIEF_SILENT);
}

static void loss__status_is_no_loss(void **state)
{
    struct world *w = *state;
    bring_up(w);
    played_set(w->target, MISCHIEF_STATUS, 1);
    const struct sw_nvme_result result = run_one(w, sw_nvme_read, 1, 1);
    assert_int_equal(result.status, SW_NVME_FAILED);
    assert_int_equal(result.nvme_status, 0x281 | NVME_SC_DNR);
    assert_string_equal(sw_nvme_code_text(result.nvme_status), "Unrecovered Read Error");
}

static void loss__under_load(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    bring_up(w);
    for (unsigned i = 0; i < 5; i++) {
        submit_all(w, &tally, 200);
        played_set(w->target, MISCHIEF_CUT_ALL, 1);
        submit_all(w, &tally, 200);
    }
    wait_all(w, &tally);
    assert_int_equal(tally.ok, 2000);
}

/* All that was submitted has come to the target, which keeps silent. */
static void submit_silent(struct world *w, struct tally *tally, unsigned count)
{
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    const unsigned before =
        played_count(w->target, nvme_cmd_read) + played_count(w->target, nvme_cmd_write);
    played_set(w->target, MISCHIEF_SILENT, 0);
    submit_all(w, tally, count);
    while (played_count(w->target, nvme_cmd_read) + played_count(w->target, nvme_cmd_write) <
           before + count) {
        assert_true(sw_nvme_deadline_ms(0) < deadline);
        sw_nvme_queue_poll(w->queue);
    }
    /* The data of the last one is under way, and its answer is decided behind it. */
    poll(NULL, 0, 50);
}

static void loss__no_way_back(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    w->options.ctrl_loss_tmo_s = 0;
    bring_up(w);
    submit_silent(w, &tally, 10);
    played_set(w->target, MISCHIEF_CUT_ALL, 1);
    wait_all(w, &tally);
    assert_int_equal(tally.maybe, 10);
    assert_int_equal(sw_nvme_state_of(w->controller), SW_NVME_DEAD);
    const struct sw_nvme_io io = {
        .nsid = 1, .blocks = 1, .data = w->data, .bytes = 512, .mem = w->mem};
    assert_int_equal(sw_nvme_read(w->queue, &io), SW_NVME_UNREACHABLE);
}

static void loss__given_up(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    w->options.ctrl_loss_tmo_s = 1;
    bring_up(w);
    submit_silent(w, &tally, 10);
    played_set(w->target, MISCHIEF_CUT_ALL, 1);
    poll(NULL, 0, 20);
    played_set(w->target, MISCHIEF_REFUSE, 0);
    wait_all(w, &tally);
    assert_int_equal(tally.ok, 0);
    assert_int_equal(tally.maybe, 10);
}

static void loss__fast_fail(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    w->options.fast_io_fail_tmo_s = 0;
    w->options.reconnect_delay_s = 1;
    bring_up(w);
    submit_silent(w, &tally, 10);
    played_set(w->target, MISCHIEF_CUT_ALL, 1);
    wait_all(w, &tally);
    assert_int_equal(tally.maybe, 10);
    assert_int_not_equal(sw_nvme_state_of(w->controller), SW_NVME_DEAD);
}

static void loss__keep_alive(void **state)
{
    struct world *w = *state;
    w->options.keep_alive_ms = 200;
    bring_up(w);
    played_set(w->target, MISCHIEF_KEEP_ALIVE, 1);
    struct sw_nvme_info info = {0};
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    while (!info.reconnects && sw_nvme_deadline_ms(0) < deadline) {
        sw_nvme_queue_poll(w->queue);
        sw_nvme_info_of(w->controller, &info);
    }
    assert_true(info.reconnects >= 1);
    check_moves(w);
}

static void keep_alive__background(void **state)
{
    struct world *w = *state;
    w->options.keep_alive_ms = 200;
    w->options.background = true;
    bring_up(w);
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    while (played_count(w->target, nvme_admin_keep_alive) < 4 && sw_nvme_deadline_ms(0) < deadline)
        poll(NULL, 0, 20);
    assert_true(played_count(w->target, nvme_admin_keep_alive) >= 4);
    check_moves(w);
}

static void no_way_up(void **state, enum mischief mischief, enum sw_nvme_status status)
{
    struct world *w = *state;
    played_set(w->target, mischief, 0);
    assert_int_equal(sw_nvme_connect(&w->options, &w->error, &w->controller), status);
    assert_int_equal(w->error.status, status);
    assert_true(strlen(w->error.text) > 10);
    print_message("%s\n", w->error.text);
}

static void connect__refused(void **state)
{
    no_way_up(state, MISCHIEF_REFUSE, SW_NVME_REFUSED);
    no_way_up(state, MISCHIEF_REFUSE_EMPTY, SW_NVME_REFUSED);
}

static void connect__hostile(void **state)
{
    no_way_up(state, MISCHIEF_FORMAT, SW_NVME_PROTOCOL);
    no_way_up(state, MISCHIEF_CONNECT_STATUS, SW_NVME_FAILED);
    no_way_up(state, MISCHIEF_AUTH, SW_NVME_AUTHENTICATION);
    no_way_up(state, MISCHIEF_NO_KEYED, SW_NVME_UNSUPPORTED);
    no_way_up(state, MISCHIEF_FATAL, SW_NVME_PROTOCOL);
    struct world *w = *state;
    w->options.connect_timeout_ms = 2000;
    no_way_up(state, MISCHIEF_NEVER_READY, SW_NVME_TIMEOUT);
}

static void connect__garbage(void **state)
{
    struct world *w = *state;
    played_set(w->target, MISCHIEF_GARBAGE, 0);
    for (unsigned i = 0; i < 20; i++)
        assert_int_not_equal(sw_nvme_connect(&w->options, &w->error, &w->controller), SW_NVME_OK);
}

static void connect__nobody(void **state)
{
    struct world *w = *state;
    w->options.trsvcid = "9";
    assert_int_equal(sw_nvme_connect(&w->options, &w->error, &w->controller), SW_NVME_REFUSED);
    w->options.hostid = "no uuid";
    assert_int_equal(sw_nvme_connect(&w->options, &w->error, &w->controller), SW_NVME_INVALID);
}

static void connect__many_times(void **state)
{
    struct world *w = *state;
    for (unsigned i = 0; i < 20; i++) {
        struct sw_nvme_controller *c;
        struct sw_nvme_queue *queue;
        assert_int_equal(sw_nvme_connect(&w->options, &w->error, &c), SW_NVME_OK);
        assert_int_equal(sw_nvme_queue_open(c, 0, &w->error, &queue), SW_NVME_OK);
        assert_int_equal(sw_nvme_disconnect(c), SW_NVME_INVALID);
        sw_nvme_queue_close(queue);
        assert_int_equal(sw_nvme_disconnect(c), SW_NVME_OK);
    }
}

static void queue__refused(void **state)
{
    struct world *w = *state;
    struct sw_nvme_queue *second;
    w->options.nr_io_queues = 2;
    bring_up(w);
    played_set(w->target, MISCHIEF_REFUSE_QUEUE, 1);
    assert_int_equal(sw_nvme_queue_open(w->controller, 0, &w->error, &second), SW_NVME_REFUSED);
    check_moves(w);
    assert_int_equal(sw_nvme_queue_open(w->controller, 0, &w->error, &second), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_open(w->controller, 0, &w->error, &second), SW_NVME_INVALID);
    sw_nvme_queue_close(second);
}

static void queue__closed_under_load(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    bring_up(w);
    played_set(w->target, MISCHIEF_SILENT, 0);
    submit_all(w, &tally, 20);
    sw_nvme_queue_close(w->queue);
    w->queue = NULL;
    assert_int_equal(tally.ended, 20);
    assert_int_equal(tally.maybe, 20);
}

static void queue__epoll(void **state)
{
    struct world *w = *state;
    bring_up(w);
    const struct sw_nvme_io io = {
        .nsid = 1, .blocks = 1, .data = w->data, .bytes = 512, .mem = w->mem};
    struct sw_nvme_result result;
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(sw_nvme_read(w->queue, &io), SW_NVME_OK);
        const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
        while (!sw_nvme_queue_take(w->queue, &result, 1)) {
            struct pollfd fd = {.fd = sw_nvme_queue_fd(w->queue), .events = POLLIN};
            if (sw_nvme_queue_arm(w->queue))
                assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
            sw_nvme_queue_poll(w->queue);
            assert_true(sw_nvme_deadline_ms(0) < deadline);
        }
        assert_int_equal(result.status, SW_NVME_OK);
    }
}

static void admin__namespaces(void **state)
{
    struct world *w = *state;
    struct sw_nvme_namespace ns;
    uint32_t nsids[4], count;
    bring_up(w);
    assert_int_equal(sw_nvme_list(w->controller, 0, nsids, 4, &count, NULL), SW_NVME_OK);
    assert_int_equal(count, 1);
    assert_int_equal(sw_nvme_namespace_of(w->controller, 1, &ns, NULL), SW_NVME_OK);
    assert_int_equal(ns.blocks, PLAYED_BLOCKS);
    assert_int_equal(ns.block_bytes, PLAYED_BLOCK);
    struct sw_nvme_result result;
    const struct sw_nvme_admin odd = {.opcode = 0xc5};
    assert_int_equal(sw_nvme_admin(w->controller, &odd, &result), SW_NVME_FAILED);
    assert_int_equal(result.nvme_status & 0x7ff, NVME_SC_INVALID_OPCODE);
}

static void admin__timeout(void **state)
{
    struct world *w = *state;
    bring_up(w);
    const struct sw_nvme_admin never = {.opcode = nvme_admin_async_event, .timeout_ms = 50};
    assert_int_equal(sw_nvme_admin(w->controller, &never, NULL), SW_NVME_TIMEOUT);
    assert_int_equal(sw_nvme_wait_live(w->controller, sw_nvme_deadline_ms(WAIT_MS)), SW_NVME_OK);
    check_moves(w);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(moves__sleeping),
        CASE(moves__spinning),
        CASE(moves__without_capsules),
        CASE(moves__flush_and_zeroes),
        CASE(errors__out_of_range),
        CASE(errors__arguments),
        CASE(depth__callbacks),
        CASE(depth__frozen_head),
        CASE(hostile__wrong_cid),
        CASE(hostile__stale_cid),
        CASE(hostile__short),
        CASE(hostile__long),
        CASE(hostile__too_long),
        CASE(hostile__head_huge),
        CASE(depth__head_ahead),
        CASE(hostile__answers_twice),
        CASE(loss__cut),
        CASE(loss__silence),
        CASE(loss__status_is_no_loss),
        CASE(loss__under_load),
        CASE(loss__no_way_back),
        CASE(loss__given_up),
        CASE(loss__fast_fail),
        CASE(loss__keep_alive),
        CASE(keep_alive__background),
        CASE(connect__refused),
        CASE(connect__hostile),
        CASE(connect__garbage),
        CASE(connect__nobody),
        CASE(connect__many_times),
        CASE(queue__refused),
        CASE(queue__closed_under_load),
        CASE(queue__epoll),
        CASE(admin__namespaces),
        CASE(admin__timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
