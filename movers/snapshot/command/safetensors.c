/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "snapshot/command/safetensors.h"
#include "snapshot/core/type.h"

enum { LENGTH_BYTES = 8, TENSORS_MAX = 65536 };

struct reading {
    struct snap_tensors *tensors;
    char *error;
    size_t error_bytes;
};

static bool __attribute__((format(printf, 2, 3)))
refuse_header(const struct reading *reading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reading->error, reading->error_bytes, format, arguments);
    va_end(arguments);
    return false;
}

static bool header_number(const json_t *json, uint64_t *out)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return false;
    *out = (uint64_t)json_integer_value(json);
    return true;
}

static bool header_shape(const struct reading *reading, const json_t *shape,
                         struct snap_tensor *tensor)
{
    if (!json_is_array(shape) || json_array_size(shape) > SW_SNAP_DIMS_MAX)
        return refuse_header(reading, "%s: its shape is no list of up to %d numbers", tensor->name,
                             SW_SNAP_DIMS_MAX);
    tensor->dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->dims; i++)
        if (!header_number(json_array_get(shape, i), &tensor->shape[i]))
            return refuse_header(reading, "%s: its shape has what is no size", tensor->name);
    return true;
}

static bool tensor_bytes(const struct snap_tensor *tensor, uint64_t *bytes)
{
    *bytes = snap_type_bytes(tensor->type);
    for (uint32_t i = 0; i < tensor->dims; i++)
        if (__builtin_mul_overflow(*bytes, tensor->shape[i], bytes))
            return false;
    return snap_type_bytes(tensor->type) != 0;
}

static bool header_tensor(const struct reading *reading, const char *name, const json_t *about)
{
    struct snap_tensor *tensor = &reading->tensors->list[reading->tensors->count];
    const json_t *offsets = json_object_get(about, "data_offsets");
    const char *type = json_string_value(json_object_get(about, "dtype"));
    uint64_t end, needs;
    if (strlen(name) > SW_SNAP_NAME_MAX)
        return refuse_header(reading, "%.32s...: a name has up to %d bytes", name,
                             SW_SNAP_NAME_MAX);
    *tensor = (struct snap_tensor){.from = reading->tensors->count};
    memcpy(tensor->name, name, strlen(name) + 1);
    if (!type || strlen(type) >= sizeof(tensor->type))
        return refuse_header(reading, "%s has no dtype", name);
    memcpy(tensor->type, type, strlen(type) + 1);
    if (!header_shape(reading, json_object_get(about, "shape"), tensor))
        return false;
    if (json_array_size(offsets) != 2 ||
        !header_number(json_array_get(offsets, 0), &tensor->offset) ||
        !header_number(json_array_get(offsets, 1), &end) || end < tensor->offset ||
        end > reading->tensors->data_bytes)
        return refuse_header(reading, "%s: its data_offsets lie outside the file", name);
    tensor->bytes = end - tensor->offset;
    if (!tensor_bytes(tensor, &needs) || needs != tensor->bytes)
        return refuse_header(reading, "%s: %s of that shape has not %" PRIu64 " bytes", name, type,
                             tensor->bytes);
    reading->tensors->count++;
    return true;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct snap_tensor *one = a, *other = b;
    if (one->offset != other->offset)
        return one->offset < other->offset ? -1 : 1;
    return (one->bytes > other->bytes) - (one->bytes < other->bytes);
}

/* The specification allows neither holes nor bytes of two tensors. */
static bool check_holes(const struct reading *reading)
{
    struct snap_tensors *tensors = reading->tensors;
    uint64_t at = 0;
    qsort(tensors->list, tensors->count, sizeof(*tensors->list), compare_offsets);
    for (uint32_t i = 0; i < tensors->count; i++) {
        const struct snap_tensor *tensor = &tensors->list[i];
        if (tensor->offset != at)
            return refuse_header(reading, "%s begins at %" PRIu64 ", not where the one before ends",
                                 tensor->name, tensor->offset);
        at += tensor->bytes;
    }
    return at == tensors->data_bytes ||
           refuse_header(reading, "the file goes on behind its last tensor");
}

