/* SPDX-License-Identifier: BSD-2-Clause */
/* The log's library on a client without a network. */
#include "sidewire/pmem_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "log_steps.h"
#include "pmem/log/layout.h"

static void create__takes_care_of_what_is_there(void **state)
{
    (void)state;
    struct sw_pmem_log_geometry geometry = {RING_BYTES, RECORD_BYTES};
    struct sw_pmem_error error;
    assert_int_equal(sw_pmem_log_create(&options, &geometry, false, soon(), &error),
                     SW_PMEM_LOG_EXISTS);
    assert_int_equal(sw_pmem_log_create(&options, &geometry, true, soon(), &error), SW_PMEM_LOG_OK);
    geometry.record_bytes = RING_BYTES;
    assert_int_equal(sw_pmem_log_create(&options, &geometry, true, soon(), &error),
                     SW_PMEM_LOG_INVALID);
    geometry = (struct sw_pmem_log_geometry){FAKE_BYTES, RECORD_BYTES};
    assert_int_equal(sw_pmem_log_create(&options, &geometry, true, soon(), &error),
                     SW_PMEM_LOG_INVALID);
}

/* Its maker has died before it had made copies: which ones, and whether one was torn. */
static void create__goes_on_where_another_has_stopped(void **state)
{
    const struct sw_pmem_log_geometry geometry = {RING_BYTES, RECORD_BYTES};
    struct sw_pmem_error error;
    uint8_t first[PML_CONTROL_BYTES];
    (void)state;
    for (unsigned lacking = 1; lacking < 1u << FAKE_REGIONS; lacking++) {
        assert_int_equal(create_log(state), 0);
        for (unsigned i = 0; i < FAKE_REGIONS; i++) {
            if (lacking >> i & 1)
                memset(fake_bytes(i), 0, i % 2 ? PML_LINE_BYTES : PML_CONTROL_BYTES);
            else
                memcpy(first, fake_bytes(i), PML_LINE_BYTES);
        }
        assert_int_equal(sw_pmem_log_create(&options, &geometry, false, soon(), &error),
                         SW_PMEM_LOG_OK);
        for (unsigned i = 0; i < FAKE_REGIONS && lacking != (1u << FAKE_REGIONS) - 1; i++)
            assert_memory_equal(fake_bytes(i) + 16, first + 16, PML_ID_BYTES);
        struct sw_pmem_log *log = open_log();
        append(log, 0);
        expect_records(log, 0, 1);
        sw_pmem_log_close(log);
    }
}

/* A copy that has lost what it had is not made anew: a writer would count on it. */
static void create__leaves_a_log_that_was_used(void **state)
{
    const struct sw_pmem_log_geometry geometry = {RING_BYTES, RECORD_BYTES};
    const uint8_t zeroes[PML_CONTROL_BYTES] = {0};
    struct sw_pmem_error error;
    (void)state;
    for (unsigned lost = 0; lost < FAKE_REGIONS; lost++) {
        assert_int_equal(create_log(state), 0);
        struct sw_pmem_log *log = open_log();
        sw_pmem_log_close(log);
        memset(fake_bytes(lost), 0, PML_CONTROL_BYTES);
        assert_int_equal(sw_pmem_log_create(&options, &geometry, false, soon(), &error),
                         SW_PMEM_LOG_EXISTS);
        assert_memory_equal(fake_bytes(lost), zeroes, PML_CONTROL_BYTES);
    }
}

static void open__finds_no_log(void **state)
{
    (void)state;
    struct sw_pmem_log *log = NULL;
    struct sw_pmem_error error;
    fake_reset();
    assert_int_equal(sw_pmem_log_open(&options, soon(), &error, &log), SW_PMEM_LOG_NO_LOG);
    assert_null(log);
}

static void open__waits_for_a_quorum(void **state)
{
    (void)state;
    struct sw_pmem_log *log = NULL;
    struct sw_pmem_error error;
    fake_stop(0);
    fake_stop(2);
    assert_int_equal(sw_pmem_log_open(&options, sw_pmem_deadline_ms(SHORT_MS), &error, &log),
                     SW_PMEM_LOG_TIMEOUT);
    fake_start(2);
    log = open_log();
    append(log, 0);
    expect_records(log, 0, 1);
    sw_pmem_log_close(log);
}

