/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which items belong together is found by sorting them by name. A second part on the same rank is
 * called NAME#2 and so on (bindings/python), so what comes behind '#' does not count where an item
 * is a part.
 */
#include "snapshot/command/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/command/export.h"
#include "snapshot/command/output.h"
#include "snapshot/core/type.h"

struct sorted {
    struct sw_snap_item item;
    uint32_t number;
    bool is_part;
};

static bool is_part(const struct sw_snap_item *item)
{
    for (uint32_t i = 0; i < item->dims; i++)
        if (item->whole[i] != item->shape[i] && item->whole[i])
            return true;
    return false;
}

/* A part of a tensor has the tensor's name, but for "#2". */
static void cut_name(struct sorted *sorted)
{
    char *mark = strrchr(sorted->item.name, '#');
    if (sorted->is_part && mark && mark != sorted->item.name && mark[1] &&
        strspn(mark + 1, "0123456789") == strlen(mark + 1))
        *mark = 0;
}

static int compare_items(const void *a, const void *b)
{
    const struct sorted *one = a, *other = b;
    const int order = strcmp(one->item.name, other->item.name);
    if (order)
        return order;
    return (one->number > other->number) - (one->number < other->number);
}

static uint64_t count_elements(const uint64_t *shape, uint32_t dims)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dims; i++)
        if (__builtin_mul_overflow(elements, shape[i], &elements))
            return UINT64_MAX;
    return elements;
}

static bool parts_overlap(const struct sw_snap_item *one, const struct sw_snap_item *other)
{
    for (uint32_t i = 0; i < one->dims; i++)
        if (one->at[i] >= other->at[i] + other->shape[i] ||
            other->at[i] >= one->at[i] + one->shape[i])
            return false;
    return true;
}

static bool is_same_place(const struct sw_snap_item *one, const struct sw_snap_item *other)
{
    return !memcmp(one->at, other->at, sizeof(one->at)) &&
           !memcmp(one->shape, other->shape, sizeof(one->shape));
}

static bool is_known_part(const struct sorted *group, const uint32_t *taken, uint32_t count,
                          const struct sw_snap_item *item, bool *is_wrong)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sw_snap_item *other = &group[taken[i]].item;
        if (is_same_place(item, other))
            return true;
        *is_wrong |= parts_overlap(item, other);
    }
    return false;
}

/* Parts of a tensor: the same type and whole; they cover it, and none lies over another. A part
 * that several ranks have counts once. */
static int join_parts(struct snap_parts *parts, struct snap_whole *whole,
                      const struct sorted *group, uint32_t count)
{
    const struct sw_snap_item *first = &group[0].item;
    uint64_t elements = 0;
    uint32_t *taken = calloc(count, sizeof(*taken)), used = 0;
    bool is_wrong = !taken;
    for (uint32_t i = 0; !is_wrong && i < count; i++) {
        const struct sw_snap_item *item = &group[i].item;
        if (!group[i].is_part || strcmp(item->type, first->type) != 0 ||
            item->dims != first->dims || memcmp(item->whole, first->whole, sizeof(item->whole)))
            is_wrong = true;
        else if (!is_known_part(group, taken, used, item, &is_wrong)) {
            taken[used++] = i;
            elements += count_elements(item->shape, item->dims);
        }
    }
    const uint64_t all = count_elements(first->whole, first->dims);
    const uint32_t element = snap_type_bytes(first->type);
    if (!is_wrong && element && elements == all && all < UINT64_MAX / element) {
        for (uint32_t i = 0; i < used; i++)
            parts->numbers[whole->first + i] = group[taken[i]].number;
        memcpy(whole->shape, first->whole, sizeof(whole->shape));
        whole->bytes = all * element;
        whole->count = used;
        whole->has_parts = true;
    } else {
        is_wrong = true;
    }
    free(taken);
    return is_wrong ? mover_fail("%s: the parts that ranks have do not make up a tensor; --rank "
                                 "writes those of one",
                                 whole->name)
                    : MOVER_DONE;
}

static struct snap_whole *add_one(struct snap_parts *parts, const struct sorted *one)
{
    struct snap_whole *whole = &parts->list[parts->count];
    const struct sw_snap_item *item = &one->item;
    *whole = (struct snap_whole){.bytes = item->bytes, .dims = item->dims, .count = 1};
    whole->first = parts->count ? whole[-1].first + whole[-1].count : 0;
    memcpy(whole->name, item->name, sizeof(whole->name));
    memcpy(whole->type, item->type, sizeof(whole->type));
    memcpy(whole->shape, item->shape, sizeof(whole->shape));
    parts->numbers[whole->first] = one->number;
    parts->count++;
    return whole;
}

/* Several ranks have it whole: which is right nobody can say, so each gets a name of its own. */
static int add_by_rank(struct snap_parts *parts, const struct sorted *group, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct snap_whole *whole = add_one(parts, &group[i]);
        const int length = snprintf(whole->name, sizeof(whole->name), "rank%u.%s",
                                    group[i].item.rank, group[i].item.name);
        if ((size_t)length >= sizeof(whole->name))
            return mover_fail("ranks %u and %u both have %s, and the name is too long to be told "
                              "apart; --rank writes that of one",
                              group[0].item.rank, group[1].item.rank, group[0].item.name);
    }
    return MOVER_DONE;
}

