/* SPDX-License-Identifier: BSD-2-Clause */
/* A child of fork() that uses its parent's log or reader, on a client without a network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log_steps.h"

/* The child has no cmocka: what failed is its exit status. */
static void expect_no_fault(pid_t child)
{
    int how = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

static int use_log(struct sw_pmem_log *log)
{
    struct sw_pmem_log_result result;
    struct sw_pmem_log_info info;
    struct sw_pmem_log_mark mark;
    char text[RECORD_BYTES];
    uint32_t bytes;
    sw_pmem_log_head(log, &mark);
    sw_pmem_log_poll(log);
    sw_pmem_log_info_of(log, &info);
    if (sw_pmem_log_post(log, "x", 1, 0) != SW_PMEM_LOG_FORKED ||
        sw_pmem_log_append(log, "x", 1, soon(), NULL) != SW_PMEM_LOG_FORKED)
        return 1;
    if (sw_pmem_log_wait(log, soon()) != SW_PMEM_LOG_FORKED || sw_pmem_log_take(log, &result))
        return 2;
    if (sw_pmem_log_read(log, &mark, text, sizeof(text), &bytes, soon()) != SW_PMEM_LOG_FORKED ||
        sw_pmem_log_trim(log, &mark) != SW_PMEM_LOG_FORKED)
        return 3;
    if (info.ready || info.copies != FAKE_REGIONS || info.states[0] != SW_PMEM_LOG_COPY_LOST)
        return 4;
    return strstr(sw_pmem_log_status_text(SW_PMEM_LOG_FORKED), "parent") ? 0 : 5;
}

static void fork__the_child_has_no_part_in_a_log(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_result result;
    wait_all_live(log);
    append(log, 0);
    write_behind(log);
    /* A result to take, and a chain that nobody answers. */
    assert_int_equal(sw_pmem_log_post(log, "record 1", 8, 1), SW_PMEM_LOG_OK);
    assert_int_equal(sw_pmem_log_wait(log, soon()), SW_PMEM_LOG_OK);
    fake_hold(2, 0);
    const pid_t child = fork();
    if (!child) {
        alarm(WAIT_MS / 1000);
        const int fault = use_log(log);
        sw_pmem_log_close(log);
        _exit(fault);
    }
    expect_no_fault(child);
    fake_release(2);
    assert_true(sw_pmem_log_take(log, &result));
    assert_int_equal(result.status, SW_PMEM_LOG_OK);
    append(log, 2);
    expect_records(log, 0, 3);
    sw_pmem_log_close(log);
}

static int use_reader(struct sw_pmem_log_reader *reader)
{
    struct sw_pmem_log_info info;
    struct sw_pmem_log_mark mark = {.position = 0};
    if (sw_pmem_log_reader_head(reader, &mark, soon()) != SW_PMEM_LOG_FORKED ||
        read_next(reader, &mark, WAIT_MS) != SW_PMEM_LOG_FORKED)
        return 1;
    if (sw_pmem_log_reader_info_of(reader, &info, soon()) != SW_PMEM_LOG_FORKED || info.copies)
        return 2;
    return sw_pmem_log_reader_record_bytes(reader) == RECORD_BYTES ? 0 : 3;
}

static void fork__the_child_has_no_part_in_a_reader(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_mark mark;
    append(log, 0);
    append(log, 1);
    struct sw_pmem_log_reader *reader = open_reader();
    assert_int_equal(sw_pmem_log_reader_head(reader, &mark, soon()), SW_PMEM_LOG_OK);
    assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    const pid_t child = fork();
    if (!child) {
        alarm(WAIT_MS / 1000);
        const int fault = use_reader(reader);
        sw_pmem_log_reader_close(reader);
        _exit(fault);
    }
    expect_no_fault(child);
    assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    sw_pmem_log_reader_close(reader);
    sw_pmem_log_close(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(fork__the_child_has_no_part_in_a_log, create_log),
        cmocka_unit_test_setup(fork__the_child_has_no_part_in_a_reader, create_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
