/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/core/index.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "snapshot/core/index_builder.h"
#include "snapshot/core/type.h"

static bool is_utf8(const char *text, size_t bytes)
{
    for (size_t at = 0, one; at < bytes; at += one) {
        one = mover_utf8_bytes((const uint8_t *)text + at, bytes - at);
        if (one == 0)
            return false;
    }
    return true;
}

/* Numbers of JSON have a sign here. */
static bool are_numbers_fit(const struct snap_index_item *item)
{
    uint64_t all = item->bytes;
    for (uint32_t i = 0; i < item->dims; i++)
        all |= item->shape[i] | item->at[i] | item->whole[i];
    return all <= INT64_MAX;
}

static const char *whole_fault(const struct snap_index_item *item)
{
    for (uint32_t i = 0; i < item->dims; i++)
        if (item->at[i] > item->whole[i] || item->shape[i] > item->whole[i] - item->at[i])
            return "leaves the tensor that it is a part of";
    return NULL;
}

static const char *item_fault(const struct snap_index_item *item)
{
    uint64_t bytes = snap_type_bytes(item->type); /* 0: not known, and nothing is compared */
    if (item->name_bytes == 0)
        return "has no name";
    if (item->name_bytes > SW_SNAP_NAME_MAX)
        return "has a name of more than 255 bytes";
    if (memchr(item->name, 0, item->name_bytes) != NULL || !is_utf8(item->name, item->name_bytes))
        return "has a name that is not UTF-8";
    if (!is_utf8(item->type, strlen(item->type)))
        return "has a type that is not UTF-8";
    if (!are_numbers_fit(item))
        return "has a number that is too large";
    if (item->dims > 0 && bytes > 0) {
        for (uint32_t i = 0; i < item->dims; i++)
            if (__builtin_mul_overflow(bytes, item->shape[i], &bytes))
                return "has a shape that is too large";
        if (bytes != item->bytes)
            return "has a shape whose bytes are not those of the range";
    }
    return item->has_whole ? whole_fault(item) : NULL;
}

/* Grows an array to `count` elements; NULL: there is no memory. */
static void *grow_array(void *array, size_t *capacity, size_t count, size_t bytes)
{
    if (count <= *capacity)
        return array;
    size_t wanted = *capacity + *capacity / 2 + 64;
    wanted = wanted < count ? count : wanted;
    void *grown = realloc(array, wanted * bytes);
    if (grown != NULL)
        *capacity = wanted;
    return grown;
}

static bool reserve_item(struct snap_index_builder *builder, const struct snap_index_item *item)
{
    struct snap_index *index = &builder->index;
    void *grown = grow_array(index->ranges, &builder->ranges_capacity, index->ranges_count + 1u,
                             sizeof(*index->ranges));
    if (grown == NULL)
        return false;
    index->ranges = grown;
    grown = grow_array(index->names, &builder->names_capacity,
                       builder->names_bytes + item->name_bytes + 1, 1);
    if (grown == NULL)
        return false;
    index->names = grown;
    grown =
        grow_array(index->numbers, &builder->numbers_capacity,
                   builder->numbers_count + (size_t)item->dims * 3 + 1, sizeof(*index->numbers));
    if (grown != NULL)
        index->numbers = grown;
    return grown != NULL;
}

static void add_numbers(struct snap_index_builder *builder, const uint64_t *numbers, uint32_t dims)
{
    if (dims > 0)
        memcpy(builder->index.numbers + builder->numbers_count, numbers, dims * sizeof(*numbers));
    builder->numbers_count += dims;
}

int snap_index_add(struct snap_index_builder *builder, const struct snap_index_item *item,
                   const char **why)
{
    struct snap_index *index = &builder->index;
    *why = item_fault(item);
    if (*why == NULL && index->ranges_count == SNAP_RANGES_MAX)
        *why = "is one too many";
    if (*why != NULL)
        return -EBADMSG;
    if (!reserve_item(builder, item))
        return -ENOMEM;
    struct snap_index_range *range = &index->ranges[index->ranges_count++];
    *range = (struct snap_index_range){.dims = item->dims,
                                       .unit = item->unit,
                                       .offset = item->offset,
                                       .bytes = item->bytes,
                                       .is_part = item->has_whole};
    strcpy(range->type, item->type);
    memcpy(index->names + builder->names_bytes, item->name, item->name_bytes);
    index->names[builder->names_bytes + item->name_bytes] = 0;
    builder->names_bytes += item->name_bytes + 1;
    add_numbers(builder, item->shape, item->dims);
    if (item->has_whole) {
        add_numbers(builder, item->at, item->dims);
        add_numbers(builder, item->whole, item->dims);
    }
    return 0;
}

