/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading a log beside its writer, on a client without a network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "log_steps.h"
#include "pmem/log/layout.h"

static void reader__follows_beside_the_writer(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_mark mark, later;
    struct sw_pmem_log_reader *reader = open_reader();
    assert_int_equal(sw_pmem_log_reader_record_bytes(reader), RECORD_BYTES);
    wait_all_live(log);
    assert_int_equal(sw_pmem_log_reader_head(reader, &mark, soon()), SW_PMEM_LOG_OK);
    assert_int_equal(read_next(reader, &mark, 0), SW_PMEM_LOG_END);
    for (unsigned i = 0; i < 10; i++)
        append(log, i);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    assert_int_equal(read_next(reader, &mark, 0), SW_PMEM_LOG_END);
    /* The writer has not noticed it, and it is there for the next one, too. */
    append(log, 10);
    sw_pmem_log_close(log);
    log = open_log();
    append(log, 11);
    assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    assert_int_equal(mark.sequence, 12);
    later = mark;
    later.check++;
    append(log, 12);
    assert_int_equal(read_next(reader, &later, SHORT_MS), SW_PMEM_LOG_DAMAGED);
    sw_pmem_log_reader_close(reader);
    sw_pmem_log_close(log);
}

/* A reader that comes too late goes on with what is there. */
static void reader__is_told_of_a_trim(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_mark mark, start;
    struct sw_pmem_log_reader *reader = open_reader();
    assert_int_equal(sw_pmem_log_reader_head(reader, &start, soon()), SW_PMEM_LOG_OK);
    for (unsigned i = 0; i < 60; i++) { /* twice around the ring */
        append(log, i);
        if (i % 10 != 9)
            continue;
        sw_pmem_log_head(log, &mark);
        for (unsigned j = 0; j < 9; j++)
            assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
        assert_int_equal(sw_pmem_log_trim(log, &mark), SW_PMEM_LOG_OK);
    }
    wait_all_live(log);
    append(log, 60);
    mark = start;
    assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_TRIMMED);
    assert_true(mark.sequence >= 40 && mark.sequence < 60);
    while (mark.sequence < 61)
        assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    sw_pmem_log_reader_close(reader);
    sw_pmem_log_close(log);
}

static void reader__believes_a_quorum(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_reader *reader = NULL;
    struct sw_pmem_log_mark mark;
    wait_all_live(log);
    append(log, 0);
    fake_stop(1);
    reader = open_reader();
    assert_int_equal(sw_pmem_log_reader_head(reader, &mark, soon()), SW_PMEM_LOG_OK);
    sw_pmem_log_reader_close(reader);
    reader = open_reader();
    fake_stop(2);
    assert_int_equal(sw_pmem_log_reader_head(reader, &mark, sw_pmem_deadline_ms(SHORT_MS)),
                     SW_PMEM_LOG_TIMEOUT);
    sw_pmem_log_reader_close(reader);
    assert_int_equal(
        sw_pmem_log_reader_open(&options, sw_pmem_deadline_ms(SHORT_MS), NULL, &reader),
        SW_PMEM_LOG_TIMEOUT);
    sw_pmem_log_close(log);
}

/* A copy that shows what it has and does not bring it then: others do. Where none does, the log
 * does not end there. */
static void reader__asks_another_copy(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_mark mark;
    wait_all_live(log);
    append(log, 0);
    struct sw_pmem_log_reader *reader = open_reader();
    assert_int_equal(sw_pmem_log_reader_head(reader, &mark, soon()), SW_PMEM_LOG_OK);
    assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    append(log, 1);
    write_behind(log);
    fake_hold(0, 1);
    fake_hold(1, 1);
    fake_hold(2, 1);
    assert_int_equal(read_next(reader, &mark, 0), SW_PMEM_LOG_TIMEOUT);
    fake_release(0);
    fake_release(1);
    assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    fake_release(2);
    for (unsigned i = 0; i < FAKE_REGIONS; i++) { /* whichever is asked first */
        struct sw_pmem_log_mark at;
        struct sw_pmem_log_reader *other = open_reader();
        sw_pmem_log_head(log, &at);
        fake_hold(i, 1);
        assert_int_equal(read_next(other, &at, 0), SW_PMEM_LOG_OK);
        fake_release(i);
        sw_pmem_log_reader_close(other);
    }
    sw_pmem_log_reader_close(reader);
    sw_pmem_log_close(log);
}

