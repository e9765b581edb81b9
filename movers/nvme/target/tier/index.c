/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/index.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/base/minmax.h"

enum { LINE_BYTES = 64 };

/* A line of the cache: each one that a search passes is a miss where the log is large. */
struct nvt_tier_node {
    struct nvt_tier_extent extent;
    uint64_t oldest; /* position, of all beneath */
    uint32_t left, right, priority;
};
static_assert(sizeof(struct nvt_tier_node) == LINE_BYTES, "a node is a line");

int nvt_tier_index_open(struct nvt_tier_index *index, uint32_t extents_max)
{
    *index = (struct nvt_tier_index){.nodes_max = extents_max, .fresh = 1, .draw = 2463534242u};
    /* Nodes get their pages when they are used for the first time. */
    if (posix_memalign((void **)&index->nodes, LINE_BYTES,
                       ((size_t)extents_max + 1) * sizeof(*index->nodes)))
        return -ENOMEM;
    index->nodes[0] = (struct nvt_tier_node){.oldest = UINT64_MAX};
    return 0;
}

void nvt_tier_index_close(struct nvt_tier_index *index)
{
    free(index->nodes);
    index->nodes = NULL;
}

uint32_t nvt_tier_index_left(const struct nvt_tier_index *index)
{
    return index->nodes_max - index->used;
}

static uint64_t end_of_extent(const struct nvt_tier_extent *extent)
{
    return extent->offset + extent->len_bytes;
}

/* Priorities keep the tree flat whatever hosts write: they are drawn here. */
static uint32_t draw_priority(struct nvt_tier_index *index)
{
    index->draw ^= index->draw << 13;
    index->draw ^= index->draw >> 17;
    index->draw ^= index->draw << 5;
    return index->draw;
}

static uint32_t make_node(struct nvt_tier_index *index, const struct nvt_tier_extent *extent)
{
    assert(index->used < index->nodes_max);
    uint32_t at = index->spare;
    if (at)
        index->spare = index->nodes[at].left;
    else
        at = index->fresh++;
    index->used++;
    index->dirty_bytes += extent->len_bytes;
    index->nodes[at] = (struct nvt_tier_node){
        .extent = *extent, .oldest = extent->position, .priority = draw_priority(index)};
    return at;
}

static void free_node(struct nvt_tier_index *index, uint32_t at)
{
    index->dirty_bytes -= index->nodes[at].extent.len_bytes;
    index->nodes[at].left = index->spare;
    index->spare = at;
    index->used--;
}

static void sum_up_node(struct nvt_tier_index *index, uint32_t at)
{
    struct nvt_tier_node *node = &index->nodes[at];
    const uint64_t below =
        mover_min_u64(index->nodes[node->left].oldest, index->nodes[node->right].oldest);
    node->oldest = mover_min_u64(node->extent.position, below);
}

/* Extents that begin before `offset` go to the left. */
static void split_tree(struct nvt_tier_index *index, uint32_t at, uint64_t offset, uint32_t *left,
                       uint32_t *right)
{
    if (!at) {
        *left = *right = 0;
        return;
    }
    struct nvt_tier_node *node = &index->nodes[at];
    if (node->extent.offset < offset) {
        split_tree(index, node->right, offset, &node->right, right);
        *left = at;
    } else {
        split_tree(index, node->left, offset, left, &node->left);
        *right = at;
    }
    sum_up_node(index, at);
}

static uint32_t join_trees(struct nvt_tier_index *index, uint32_t left, uint32_t right)
{
    if (!left || !right)
        return left ? left : right;
    struct nvt_tier_node *a = &index->nodes[left], *b = &index->nodes[right];
    if (a->priority > b->priority) {
        a->right = join_trees(index, a->right, right);
        sum_up_node(index, left);
        return left;
    }
    b->left = join_trees(index, left, b->left);
    sum_up_node(index, right);
    return right;
}

static void free_tree(struct nvt_tier_index *index, uint32_t at)
{
    if (!at)
        return;
    free_tree(index, index->nodes[at].left);
    const uint32_t right = index->nodes[at].right;
    free_node(index, at);
    free_tree(index, right);
}

static uint32_t last_of_tree(const struct nvt_tier_index *index, uint32_t at)
{
    while (at && index->nodes[at].right)
        at = index->nodes[at].right;
    return at;
}

/* The last extent of `*tree` ends at `offset` at the latest; what was behind it is returned, as a
 * node of its own, 0: nothing. It needs no `oldest` anew: the position stays. */
static uint32_t cut_last(struct nvt_tier_index *index, uint32_t tree, uint64_t offset)
{
    const uint32_t last = last_of_tree(index, tree);
    struct nvt_tier_extent *extent = &index->nodes[last].extent;
    if (!last || end_of_extent(extent) <= offset)
        return 0;
    struct nvt_tier_extent behind = *extent;
    const uint64_t kept = offset - extent->offset;
    behind.offset += kept;
    behind.len_bytes -= kept;
    behind.skip_bytes += extent->kind == NVT_TIER_WRITE ? (uint32_t)kept : 0;
    extent->len_bytes = kept;
    index->dirty_bytes -= behind.len_bytes;
    return make_node(index, &behind);
}

/* An extent that has some of the bytes; 0: none has. */
static uint32_t find_overlap(const struct nvt_tier_index *index,
                             const struct nvt_tier_extent *extent)
{
    uint32_t at = index->root;
    while (at) {
        const struct nvt_tier_node *node = &index->nodes[at];
        if (end_of_extent(&node->extent) <= extent->offset)
            at = node->right;
        else if (node->extent.offset >= end_of_extent(extent))
            at = node->left;
        else
            break;
    }
    return at;
}

