/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/config_json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1024, NUMBER_BYTES = 24 };

size_t nvt_json_enter(struct nvt_json *json, const char *key, size_t index)
{
    const size_t at = strlen(json->path), room = sizeof(json->path) - at;
    if (key)
        snprintf(json->path + at, room, "%s%.64s", at ? "." : "", key);
    else
        snprintf(json->path + at, room, "[%zu]", index);
    return at;
}

void nvt_json_leave(struct nvt_json *json, size_t at)
{
    json->path[at] = '\0';
}

static void write_line(const struct nvt_json *json, const char *key, const char *text, char *out,
                       size_t bytes)
{
    const char *dot = key && *json->path ? "." : "";
    const char *end = key || *json->path ? ": " : "";
    snprintf(out, bytes, "%s: %s%s%.64s%s%s", json->source->name, json->path, dot, key ? key : "",
             end, text);
}

int nvt_json_fail(struct nvt_json *json, const char *key, const char *format, ...)
{
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    write_line(json, key, text, json->error, json->error_bytes);
    return -EINVAL;
}

void nvt_json_warn(struct nvt_json *json, const char *key, const char *format, ...)
{
    char text[LINE_MAX_BYTES / 2], line[2 * LINE_MAX_BYTES];
    if (!json->source->warn)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    write_line(json, key, text, line, sizeof(line));
    json->source->warn(json->source->context, line);
}

void nvt_json_warn_unknown(struct nvt_json *json, json_t *object, const char *const known[])
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            nvt_json_warn(json, key, "not known here, and passed over");
    }
}

/* The value, or NULL with `*status` set if it has to be there. */
static json_t *config_json_find_value(struct nvt_json *json, json_t *object, const char *key,
                                      enum nvt_presence presence, int *status)
{
    json_t *value = json_object_get(object, key);
    *status = 0;
    if (json_is_null(value))
        value = NULL;
    if (!value && presence == NVT_REQUIRED)
        *status = nvt_json_fail(json, NULL, "\"%s\" is missing; add it", key);
    return value;
}

int nvt_json_object(struct nvt_json *json, json_t *object, const char *key,
                    enum nvt_presence presence, json_t **out)
{
    int status;
    json_t *value = config_json_find_value(json, object, key, presence, &status);
    if (!value)
        return status;
    if (!json_is_object(value))
        return nvt_json_fail(json, key, "not an object; write {...}");
    *out = value;
    return 0;
}

static int config_json_text_of(struct nvt_json *json, json_t *value, const char *key, char *number,
                               const char **text)
{
    if (json_is_string(value)) {
        *text = json_string_value(value);
        return 0;
    }
    if (!json_is_integer(value))
        return nvt_json_fail(json, key, "not a string; write \"...\"");
    snprintf(number, NUMBER_BYTES, "%lld", (long long)json_integer_value(value));
    *text = number;
    return 0;
}

int nvt_json_text(struct nvt_json *json, json_t *object, const char *key,
                  enum nvt_presence presence, char *out, size_t out_bytes)
{
    char number[NUMBER_BYTES];
    const char *text = NULL;
    int status;
    json_t *value = config_json_find_value(json, object, key, presence, &status);
    if (!value)
        return status;
    if (config_json_text_of(json, value, key, number, &text))
        return -EINVAL;
    const size_t len = strlen(text);
    if (len >= out_bytes)
        return nvt_json_fail(json, key, "longer than %zu bytes; shorten it", out_bytes - 1);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return nvt_json_fail(json, key, "has control characters; remove them");
    if (!len && presence == NVT_REQUIRED)
        return nvt_json_fail(json, key, "empty; fill it in");
    memcpy(out, text, len + 1);
    return 0;
}

/* -EINVAL where it is no number, or too great a one. */
static int config_json_number_of(json_t *value, uint64_t *out)
{
    if (json_is_boolean(value)) {
        *out = (uint64_t)json_is_true(value);
        return 0;
    }
    if (json_is_integer(value)) {
        if (json_integer_value(value) < 0)
            return -EINVAL;
        *out = (uint64_t)json_integer_value(value);
        return 0;
    }
    const char *text = json_string_value(value);
    if (!text || !*text || strspn(text, "0123456789") != strlen(text))
        return -EINVAL;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno ? -EINVAL : 0;
}

int nvt_json_number(struct nvt_json *json, json_t *object, const char *key,
                    enum nvt_presence presence, uint64_t max, uint64_t *out)
{
    uint64_t found;
    int status;
    json_t *value = config_json_find_value(json, object, key, presence, &status);
    if (!value)
        return status;
    if (config_json_number_of(value, &found) || found > max)
        return nvt_json_fail(json, key, "not a number of 0 to %llu; write one",
                             (unsigned long long)max);
    *out = found;
    return 0;
}

int nvt_json_flag(struct nvt_json *json, json_t *object, const char *key, bool *out)
{
    uint64_t found = *out;
    const int status = nvt_json_number(json, object, key, NVT_OPTIONAL, 1, &found);
    *out = found != 0;
    return status;
}

int nvt_json_list(struct nvt_json *json, json_t *object, const char *key, size_t max,
                  size_t element_bytes, void *out, size_t *count,
                  int (*take)(struct nvt_json *json, json_t *element, void *into))
{
    int status;
    json_t *list = config_json_find_value(json, object, key, NVT_OPTIONAL, &status);
    if (!list)
        return status;
    if (!json_is_array(list))
        return nvt_json_fail(json, key, "not a list; write [...]");
    const size_t size = json_array_size(list);
    if (size > max)
        return nvt_json_fail(json, key, "%zu entries; at most %zu are served", size, max);
    if (!size)
        return 0;
    char *elements = calloc(size, element_bytes);
    if (!elements)
        return -ENOMEM;
    *(void **)out = elements;
    const size_t at = nvt_json_enter(json, key, 0);
    for (size_t i = 0; i < size && !status; i++) {
        const size_t inner = nvt_json_enter(json, NULL, i);
        *count = i + 1; /* now, so that what one holds is freed whatever happens */
        status = take(json, json_array_get(list, i), elements + i * element_bytes);
        nvt_json_leave(json, inner);
    }
    nvt_json_leave(json, at);
    return status;
}