/* One copy has not yet been told that a record is there, and one that has it does not answer. */
static void reader__ends_only_where_no_more_can_be(void **state)
{
    (void)state;
    const uint64_t behind = 128;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_mark mark;
    wait_all_live(log);
    append(log, 0);
    append(log, 1);
    write_behind(log);
    sw_pmem_log_head(log, &mark);
    sw_pmem_log_close(log);
    memcpy(fake_bytes(1) + PML_TAIL_OFFSET, &behind, sizeof(behind));
    fake_hold(2, 0);
    struct sw_pmem_log_reader *reader = open_reader();
    assert_int_equal(read_next(reader, &mark, 0), SW_PMEM_LOG_OK);
    assert_int_equal(read_next(reader, &mark, 0), SW_PMEM_LOG_TIMEOUT);
    fake_release(2);
    assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    assert_int_equal(read_next(reader, &mark, 0), SW_PMEM_LOG_END);
    sw_pmem_log_reader_close(reader);
}

/* One bad byte, and nobody waits: neither who only reads, nor the writer. */
static void read__goes_on_past_a_bad_record(void **state)
{
    struct sw_pmem_log_mark mark;
    for (unsigned i = 0; i < FAKE_REGIONS; i++) {
        assert_int_equal(create_log(state), 0);
        struct sw_pmem_log *log = open_log();
        wait_all_live(log);
        for (unsigned j = 0; j < 10; j++)
            append(log, j);
        write_behind(log);
        fake_bytes(i)[PML_RING_OFFSET + 5 * 128 + 64] ^= 1;
        expect_records(log, 0, 10);
        struct sw_pmem_log_reader *reader = open_reader();
        sw_pmem_log_head(log, &mark);
        for (unsigned j = 0; j < 10; j++)
            assert_int_equal(read_next(reader, &mark, 0), SW_PMEM_LOG_OK);
        assert_int_equal(read_next(reader, &mark, 0), SW_PMEM_LOG_END);
        sw_pmem_log_reader_close(reader);
        sw_pmem_log_close(log);
    }
}

/* It says what the writer knows, and the writer is not fenced. */
static void reader__tells_of_the_log(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_info known, seen;
    struct sw_pmem_log_mark mark;
    wait_all_live(log);
    for (unsigned i = 0; i < 9; i++)
        append(log, i);
    sw_pmem_log_head(log, &mark);
    struct sw_pmem_log_reader *reader = open_reader();
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    assert_int_equal(sw_pmem_log_trim(log, &mark), SW_PMEM_LOG_OK);
    append(log, 9);
    wait_all_live(log);
    write_behind(log);
    sw_pmem_log_info_of(log, &known);
    assert_int_equal(sw_pmem_log_reader_info_of(reader, &seen, soon()), SW_PMEM_LOG_OK);
    assert_int_equal(seen.first_sequence, 3);
    assert_int_equal(seen.next_sequence, 10);
    assert_int_equal(seen.used_bytes, known.used_bytes);
    assert_int_equal(seen.epoch, known.epoch);
    assert_memory_equal(seen.states, known.states, sizeof(seen.states));
    const uint64_t last = PML_NUMBER_MAX;
    memcpy(fake_bytes(1) + PML_EPOCH_OFFSET, &last, sizeof(last));
    assert_int_equal(sw_pmem_log_reader_info_of(reader, &seen, soon()), SW_PMEM_LOG_OK);
    assert_int_equal(seen.states[1], SW_PMEM_LOG_COPY_DAMAGED);
    memcpy(fake_bytes(1) + PML_EPOCH_OFFSET, &seen.epoch, sizeof(seen.epoch));
    append(log, 10);
    fake_stop(0);
    assert_int_equal(sw_pmem_log_reader_info_of(reader, &seen, soon()), SW_PMEM_LOG_OK);
    assert_int_equal(seen.next_sequence, 11);
    assert_int_equal(seen.states[0], SW_PMEM_LOG_COPY_LOST);
    sw_pmem_log_reader_close(reader);
    sw_pmem_log_close(log);
}

