/* SPDX-License-Identifier: BSD-2-Clause */
/* The format: https://prometheus.io/docs/instrumenting/exposition_formats, "Text-based format". */
#include "common/serve/metrics.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 64, LABELS_BYTES = 1024 };

/* One metric on its way into the text. */
struct metric_line {
    FILE *out;
    const char *mover;
    const struct mover_metric *metric;
    char labels[LABELS_BYTES];
};

static bool is_amid_character(char byte)
{
    return (byte & 0xc0) == 0x80;
}

static void append_label(struct metric_line *line, const char *name, const json_t *value)
{
    size_t at = strlen(line->labels);
    char number[24];
    const char *text = json_string_value(value);
    if (!text) {
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
        text = number;
    }
    if (at + strlen(name) + 8 > LABELS_BYTES)
        return;
    at += (size_t)snprintf(line->labels + at, LABELS_BYTES - at, "%s%s=\"", at ? "," : "", name);
    for (; *text && at < LABELS_BYTES - 4; text++) {
        if (strchr("\\\"\n", *text))
            line->labels[at++] = '\\';
        line->labels[at++] = *text == '\n' ? 'n' : *text;
    }
    if (is_amid_character(*text)) /* of a text that is no UTF-8 nobody reads anything */
        while (is_amid_character(line->labels[--at]))
            ;
    strcpy(line->labels + at, "\"");
}

static void write_value(const struct metric_line *line, const json_t *value)
{
    if (!json_is_number(value) && !json_is_boolean(value))
        return;
    fprintf(line->out, "sidewire_%s_%s", line->mover, line->metric->name);
    if (*line->labels)
        fprintf(line->out, "{%s}", line->labels);
    if (json_is_real(value))
        fprintf(line->out, " %.17g\n", json_real_value(value));
    else
        fprintf(line->out, " %lld\n",
                json_is_boolean(value) ? json_is_true(value) : json_integer_value(value));
}

/* Up to one of the ends, which it goes past. */
static const char *metrics_take_name(const char *from, const char *ends, char name[NAME_MAX_BYTES])
{
    const size_t bytes = strcspn(from, ends);
    assert(from[bytes] && bytes < NAME_MAX_BYTES);
    snprintf(name, NAME_MAX_BYTES, "%.*s", (int)bytes, from);
    return from + bytes + 1;
}

/* What `from` names below `object`. */
static void write_below(struct metric_line *line, const json_t *object, const char *from)
{
    char list[NAME_MAX_BYTES], key[NAME_MAX_BYTES];
    const size_t known = strlen(line->labels);
    size_t i;
    const json_t *one;
    if (from[strcspn(from, ".[")] == '.') { /* of an object alone */
        from = metrics_take_name(from, ".", key);
        return write_below(line, json_object_get(object, key), from);
    }
    if (!strchr(from, '[')) {
        write_value(line, json_object_get(object, from));
        return;
    }
    from = metrics_take_name(from, "[", list);
    json_array_foreach(json_object_get(object, list), i, one)
    {
        const char *rest = from;
        do {
            rest = metrics_take_name(rest, ",]", key);
            append_label(line, key, json_object_get(one, key));
        } while (rest[-1] == ',');
        assert(*rest == '.');
        write_below(line, one, rest + 1);
        line->labels[known] = 0;
    }
}

char *mover_metrics_text(const char *mover, const struct mover_metric *metrics,
                         const json_t *status)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (; out && metrics->name; metrics++) {
        struct metric_line line = {.out = out, .mover = mover, .metric = metrics};
        fprintf(out, "# HELP sidewire_%s_%s %s\n# TYPE sidewire_%s_%s %s\n", mover, metrics->name,
                metrics->help, mover, metrics->name,
                metrics->kind == MOVER_COUNTER ? "counter" : "gauge");
        write_below(&line, status, metrics->from);
    }
    const bool is_whole = out && !ferror(out);
    if (out && (fclose(out) || !is_whole)) {
        free(text);
        text = NULL;
    }
    return text;
}
