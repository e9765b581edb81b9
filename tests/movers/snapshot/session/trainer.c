/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that takes snapshot after snapshot until it is killed, and one that looks at what is
 * there then.
 *
 *     trainer save QUORUM STEPS STALL_MS TAKE_OVER SINK...   a line for each: "durable 7 1 1", with
 *                                                            the sinks that have it, or
 *                                                            "failed 8 STATUS TEXT"
 *     trainer check SINK...     "whole 7" where all bytes are those of that step, or "none"
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

enum { PAUSE_US = 2000 };

static void take_sinks(struct program *program, char **words, int count)
{
    for (int i = 0; i < count; i++)
        program->sink_texts[i] = words[i];
    program->options.sinks_count = (uint32_t)count;
}

static void say_step(struct program *program, uint64_t step, enum sw_snap_status status,
                     const struct sw_snap_error *error)
{
    struct sw_snap_info info;
    sw_snap_info_of(program->snap, &info);
    if (status) {
        printf("failed %" PRIu64 " %d %s\n", step, status, error->text);
    } else {
        printf("durable %" PRIu64, step);
        for (uint32_t i = 0; i < info.sinks_count; i++)
            printf(" %d", info.sinks[i].has_newest);
        putchar('\n');
    }
    fflush(stdout);
}

static void train_step(struct program *program, uint64_t step)
{
    struct sw_snap_error error = {0};
    const struct sw_snap_point point = {.step = step, .small = &step, .small_bytes = sizeof(step)};
    program_fill(program, step);
    enum sw_snap_status status = sw_snap_begin(program->snap, &point, &error);
    if (!status) {
        sw_snap_gate(program->snap, SW_SNAP_HELP, 0);
        status = sw_snap_wait(program->snap, SW_SNAP_DURABLE, 0, &error);
    }
    say_step(program, step, status, &error);
    sw_snap_wait(program->snap, SW_SNAP_IDLE, 0, NULL);
    if (!status && program->options.quorum)
        say_step(program, step, status, &error); /* sinks beyond the quorum may have it now */
    usleep(PAUSE_US);
}

static int train_always(struct program *program, char **words, int count)
{
    struct sw_snap_error error;
    struct sw_snap_reader *reader;
    struct sw_snap_entry newest = {0};
    const uint64_t steps = strtoull(words[1], NULL, 0);
    program->options.quorum = (uint32_t)atoi(words[0]);
    program->options.stall_timeout_ms = (uint32_t)atoi(words[2]);
    program->options.connect_timeout_ms = 1000;
    program->options.take_over = atoi(words[3]);
    take_sinks(program, words + 4, count - 4);
    struct sw_snap_options reads = program->options;
    reads.quorum = 0;
    if (!sw_snap_reader_open(&reads, &error, &reader)) {
        sw_snap_list(reader, &newest, 1);
        sw_snap_reader_close(reader);
    }
    if (sw_snap_open(&program->options, &error, &program->snap) ||
        sw_snap_describe(program->snap, program->ranges, PROGRAM_RANGES, &error)) {
        printf("failed 0 %d %s\n", error.status, error.text);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (uint64_t step = newest.step + 1; step <= newest.step + steps; step++)
        train_step(program, step);
    program_stop(program);
    return 0;
}

static int check_newest(struct program *program, char **words, int count)
{
    struct sw_snap_error error;
    struct sw_snap_reader *reader;
    struct sw_snap_entry entry;
    take_sinks(program, words, count);
    enum sw_snap_status status = sw_snap_reader_open(&program->options, &error, &reader);
    if (status == SW_SNAP_NOT_FOUND) {
        puts("none");
        return 0;
    }
    if (status) {
        printf("failed 0 %d %s\n", status, error.text);
        return 1;
    }
    status = sw_snap_choose(reader, NULL, &entry, &error);
    sw_snap_reader_close(reader);
    if (status == SW_SNAP_NOT_FOUND) {
        puts("none");
        return 0;
    }
    if (status) {
        printf("failed 0 %d %s\n", status, error.text);
        return 1;
    }
    program_compare(program, &entry.step, entry.step);
    printf("whole %" PRIu64 "\n", entry.step);
    return 0;
}

int main(int argc, char **argv)
{
    static struct program program;
    int code = 2;
    program_open(&program, 0);
    if (argc > 6 && !strcmp(argv[1], "save"))
        code = train_always(&program, argv + 2, argc - 2);
    else if (argc > 2 && !strcmp(argv[1], "check"))
        code = check_newest(&program, argv + 2, argc - 2);
    program.options.sinks_count = 0; /* not this program's to remove */
    program_close(&program);
    return code;
}