static void log__keeps_records(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    expect_records(log, 0, 0);
    for (unsigned i = 0; i < 10; i++)
        append(log, i);
    expect_records(log, 0, 10);
    sw_pmem_log_close(log);
    log = open_log();
    expect_records(log, 0, 10);
    append(log, 10);
    expect_records(log, 0, 11);
    sw_pmem_log_close(log);
}

static void log__is_trimmed_when_full(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_mark mark;
    char text[RECORD_BYTES];
    uint32_t len = 0;
    unsigned first = 0, next = 0;
    for (; next < RING_BYTES / 128; next++)
        append(log, next);
    assert_int_equal(sw_pmem_log_append(log, "x", 1, soon(), NULL), SW_PMEM_LOG_FULL);
    for (; next < 200; next++) {
        sw_pmem_log_head(log, &mark);
        assert_int_equal(sw_pmem_log_read(log, &mark, text, sizeof(text), &len, soon()),
                         SW_PMEM_LOG_OK);
        assert_int_equal(sw_pmem_log_trim(log, &mark), SW_PMEM_LOG_OK);
        first++;
        append(log, next);
    }
    expect_records(log, first, next);
    sw_pmem_log_close(log);
}

static void log__goes_on_without_a_copy(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_info info;
    append(log, 0);
    fake_stop(1);
    for (unsigned i = 1; i < 20; i++)
        append(log, i);
    sw_pmem_log_info_of(log, &info);
    assert_int_equal(info.states[1], SW_PMEM_LOG_COPY_LOST);
    fake_start(1);
    wait_all_live(log);
    fake_stop(0); /* now what has come back has to have it all */
    append(log, 20);
    expect_records(log, 0, 21);
    sw_pmem_log_close(log);
    log = open_log();
    expect_records(log, 0, 21);
    sw_pmem_log_close(log);
}

static void append__waits_without_a_quorum(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_result result;
    append(log, 0);
    fake_stop(0);
    fake_stop(1);
    assert_int_equal(sw_pmem_log_append(log, "record 1", 8, sw_pmem_deadline_ms(SHORT_MS), NULL),
                     SW_PMEM_LOG_TIMEOUT);
    assert_int_equal(sw_pmem_log_append(log, "x", 1, soon(), NULL), SW_PMEM_LOG_AGAIN);
    fake_start(0);
    assert_int_equal(sw_pmem_log_wait(log, soon()), SW_PMEM_LOG_OK);
    assert_true(sw_pmem_log_take(log, &result));
    assert_int_equal(result.status, SW_PMEM_LOG_OK);
    expect_records(log, 0, 2);
    sw_pmem_log_close(log);
}

static void post__keeps_a_window_under_way(void **state)
{
    (void)state;
    options.window = 8;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_log_result result;
    char text[RECORD_BYTES];
    unsigned posted = 0, taken = 0;
    while (taken < 30) {
        const int len = snprintf(text, sizeof(text), "record %u", posted);
        const enum sw_pmem_log_status status =
            posted < 30 ? sw_pmem_log_post(log, text, (uint32_t)len, posted) : SW_PMEM_LOG_AGAIN;
        posted += status == SW_PMEM_LOG_OK;
        if (status == SW_PMEM_LOG_OK)
            continue;
        assert_int_equal(sw_pmem_log_wait(log, soon()), SW_PMEM_LOG_OK);
        while (sw_pmem_log_take(log, &result)) {
            assert_int_equal(result.status, SW_PMEM_LOG_OK);
            assert_int_equal(result.user, taken++);
        }
    }
    expect_records(log, 0, 30);
    sw_pmem_log_close(log);
}

/* ---- one bad copy ---- */

static void put_word(unsigned copy, size_t offset, uint64_t word)
{
    memcpy(fake_bytes(copy) + offset, &word, sizeof(word));
}

static struct pml_geometry geometry_of(unsigned copy)
{
    struct pml_geometry geometry;
    uint16_t which;
    assert_int_equal(pml_superblock_parse(fake_bytes(copy), &geometry, &which), PML_FINE);
    return geometry;
}

