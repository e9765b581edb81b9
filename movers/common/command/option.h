/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options of a command: a row of a table says what an option is called, what --help tells, and
 * where its value goes. docs/vocabulary.md has all that there are; remote.h those that several
 * movers have. A value that is wrong ends the program with MOVER_USAGE, as argp_error() does.
 */
#ifndef SW_MOVERS_OPTION_H
#define SW_MOVERS_OPTION_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads `text`, NULL for an option without an argument, into what lies at `place`. */
typedef void mover_take(struct argp_state *state, void *place, char *text);

mover_take mover_take_text;   /* const char *: the text itself */
mover_take mover_take_bytes;  /* uint64_t: a number, maybe with K, M, G or T */
mover_take mover_take_count;  /* uint32_t: the same */
mover_take mover_take_flag;   /* bool: true */
mover_take mover_take_format; /* bool: whether "json", not "normal" */
mover_take mover_take_time;   /* uint64_t: seconds, maybe with a fraction, in ns */

/* The number of an option that was not given, where that means something other than any number. */
#define MOVER_NOT_GIVEN UINT64_MAX

struct mover_option {
    const char *name;
    int letter;           /* 0: it has a name alone */
    const char *argument; /* as --help shows it; NULL: it takes none */
    int flags;            /* 0 or MOVER_OLD */
    const char *about;    /* what --help says */
    int group;            /* in --help: lower ones come first */
    mover_take *take;
    size_t at; /* offset of its place in the arguments */
};

/* The last two of a row, for a member of the arguments: its type says what is taken. Times, formats
 * and other types name it: `mover_take_time, offsetof(struct bench, runtime_ns)`. */
#define MOVER_TO(arguments, member) \
    _Generic(((arguments *)0)->member, const char *: mover_take_text, uint64_t: mover_take_bytes, \
             uint32_t: mover_take_count, bool: mover_take_flag), offsetof(arguments, member)

/* An old spelling of the option in the row before, taken for a release and told on standard error;
 * --help does not show it:
 *     {"count", 0, "N", 0, "How many", 1, MOVER_TO(struct arguments, count)},
 *     {.letter = 'c', .flags = MOVER_OLD}, */
enum { MOVER_OLD = OPTION_ALIAS | OPTION_HIDDEN };

/* Options that belong together. A function gets the arguments, and says by argp_error() what is
 * wrong with them. */
struct mover_options {
    const struct mover_option *rows; /* the last is {0} */
    const char *header;              /* above them in --help; NULL: they are among the others */
    /* A word that is no option; NULL: there are none, or only the one below. */
    void (*word)(struct argp_state *state, void *arguments, char *text);
    void (*check)(struct argp_state *state, void *arguments); /* at the end; may be NULL */
    /* A word that has to be there, and only once: what messages call it, and the offset of its
     * const char *. NULL: there is none. */
    const char *only_word;
    size_t only_word_at;
};

struct mover_usage {
    const char *words, *about; /* "FILE...", as --help shows it; what the command does */
    struct mover_options own;
    const struct mover_options *shared; /* with other commands; may be NULL */
};

/* Fills in `arguments`, which has the defaults before. The offsets of shared options are those of
 * its beginning. */
void mover_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments);

#endif
