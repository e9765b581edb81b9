/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of a measuring program, from a table: each has a long name, a letter and its place. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum bench_value { BENCH_TEXT, BENCH_NUMBER, BENCH_FLAG };

struct bench_option {
    const char *name;
    char letter;
    enum bench_value value;
    void *to; /* const char *, an integer, or bool */
    size_t bytes;
};

/* Rows of the table: to a text, to an integer of any size, to a bool that is set. */
#define BENCH_TEXT_OPTION(name, letter, to)         \
    {                                               \
        name, letter, BENCH_TEXT, &(to), sizeof(to) \
    }
#define BENCH_NUMBER_OPTION(name, letter, to)         \
    {                                                 \
        name, letter, BENCH_NUMBER, &(to), sizeof(to) \
    }
#define BENCH_FLAG_OPTION(name, letter, to)         \
    {                                               \
        name, letter, BENCH_FLAG, &(to), sizeof(to) \
    }

#define BENCH_OPTIONS_MAX 16u

/* Stores what the command line says. False: an option is none of the table, lacks its value, or is
 * no number where it should be one. What follows the options begins at argv[optind] (getopt(3)). */
bool bench_parse_options(int argc, char **argv, const struct bench_option *options, size_t count);

#endif