static bool read_header(const struct reading *reading, json_t *header)
{
    const char *name;
    json_t *about;
    if (json_object_size(header) > TENSORS_MAX)
        return refuse_header(reading, "more than %d tensors", TENSORS_MAX);
    reading->tensors->list = calloc(json_object_size(header) + 1, sizeof(struct snap_tensor));
    if (!reading->tensors->list)
        return refuse_header(reading, "no memory for the header");
    json_object_foreach(header, name, about) if (strcmp(name, "__metadata__") != 0 &&
                                                 !header_tensor(reading, name, about)) return false;
    return check_holes(reading);
}

bool snap_tensors_read(struct snap_tensors *tensors, const uint8_t *file, uint64_t bytes,
                       char *error, size_t error_bytes)
{
    const struct reading reading = {tensors, error, error_bytes};
    json_error_t why;
    *tensors = (struct snap_tensors){0};
    if (bytes < LENGTH_BYTES)
        return refuse_header(&reading, "it is too short for safetensors");
    const uint64_t length = get_le64(file);
    if (length > SNAP_HEADER_BYTES_MAX || length > bytes - LENGTH_BYTES)
        return refuse_header(&reading, "it is no safetensors: a header of %" PRIu64 " bytes",
                             length);
    tensors->data_at = LENGTH_BYTES + length;
    tensors->data_bytes = bytes - tensors->data_at;
    json_t *header =
        json_loadb((const char *)file + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(header)) {
        json_decref(header);
        return refuse_header(&reading, "its header is no JSON object: %s", why.text);
    }
    const bool is_good = read_header(&reading, header);
    json_decref(header);
    if (!is_good)
        snap_tensors_free(tensors);
    return is_good;
}

/* Larger elements first: each then begins at a multiple of its own. */
static int compare_elements(const void *a, const void *b)
{
    const struct snap_tensor *one = a, *other = b;
    const uint32_t mine = snap_type_bytes(one->type), its = snap_type_bytes(other->type);
    if (mine != its)
        return mine > its ? -1 : 1;
    return strcmp(one->name, other->name);
}

void snap_tensors_lay(struct snap_tensors *tensors)
{
    qsort(tensors->list, tensors->count, sizeof(*tensors->list), compare_elements);
    tensors->data_bytes = 0;
    for (uint32_t i = 0; i < tensors->count; i++) {
        tensors->list[i].offset = tensors->data_bytes;
        tensors->data_bytes += tensors->list[i].bytes;
    }
}

static json_t *describe_tensor(const struct snap_tensor *tensor)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    return json_pack("{ss so s[II]}", "dtype", tensor->type, "shape", shape, "data_offsets",
                     (json_int_t)tensor->offset, (json_int_t)(tensor->offset + tensor->bytes));
}

uint8_t *snap_tensors_header(struct snap_tensors *tensors, json_t *metadata)
{
    json_t *header = json_object();
    uint8_t *bytes = NULL;
    bool is_good = !metadata || !json_object_set(header, "__metadata__", metadata);
    for (uint32_t i = 0; i < tensors->count; i++)
        if (json_object_set_new(header, tensors->list[i].name, describe_tensor(&tensors->list[i])))
            is_good = false;
    char *text = is_good ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text)
        return NULL;
    const size_t length = strlen(text), padded = (length + 7) & ~(size_t)7;
    if (padded <= SNAP_HEADER_BYTES_MAX)
        bytes = malloc(LENGTH_BYTES + padded);
    if (bytes) {
        put_le64(bytes, padded);
        memset(bytes + LENGTH_BYTES, ' ', padded);
        memcpy(bytes + LENGTH_BYTES, text, length);
        tensors->data_at = LENGTH_BYTES + padded;
    }
    free(text);
    return bytes;
}

void snap_tensors_free(struct snap_tensors *tensors)
{
    free(tensors->list);
    *tensors = (struct snap_tensors){0};
}
