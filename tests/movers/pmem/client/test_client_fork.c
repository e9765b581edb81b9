/* SPDX-License-Identifier: BSD-2-Clause */
/* A child of fork() that uses its parent's handle or log, and what the parent notices of it. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client_rig.h"
#include "sidewire/pmem_log.h"

/* A chain without a callback, whose result nobody has taken yet. */
static void leave_result(struct world *w)
{
    const struct sw_pmem_op op = write_op(w, 0, 8);
    const struct sw_pmem_chain chain = {.ops = &op, .count = 1};
    assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_OK);
    assert_int_equal(sw_pmem_wait(w->pmem, sw_pmem_deadline_ms(WAIT_MS)), SW_PMEM_OK);
}

static int use_in_child(struct world *w, bool closes)
{
    struct sw_pmem_error error;
    struct sw_pmem_mem *mem = NULL;
    struct tally tally = {.sum = 0};
    uint8_t byte;
    struct sw_pmem_result result;
    const bool is_refused =
        post_write(w, &tally, 0, 0) == SW_PMEM_FORKED &&
        sw_pmem_read(w->pmem, 0, &byte, 1, w->mem, sw_pmem_deadline_ms(WAIT_MS)) ==
            SW_PMEM_FORKED &&
        sw_pmem_wait(w->pmem, sw_pmem_deadline_ms(WAIT_MS)) == SW_PMEM_FORKED &&
        sw_pmem_wait_live(w->pmem, sw_pmem_deadline_ms(WAIT_MS)) == SW_PMEM_FORKED &&
        sw_pmem_mem_register(w->pmem, w->local, LOCAL, &mem) == SW_PMEM_FORKED &&
        sw_pmem_arm(w->pmem) && !sw_pmem_poll(w->pmem) && !tally.sum &&
        !sw_pmem_take(w->pmem, &result, 1);
    sw_pmem_last_error(w->pmem, &error);
    const bool is_told = sw_pmem_state_of(w->pmem) == SW_PMEM_DEAD &&
                         error.status == SW_PMEM_FORKED && strstr(error.text, "parent");
    if (closes) {
        sw_pmem_mem_release(w->mem);
        sw_pmem_close(w->pmem);
    }
    return is_refused && is_told ? 0 : 1;
}

static void fork__the_child_has_no_part_in_it(void **state)
{
    struct world *w = *state;
    connect_client(w);
    for (int round = 0; round < 4; round++) {
        struct tally tally = {.sum = 0};
        struct sw_pmem_result result;
        leave_result(w);
        for (int i = 0; i < 8; i++)
            assert_int_equal(post_write(w, &tally, 0, 0), SW_PMEM_OK);
        const pid_t child = fork();
        if (!child)
            _exit(use_in_child(w, round % 2));
        int how = -1;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_int_equal(how, 0);
        assert_int_equal(sw_pmem_take(w->pmem, &result, 1), 1);
        await(w, &tally, 8);
        assert_int_equal(tally.of[SW_PMEM_OK], 8);
    }
    assert_int_equal(sw_pmem_session(w->pmem), 1); /* it was not lost in between */
}

static void fork__nor_in_a_log(void **state)
{
    struct world *w = *state;
    const struct sw_pmem_log_geometry geometry = {.ring_bytes = 1 << 16, .record_bytes = 64};
    struct sw_pmem_log_options options;
    struct sw_pmem_log *log;
    const uint64_t soon = sw_pmem_deadline_ms(WAIT_MS);
    w->options.port = w->port;
    sw_pmem_log_options_init(&options);
    options.copies = &w->options;
    options.copies_count = 1;
    options.visible_only = true;
    assert_int_equal(sw_pmem_log_create(&options, &geometry, false, soon, NULL), SW_PMEM_LOG_OK);
    assert_int_equal(sw_pmem_log_open(&options, soon, NULL, &log), SW_PMEM_LOG_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sw_pmem_log_post(log, "record", 6, 0), SW_PMEM_LOG_OK);
        const pid_t child = fork();
        if (!child) {
            const bool is_told = sw_pmem_log_wait(log, soon) == SW_PMEM_LOG_FORKED;
            sw_pmem_log_close(log);
            _exit(!is_told);
        }
        int how = -1;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_int_equal(how, 0);
        struct sw_pmem_log_result result;
        assert_int_equal(sw_pmem_log_wait(log, soon), SW_PMEM_LOG_OK);
        assert_true(sw_pmem_log_take(log, &result) && result.status == SW_PMEM_LOG_OK);
    }
    sw_pmem_log_close(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(fork__the_child_has_no_part_in_it),
        CASE(fork__nor_in_a_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
