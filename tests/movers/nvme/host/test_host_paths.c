/* SPDX-License-Identifier: BSD-2-Clause */
/* A host with two paths to a played target, which loses one of them amid a command. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <nvme/types.h>

#include "host_world.h"
#include "nvme/wire/quiesce.h"

enum { LOAD = 400 };

static struct sw_nvme_address address;

static void two_ways(struct world *w)
{
    address = (struct sw_nvme_address){.traddr = w->options.traddr, .trsvcid = w->options.trsvcid};
    w->options.more = &address;
    w->options.more_count = 1;
}

/* Sums of both paths. */
static struct sw_nvme_path sums_of(struct world *w)
{
    struct sw_nvme_path paths[SW_NVME_PATHS_MAX] = {0};
    assert_int_equal(sw_nvme_paths_of(w->controller, 1, paths, SW_NVME_PATHS_MAX), 2);
    paths[0].requests += paths[1].requests;
    paths[0].moved += paths[1].moved;
    paths[0].held += paths[1].held;
    paths[0].maybe_done += paths[1].maybe_done;
    return paths[0];
}

static void paths__one_controller(void **state)
{
    struct world *w = *state;
    struct sw_nvme_path paths[2];
    struct sw_nvme_namespace ns;
    struct sw_nvme_result result;
    uint32_t nsid, count;
    two_ways(w);
    world_bring_up(w);
    world_check_moves(w);
    assert_int_equal(sw_nvme_paths_of(w->controller, 1, paths, 2), 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(paths[i].state, SW_NVME_PATH_USED);
        assert_int_equal(paths[i].ana, SW_NVME_ANA_OPTIMIZED);
        assert_int_equal(paths[i].requests, 3);
    }
    assert_int_equal(sw_nvme_list(w->controller, 0, &nsid, 1, &count, &result), SW_NVME_OK);
    assert_int_equal(sw_nvme_namespace_of(w->controller, nsid, &ns, &result), SW_NVME_OK);
    assert_int_equal(ns.blocks, PLAYED_BLOCKS);
    assert_int_equal(sw_nvme_disconnect(w->controller), SW_NVME_INVALID); /* it has a queue */
    struct sw_nvme_queue *second;
    assert_int_equal(sw_nvme_queue_open(w->controller, 0, &w->error, &second), SW_NVME_INVALID);
}

static void paths__wrong_arguments(void **state)
{
    struct world *w = *state;
    uint8_t other[PLAYED_BLOCK];
    two_ways(w);
    w->options.more_count = SW_NVME_PATHS_MAX;
    assert_int_equal(sw_nvme_start(&w->options, &w->error, &w->controller), SW_NVME_INVALID);
    w->options.more_count = 1;
    w->options.iopolicy = SW_NVME_NUMA + 1;
    assert_int_equal(sw_nvme_start(&w->options, &w->error, &w->controller), SW_NVME_INVALID);
    w->options.iopolicy = SW_NVME_NUMA;
    world_bring_up(w);
    struct sw_nvme_io io = {
        .nsid = 1, .blocks = 1, .data = other, .bytes = PLAYED_BLOCK, .mem = w->mem};
    assert_int_equal(sw_nvme_read(w->queue, &io), SW_NVME_NOT_REGISTERED);
    io.data = w->data;
    io.blocks = 0;
    assert_int_equal(sw_nvme_read(w->queue, &io), SW_NVME_INVALID);
    assert_int_equal(sw_nvme_queue_used(w->queue), 0);
    world_check_moves(w);
}

/* A path whose address leads nowhere does not keep the others from going on. */
static void paths__one_is_never_there(void **state)
{
    struct world *w = *state;
    struct sw_nvme_path paths[2];
    two_ways(w);
    address.trsvcid = "1";
    world_bring_up(w);
    world_check_moves(w);
    assert_int_equal(sw_nvme_paths_of(w->controller, 1, paths, 2), 2);
    assert_int_equal(paths[1].state, SW_NVME_PATH_AWAY);
    assert_non_null(strstr(paths[1].why, "no target listens"));
}

/* Nobody takes the first connections: a group whose members are on their way back. */
static void paths__come_after_a_while(void **state)
{
    struct world *w = *state;
    two_ways(w);
    w->options.reconnect_delay_s = 2 * WAIT_MS / 1000;
    played_set(w->target, MISCHIEF_REFUSE, 5);
    world_bring_up(w);
    world_check_moves(w);
}

/* A controller that says no for good is not waited for. */
static void paths__are_refused_for_good(void **state)
{
    struct world *w = *state;
    two_ways(w);
    w->options.connect_timeout_ms = UINT32_MAX;
    played_set(w->target, MISCHIEF_CONNECT_STATUS, 0);
    assert_int_equal(sw_nvme_connect(&w->options, &w->error, &w->controller), SW_NVME_FAILED);
    assert_non_null(strstr(w->error.text, "no path can be used"));
}