/* Nothing overlaps it. It becomes the root of what has lower priorities where it belongs. Nodes
 * above keep what they know: this position is the newest one. */
static void insert_extent(struct nvt_tier_index *index, const struct nvt_tier_extent *extent)
{
    const uint32_t new = make_node(index, extent);
    struct nvt_tier_node *added = &index->nodes[new];
    uint32_t *link = &index->root;
    while (*link && index->nodes[*link].priority >= added->priority) {
        struct nvt_tier_node *node = &index->nodes[*link];
        link = node->extent.offset < extent->offset ? &node->right : &node->left;
    }
    split_tree(index, *link, extent->offset, &added->left, &added->right);
    sum_up_node(index, new);
    *link = new;
}

/* The same bytes of FILE are written again. Nodes above it learn of that where its old position was
 * the oldest one beneath them. */
static void renew_extent(struct nvt_tier_index *index, uint32_t at,
                         const struct nvt_tier_extent *extent, uint64_t was)
{
    struct nvt_tier_node *node = &index->nodes[at];
    if (node->extent.offset == extent->offset)
        node->extent = *extent;
    else
        renew_extent(index, node->extent.offset < extent->offset ? node->right : node->left, extent,
                     was);
    if (node->oldest == was)
        sum_up_node(index, at);
}

static void put_over_others(struct nvt_tier_index *index, const struct nvt_tier_extent *extent)
{
    uint32_t before, middle, after;
    split_tree(index, index->root, extent->offset, &before, &middle);
    split_tree(index, middle, end_of_extent(extent), &middle, &after);
    free_tree(index, middle == 0 ? 0 : index->nodes[middle].left);
    uint32_t tail = 0;
    if (middle) {
        /* What is left of the middle's last extent behind the new one stays. */
        const uint32_t right = index->nodes[middle].right;
        index->nodes[middle].left = 0;
        tail = cut_last(index, middle, end_of_extent(extent));
        free_tree(index, right);
        free_node(index, middle);
    }
    const uint32_t reach = cut_last(index, before, extent->offset);
    if (reach) { /* it begins before the new one, and may end behind it */
        struct nvt_tier_node *node = &index->nodes[reach];
        if (end_of_extent(&node->extent) > end_of_extent(extent))
            tail = cut_last(index, reach, end_of_extent(extent));
        free_node(index, reach);
    }
    const uint32_t new = make_node(index, extent);
    index->root = join_trees(index, join_trees(index, join_trees(index, before, new), tail), after);
}

void nvt_tier_index_put(struct nvt_tier_index *index, const struct nvt_tier_extent *extent)
{
    const uint32_t overlap = find_overlap(index, extent);
    if (!overlap)
        return insert_extent(index, extent);
    const struct nvt_tier_extent *found = &index->nodes[overlap].extent;
    if (found->offset == extent->offset && found->len_bytes == extent->len_bytes)
        return renew_extent(index, index->root, extent, found->position);
    put_over_others(index, extent);
}

bool nvt_tier_index_next(const struct nvt_tier_index *index, uint64_t from,
                         struct nvt_tier_extent *out)
{
    uint32_t at = index->root, found = 0;
    while (at) {
        const struct nvt_tier_node *node = &index->nodes[at];
        if (end_of_extent(&node->extent) > from) {
            found = at;
            at = node->left;
        } else {
            at = node->right;
        }
    }
    if (found)
        *out = index->nodes[found].extent;
    return found;
}

static uint32_t find_before(const struct nvt_tier_index *index, uint32_t at, uint64_t from,
                            uint64_t position)
{
    if (!at || index->nodes[at].oldest >= position)
        return 0;
    const struct nvt_tier_node *node = &index->nodes[at];
    if (node->extent.offset >= from) {
        const uint32_t found = find_before(index, node->left, from, position);
        if (found)
            return found;
        if (node->extent.position < position)
            return at;
    }
    return find_before(index, node->right, from, position);
}

bool nvt_tier_index_next_before(const struct nvt_tier_index *index, uint64_t from,
                                uint64_t position, struct nvt_tier_extent *out)
{
    const uint32_t found = find_before(index, index->root, from, position);
    if (found)
        *out = index->nodes[found].extent;
    return found;
}

static uint32_t drop_below(struct nvt_tier_index *index, uint32_t at, uint64_t position,
                           uint32_t *budget)
{
    if (!at || index->nodes[at].oldest >= position || !*budget)
        return at;
    index->nodes[at].left = drop_below(index, index->nodes[at].left, position, budget);
    index->nodes[at].right = drop_below(index, index->nodes[at].right, position, budget);
    if (index->nodes[at].extent.position >= position || !*budget) {
        sum_up_node(index, at);
        return at;
    }
    --*budget;
    const uint32_t left = index->nodes[at].left, right = index->nodes[at].right;
    free_node(index, at);
    return join_trees(index, left, right);
}

bool nvt_tier_index_drop(struct nvt_tier_index *index, uint64_t position, uint32_t count_max)
{
    index->root = drop_below(index, index->root, position, &count_max);
    return nvt_tier_index_oldest(index) < position;
}

uint64_t nvt_tier_index_oldest(const struct nvt_tier_index *index)
{
    return index->nodes[index->root].oldest;
}