static int add_whole(struct snap_parts *parts, const struct sorted *group, uint32_t count,
                     uint32_t rank)
{
    if (rank == SNAP_ALL_RANKS && group[0].is_part)
        return join_parts(parts, add_one(parts, &group[0]), group, count);
    if (count > 1)
        return add_by_rank(parts, group, count);
    add_one(parts, &group[0]);
    return MOVER_DONE;
}

static int parts_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A name that was made for a rank may be that of another tensor. */
static int check_names(const struct snap_parts *parts)
{
    const char **names = calloc(parts->count + 1, sizeof(*names));
    int code = names ? MOVER_DONE : mover_fail("no memory");
    for (uint32_t i = 0; names && i < parts->count; i++)
        names[i] = parts->list[i].name;
    if (names)
        qsort(names, parts->count, sizeof(*names), parts_compare_names);
    for (uint32_t i = 1; !code && i < parts->count; i++)
        if (!strcmp(names[i - 1], names[i]))
            code = mover_fail("%s would be there twice; --rank writes the tensors of one rank",
                              names[i]);
    free(names);
    return code;
}

static uint32_t collect_items(const struct sw_snap_reader *reader, uint32_t rank,
                              struct sorted *sorted)
{
    uint32_t count = 0;
    for (uint32_t number = 0; number < sw_snap_items(reader); number++) {
        struct sorted *one = &sorted[count];
        if (sw_snap_item_of(reader, number, &one->item) ||
            (rank != SNAP_ALL_RANKS && one->item.rank != rank))
            continue;
        one->number = number;
        one->is_part = is_part(&one->item);
        if (rank == SNAP_ALL_RANKS)
            cut_name(one);
        count++;
    }
    qsort(sorted, count, sizeof(*sorted), compare_items);
    return count;
}

int snap_parts_find(struct snap_parts *parts, const struct sw_snap_reader *reader, uint32_t rank)
{
    const uint32_t items = sw_snap_items(reader);
    struct sorted *sorted = calloc(items + 1, sizeof(*sorted));
    *parts = (struct snap_parts){.list = calloc(items + 1, sizeof(*parts->list)),
                                 .numbers = calloc(items + 1, sizeof(*parts->numbers))};
    int code = sorted && parts->list && parts->numbers ? MOVER_DONE : mover_fail("no memory");
    const uint32_t count = code ? 0 : collect_items(reader, rank, sorted);
    for (uint32_t i = 0, end; !code && i < count; i = end) {
        for (end = i + 1; end < count && !strcmp(sorted[end].item.name, sorted[i].item.name);)
            end++;
        code = add_whole(parts, &sorted[i], end - i, rank);
    }
    free(sorted);
    return code ? code : check_names(parts);
}

/* Rows of a part that lie one behind the other in the whole are copied at once. */
static void place_part(const struct sw_snap_item *item, uint32_t element, const uint8_t *part,
                       uint8_t *whole)
{
    uint64_t at[SW_SNAP_DIMS_MAX] = {0};
    const uint32_t last = item->dims - 1;
    const uint64_t row_bytes = item->shape[last] * element;
    for (uint64_t row = 0; row * row_bytes < item->bytes; row++) {
        uint64_t offset = 0;
        for (uint32_t i = 0; i < item->dims; i++)
            offset = offset * item->whole[i] + item->at[i] + at[i];
        memcpy(whole + offset * element, part + row * row_bytes, row_bytes);
        for (uint32_t i = last; i-- > 0;) {
            if (++at[i] < item->shape[i])
                break;
            at[i] = 0;
        }
    }
}

static int read_part(struct sw_snap_reader *reader, uint32_t number, uint8_t *into,
                     struct mover_progress *progress)
{
    struct sw_snap_item item;
    if (sw_snap_item_of(reader, number, &item))
        return mover_fail("there is no item %u", number);
    if (!item.bytes)
        return MOVER_DONE;
    uint8_t *part = malloc(item.bytes);
    if (!part)
        return mover_fail("no memory for %s", item.name);
    const int code = snap_output_item(reader, &item, number, part, progress);
    if (!code)
        place_part(&item, snap_type_bytes(item.type), part, into);
    free(part);
    return code;
}

int snap_parts_read(struct sw_snap_reader *reader, const struct snap_parts *parts, uint32_t at,
                    uint8_t *into, struct mover_progress *progress)
{
    const struct snap_whole *whole = &parts->list[at];
    struct sw_snap_item item;
    int code = MOVER_DONE;
    if (!whole->has_parts) {
        if (sw_snap_item_of(reader, parts->numbers[whole->first], &item))
            return mover_fail("%s is not there", whole->name);
        return snap_output_item(reader, &item, parts->numbers[whole->first], into, progress);
    }
    for (uint32_t i = 0; !code && i < whole->count; i++)
        code = read_part(reader, parts->numbers[whole->first + i], into, progress);
    return code;
}

void snap_parts_free(struct snap_parts *parts)
{
    free(parts->list);
    free(parts->numbers);
    *parts = (struct snap_parts){0};
}
