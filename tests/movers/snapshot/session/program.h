/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that saves: some ranges of memory, sinks in a folder of its own, and comparing what
 * comes back. */
#ifndef TESTS_SNAPSHOT_PROGRAM_H
#define TESTS_SNAPSHOT_PROGRAM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sidewire/snapshot.h"

enum { PROGRAM_RANGES = 4, PROGRAM_BYTES_MAX = 5 << 20 };

struct program {
    char folder[64], sinks[SW_SNAP_SINKS_MAX][128];
    const char *sink_texts[SW_SNAP_SINKS_MAX];
    struct sw_snap_options options;
    struct sw_snap_range ranges[PROGRAM_RANGES];
    uint8_t *memory[PROGRAM_RANGES];
    struct sw_snap *snap;
    _Atomic bool is_over; /* of a thread of the test */
};

/* A folder, and `sinks` files in it that are not there yet. */
void program_open(struct program *program, uint32_t sinks);
/* With its folder. */
void program_close(struct program *program);
/* Fills all ranges with bytes that depend on the seed. */
void program_fill(struct program *program, uint64_t seed);
/* Opens the handle and describes the ranges. */
void program_start(struct program *program);
void program_stop(struct program *program);
/* Begins, passes the gate and waits until it is durable. */
void program_save(struct program *program, uint64_t step);
/* Restores that step, or the newest, by those sinks, and compares it with the fill of `seed`. */
void program_compare(struct program *program, const uint64_t *step, uint64_t seed);
struct sw_snap_reader *program_reader(const struct program *program, bool may_write);
/* Turns a bit of a file over at `offset`; how many bytes it has. */
void program_flip(const char *path, uint64_t offset);
uint64_t program_file_bytes(const char *path);
/* The path of a sink's file. */
const char *program_path(const struct program *program, uint32_t sink);
/* Where in the file of a sink these bytes lie; UINT64_MAX: nowhere. */
uint64_t program_find(const struct program *program, uint32_t sink, const void *bytes,
                      size_t length);

#endif