static void seal_superblock(unsigned copy, const struct pml_geometry *geometry, uint16_t which)
{
    static uint8_t control[PML_CONTROL_BYTES];
    pml_control_format(geometry, which, control);
    memcpy(fake_bytes(copy), control, PML_LINE_BYTES);
}

enum spoiler {
    EPOCH_THE_LAST,
    EPOCH_BEFORE_IT,
    EPOCH_AFTER_IT,
    EPOCH_AND_SETTLED,
    SETTLED,
    ALL_BUT_TAIL,
    TAIL,
    HEADS_BEYOND_THE_END,
    HEADS_WITHIN,
    NO_HEADS,
    RING_TOO_LARGE,
    RING_OF_A_PRIME,
    RECORDS_TOO_LARGE,
    ANOTHER_LOG,
    ANOTHER_COPY,
    NOTHING_LEFT,
    RECORDS_LOST,
    SPOILERS
};

static void spoil_words(enum spoiler how, unsigned copy)
{
    const uint64_t word = how == EPOCH_THE_LAST    ? PML_NUMBER_MAX
                          : how == EPOCH_BEFORE_IT ? PML_NUMBER_MAX - 1
                          : how == EPOCH_AFTER_IT  ? PML_NUMBER_MAX + 1
                                                   : 1ull << 50;
    if (how == TAIL)
        put_word(copy, PML_TAIL_OFFSET, PML_NUMBER_MAX / 128 * 64);
    if (how <= EPOCH_AND_SETTLED || how == ALL_BUT_TAIL)
        put_word(copy, PML_EPOCH_OFFSET, word);
    if (how >= EPOCH_AND_SETTLED && how <= ALL_BUT_TAIL)
        put_word(copy, PML_SETTLED_OFFSET, word);
    if (how == ALL_BUT_TAIL)
        put_word(copy, PML_SHOWN_OFFSET, word);
}

static void spoil_copy(enum spoiler how, unsigned copy)
{
    uint8_t *bytes = fake_bytes(copy);
    struct pml_geometry geometry = geometry_of(copy);
    struct pml_slot slot = {.count = 1 << 20, .head = {.position = 1 << 20}};
    spoil_words(how, copy);
    if (how == HEADS_WITHIN)
        slot.head.position = 512;
    if (how == HEADS_BEYOND_THE_END || how == HEADS_WITHIN)
        pml_slot_format(&geometry, &slot, bytes + PML_SLOT_OFFSET);
    if (how == NO_HEADS)
        memset(bytes + PML_SLOT_OFFSET, 0xff, PML_EPOCH_OFFSET - PML_SLOT_OFFSET);
    if (how == RECORDS_LOST)
        memset(bytes + PML_RING_OFFSET, 0, RING_BYTES);
    if (how == NOTHING_LEFT)
        memset(bytes, 0, FAKE_BYTES);
    geometry.ring_bytes = how == RING_TOO_LARGE    ? PML_NUMBER_MAX / 128 * 64
                          : how == RING_OF_A_PRIME ? 64 * 1000000007ull
                                                   : RING_BYTES;
    geometry.payload_max = how == RECORDS_TOO_LARGE ? RECORD_BYTES * 2 : RECORD_BYTES;
    geometry.id[0] ^= how == ANOTHER_LOG;
    if (how >= RING_TOO_LARGE && how <= ANOTHER_COPY)
        seal_superblock(copy, &geometry, (uint16_t)((copy + (how == ANOTHER_COPY)) % 3));
}

static void read_all(unsigned end)
{
    struct sw_pmem_log_mark mark;
    struct sw_pmem_log_reader *reader = open_reader();
    assert_int_equal(sw_pmem_log_reader_head(reader, &mark, soon()), SW_PMEM_LOG_OK);
    for (unsigned i = 0; i < end; i++)
        assert_int_equal(read_next(reader, &mark, WAIT_MS), SW_PMEM_LOG_OK);
    sw_pmem_log_reader_close(reader);
}

