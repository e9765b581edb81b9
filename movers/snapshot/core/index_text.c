/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The JSON of an index. It is read a range at a time: a tree of all its values would need 20 times
 * the memory of a text of 64 MiB, which may come from a stranger. A name, or what is said of a
 * range, takes 2 KiB at most: that bounds what jansson allocates, and how deep it goes.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/core/index_builder.h"

enum { VALUE_BYTES_MAX = 2048 };

/* ---- to JSON ---- */

static json_t *pack_numbers(const uint64_t *numbers, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count && array != NULL; i++)
        if (json_array_append_new(array, json_integer((json_int_t)numbers[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static json_t *pack_range(const struct snap_index_range *range)
{
    json_t *packed =
        json_pack("{ss so sI sI sI}", "dtype", range->type, "shape",
                  pack_numbers(range->shape, range->dims), "unit", (json_int_t)range->unit,
                  "offset", (json_int_t)range->offset, "bytes", (json_int_t)range->bytes);
    if (range->whole == NULL ||
        (json_object_set_new(packed, "at", pack_numbers(range->at, range->dims)) == 0 &&
         json_object_set_new(packed, "whole", pack_numbers(range->whole, range->dims)) == 0))
        return packed;
    json_decref(packed);
    return NULL;
}

static bool print_value(FILE *out, json_t *value)
{
    const bool is_fine =
        value != NULL && json_dumpf(value, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0;
    json_decref(value);
    return is_fine;
}

int snap_index_print(const struct snap_index *index, char **text, size_t *bytes)
{
    FILE *out = open_memstream(text, bytes);
    bool is_fine = true;
    if (out == NULL)
        return -ENOMEM;
    fputc('{', out);
    for (uint32_t i = 0; i < index->ranges_count && is_fine; i++) {
        fputs(i == 0 ? "\n" : ",\n", out);
        is_fine = print_value(out, json_string(index->ranges[i].name)) && fputc(':', out) == ':' &&
                  print_value(out, pack_range(&index->ranges[i]));
    }
    fputs("\n}\n", out);
    int result = !is_fine || ferror(out) != 0 ? -ENOMEM : 0;
    if (fclose(out) != 0)
        result = -ENOMEM;
    if (result == 0 && *bytes > SNAP_INDEX_BYTES_MAX)
        result = -E2BIG;
    if (result != 0)
        free(*text);
    return result;
}

/* ---- from JSON ---- */

struct index_parse {
    const char *text;
    size_t bytes, at;
    char fault[JSON_ERROR_TEXT_LENGTH]; /* the first one */
    struct snap_index_builder builder;
    struct snap_index_item item;
};

static bool fail_parse(struct index_parse *parse, const char *fault)
{
    snprintf(parse->fault, sizeof(parse->fault), "%s", fault);
    return false;
}

/* White space, then that character: passed over; or left where it is not there. */
static bool accept_char(struct index_parse *parse, char character)
{
    while (parse->at < parse->bytes && strchr(" \n\r\t", parse->text[parse->at]) != NULL &&
           parse->text[parse->at] != 0)
        parse->at++;
    if (parse->at == parse->bytes || parse->text[parse->at] != character)
        return false;
    parse->at++;
    return true;
}

/* A value that begins with that character. What a stranger wrote is not repeated in the fault. */
static json_t *take_value(struct index_parse *parse, char character, const char *missing)
{
    json_error_t error;
    if (!accept_char(parse, character)) {
        fail_parse(parse, missing);
        return NULL;
    }
    const size_t begin = parse->at - 1, left = parse->bytes - begin;
    json_t *value =
        json_loadb(parse->text + begin, left < VALUE_BYTES_MAX ? left : VALUE_BYTES_MAX,
                   JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error);
    parse->at = begin + (size_t)error.position;
    if (value == NULL) {
        fail_parse(parse, error.text);
        char *near = strstr(parse->fault, " near ");
        if (near != NULL)
            *near = 0;
    }
    return value;
}

static bool take_unsigned(const json_t *value, uint64_t *number)
{
    *number = json_is_integer(value) ? (uint64_t)json_integer_value(value) : UINT64_MAX;
    return *number <= INT64_MAX;
}

static const char *take_numbers(const json_t *value, uint64_t *numbers, uint32_t *count)
{
    if (!json_is_array(value))
        return "a [ is missing";
    if (json_array_size(value) > SW_SNAP_DIMS_MAX)
        return "there are more than 8 dimensions";
    *count = (uint32_t)json_array_size(value);
    for (uint32_t i = 0; i < *count; i++)
        if (!take_unsigned(json_array_get(value, i), &numbers[i]))
            return "a number is missing";
    return NULL;
}

static const char *take_small(const json_t *value, uint32_t *number)
{
    uint64_t wide;
    if (!take_unsigned(value, &wide))
        return "a number is missing";
    *number = (uint32_t)wide;
    return wide > UINT32_MAX ? "a number is too large" : NULL;
}

static const char *take_dtype(const json_t *value, char type[SNAP_TYPE_MAX + 1])
{
    if (!json_is_string(value) || json_string_length(value) > SNAP_TYPE_MAX)
        return "a type has 15 bytes at most";
    strcpy(type, json_string_value(value));
    return NULL;
}

static const char *take_whole(const json_t *at, const json_t *whole, struct snap_index_item *item)
{
    uint32_t at_dims = 0, whole_dims = 0;
    const char *fault = NULL;
    if (at == NULL && whole == NULL)
        return NULL;
    fault = take_numbers(at, item->at, &at_dims);
    if (fault == NULL)
        fault = take_numbers(whole, item->whole, &whole_dims);
    item->has_whole = true;
    return fault != NULL ? fault
           : at_dims != item->dims || whole_dims != item->dims
               ? "\"at\" and \"whole\" do not fit the shape"
               : NULL;
}

/* What is wrong with the members of a range; NULL: nothing. */
static const char *take_members(const json_t *members, struct snap_index_item *item)
{
    const json_t *at = json_object_get(members, "at"), *whole = json_object_get(members, "whole");
    const json_t *type = json_object_get(members, "dtype"),
                 *shape = json_object_get(members, "shape"),
                 *unit = json_object_get(members, "unit"),
                 *offset = json_object_get(members, "offset"),
                 *bytes = json_object_get(members, "bytes");
    const size_t needed = 5 + (at != NULL) + (whole != NULL);
    if (json_object_size(members) > needed)
        return "a member is not known";
    if (!type || !shape || !unit || !offset || !bytes)
        return "a member is missing";
    const char *fault = take_dtype(type, item->type);
    if (fault == NULL)
        fault = take_numbers(shape, item->shape, &item->dims);
    if (fault == NULL)
        fault = take_small(unit, &item->unit);
    if (fault == NULL)
        fault = take_small(offset, &item->offset);
    if (fault == NULL && !take_unsigned(bytes, &item->bytes))
        fault = "a number is missing";
    return fault != NULL ? fault : take_whole(at, whole, item);
}

static bool add_range(struct index_parse *parse, const json_t *name, const json_t *members,
                      int *result)
{
    parse->item = (struct snap_index_item){.name = json_string_value(name),
                                           .name_bytes = json_string_length(name)};
    const char *fault = take_members(members, &parse->item);
    if (fault != NULL)
        return fail_parse(parse, fault);
    *result = snap_index_add(&parse->builder, &parse->item, &fault);
    return *result == 0 || fail_parse(parse, *result == -ENOMEM ? "no memory" : fault);
}

static bool scan_range(struct index_parse *parse, int *result)
{
    json_t *name = take_value(parse, '"', "a string is missing"), *members = NULL;
    bool is_fine = name != NULL;
    if (is_fine && !accept_char(parse, ':'))
        is_fine = fail_parse(parse, "a : is missing");
    if (is_fine)
        members = take_value(parse, '{', "a { is missing");
    is_fine = members != NULL && add_range(parse, name, members, result);
    json_decref(name);
    json_decref(members);
    return is_fine;
}

static bool scan_index(struct index_parse *parse, int *result)
{
    if (!accept_char(parse, '{'))
        return fail_parse(parse, "a { is missing");
    if (!accept_char(parse, '}')) {
        do {
            if (!scan_range(parse, result))
                return false;
        } while (accept_char(parse, ','));
        if (!accept_char(parse, '}'))
            return fail_parse(parse, "a , or an end is missing");
    }
    accept_char(parse, ' '); /* white space */
    return parse->at == parse->bytes || fail_parse(parse, "something comes after the end");
}

/* Where ranges lie, seen as a row of units of full length. */
struct index_extent {
    uint64_t begin, end;
    uint32_t range;
};

static int compare_extents(const void *one, const void *other)
{
    const struct index_extent *a = one, *b = other;
    return a->begin != b->begin ? (a->begin < b->begin ? -1 : 1)
                                : (a->end > b->end) - (a->end < b->end);
}

static const char *place_fault(const struct snap_index_range *range, uint32_t unit_bytes,
                               uint32_t units_count, const uint32_t *unit_blocks)
{
    if (range->bytes == 0)
        return NULL;
    if (range->unit >= units_count || range->offset >= unit_bytes ||
        range->bytes > (uint64_t)units_count * unit_bytes)
        return "lies outside the units";
    uint64_t end = range->offset + range->bytes;
    if (range->offset != 0 && end > unit_bytes)
        return "leaves its unit";
    uint64_t last = range->unit + (end - 1) / unit_bytes;
    if (last >= units_count)
        return "lies outside the units";
    for (uint64_t unit = range->unit; unit < last; unit++)
        if (unit_blocks[unit] != unit_bytes / SNAP_BLOCK_BYTES)
            return "has a short unit in its middle";
    if (end - (last - range->unit) * unit_bytes > (uint64_t)unit_blocks[last] * SNAP_BLOCK_BYTES)
        return "leaves its unit";
    return NULL;
}

/* That ranges lie in their units, and none upon another. */
static int check_places(const struct snap_index *index, uint32_t unit_bytes, uint32_t units_count,
                        const uint32_t *unit_blocks, char *why, size_t why_bytes)
{
    struct index_extent *extents = calloc(index->ranges_count + 1u, sizeof(*extents));
    if (extents == NULL)
        return -ENOMEM;
    const char *fault = NULL;
    uint32_t count = 0, bad = 0;
    for (uint32_t i = 0; i < index->ranges_count && fault == NULL; i++) {
        const struct snap_index_range *range = &index->ranges[bad = i];
        uint64_t begin = (uint64_t)range->unit * unit_bytes + range->offset;
        fault = place_fault(range, unit_bytes, units_count, unit_blocks);
        if (range->bytes > 0)
            extents[count++] =
                (struct index_extent){.begin = begin, .end = begin + range->bytes, .range = i};
    }
    if (fault == NULL)
        qsort(extents, count, sizeof(*extents), compare_extents);
    for (uint32_t i = 1; i < count && fault == NULL; i++)
        if (extents[i].begin < extents[i - 1].end) {
            bad = extents[i].range;
            fault = "overlaps another one";
        }
    free(extents);
    if (fault != NULL)
        snprintf(why, why_bytes, "range %s %s", index->ranges[bad].name, fault);
    return fault == NULL ? 0 : -EBADMSG;
}

int snap_index_parse(struct snap_index *index, const char *text, size_t bytes, uint32_t unit_bytes,
                     uint32_t units_count, const uint32_t *unit_blocks, char *why, size_t why_bytes)
{
    struct index_parse parse = {.text = text, .bytes = bytes, .fault = "it is too long"};
    const char *twice = NULL;
    int result = -EBADMSG;
    if (bytes > SNAP_INDEX_BYTES_MAX || !scan_index(&parse, &result)) {
        snprintf(why, why_bytes, "byte %zu of the index: %s", parse.at, parse.fault);
        result = result == -ENOMEM ? -ENOMEM : -EBADMSG;
    } else {
        result = snap_index_finish(&parse.builder, index, &twice);
        if (twice != NULL)
            snprintf(why, why_bytes, "range %s is there twice", twice);
    }
    snap_index_free(&parse.builder.index);
    if (result == 0) {
        result = check_places(index, unit_bytes, units_count, unit_blocks, why, why_bytes);
        if (result != 0)
            snap_index_free(index);
    }
    return result;
}