static int compare_names(const void *one, const void *other, void *context)
{
    const struct snap_index *index = context;
    return strcmp(index->ranges[*(const uint32_t *)one].name,
                  index->ranges[*(const uint32_t *)other].name);
}

/* The arrays do not move any more: pointers into them are set. */
static void set_pointers(struct snap_index *index)
{
    const char *name = index->names;
    const uint64_t *numbers = index->numbers;
    for (uint32_t i = 0; i < index->ranges_count; i++) {
        struct snap_index_range *range = &index->ranges[i];
        range->name = name;
        name += strlen(name) + 1;
        range->shape = numbers;
        numbers += range->dims;
        if (range->is_part) {
            range->at = numbers;
            range->whole = numbers + range->dims;
            numbers += range->dims * 2;
        }
    }
}

int snap_index_finish(struct snap_index_builder *builder, struct snap_index *index,
                      const char **twice)
{
    struct snap_index *built = &builder->index;
    *twice = NULL;
    built->by_name = calloc(built->ranges_count + 1u, sizeof(*built->by_name));
    if (built->by_name == NULL)
        return -ENOMEM;
    set_pointers(built);
    for (uint32_t i = 0; i < built->ranges_count; i++)
        built->by_name[i] = i;
    qsort_r(built->by_name, built->ranges_count, sizeof(*built->by_name), compare_names, built);
    for (uint32_t i = 1; i < built->ranges_count; i++)
        if (compare_names(&built->by_name[i - 1], &built->by_name[i], built) == 0) {
            *twice = built->ranges[built->by_name[i]].name;
            return -EBADMSG;
        }
    *index = *built;
    *built = (struct snap_index){0};
    return 0;
}

static int make_item(const struct sw_snap_range *range, const struct snap_cut_place *place,
                     struct snap_index_item *item, const char **why)
{
    const char *type = range->type == NULL ? "U8" : range->type;
    *why = range->name == NULL              ? "has no name"
           : strlen(type) > SNAP_TYPE_MAX   ? "has a type of more than 15 bytes"
           : range->dims > SW_SNAP_DIMS_MAX ? "has more than 8 dimensions"
                                            : NULL;
    if (*why != NULL)
        return -EINVAL;
    *item = (struct snap_index_item){.name = range->name,
                                     .name_bytes = strlen(range->name),
                                     .dims = range->dims,
                                     .unit = place->unit,
                                     .offset = place->offset,
                                     .bytes = range->bytes};
    strcpy(item->type, type);
    memcpy(item->shape, range->shape, sizeof(item->shape));
    memcpy(item->at, range->at, sizeof(item->at));
    memcpy(item->whole, range->whole, sizeof(item->whole));
    for (uint32_t i = 0; i < range->dims; i++)
        item->has_whole |= range->whole[i] != 0;
    return 0;
}

int snap_index_make(struct snap_index *index, const struct sw_snap_range *ranges,
                    const struct snap_cut *cut, char *why, size_t why_bytes)
{
    struct snap_index_builder builder = {0};
    const char *fault = NULL, *twice = NULL;
    int result = 0;
    for (uint32_t i = 0; i < cut->ranges_count && result == 0; i++) {
        struct snap_index_item item;
        result = make_item(&ranges[i], &cut->places[i], &item, &fault);
        if (result == 0)
            result = snap_index_add(&builder, &item, &fault);
        if (result != 0 && result != -ENOMEM)
            snprintf(why, why_bytes, "range %u (%.64s) %s", i,
                     ranges[i].name == NULL ? "" : ranges[i].name, fault);
    }
    if (result == 0) {
        result = snap_index_finish(&builder, index, &twice);
        if (twice != NULL)
            snprintf(why, why_bytes, "the name %s is there twice", twice);
    }
    snap_index_free(&builder.index);
    return result == -EBADMSG ? -EINVAL : result;
}

void snap_index_free(struct snap_index *index)
{
    free(index->ranges);
    free(index->by_name);
    free(index->numbers);
    free(index->names);
    *index = (struct snap_index){0};
}

int64_t snap_index_find(const struct snap_index *index, const char *name)
{
    for (uint32_t low = 0, high = index->ranges_count; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(index->ranges[index->by_name[middle]].name, name);
        if (order == 0)
            return index->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -ENOENT;
}
