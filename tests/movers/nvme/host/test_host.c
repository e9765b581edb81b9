/* SPDX-License-Identifier: BSD-2-Clause */
/* The host against a played target: what works, and what is refused. Losses: test_host_loss.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <nvme/types.h>
#include <poll.h>

#include "host_world.h"

static void moves__sleeping(void **state)
{
    world_bring_up(*state);
    world_check_moves(*state);
}

static void moves__spinning(void **state)
{
    struct world *w = *state;
    world_bring_up(w);
    sw_nvme_queue_close(w->queue);
    assert_int_equal(sw_nvme_queue_open(w->controller, SW_NVME_SPIN_FOREVER, &w->error, &w->queue),
                     SW_NVME_OK);
    world_check_moves(w);
}

static void moves__without_capsules(void **state)
{
    struct world *w = *state;
    played_set(w->target, MISCHIEF_NO_CAPSULE, 0);
    world_bring_up(w);
    world_check_moves(w);
}

static void moves__flush_and_zeroes(void **state)
{
    struct world *w = *state;
    world_bring_up(w);
    world_fill(w->data, PLAYED_BLOCK, 1);
    assert_int_equal(world_run_one(w, sw_nvme_write, 3, 1).status, SW_NVME_OK);
    assert_int_equal(world_run_one(w, sw_nvme_flush, 0, 0).status, SW_NVME_OK);
    assert_int_equal(world_run_one(w, sw_nvme_write_zeroes, 3, 1).status, SW_NVME_OK);
    assert_int_equal(played_disk(w->target)[3 * PLAYED_BLOCK + 5], 0);
}

static void errors__out_of_range(void **state)
{
    struct world *w = *state;
    world_bring_up(w);
    const struct sw_nvme_result result = world_run_one(w, sw_nvme_read, PLAYED_BLOCKS, 1);
    assert_int_equal(result.status, SW_NVME_FAILED);
    assert_int_equal(result.nvme_status & 0x7ff, NVME_SC_LBA_RANGE);
    assert_string_equal(sw_nvme_code_text(result.nvme_status), "LBA Out of Range");
}

static void errors__arguments(void **state)
{
    struct world *w = *state;
    world_bring_up(w);
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

static void depth__callbacks(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    world_bring_up(w);
    assert_int_equal(sw_nvme_queue_depth(w->queue), 63);
    tally_submit(w, &tally, 5000);
    tally_wait(w, &tally);
    assert_int_equal(tally.ok, 5000);
}

static void depth__frozen_head(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    world_bring_up(w);
    played_set(w->target, MISCHIEF_HEAD_FROZEN, 0);
    tally_submit(w, &tally, 1000);
    tally_wait(w, &tally);
    assert_int_equal(tally.ok, 1000);
    assert_int_equal(sw_nvme_state_of(w->controller), SW_NVME_LIVE);
}

static void depth__head_ahead(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    world_bring_up(w);
    played_set(w->target, MISCHIEF_HEAD_AHEAD, 0);
    tally_submit(w, &tally, 1000);
    tally_wait(w, &tally);
    assert_int_equal(tally.ok, 1000);
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
    struct world *w = *state;
    no_way_up(state, MISCHIEF_REFUSE, SW_NVME_REFUSED);
    assert_non_null(strstr(w->error.text, "queue 0: there are no resources"));
    no_way_up(state, MISCHIEF_REFUSE_EMPTY, SW_NVME_REFUSED);
    w->options.trsvcid = "1";
    no_way_up(state, MISCHIEF_NONE, SW_NVME_REFUSED);
    assert_non_null(strstr(w->error.text, "no target listens there"));
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
    world_bring_up(w);
    played_set(w->target, MISCHIEF_REFUSE_QUEUE, 1);
    assert_int_equal(sw_nvme_queue_open(w->controller, 0, &w->error, &second), SW_NVME_REFUSED);
    world_check_moves(w);
    assert_int_equal(sw_nvme_queue_open(w->controller, 0, &w->error, &second), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_open(w->controller, 0, &w->error, &second), SW_NVME_INVALID);
    sw_nvme_queue_close(second);
}

static void queue__closed_under_load(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    world_bring_up(w);
    played_set(w->target, MISCHIEF_SILENT, 0);
    tally_submit(w, &tally, 20);
    sw_nvme_queue_close(w->queue);
    w->queue = NULL;
    assert_int_equal(tally.ended, 20);
    assert_int_equal(tally.maybe, 20);
}

static void queue__epoll(void **state)
{
    struct world *w = *state;
    world_bring_up(w);
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
    world_bring_up(w);
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
    world_bring_up(w);
    const struct sw_nvme_admin never = {.opcode = nvme_admin_async_event, .timeout_ms = 50};
    assert_int_equal(sw_nvme_admin(w->controller, &never, NULL), SW_NVME_TIMEOUT);
    assert_int_equal(sw_nvme_wait_live(w->controller, sw_nvme_deadline_ms(WAIT_MS)), SW_NVME_OK);
    world_check_moves(w);
}

/* An argument is the name of the only test to run. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(moves__sleeping),          CASE(moves__spinning),      CASE(moves__without_capsules),
        CASE(moves__flush_and_zeroes),  CASE(errors__out_of_range), CASE(errors__arguments),
        CASE(depth__callbacks),         CASE(depth__frozen_head),   CASE(depth__head_ahead),
        CASE(connect__refused),         CASE(connect__hostile),     CASE(connect__garbage),
        CASE(connect__nobody),          CASE(connect__many_times),  CASE(queue__refused),
        CASE(queue__closed_under_load), CASE(queue__epoll),         CASE(admin__namespaces),
        CASE(admin__timeout),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