/* A copy that has not answered is not lost, and one whose connection is gone is. */
static void survey__tells_of_each_copy(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_info seen;
    struct sw_pmem_error errors[FAKE_REGIONS];
    append(log, 0);
    wait_all_live(log);
    write_behind(log);
    sw_pmem_log_close(log);
    fake_hold(0, 0);
    assert_int_equal(sw_pmem_log_survey(&options, soon(), &seen, errors, NULL), SW_PMEM_LOG_OK);
    assert_true(seen.ready);
    assert_int_equal(seen.next_sequence, 1);
    assert_int_equal(seen.states[0], SW_PMEM_LOG_COPY_SILENT);
    assert_non_null(strstr(errors[0].text, "no answer within "));
    assert_int_equal(seen.states[1], SW_PMEM_LOG_COPY_LIVE);
    assert_string_equal(errors[1].text, "");
    fake_hold(0, 0);
    fake_stop(1);
    assert_int_equal(
        sw_pmem_log_survey(&options, sw_pmem_deadline_ms(SHORT_MS), &seen, errors, NULL),
        SW_PMEM_LOG_TIMEOUT);
    assert_false(seen.ready);
    assert_int_equal(seen.copies, FAKE_REGIONS);
    assert_int_equal(seen.states[0], SW_PMEM_LOG_COPY_SILENT);
    assert_int_equal(seen.states[1], SW_PMEM_LOG_COPY_LOST);
    assert_string_equal(errors[1].text, "region 1 is not there");
    assert_int_equal(seen.states[2], SW_PMEM_LOG_COPY_UNSURE);
    memset(fake_bytes(2), 0, PML_LINE_BYTES);
    assert_int_equal(
        sw_pmem_log_survey(&options, sw_pmem_deadline_ms(SHORT_MS), &seen, errors, NULL),
        SW_PMEM_LOG_TIMEOUT);
    assert_int_equal(seen.states[2], SW_PMEM_LOG_COPY_DAMAGED);
    fake_start(1);
}

/* A log of one copy, with records, that was closed. */
static void write_lone_log(void)
{
    const struct sw_pmem_log_geometry geometry = {RING_BYTES, RECORD_BYTES};
    struct sw_pmem_error error;
    options.copies_count = 1;
    assert_int_equal(sw_pmem_log_create(&options, &geometry, true, soon(), &error), SW_PMEM_LOG_OK);
    struct sw_pmem_log *log = open_log();
    for (unsigned i = 0; i < 3; i++)
        append(log, i);
    write_behind(log);
    sw_pmem_log_close(log);
}

/* It does not wait for a copy that can be had, and is wrong. */
static void reader__gives_up_a_damaged_log(void **state)
{
    static const struct {
        size_t offset, bytes;
    } wrong[] = {{PML_EPOCH_OFFSET, 8},                       /* a word beyond all writers */
                 {PML_SLOT_OFFSET, 2 * PML_LINE_BYTES + 192}, /* no head */
                 {PML_RING_OFFSET, PML_LINE_BYTES}};          /* no record at the head */
    struct sw_pmem_log_info seen;
    struct sw_pmem_error errors[FAKE_REGIONS];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(create_log(state), 0);
        write_lone_log();
        memset(fake_bytes(0) + wrong[i].offset, 0xff, wrong[i].bytes);
        assert_int_equal(sw_pmem_log_survey(&options, soon(), &seen, errors, NULL),
                         SW_PMEM_LOG_DAMAGED);
        assert_int_equal(seen.states[0], SW_PMEM_LOG_COPY_DAMAGED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reader__tells_of_the_log, create_log),
        cmocka_unit_test_setup(reader__follows_beside_the_writer, create_log),
        cmocka_unit_test_setup(reader__is_told_of_a_trim, create_log),
        cmocka_unit_test_setup(reader__believes_a_quorum, create_log),
        cmocka_unit_test_setup(reader__asks_another_copy, create_log),
        cmocka_unit_test_setup(reader__ends_only_where_no_more_can_be, create_log),
        cmocka_unit_test_setup(survey__tells_of_each_copy, create_log),
        cmocka_unit_test(read__goes_on_past_a_bad_record),
        cmocka_unit_test(reader__gives_up_a_damaged_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
