/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles and readers on files: what is saved comes back, and what must not is refused. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"
#include "snapshot/session/session.h"

static void round_trip__comes_back(void **state)
{
    struct program program;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    for (uint64_t step = 1; step <= 5; step++) {
        program_fill(&program, step);
        program_save(&program, step * 10);
        program_compare(&program, NULL, step); /* beside the program */
    }
    program_stop(&program);
    program_compare(&program, NULL, 5);
    program_compare(&program, &(uint64_t){40}, 4);
    struct sw_snap_entry entries[8];
    struct sw_snap_reader *reader = program_reader(&program, false);
    assert_int_equal(sw_snap_list(reader, entries, 8), 2); /* keep */
    assert_int_equal(entries[0].step, 50);
    assert_int_equal(entries[1].step, 40);
    assert_true(entries[0].is_whole);
    assert_int_equal(entries[0].copies, 1);
    sw_snap_reader_close(reader);
    program_close(&program);
}

static void round_trip__goes_on_in_another_handle(void **state)
{
    struct program program;
    struct sw_snap_info info;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 100);
    program_stop(&program);
    program_start(&program);
    program_save(&program, 50); /* a run that went on from an older one */
    sw_snap_info_of(program.snap, &info);
    assert_int_equal(info.changed_bytes, 0); /* the base of the other handle counts */
    assert_int_equal(info.taken, 1);
    program_stop(&program);
    program_compare(&program, NULL, 1);
    program_close(&program);
}

/* What the library takes for the time. */
static time_t clock_is_back;

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= clock_is_back;
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

static void newest__is_what_was_begun_last(void **state)
{
    struct program program;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 1);
    clock_is_back = 3600;
    program_fill(&program, 2);
    program_save(&program, 2);
    program_compare(&program, NULL, 2);
    program_stop(&program);
    program_start(&program); /* it goes on from an older one */
    program_fill(&program, 3);
    program_save(&program, 1);
    program_compare(&program, NULL, 3);
    clock_is_back = 0;
    program_stop(&program);
    program_close(&program);
}

/* Either of them may be damaged once the program has ended, or while it computes. */
static void newest__is_named_by_both_superblocks(void **state)
{
    struct program program;
    (void)state;
    program_open(&program, 1);
    for (uint64_t step = 1; step <= 4; step++) {
        program_start(&program);
        program_fill(&program, step);
        program_save(&program, step);
        program_stop(&program);
        for (uint64_t block = 0; block < 2; block++) {
            program_flip(program_path(&program, 0), block * 4096 + 100);
            program_compare(&program, NULL, step);
            program_flip(program_path(&program, 0), block * 4096 + 100);
        }
    }
    program_close(&program);
}

static void sinks__each_has_all(void **state)
{
    struct program program;
    struct sw_snap_info info;
    (void)state;
    program_open(&program, 3);
    program_start(&program);
    program_fill(&program, 7);
    program_save(&program, 1);
    assert_int_equal(sw_snap_wait(program.snap, SW_SNAP_IDLE, 0, NULL), SW_SNAP_OK);
    sw_snap_info_of(program.snap, &info);
    assert_int_equal(info.sinks_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(info.sinks[i].is_live);
        assert_true(info.sinks[i].has_newest);
        assert_true(info.sinks[i].written_bytes >= PROGRAM_BYTES_MAX);
    }
    program_stop(&program);
    for (uint32_t i = 0; i < 3; i++) { /* one alone is enough */
        struct program alone = program;
        alone.sink_texts[0] = program.sinks[i];
        alone.options.sinks = alone.sink_texts;
        alone.options.sinks_count = 1;
        program_compare(&alone, NULL, 7);
    }
    program_close(&program);
}

/* A sink that cannot be read may have what the others have not: nobody begins anew for that. */
static void sinks__unreadable_one_is_not_an_empty_one(void **state)
{
    struct program program;
    struct sw_snap_reader *reader;
    struct sw_snap_error error;
    struct sw_snap_entry entry;
    (void)state;
    program_open(&program, 2);
    program_fill(&program, 1);
    const int fd = open(program_path(&program, 1), O_CREAT | O_WRONLY, 0600);
    for (int i = 0; i < 32; i++)
        assert_int_equal(write(fd, program.memory[0], 1 << 16), 1 << 16);
    close(fd);
    /* The first one is not there. */
    assert_int_equal(sw_snap_reader_open(&program.options, &error, &reader), SW_SNAP_FORMAT);
    program.options.sinks_count = 1;
    program_start(&program);
    program_stop(&program);
    reader = program_reader(&program, false);
    assert_int_equal(sw_snap_choose(reader, NULL, &entry, &error), SW_SNAP_NOT_FOUND);
    sw_snap_reader_close(reader);
    program.options.sinks_count = 2;
    reader = program_reader(&program, false);
    assert_int_equal(sw_snap_choose(reader, NULL, &entry, &error), SW_SNAP_FORMAT);
    assert_non_null(strstr(error.text, program_path(&program, 1)));
    sw_snap_reader_close(reader);
    program_close(&program);
}