static void open__one_bad_copy_spoils_none(void **state)
{
    for (unsigned i = 0; i < SPOILERS * FAKE_REGIONS; i++) {
        const enum spoiler how = (enum spoiler)(i / FAKE_REGIONS);
        print_message("%u, copy %u\n", how, i % FAKE_REGIONS);
        assert_int_equal(create_log(state), 0);
        struct sw_pmem_log *log = open_log();
        wait_all_live(log);
        for (unsigned j = 0; j < 9; j++)
            append(log, j);
        wait_all_live(log);
        sw_pmem_log_close(log);
        spoil_copy(how, i % FAKE_REGIONS);
        read_all(9);
        for (unsigned j = 9; j < 12; j++) {
            log = open_log();
            append(log, j);
            expect_records(log, 0, j + 1);
            sw_pmem_log_close(log);
        }
        read_all(12);
    }
}

/* Two are there, and one of them is left out of the election. */
static void open__names_the_copy_that_it_doubts(void **state)
{
    (void)state;
    struct sw_pmem_log *log = open_log();
    struct sw_pmem_error error;
    wait_all_live(log);
    append(log, 0);
    write_behind(log);
    sw_pmem_log_close(log);
    fake_stop(2);
    put_word(1, PML_EPOCH_OFFSET, 1ull << 50);
    assert_int_equal(sw_pmem_log_open(&options, sw_pmem_deadline_ms(300), &error, &log),
                     SW_PMEM_LOG_TIMEOUT);
    assert_non_null(strstr(error.text, "copy 2 (1) is damaged"));
    fake_start(2);
    log = open_log();
    expect_records(log, 0, 1);
    sw_pmem_log_close(log);
}

/* It comes back to a writer that lives. */
static void log__one_bad_copy_fences_nobody(void **state)
{
    for (unsigned how = 0; how < SPOILERS; how++) {
        print_message("%u\n", how);
        assert_int_equal(create_log(state), 0);
        struct sw_pmem_log *log = open_log();
        wait_all_live(log);
        append(log, 0);
        fake_stop(1);
        append(log, 1);
        spoil_copy((enum spoiler)how, 1);
        fake_start(1);
        for (unsigned i = 2; i < 12; i++)
            append(log, i);
        expect_records(log, 0, 12);
        sw_pmem_log_close(log);
    }
}

static void create__refuses_a_ring_that_nobody_can_open(void **state)
{
    (void)state;
    struct sw_pmem_error error;
    struct sw_pmem_log_geometry prime = {64 * 16411, RECORD_BYTES};
    assert_int_equal(sw_pmem_log_create(&options, &prime, true, soon(), &error),
                     SW_PMEM_LOG_INVALID);
    assert_non_null(strstr(error.text, "one of 1114112 can"));
    for (uint32_t payload = 0; payload <= PML_PAYLOAD_MAX; payload = payload * 3 + 100) {
        struct pml_geometry geometry = {.copies = 1, .quorum = 1, .payload_max = payload};
        const uint64_t record = pml_record_bytes(payload);
        geometry.ring_bytes = record * 4 + 64;
        geometry.ring_bytes = pml_ring_bytes_above(&geometry);
        const uint64_t stage = pml_stage_bytes_of(&geometry);
        assert_true(pml_geometry_is_valid(&geometry));
        assert_true(stage >= 2 * record && geometry.ring_bytes % stage == 0);
        geometry.ring_bytes = 64 * 1000000000039ull;
        assert_int_equal(pml_stage_bytes_of(&geometry), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(create__refuses_a_ring_that_nobody_can_open, create_log),
        cmocka_unit_test(open__one_bad_copy_spoils_none),
        cmocka_unit_test(log__one_bad_copy_fences_nobody),
        cmocka_unit_test_setup(open__names_the_copy_that_it_doubts, create_log),
        cmocka_unit_test_setup(create__takes_care_of_what_is_there, create_log),
        cmocka_unit_test_setup(create__goes_on_where_another_has_stopped, create_log),
        cmocka_unit_test_setup(create__leaves_a_log_that_was_used, create_log),
        cmocka_unit_test_setup(open__finds_no_log, create_log),
        cmocka_unit_test_setup(open__waits_for_a_quorum, create_log),
        cmocka_unit_test_setup(log__keeps_records, create_log),
        cmocka_unit_test_setup(log__is_trimmed_when_full, create_log),
        cmocka_unit_test_setup(log__goes_on_without_a_copy, create_log),
        cmocka_unit_test_setup(append__waits_without_a_quorum, create_log),
        cmocka_unit_test_setup(post__keeps_a_window_under_way, create_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
