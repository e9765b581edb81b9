/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rank that goes on from the newest whole snapshot, and takes one after another until it is
 * killed, or has taken so many.
 *
 *     ranked save WAY STEPS QUORUM SINK...   WAY: launcher, or RANK,WORLD,MEET
 *     ranked check SINK...                   "whole 7" where the bytes of all ranks are right
 *
 * It says, each with "rank 2 " before it: "process 4711", "restored 7", 0 where nothing is there,
 * "durable 8", "failed 9 STATUS TEXT".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

enum { PAUSE_US = 1000, RANK_MS = 20000, STALL_MS = 4000, CONNECT_MS = 10000, MEET_BYTES = 64 };

static uint64_t seed_of(uint32_t rank, uint64_t step)
{
    return rank * (uint64_t)1000000 + step;
}

static void __attribute__((format(printf, 2, 3)))
say(const struct program *program, const char *format, ...)
{
    char line[768];
    va_list arguments;
    const int head = snprintf(line, sizeof(line), "rank %u ", program->options.rank);
    va_start(arguments, format);
    vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    (void)!write(STDOUT_FILENO, line, strlen(line)); /* whole, beside those of other ranks */
}

/* Whether all that a rank has of the chosen snapshot is as it was. */
static bool is_right(struct program *program, struct sw_snap_reader *reader, uint32_t rank,
                     uint64_t step, struct sw_snap_error *error)
{
    static uint8_t got[PROGRAM_BYTES_MAX];
    program_fill(program, seed_of(rank, step));
    for (uint32_t i = 0; i < PROGRAM_RANGES; i++) {
        const struct sw_snap_range *range = &program->ranges[i];
        struct sw_snap_piece piece = {.bytes = range->bytes, .into = got};
        if (sw_snap_find(reader, rank, range->name, &piece.number) ||
            sw_snap_read(reader, &piece, 1, error))
            return false;
        if (memcmp(got, range->data, range->bytes)) {
            snprintf(error->text, sizeof(error->text), "rank %u, step %" PRIu64 ": %s differs",
                     rank, step, range->name);
            return false;
        }
    }
    return true;
}

/* What one rank has, or all where `rank` is NULL, is compared. `*step` 0: there is nothing. */
static bool restore_newest(struct program *program, const uint32_t *rank, uint64_t *step,
                           struct sw_snap_error *error)
{
    struct sw_snap_options reads = program->options;
    struct sw_snap_reader *reader;
    struct sw_snap_entry entry = {0};
    reads.quorum = 0;
    *step = 0;
    enum sw_snap_status status = sw_snap_reader_open(&reads, error, &reader);
    if (status)
        return status == SW_SNAP_NOT_FOUND;
    status = sw_snap_choose(reader, NULL, &entry, error);
    bool is_good = !status || status == SW_SNAP_NOT_FOUND;
    if (!status) {
        *step = entry.step;
        for (uint32_t i = 0; is_good && i < entry.world; i++)
            if (!rank || *rank == i)
                is_good = is_right(program, reader, i, entry.step, error);
    }
    sw_snap_reader_close(reader);
    return is_good;
}

static void train_step(struct program *program, uint64_t step)
{
    struct sw_snap_error error = {0};
    const struct sw_snap_point point = {.step = step, .small = &step, .small_bytes = sizeof(step)};
    program_fill(program, seed_of(program->options.rank, step));
    enum sw_snap_status status = sw_snap_begin(program->snap, &point, &error);
    if (!status) {
        sw_snap_gate(program->snap, SW_SNAP_HELP, 0);
        status = sw_snap_wait(program->snap, SW_SNAP_DURABLE, 0, &error);
    }
    if (status)
        say(program, "failed %" PRIu64 " %d %s", step, status, error.text);
    else
        say(program, "durable %" PRIu64, step);
    usleep(PAUSE_US);
}

static bool take_way(struct program *program, const char *way, struct sw_snap_error *error)
{
    static char meet[MEET_BYTES];
    struct sw_snap_options *options = &program->options;
    if (!strcmp(way, "launcher"))
        return !sw_snap_options_from_launcher(options, error);
    if (sscanf(way, "%u,%u,%63s", &options->rank, &options->world, meet) != 3)
        return false;
    options->meet = meet;
    return true;
}

static int train_always(struct program *program, char **words)
{
    struct sw_snap_error error = {0};
    uint64_t newest = 0;
    program->options.rank_timeout_ms = RANK_MS;
    program->options.stall_timeout_ms = STALL_MS;
    program->options.connect_timeout_ms = CONNECT_MS;
    program->options.quorum = (uint32_t)atoi(words[2]);
    program->options.take_over = true;
    if (!take_way(program, words[0], &error)) {
        fprintf(stderr, "%s: %s\n", words[0], error.text);
        return 2;
    }
    say(program, "process %d", (int)getpid());
    /* Before open(), which waits for all ranks: so all read the same. */
    if (!restore_newest(program, &program->options.rank, &newest, &error) ||
        sw_snap_open(&program->options, &error, &program->snap) ||
        sw_snap_describe(program->snap, program->ranges, PROGRAM_RANGES, &error)) {
        say(program, "failed 0 %d %s", error.status, error.text);
        return 1;
    }
    say(program, "restored %" PRIu64, newest);
    const uint64_t last = newest + strtoull(words[1], NULL, 0);
    for (uint64_t step = newest + 1; step <= last; step++)
        train_step(program, step);
    sw_snap_wait(program->snap, SW_SNAP_IDLE, 0, NULL);
    program_stop(program);
    return 0;
}

static int check_newest(struct program *program)
{
    struct sw_snap_error error = {0};
    uint64_t newest;
    if (!restore_newest(program, NULL, &newest, &error)) {
        printf("failed 0 %d %s\n", error.status, error.text);
        return 1;
    }
    printf("whole %" PRIu64 "\n", newest);
    return 0;
}

int main(int argc, char **argv)
{
    static struct program program;
    const bool saves = argc > 5 && !strcmp(argv[1], "save");
    if (!saves && (argc < 3 || strcmp(argv[1], "check")))
        return 2;
    program_open(&program, 0);
    for (int i = saves ? 5 : 2; i < argc && program.options.sinks_count < SW_SNAP_SINKS_MAX; i++)
        program.sink_texts[program.options.sinks_count++] = argv[i];
    const int code = saves ? train_always(&program, argv + 2) : check_newest(&program);
    program.options.sinks_count = 0; /* not this program's to remove */
    program_close(&program);
    return code;
}