static void gate__skips(void **state)
{
    struct program program;
    struct sw_snap_info info;
    struct sw_snap_error error;
    (void)state;
    program_open(&program, 1);
    program.options.ring_bytes = 2 << 20; /* smaller than the state: something is left */
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 1);
    program_fill(&program, 2);
    assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 2}, &error),
                     SW_SNAP_OK);
    const enum sw_snap_status status = sw_snap_gate(program.snap, SW_SNAP_SKIP, 0);
    sw_snap_info_of(program.snap, &info);
    if (status) {
        assert_int_equal(status, SW_SNAP_SKIPPED);
        assert_int_equal(info.skipped, 1);
        assert_int_equal(info.stage, SW_SNAP_FAILED);
        assert_int_equal(info.durable_step, 1);
        /* Told once. */
        assert_int_equal(sw_snap_gate(program.snap, SW_SNAP_SKIP, 0), SW_SNAP_OK);
    }
    assert_int_equal(sw_snap_wait(program.snap, SW_SNAP_IDLE, 0, NULL), SW_SNAP_OK);
    program_fill(&program, 3);
    program_save(&program, 3);
    program_stop(&program);
    program_compare(&program, NULL, 3);
    program_close(&program);
}

/* Breaks the rule: writes all the time. */
static void *write_always(void *context)
{
    struct program *program = context;
    while (!atomic_load(&program->is_over))
        for (uint32_t at = 0; at < 5 << 20; at += 4096)
            ((volatile uint8_t *)program->memory[0])[at]++;
    return NULL;
}

static void gate__torn_is_named_and_never_there(void **state)
{
    struct program program;
    struct sw_snap_info info;
    struct sw_snap_error error;
    pthread_t thread;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 1);
    assert_int_equal(pthread_create(&thread, NULL, write_always, &program), 0);
    /* The scheduler may let no write happen during one of them. */
    enum sw_snap_status status = SW_SNAP_OK;
    for (uint64_t step = 2; step < 100 && !status; step++) {
        assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = step}, &error),
                         SW_SNAP_OK);
        status = sw_snap_gate(program.snap, SW_SNAP_WAIT, 0);
        assert_int_equal(sw_snap_wait(program.snap, SW_SNAP_IDLE, 0, NULL), SW_SNAP_OK);
    }
    assert_int_equal(status, SW_SNAP_TORN);
    atomic_store(&program.is_over, true);
    pthread_join(thread, NULL);
    sw_snap_info_of(program.snap, &info);
    assert_int_equal(info.torn, 1);
    assert_non_null(strstr(info.error.text, "layer.0.weight"));
    assert_null(strstr(info.error.text, "bytes"));
    const uint64_t step = info.step;
    program_stop(&program);
    struct sw_snap_reader *reader = program_reader(&program, false);
    assert_int_equal(sw_snap_choose(reader, &step, NULL, &error), SW_SNAP_NOT_FOUND);
    assert_int_equal(sw_snap_choose(reader, NULL, NULL, &error), SW_SNAP_OK);
    sw_snap_reader_close(reader);
    program_close(&program);
}

/* Turns bits of the ring over, behind the back of all. */
static void *spoil_ring(void *context)
{
    struct program *program = context;
    volatile uint8_t *ring = program->snap->ring;
    for (size_t at = 0; !atomic_load(&program->is_over); at += 40961)
        ring[at % program->snap->ring_bytes] ^= 8;
    return NULL;
}

/* Each that became durable is good, or is refused: never other bytes. */
static void ring__bits_that_turn_over_are_found(void **state)
{
    struct program program;
    struct sw_snap_error error;
    struct sw_snap_info info = {0};
    uint32_t found = 0;
    pthread_t thread;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 1);
    program_compare(&program, NULL, 1);
    assert_int_equal(pthread_create(&thread, NULL, spoil_ring, &program), 0);
    for (uint64_t step = 2; step < 100 && !found; step++) {
        program_fill(&program, step);
        enum sw_snap_status status =
            sw_snap_begin(program.snap, &(struct sw_snap_point){.step = step}, &error);
        if (!status)
            status = sw_snap_gate(program.snap, SW_SNAP_HELP, 0);
        if (!status)
            status = sw_snap_wait(program.snap, SW_SNAP_DURABLE, 0, &error);
        found += status == SW_SNAP_CORRUPT;
        sw_snap_info_of(program.snap, &info);
        assert_int_equal(sw_snap_wait(program.snap, SW_SNAP_IDLE, 0, NULL), SW_SNAP_OK);
    }
    atomic_store(&program.is_over, true);
    pthread_join(thread, NULL);
    assert_int_equal(found, 1);
    assert_non_null(strstr(info.error.text, "0.snap"));
    program_fill(&program, 500);
    program_save(&program, 500); /* the sink is as good as before */
    program_stop(&program);
    program_compare(&program, NULL, 500);
    program_close(&program);
}

