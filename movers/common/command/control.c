/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/control.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command/front.h"
#include "common/command/json.h"
#include "common/command/remote.h"

struct show_args {
    struct mover_ask ask;
    bool is_json;
};

static const struct mover_option which_options[] = {
    MOVER_OPTION_CONTROL(offsetof(struct show_args, ask.path)),
    MOVER_OPTION_PID(offsetof(struct show_args, ask.pid)),
    {0},
};

/* Options of `status` and `stop`. */
static const struct mover_option shown_options[] = {
    MOVER_OPTION_FORMAT(offsetof(struct show_args, is_json)),
    {0},
};

static const struct mover_options which = {.rows = which_options};

/* Those at the top, a line each. */
static void print_numbers(const json_t *status)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)status, key, value)
    {
        if (json_is_integer(value))
            printf("%-12s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
    }
}

int mover_control_show(const struct mover_ask *ask, void (*print)(const json_t *status),
                       bool is_json)
{
    char *text = mover_ask_command(ask, "status");
    json_t *status = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (!status)
        return 1;
    if (is_json)
        return mover_print_json(status);
    (print ? print : print_numbers)(status);
    json_decref(status);
    return mover_finish_output();
}

int mover_control_status(const struct mover_ask *of, void (*print)(const json_t *status), int argc,
                         char **argv)
{
    static const struct mover_usage usage = {
        .about = "Shows what a running server does, and what it has counted.",
        .own = {.rows = shown_options},
        .shared = &which};
    struct show_args args = {.ask = *of};
    mover_parse(&usage, argc, argv, &args);
    return mover_control_show(&args.ask, print, args.is_json);
}

int mover_control_done(const char *text, bool is_json)
{
    json_t *lines = json_array();
    for (const char *at = text; is_json && *at;) {
        const size_t len = strcspn(at, "\n");
        json_array_append_new(lines, json_stringn(at, len));
        at += len + (at[len] == '\n');
    }
    if (is_json)
        return mover_print_json(json_pack("{s:o}", "lines", lines));
    json_decref(lines);
    if (*text)
        puts(text);
    return mover_finish_output();
}

int mover_control_stop(const struct mover_ask *of, int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Ends a running server, and waits until it has ended.",
        .own = {.rows = shown_options},
        .shared = &which};
    struct show_args args = {.ask = *of};
    mover_parse(&usage, argc, argv, &args);
    char said[64];
    const int pid = mover_ask_stop(&args.ask);
    if (pid < 0)
        return MOVER_FAILED;
    snprintf(said, sizeof(said), "the %.16s, process %d, has ended", args.ask.noun, pid);
    return mover_control_done(said, args.is_json);
}

int mover_control_metrics(const struct mover_ask *of, int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Writes what a running server has counted, as Prometheus reads it.",
        .shared = &which};
    struct show_args args = {.ask = *of};
    mover_parse(&usage, argc, argv, &args);
    char *text = mover_ask_command(&args.ask, "metrics");
    if (!text)
        return MOVER_FAILED;
    fputs(text, stdout);
    free(text);
    return mover_finish_output();
}
