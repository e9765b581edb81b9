/* SPDX-License-Identifier: BSD-2-Clause */
#include "log_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct sw_pmem_options copies[FAKE_REGIONS] = {
    {.address = "0"}, {.address = "1"}, {.address = "2"}};
struct sw_pmem_log_options options;

uint64_t soon(void)
{
    return sw_pmem_deadline_ms(WAIT_MS);
}

struct sw_pmem_log *open_log(void)
{
    struct sw_pmem_log *log = NULL;
    struct sw_pmem_error error;
    assert_int_equal(sw_pmem_log_open(&options, soon(), &error, &log), SW_PMEM_LOG_OK);
    return log;
}

struct sw_pmem_log_reader *open_reader(void)
{
    struct sw_pmem_log_reader *reader = NULL;
    assert_int_equal(sw_pmem_log_reader_open(&options, soon(), NULL, &reader), SW_PMEM_LOG_OK);
    return reader;
}

int create_log(void **state)
{
    const struct sw_pmem_log_geometry geometry = {RING_BYTES, RECORD_BYTES};
    struct sw_pmem_error error;
    (void)state;
    fake_reset();
    sw_pmem_log_options_init(&options);
    options.copies = copies;
    options.copies_count = FAKE_REGIONS;
    return sw_pmem_log_create(&options, &geometry, false, soon(), &error) != SW_PMEM_LOG_OK;
}

void append(struct sw_pmem_log *log, unsigned number)
{
    char text[RECORD_BYTES];
    const int len = snprintf(text, sizeof(text), "record %u", number);
    assert_int_equal(sw_pmem_log_append(log, text, (uint32_t)len, soon(), NULL), SW_PMEM_LOG_OK);
}

void expect_records(struct sw_pmem_log *log, unsigned first, unsigned end)
{
    struct sw_pmem_log_mark mark;
    char text[RECORD_BYTES], expected[RECORD_BYTES];
    uint32_t len = 0;
    sw_pmem_log_head(log, &mark);
    for (unsigned i = first; i < end; i++) {
        assert_int_equal(mark.sequence, i);
        assert_int_equal(sw_pmem_log_read(log, &mark, text, sizeof(text), &len, soon()),
                         SW_PMEM_LOG_OK);
        assert_int_equal(len, snprintf(expected, sizeof(expected), "record %u", i));
        assert_memory_equal(text, expected, len);
    }
    assert_int_equal(sw_pmem_log_read(log, &mark, text, sizeof(text), &len, soon()),
                     SW_PMEM_LOG_END);
}

void wait_all_live(struct sw_pmem_log *log)
{
    struct sw_pmem_log_info info;
    const uint64_t deadline_ns = soon();
    unsigned live = 0;
    while (live < FAKE_REGIONS) {
        assert_true(sw_pmem_deadline_ms(0) < deadline_ns);
        sw_pmem_log_poll(log);
        sw_pmem_log_info_of(log, &info);
        live = 0;
        for (unsigned i = 0; i < info.copies; i++)
            live += info.states[i] == SW_PMEM_LOG_COPY_LIVE;
    }
}

void write_behind(struct sw_pmem_log *log)
{
    for (unsigned i = 0; i < 100; i++)
        sw_pmem_log_poll(log);
}

enum sw_pmem_log_status read_next(struct sw_pmem_log_reader *reader, struct sw_pmem_log_mark *mark,
                                  unsigned wait_ms)
{
    char text[RECORD_BYTES], expected[RECORD_BYTES];
    uint32_t len = 0;
    const unsigned number = (unsigned)mark->sequence;
    const enum sw_pmem_log_status status = sw_pmem_log_reader_next(
        reader, mark, text, sizeof(text), &len, sw_pmem_deadline_ms(wait_ms));
    if (status == SW_PMEM_LOG_OK) {
        assert_int_equal(len, snprintf(expected, sizeof(expected), "record %u", number));
        assert_memory_equal(text, expected, len);
    }
    return status;
}