static void begin__refusals(void **state)
{
    struct program program;
    struct sw_snap_error error;
    (void)state;
    program_open(&program, 1);
    assert_int_equal(sw_snap_open(&program.options, &error, &program.snap), SW_SNAP_OK);
    assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 1}, &error),
                     SW_SNAP_INVALID);
    assert_int_equal(sw_snap_wait(program.snap, SW_SNAP_DURABLE, 0, &error), SW_SNAP_AGAIN);
    assert_int_equal(sw_snap_describe(program.snap, program.ranges, PROGRAM_RANGES, &error),
                     SW_SNAP_OK);
    program_save(&program, 5);
    assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 5}, &error),
                     SW_SNAP_INVALID);
    assert_non_null(strstr(error.text, "5"));
    assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 6}, &error),
                     SW_SNAP_OK);
    assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 7}, &error),
                     SW_SNAP_BUSY);
    assert_int_equal(sw_snap_gate(program.snap, SW_SNAP_HELP, 0), SW_SNAP_OK);
    program_close(&program);
}

static void begin__no_room_is_told_first(void **state)
{
    struct program program;
    struct sw_snap_error error;
    struct sw_snap_info info;
    (void)state;
    program_open(&program, 1);
    program.options.volume_bytes = 4 << 20;
    program_start(&program);
    assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 1}, &error),
                     SW_SNAP_NO_ROOM);
    assert_non_null(strstr(error.text, "0.snap"));
    assert_int_equal(sw_snap_gate(program.snap, SW_SNAP_HELP, 0), SW_SNAP_OK);
    sw_snap_info_of(program.snap, &info);
    assert_int_equal(info.failed, 1);
    assert_int_equal(info.copied_bytes, 0);
    program_close(&program);
}

static void describe__anew(void **state)
{
    struct program program;
    struct sw_snap_error error;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 1);
    /* The same state in another order: blocks are found by name. */
    struct sw_snap_range ranges[PROGRAM_RANGES];
    for (int i = 0; i < PROGRAM_RANGES; i++)
        ranges[i] = program.ranges[PROGRAM_RANGES - 1 - i];
    assert_int_equal(sw_snap_describe(program.snap, ranges, PROGRAM_RANGES, &error), SW_SNAP_OK);
    program_fill(&program, 2);
    program_save(&program, 2);
    ranges[0].name = ranges[1].name;
    assert_int_equal(sw_snap_describe(program.snap, ranges, PROGRAM_RANGES, &error),
                     SW_SNAP_INVALID);
    program_fill(&program, 3);
    program_save(&program, 3); /* what was described before counts */
    program_stop(&program);
    program_compare(&program, NULL, 3);
    program_close(&program);
}

static void fd__is_readable_once(void **state)
{
    struct program program;
    struct sw_snap_info info;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    struct pollfd fd = {.fd = sw_snap_fd(program.snap), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 0), 0);
    program_save(&program, 1);
    assert_int_equal(poll(&fd, 1, -1), 1);
    sw_snap_info_of(program.snap, &info);
    assert_int_equal(info.stage, SW_SNAP_DURABLE);
    assert_int_equal(poll(&fd, 1, 0), 0);
    program_close(&program);
}

static void names__second_writer_is_refused_or_fences(void **state)
{
    struct program program, other;
    struct sw_snap_error error;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 1);
    other = program;
    other.options.sinks = other.sink_texts;
    other.snap = NULL;
    assert_int_equal(sw_snap_open(&other.options, &error, &other.snap), SW_SNAP_REFUSED);
    other.options.take_over = true;
    const enum sw_snap_status status = sw_snap_open(&other.options, &error, &other.snap);
    if (!status) {
        assert_int_equal(sw_snap_describe(other.snap, other.ranges, PROGRAM_RANGES, &error),
                         SW_SNAP_OK);
        program_save(&other, 2);
        /* The older one is told at its next chance, and changes nothing any more. */
        enum sw_snap_status older =
            sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 3}, &error);
        if (!older)
            older = sw_snap_gate(program.snap, SW_SNAP_HELP, 0);
        if (!older)
            older = sw_snap_wait(program.snap, SW_SNAP_DURABLE, 0, &error);
        assert_int_equal(older, SW_SNAP_FENCED);
        assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 4}, &error),
                         SW_SNAP_FENCED);
        program_compare(&other, &(uint64_t){2}, 1);
        program_stop(&other);
    }
    program_close(&program);
}

