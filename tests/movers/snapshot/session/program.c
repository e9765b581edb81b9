/* SPDX-License-Identifier: BSD-2-Clause */
#include "program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name, *type;
    uint64_t bytes;
    uint32_t dims;
    uint64_t shape[2];
} RANGES[PROGRAM_RANGES] = {
    {"layer.0.weight", "F32", 5 << 20, 2, {1280, 1024}},
    {"layer.0.bias", "F32", 4096 + 20, 1, {1029}},
    {"position", "I64", 8, 0, {0}},
    {"bytes", NULL, 1234567, 0, {0}},
};

void program_open(struct program *program, uint32_t sinks)
{
    memset(program, 0, sizeof(*program));
    snprintf(program->folder, sizeof(program->folder), "/tmp/sw_snap_XXXXXX");
    assert_non_null(mkdtemp(program->folder));
    sw_snap_options_init(&program->options);
    for (uint32_t i = 0; i < sinks; i++) {
        snprintf(program->sinks[i], sizeof(program->sinks[i]), "file:%s/%u.snap", program->folder,
                 i);
        program->sink_texts[i] = program->sinks[i];
    }
    program->options.sinks = program->sink_texts;
    program->options.sinks_count = sinks;
    program->options.ring_bytes = 16 << 20;
    program->options.unit_bytes = 1 << 20;
    for (uint32_t i = 0; i < PROGRAM_RANGES; i++) {
        program->memory[i] = aligned_alloc(64, (RANGES[i].bytes + 63) / 64 * 64);
        assert_non_null(program->memory[i]);
        program->ranges[i] = (struct sw_snap_range){.name = RANGES[i].name,
                                                    .data = program->memory[i],
                                                    .bytes = RANGES[i].bytes,
                                                    .type = RANGES[i].type,
                                                    .dims = RANGES[i].dims};
        memcpy(program->ranges[i].shape, RANGES[i].shape, sizeof(RANGES[i].shape));
    }
}

const char *program_path(const struct program *program, uint32_t sink)
{
    return program->sinks[sink] + strlen("file:");
}

void program_close(struct program *program)
{
    program_stop(program);
    for (uint32_t i = 0; i < program->options.sinks_count; i++)
        unlink(program_path(program, i));
    rmdir(program->folder);
    for (uint32_t i = 0; i < PROGRAM_RANGES; i++)
        free(program->memory[i]);
}

static void fill_bytes(uint8_t *to, uint64_t bytes, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
    for (uint64_t at = 0; at < bytes; at += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(to + at, &state, bytes - at < 8 ? bytes - at : 8);
    }
}

void program_fill(struct program *program, uint64_t seed)
{
    for (uint32_t i = 0; i < PROGRAM_RANGES; i++)
        fill_bytes(program->memory[i], RANGES[i].bytes, seed * PROGRAM_RANGES + i);
}

void program_start(struct program *program)
{
    struct sw_snap_error error;
    enum sw_snap_status status = sw_snap_open(&program->options, &error, &program->snap);
    if (!status)
        status = sw_snap_describe(program->snap, program->ranges, PROGRAM_RANGES, &error);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

void program_stop(struct program *program)
{
    sw_snap_close(program->snap);
    program->snap = NULL;
}

void program_save(struct program *program, uint64_t step)
{
    struct sw_snap_error error = {0};
    const struct sw_snap_point point = {.step = step, .small = &step, .small_bytes = sizeof(step)};
    enum sw_snap_status status = sw_snap_begin(program->snap, &point, &error);
    if (!status)
        status = sw_snap_gate(program->snap, SW_SNAP_HELP, 0);
    if (!status)
        status = sw_snap_wait(program->snap, SW_SNAP_DURABLE, 0, &error);
    if (status)
        fail_msg("step %llu: %d: %s", (unsigned long long)step, status, error.text);
}

struct sw_snap_reader *program_reader(const struct program *program, bool may_write)
{
    struct sw_snap_options options = program->options;
    struct sw_snap_error error;
    struct sw_snap_reader *reader;
    options.may_write = may_write;
    const enum sw_snap_status status = sw_snap_reader_open(&options, &error, &reader);
    if (status)
        fail_msg("%d: %s", status, error.text);
    return reader;
}

void program_compare(struct program *program, const uint64_t *step, uint64_t seed)
{
    struct sw_snap_reader *reader = program_reader(program, false);
    struct sw_snap_error error;
    struct sw_snap_entry entry;
    uint8_t *want = malloc(PROGRAM_BYTES_MAX), *got = malloc(PROGRAM_BYTES_MAX);
    uint64_t small = 0;
    size_t length;
    if (sw_snap_choose(reader, step, &entry, &error))
        fail_msg("%s", error.text);
    assert_int_equal(sw_snap_items(reader), PROGRAM_RANGES);
    assert_int_equal(sw_snap_small(reader, 0, &small, sizeof(small), &length, &error), SW_SNAP_OK);
    assert_int_equal(small, entry.step);
    for (uint32_t i = 0; i < PROGRAM_RANGES; i++) {
        struct sw_snap_piece piece = {.bytes = RANGES[i].bytes, .into = got};
        assert_int_equal(sw_snap_find(reader, 0, RANGES[i].name, &piece.number), SW_SNAP_OK);
        memset(got, 0, PROGRAM_BYTES_MAX);
        if (sw_snap_read(reader, &piece, 1, &error))
            fail_msg("%s", error.text);
        fill_bytes(want, RANGES[i].bytes, seed * PROGRAM_RANGES + i);
        assert_memory_equal(got, want, RANGES[i].bytes);
    }
    free(want);
    free(got);
    sw_snap_reader_close(reader);
}

void program_flip(const char *path, uint64_t offset)
{
    uint8_t byte;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

uint64_t program_file_bytes(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

uint64_t program_find(const struct program *program, uint32_t sink, const void *bytes,
                      size_t length)
{
    const char *path = program_path(program, sink);
    const uint64_t all = program_file_bytes(path);
    const int fd = open(path, O_RDONLY);
    const uint8_t *file = mmap(NULL, all, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(file != MAP_FAILED);
    close(fd);
    const uint8_t *found = memmem(file, all, bytes, length);
    const uint64_t at = found ? (uint64_t)(found - file) : UINT64_MAX;
    munmap((void *)(uintptr_t)file, all);
    return at;
}
