/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The JSON of an index. It is read by a parser of its own, which knows this one shape: a tree of
 * JSON values would need 20 times the memory of a text of 64 MiB, which may come from a stranger.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/core/index_builder.h"
#include "snapshot/core/json_scan.h"

static void print_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *at = text; *at != 0; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if ((unsigned char)*at < 0x20)
            fprintf(out, "\\u%04x", (unsigned int)(unsigned char)*at);
        else
            fputc(*at, out);
    }
    fputc('"', out);
}

static void print_shape(FILE *out, const char *key, const uint64_t *numbers, uint32_t count)
{
    fprintf(out, ",\"%s\":[", key);
    for (uint32_t i = 0; i < count; i++)
        fprintf(out, "%s%lu", i == 0 ? "" : ",", numbers[i]);
    fputc(']', out);
}

static void print_range(FILE *out, const struct snap_index_range *range)
{
    print_text(out, range->name);
    fputs(":{\"dtype\":", out);
    print_text(out, range->type);
    print_shape(out, "shape", range->shape, range->dims);
    fprintf(out, ",\"unit\":%u,\"offset\":%u,\"bytes\":%lu", range->unit, range->offset,
            range->bytes);
    if (range->whole != NULL) {
        print_shape(out, "at", range->at, range->dims);
        print_shape(out, "whole", range->whole, range->dims);
    }
    fputc('}', out);
}

int snap_index_print(const struct snap_index *index, char **text, size_t *bytes)
{
    FILE *out = open_memstream(text, bytes);
    if (out == NULL)
        return -ENOMEM;
    fputc('{', out);
    for (uint32_t i = 0; i < index->ranges_count; i++) {
        fputs(i == 0 ? "\n" : ",\n", out);
        print_range(out, &index->ranges[i]);
    }
    fputs("\n}\n", out);
    int result = ferror(out) != 0 ? -ENOMEM : 0;
    if (fclose(out) != 0)
        result = -ENOMEM;
    if (result == 0 && *bytes > SNAP_INDEX_BYTES_MAX)
        result = -E2BIG;
    if (result != 0)
        free(*text);
    return result;
}

enum member { DTYPE = 1, SHAPE = 2, UNIT = 4, OFFSET = 8, BYTES = 16, AT = 32, WHOLE = 64 };

struct index_parse {
    struct snap_json json;
    struct snap_index_builder builder;
    struct snap_index_item item;
    uint32_t members; /* of the item, that were seen */
    uint32_t dims[2]; /* of `at` and `whole` */
};

static bool scan_u32(struct snap_json *json, uint32_t *number)
{
    uint64_t wide;
    if (!snap_json_number(json, &wide) || wide > UINT32_MAX)
        return snap_json_fail(json, "a number is too large");
    *number = (uint32_t)wide;
    return true;
}

static bool scan_numbers(struct snap_json *json, uint64_t *numbers, uint32_t *count)
{
    *count = 0;
    if (!snap_json_expect(json, '['))
        return false;
    if (snap_json_accept(json, ']'))
        return true;
    do {
        if (*count == SW_SNAP_DIMS_MAX)
            return snap_json_fail(json, "there are more than 8 dimensions");
        if (!snap_json_number(json, &numbers[(*count)++]))
            return false;
    } while (snap_json_accept(json, ','));
    return snap_json_expect(json, ']');
}

static bool scan_type(struct snap_json *json, char *type)
{
    char text[SNAP_TYPE_MAX + 1];
    size_t bytes;
    if (!snap_json_text(json, text, SNAP_TYPE_MAX, &bytes))
        return false;
    text[bytes] = 0;
    if (strlen(text) != bytes)
        return snap_json_fail(json, "a type has a zero in it");
    strcpy(type, text);
    return true;
}

static bool scan_member(struct index_parse *parse)
{
    static const struct {
        const char *key;
        enum member member;
    } KEYS[] = {{"dtype", DTYPE}, {"shape", SHAPE}, {"unit", UNIT},  {"offset", OFFSET},
                {"bytes", BYTES}, {"at", AT},       {"whole", WHOLE}};
    struct snap_json *json = &parse->json;
    struct snap_index_item *item = &parse->item;
    char key[16];
    size_t bytes;
    if (!snap_json_text(json, key, sizeof(key) - 1, &bytes) || !snap_json_expect(json, ':'))
        return false;
    key[bytes] = 0;
    enum member member = 0;
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(*KEYS); i++)
        if (strcmp(key, KEYS[i].key) == 0)
            member = KEYS[i].member;
    if (member == 0 || (parse->members & member) != 0)
        return snap_json_fail(json, "a member is not known, or there twice");
    parse->members |= member;
    switch (member) {
    case DTYPE:
        return scan_type(json, item->type);
    case SHAPE:
        return scan_numbers(json, item->shape, &item->dims);
    case UNIT:
        return scan_u32(json, &item->unit);
    case OFFSET:
        return scan_u32(json, &item->offset);
    case BYTES:
        return snap_json_number(json, &item->bytes);
    case AT:
        return scan_numbers(json, item->at, &parse->dims[0]);
    case WHOLE:
        return scan_numbers(json, item->whole, &parse->dims[1]);
    }
    return false;
}

static bool scan_members(struct index_parse *parse)
{
    struct snap_json *json = &parse->json;
    parse->members = 0;
    if (!snap_json_expect(json, '{'))
        return false;
    do {
        if (!scan_member(parse))
            return false;
    } while (snap_json_accept(json, ','));
    if (!snap_json_expect(json, '}'))
        return false;
    uint32_t needed = DTYPE | SHAPE | UNIT | OFFSET | BYTES;
    if ((parse->members & needed) != needed)
        return snap_json_fail(json, "a member is missing");
    uint32_t both = parse->members & (AT | WHOLE);
    parse->item.has_whole = both == (AT | WHOLE);
    if (both != 0 && (!parse->item.has_whole || parse->dims[0] != parse->item.dims ||
                      parse->dims[1] != parse->item.dims))
        return snap_json_fail(json, "\"at\" and \"whole\" do not fit the shape");
    return true;
}

static bool scan_range(struct index_parse *parse, int *result)
{
    struct snap_json *json = &parse->json;
    char name[SW_SNAP_NAME_MAX + 1];
    const char *fault;
    parse->item = (struct snap_index_item){.name = name};
    if (!snap_json_text(json, name, SW_SNAP_NAME_MAX, &parse->item.name_bytes) ||
        !snap_json_expect(json, ':') || !scan_members(parse))
        return false;
    *result = snap_index_add(&parse->builder, &parse->item, &fault);
    return *result == 0 || snap_json_fail(json, *result == -ENOMEM ? "no memory" : fault);
}

static bool scan_index(struct index_parse *parse, int *result)
{
    struct snap_json *json = &parse->json;
    if (!snap_json_expect(json, '{'))
        return false;
    if (!snap_json_accept(json, '}')) {
        do {
            if (!scan_range(parse, result))
                return false;
        } while (snap_json_accept(json, ','));
        if (!snap_json_expect(json, '}'))
            return false;
    }
    return snap_json_is_at_end(json) || snap_json_fail(json, "something comes after the end");
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
    struct index_parse parse = {
        .json = {.at = text, .end = text + bytes, .fault = "it is too long"}};
    const char *twice = NULL;
    int result = -EBADMSG;
    if (bytes > SNAP_INDEX_BYTES_MAX || !scan_index(&parse, &result)) {
        snprintf(why, why_bytes, "byte %zu of the index: %s", (size_t)(parse.json.at - text),
                 parse.json.fault);
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