static void close__amid_everything(void **state)
{
    struct program program;
    struct sw_snap_error error;
    (void)state;
    program_open(&program, 2);
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 1);
    for (uint64_t step = 2; step < 12; step++) {
        program_fill(&program, step);
        assert_int_equal(sw_snap_begin(program.snap, &(struct sw_snap_point){.step = step}, &error),
                         SW_SNAP_OK);
        if (step % 3)
            sw_snap_gate(program.snap, SW_SNAP_HELP, 0);
        if (step % 3 == 2)
            usleep((useconds_t)(step * 300));
        program_stop(&program);
        program_start(&program);
    }
    program_fill(&program, 20);
    program_save(&program, 20);
    program_stop(&program);
    program_compare(&program, NULL, 20);
    program_close(&program);
}

static void fork__child_has_no_part(void **state)
{
    struct program program;
    int how;
    (void)state;
    program_open(&program, 1);
    program_start(&program);
    const pid_t child = fork();
    if (!child) {
        struct sw_snap_info info;
        int bad = sw_snap_gate(program.snap, SW_SNAP_HELP, 0) != SW_SNAP_FORKED;
        bad |=
            sw_snap_begin(program.snap, &(struct sw_snap_point){.step = 1}, NULL) != SW_SNAP_FORKED;
        bad |= sw_snap_wait(program.snap, SW_SNAP_IDLE, 0, NULL) != SW_SNAP_FORKED;
        sw_snap_info_of(program.snap, &info);
        bad |= info.error.status != SW_SNAP_FORKED;
        sw_snap_close(program.snap);
        _exit(bad);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    program_fill(&program, 1);
    program_save(&program, 1);
    program_stop(&program);
    program_compare(&program, NULL, 1);
    program_close(&program);
}

static void options__refusals(void **state)
{
    struct program program;
    struct sw_snap_error error;
    (void)state;
    program_open(&program, 2);
    struct sw_snap_options wrong = program.options;
    wrong.sinks_count = 0;
    assert_int_equal(sw_snap_open(&wrong, &error, &program.snap), SW_SNAP_INVALID);
    wrong = program.options, wrong.quorum = 3;
    assert_int_equal(sw_snap_open(&wrong, &error, &program.snap), SW_SNAP_INVALID);
    wrong = program.options, wrong.unit_bytes = 3 << 20;
    assert_int_equal(sw_snap_open(&wrong, &error, &program.snap), SW_SNAP_INVALID);
    wrong = program.options, wrong.keep = 31;
    assert_int_equal(sw_snap_open(&wrong, &error, &program.snap), SW_SNAP_INVALID);
    wrong = program.options, wrong.world = 2;
    assert_int_equal(sw_snap_open(&wrong, &error, &program.snap), SW_SNAP_INVALID);
    assert_non_null(strstr(error.text, "{rank}"));
    program.sink_texts[1] = "nonsense";
    assert_int_not_equal(sw_snap_open(&program.options, &error, &program.snap), SW_SNAP_OK);
    assert_null(program.snap);
    program.options.quorum = 1; /* one that is no sink is one that is not there */
    program_start(&program);
    program_fill(&program, 1);
    program_save(&program, 1);
    program_stop(&program);
    program_compare(&program, NULL, 1);
    program_close(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip__comes_back),
        cmocka_unit_test(round_trip__goes_on_in_another_handle),
        cmocka_unit_test(newest__is_what_was_begun_last),
        cmocka_unit_test(newest__is_named_by_both_superblocks),
        cmocka_unit_test(sinks__each_has_all),
        cmocka_unit_test(sinks__unreadable_one_is_not_an_empty_one),
        cmocka_unit_test(gate__skips),
        cmocka_unit_test(gate__torn_is_named_and_never_there),
        cmocka_unit_test(ring__bits_that_turn_over_are_found),
        cmocka_unit_test(begin__refusals),
        cmocka_unit_test(begin__no_room_is_told_first),
        cmocka_unit_test(describe__anew),
        cmocka_unit_test(fd__is_readable_once),
        cmocka_unit_test(names__second_writer_is_refused_or_fences),
        cmocka_unit_test(close__amid_everything),
        cmocka_unit_test(fork__child_has_no_part),
        cmocka_unit_test(options__refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
