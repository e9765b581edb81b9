/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/option.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/command/old_option.h"
#include "common/serve/log.h"
#include "common/text/size.h"

/* Keys of options without a letter: behind all characters. */
enum { OPTIONS_MAX = 40, KEY_OF_FIRST = 0x1000 };

/* What argp's parser works with: a table, and the arguments that it fills in. The command's own is
 * the first of two. */
struct parsing {
    const struct mover_options *options, *shared;
    void *arguments;
    struct argp_option rows[OPTIONS_MAX + 1];
};

static int key_of(const struct mover_options *options, const struct mover_option *row)
{
    return row->letter ? row->letter : KEY_OF_FIRST + (int)(row - options->rows);
}

static void describe_options(const struct mover_options *options, struct argp_option *out)
{
    for (const struct mover_option *row = options->rows; row && (row->name || row->letter); row++) {
        assert(row - options->rows < OPTIONS_MAX);
        *out++ = (struct argp_option){row->name,  key_of(options, row), row->argument,
                                      row->flags, row->about,           row->group};
    }
}

static error_t take_option(const struct parsing *own, int key, char *text, struct argp_state *state)
{
    const struct mover_option *now = NULL;
    for (const struct mover_option *row = own->options->rows; row && (row->name || row->letter);
         row++) {
        now = row->flags == MOVER_OLD ? now : row;
        if (key_of(own->options, row) != key)
            continue;
        if (row != now)
            mover_old_option_tell(state, row, now);
        now->take(state, (char *)own->arguments + now->at, text);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static const char **only_word_of(const struct parsing *own)
{
    return (const char **)(void *)((char *)own->arguments + own->options->only_word_at);
}

static void option_take_word(const struct parsing *own, char *text, struct argp_state *state)
{
    const struct mover_options *options = own->options;
    if (options->word)
        return options->word(state, own->arguments, text);
    if (!options->only_word)
        argp_error(state, "what is '%s'?", text);
    if (*only_word_of(own))
        argp_error(state, "one %s; '%s' is another", options->only_word, text);
    *only_word_of(own) = text;
}

static error_t parse_key(int key, char *text, struct argp_state *state)
{
    struct parsing *own = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        if (own->shared)
            state->child_inputs[0] = own + 1;
        return 0;
    case ARGP_KEY_ARG:
        option_take_word(own, text, state);
        return 0;
    case ARGP_KEY_END:
        if (own->options->only_word && !*only_word_of(own))
            argp_error(state, "the %s is missing", own->options->only_word);
        if (own->options->check)
            own->options->check(state, own->arguments);
        return 0;
    default:
        return take_option(own, key, text, state);
    }
}

void mover_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments)
{
    const struct mover_options none = {.rows = NULL};
    const struct mover_options *shared = usage->shared ? usage->shared : &none;
    struct parsing parsing[2] = {
        {.options = &usage->own, .shared = usage->shared, .arguments = arguments},
        {.options = shared, .arguments = arguments}};
    const struct argp child = {.options = parsing[1].rows, .parser = parse_key};
    const struct argp_child children[] = {{&child, 0, shared->header, 0}, {0}};
    const struct argp argp = {.options = parsing[0].rows,
                              .parser = parse_key,
                              .args_doc = usage->words,
                              .doc = usage->about,
                              .children = usage->shared ? children : NULL};
    describe_options(parsing[0].options, parsing[0].rows);
    describe_options(parsing[1].options, parsing[1].rows);
    mover_log_others_begin();
    argp_parse(&argp, argc, argv, 0, NULL, parsing);
    mover_log_others_end();
}

void mover_take_text(struct argp_state *state, void *place, char *text)
{
    (void)state;
    *(const char **)place = text;
}

void mover_take_bytes(struct argp_state *state, void *place, char *text)
{
    uint64_t value = 0;
    if (!mover_parse_size(text, &value))
        argp_error(state, "\"%s\" is no number; write 4096, 64K or 1G", text);
    if (value == MOVER_NOT_GIVEN)
        argp_error(state, "\"%s\" is too many", text);
    *(uint64_t *)place = value;
}

void mover_take_count(struct argp_state *state, void *place, char *text)
{
    uint64_t value = 0;
    mover_take_bytes(state, &value, text);
    if (value > UINT32_MAX)
        argp_error(state, "\"%s\" is too many", text);
    *(uint32_t *)place = (uint32_t)value;
}

void mover_take_flag(struct argp_state *state, void *place, char *text)
{
    (void)state;
    (void)text;
    *(bool *)place = true;
}

void mover_take_format(struct argp_state *state, void *place, char *text)
{
    const bool is_json = !strcmp(text, "json");
    if (!is_json && strcmp(text, "normal"))
        argp_error(state, "\"%s\" is no format; there are normal and json", text);
    *(bool *)place = is_json;
}

void mover_take_time(struct argp_state *state, void *place, char *text)
{
    char *end;
    const double seconds = strtod(text, &end);
    if (*end || end == text || !(seconds >= 0 && seconds <= 1e6))
        argp_error(state, "\"%s\" is not a time in seconds", text);
    *(uint64_t *)place = (uint64_t)(seconds * 1e9);
}