/* The target has done the write, and its answer is lost with the connection. */
static struct sw_nvme_result write_and_cut(struct world *w)
{
    two_ways(w);
    world_bring_up(w);
    played_set(w->target, MISCHIEF_CUT, 1);
    world_fill(w->data, PLAYED_BLOCK, 1);
    return world_run_one(w, sw_nvme_write, 5, 1);
}

static void lost__nobody_can_tell(void **state)
{
    struct world *w = *state;
    assert_int_equal(write_and_cut(w).status, SW_NVME_MAYBE_DONE);
    assert_int_equal(sums_of(w).maybe_done, 1);
    assert_int_equal(played_count(w->target, nvme_cmd_write), 1);
    world_check_moves(w);
}

static void lost__reset_proves(void **state)
{
    struct world *w = *state;
    played_set_quiesce(w->target, 0, true);
    assert_int_equal(write_and_cut(w).status, SW_NVME_OK);
    assert_int_equal(sums_of(w).held, 1);
    assert_int_equal(played_count(w->target, NVF_ADMIN_CROSS_CTRL_RESET), 1);
    assert_int_equal(played_count(w->target, nvme_cmd_write), 2);
}

static void lost__time_proves(void **state)
{
    struct world *w = *state;
    w->options.keep_alive_ms = 200;
    played_set_quiesce(w->target, 100, false);
    const uint64_t before = sw_nvme_deadline_ms(0);
    assert_int_equal(write_and_cut(w).status, SW_NVME_OK);
    assert_true(sw_nvme_deadline_ms(0) - before >= 500ull * 1000000);
    assert_int_equal(sums_of(w).held, 1);
    assert_int_equal(sums_of(w).quiesce_ms, 500);
}

static void lost__at_once_if_asked(void **state)
{
    struct world *w = *state;
    w->options.quiesce_tmo_s = 0;
    assert_int_equal(write_and_cut(w).status, SW_NVME_OK);
    assert_int_equal(sums_of(w).moved, 1);
    assert_memory_equal(played_disk(w->target) + 5 * PLAYED_BLOCK, w->data, PLAYED_BLOCK);
}

/* What changes nothing goes on at once; a reservation never happens twice. */
static void lost__by_kind(void **state)
{
    struct world *w = *state;
    const struct sw_nvme_resv resv = {.type = SW_NVME_RESV_WRITE_EXCLUSIVE};
    struct sw_nvme_result result;
    two_ways(w);
    w->options.quiesce_tmo_s = 0;
    world_bring_up(w);
    played_set(w->target, MISCHIEF_CUT, 1);
    assert_int_equal(world_run_one(w, sw_nvme_read, 1, 1).status, SW_NVME_OK);
    played_set(w->target, MISCHIEF_CUT, 1);
    const struct sw_nvme_io keys = {.nsid = 1, .data = w->data, .mem = w->mem};
    assert_int_equal(sw_nvme_resv_acquire(w->queue, &keys, &resv), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_wait(w->queue, sw_nvme_deadline_ms(WAIT_MS)), SW_NVME_OK);
    assert_int_equal(sw_nvme_queue_take(w->queue, &result, 1), 1);
    assert_int_equal(result.status, SW_NVME_MAYBE_DONE);
    assert_int_equal(played_count(w->target, nvme_cmd_resv_acquire), 1);
}

static void lost__under_load(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    two_ways(w);
    w->options.quiesce_tmo_s = 0;
    w->options.background = true;
    world_bring_up(w);
    for (unsigned i = 0; i < 4; i++) {
        played_set(w->target, i & 1 ? MISCHIEF_CUT_ALL : MISCHIEF_CUT, 1);
        tally_submit(w, &tally, LOAD);
    }
    tally_wait(w, &tally);
    assert_int_equal(tally.ok, 4 * LOAD);
    world_check_moves(w);
}

/* Without any path requests wait, and end in time. */
static void lost__all_of_them(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    two_ways(w);
    w->options.ctrl_loss_tmo_s = 1;
    world_bring_up(w);
    tally_submit(w, &tally, 100);
    tally_wait(w, &tally);
    assert_int_equal(tally.ok, 100);
    played_stop(w->target);
    w->target = NULL;
    tally_submit(w, &tally, 100);
    tally_wait(w, &tally);
    assert_int_equal(sw_nvme_state_of(w->controller), SW_NVME_DEAD);
    sw_nvme_last_error(w->controller, &w->error);
    assert_non_null(strstr(w->error.text, "no path can be used"));
    w->target = played_start();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(paths__one_controller),
        CASE(paths__wrong_arguments),
        CASE(paths__one_is_never_there),
        CASE(paths__come_after_a_while),
        CASE(paths__are_refused_for_good),
        CASE(lost__nobody_can_tell),
        CASE(lost__reset_proves),
        CASE(lost__time_proves),
        CASE(lost__at_once_if_asked),
        CASE(lost__by_kind),
        CASE(lost__under_load),
        CASE(lost__all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
