/* SPDX-License-Identifier: BSD-2-Clause */
/* The host against a played target that is hostile, keeps silent or goes away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <inttypes.h>
#include <nvme/types.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "host_world.h"

/* The queue ends, the controller comes back, and the request is sent again. */
static void hostile(void **state, enum mischief mischief)
{
    struct world *w = *state;
    struct sw_nvme_info info;
    world_bring_up(w);
    played_set(w->target, mischief, 1);
    assert_int_equal(world_run_one(w, sw_nvme_write, 1, 1).status, SW_NVME_OK);
    /* A wrong answer may come behind a right one. */
    assert_int_equal(world_run_one(w, sw_nvme_read, 1, 1).status, SW_NVME_OK);
    sw_nvme_info_of(w->controller, &info);
    assert_true(info.reconnects >= 1);
    world_check_moves(w);
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
    world_bring_up(w);
    played_set(w->target, MISCHIEF_STATUS, 1);
    const struct sw_nvme_result result = world_run_one(w, sw_nvme_read, 1, 1);
    assert_int_equal(result.status, SW_NVME_FAILED);
    assert_int_equal(result.nvme_status, 0x281 | NVME_SC_DNR);
    assert_string_equal(sw_nvme_code_text(result.nvme_status), "Unrecovered Read Error");
}

static void loss__under_load(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    world_bring_up(w);
    for (unsigned i = 0; i < 5; i++) {
        tally_submit(w, &tally, 200);
        played_set(w->target, MISCHIEF_CUT_ALL, 1);
        tally_submit(w, &tally, 200);
    }
    tally_wait(w, &tally);
    assert_int_equal(tally.ok, 2000);
}

/* All that was submitted has come to the target, which keeps silent. */
static void submit_silent(struct world *w, struct tally *tally, unsigned count)
{
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    const unsigned before =
        played_count(w->target, nvme_cmd_read) + played_count(w->target, nvme_cmd_write);
    played_set(w->target, MISCHIEF_SILENT, 0);
    tally_submit(w, tally, count);
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
    world_bring_up(w);
    submit_silent(w, &tally, 10);
    played_set(w->target, MISCHIEF_CUT_ALL, 1);
    tally_wait(w, &tally);
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
    world_bring_up(w);
    submit_silent(w, &tally, 10);
    played_set(w->target, MISCHIEF_CUT_ALL, 1);
    poll(NULL, 0, 20);
    played_set(w->target, MISCHIEF_REFUSE, 0);
    tally_wait(w, &tally);
    assert_int_equal(tally.ok, 0);
    assert_int_equal(tally.maybe, 10);
}

static void loss__fast_fail(void **state)
{
    struct world *w = *state;
    struct tally tally = {0};
    w->options.fast_io_fail_tmo_s = 0;
    w->options.reconnect_delay_s = 1;
    world_bring_up(w);
    submit_silent(w, &tally, 10);
    played_set(w->target, MISCHIEF_CUT_ALL, 1);
    tally_wait(w, &tally);
    assert_int_equal(tally.maybe, 10);
    assert_int_not_equal(sw_nvme_state_of(w->controller), SW_NVME_DEAD);
}

static void loss__keep_alive(void **state)
{
    struct world *w = *state;
    w->options.keep_alive_ms = 200;
    world_bring_up(w);
    played_set(w->target, MISCHIEF_KEEP_ALIVE, 1);
    struct sw_nvme_info info = {0};
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    while (!info.reconnects && sw_nvme_deadline_ms(0) < deadline) {
        sw_nvme_queue_poll(w->queue);
        sw_nvme_info_of(w->controller, &info);
    }
    assert_true(info.reconnects >= 1);
    world_check_moves(w);
}

static void keep_alive__background(void **state)
{
    struct world *w = *state;
    w->options.keep_alive_ms = 200;
    w->options.background = true;
    world_bring_up(w);
    const uint64_t deadline = sw_nvme_deadline_ms(WAIT_MS);
    while (played_count(w->target, nvme_admin_keep_alive) < 4 && sw_nvme_deadline_ms(0) < deadline)
        poll(NULL, 0, 20);
    assert_true(played_count(w->target, nvme_admin_keep_alive) >= 4);
    world_check_moves(w);
}

enum { THREADS_MAX = 64 };

/* Their numbers. */
static unsigned list_threads(int threads[THREADS_MAX])
{
    const struct dirent *entry;
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    while ((entry = readdir(folder)) && count < THREADS_MAX)
        count += sscanf(entry->d_name, "%d", &threads[count]) == 1;
    closedir(folder);
    return count;
}

static bool is_among(int thread, const int threads[], unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (threads[i] == thread)
            return true;
    return false;
}

/* A bit for each signal that it has blocked. */
static uint64_t blocked_by(int thread)
{
    char path[64], line[128];
    uint64_t blocked = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) && sscanf(line, "SigBlk: %" SCNx64, &blocked) != 1)
        ;
    fclose(file);
    return blocked;
}

/* Signals are for the program's threads. */
static void keep_alive__background_is_deaf_to_signals(void **state)
{
    struct world *w = *state;
    int before[THREADS_MAX], now[THREADS_MAX];
    const unsigned before_count = list_threads(before);
    w->options.background = true;
    world_bring_up(w);
    const unsigned now_count = list_threads(now);
    assert_true(now_count > before_count);
    for (unsigned i = 0; i < now_count; i++)
        if (!is_among(now[i], before, before_count))
            assert_true(blocked_by(now[i]) >> (SIGTERM - 1) & 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(hostile__wrong_cid),
        CASE(hostile__stale_cid),
        CASE(hostile__short),
        CASE(hostile__long),
        CASE(hostile__too_long),
        CASE(hostile__head_huge),
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
        CASE(keep_alive__background_is_deaf_to_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
