/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Folds what it reads, and compares each result with the one that came along. A case is five
 * numbers of 32 bits (way, type, operator, leaves, count), the leaves, and the result. Short ones
 * are folded in every length up to theirs. Each fold has other alignments, every third is in place,
 * every other one has a caller with flush-to-zero and another way of rounding.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "collectives/core/fold.h"

enum way { FOLD, FINISH };
enum { LEAVES_MAX = 64, EVERY_COUNT_TO = 71, ALIGNMENTS = 64, GUARD = 0x5a };

struct judged {
    uint32_t way, type, op, leaves, count;
    uint8_t *sources, *expected;
};

static uint8_t *places[LEAVES_MAX + 1];
static size_t places_bytes;
static uint64_t folds;

/* Flush-to-zero, subnormals are zeros, rounding down. */
static unsigned disturb(bool is_disturbed)
{
#if defined(__SSE2__)
    const unsigned before = _mm_getcsr();
    if (is_disturbed)
        _mm_setcsr(0x1f80 | 0x8040 | 0x2000);
    return before;
#else
    (void)is_disturbed;
    return 0;
#endif
}

static void restore(bool is_disturbed, unsigned before)
{
#if defined(__SSE2__)
    if (is_disturbed && (_mm_getcsr() & ~0x3fu) != (0x1f80 | 0x8040 | 0x2000)) {
        printf("a fold changed the caller's floating-point environment\n");
        exit(1);
    }
    _mm_setcsr(before);
#else
    (void)is_disturbed, (void)before;
#endif
}

static void make_places(size_t bytes)
{
    if (bytes <= places_bytes)
        return;
    for (unsigned i = 0; i <= LEAVES_MAX; i++) {
        free(places[i]);
        places[i] = malloc(bytes + 3 * ALIGNMENTS);
        assert(places[i]);
    }
    places_bytes = bytes;
}

/* An address with the alignment of this fold, and guards on both sides. */
static uint8_t *place_of(unsigned which, size_t bytes)
{
    uint8_t *at = places[which] + ALIGNMENTS + (folds * 7 + which * 13) % ALIGNMENTS;
    at[-1] = at[bytes] = GUARD;
    return at;
}

static bool is_guarded(const uint8_t *at, size_t bytes)
{
    return at[-1] == GUARD && at[bytes] == GUARD;
}

static void compare(const struct judged *c, const char *what, const uint8_t *result, size_t count)
{
    const size_t bytes = coll_type_bytes(c->type);
    for (size_t i = 0; i < count; i++)
        if (memcmp(result + i * bytes, c->expected + i * bytes, bytes)) {
            printf("%s: type %u, operator %u, %u leaves, %zu elements: element %zu is ", what,
                   c->type, c->op, c->leaves, count, i);
            for (size_t byte = bytes; byte-- > 0;)
                printf("%02x", result[i * bytes + byte]);
            printf(", not ");
            for (size_t byte = bytes; byte-- > 0;)
                printf("%02x", c->expected[i * bytes + byte]);
            printf("\n");
            exit(1);
        }
    if (!is_guarded(result, count * bytes)) {
        printf("%s: type %u, operator %u, %u leaves, %zu elements: written beyond\n", what, c->type,
               c->op, c->leaves, count);
        exit(1);
    }
}

static void place_sources(const struct judged *c, const void **sources, size_t count)
{
    const size_t bytes = coll_type_bytes(c->type);
    for (unsigned i = 0; i < c->leaves; i++) {
        uint8_t *at = place_of(i, count * bytes);
        memcpy(at, c->sources + (size_t)i * c->count * bytes, count * bytes);
        sources[i] = at;
    }
}

static void judge_fold(const struct judged *c, size_t count)
{
    const void *sources[LEAVES_MAX];
    const bool is_in_place = folds % 3 == 0, is_disturbed = folds % 2;
    const unsigned which = is_in_place ? (unsigned)(folds / 3 % c->leaves) : LEAVES_MAX;
    place_sources(c, sources, count);
    uint8_t *result = place_of(which, count * coll_type_bytes(c->type));
    const unsigned before = disturb(is_disturbed);
    coll_fold(c->type, c->op, result, sources, c->leaves, count);
    restore(is_disturbed, before);
    compare(c, is_in_place ? "in place" : "fold", result, count);
    folds++;
}

/* By partials of so many leaves each, a power of two. The first is folded in place. */
static void judge_steps(const struct judged *c, unsigned leaves_each)
{
    const void *sources[LEAVES_MAX];
    const size_t bytes = c->count * coll_partial_bytes(c->type);
    uint8_t *partials[LEAVES_MAX],
        *result = place_of(LEAVES_MAX, c->count * coll_type_bytes(c->type));
    unsigned count = 0;
    const bool is_disturbed = folds % 2;
    place_sources(c, sources, c->count);
    const unsigned before = disturb(is_disturbed);
    for (unsigned first = 0; first < c->leaves; first += leaves_each) {
        const unsigned left = c->leaves - first;
        partials[count] = malloc(bytes + 1);
        assert(partials[count]);
        coll_fold_leaves(c->type, c->op, partials[count] + 1, sources + first,
                         left < leaves_each ? left : leaves_each, c->count);
        partials[count++]++;
    }
    coll_fold_partials(c->type, c->op, partials[0], (const void *const *)partials, count, c->count);
    coll_fold_finish(c->type, c->op, c->leaves, result, partials[0], c->count);
    restore(is_disturbed, before);
    compare(c, "in steps", result, c->count);
    while (count)
        free(partials[--count] - 1);
    folds++;
}

static void judge_finish(const struct judged *c)
{
    uint8_t *result = place_of(LEAVES_MAX, c->count * coll_type_bytes(c->type));
    coll_fold_finish(c->type, c->op, 3, result, c->sources, c->count);
    compare(c, "finish", result, c->count);
    folds++;
}

static void judge_case(const struct judged *c)
{
    make_places(c->count * coll_partial_bytes(c->type));
    if (c->way == FINISH) {
        judge_finish(c);
        return;
    }
    for (size_t count = c->count > EVERY_COUNT_TO ? c->count : 0; count <= c->count; count++)
        judge_fold(c, count);
    for (unsigned leaves_each = 1; leaves_each <= 8; leaves_each *= 2)
        judge_steps(c, leaves_each);
}

static uint8_t *read_bytes(size_t bytes)
{
    uint8_t *at = malloc(bytes ? bytes : 1);
    assert(at);
    if (fread(at, 1, bytes, stdin) != bytes) {
        printf("a case is cut off\n");
        exit(1);
    }
    return at;
}

int main(void)
{
    struct judged c;
    unsigned cases = 0;
    while (fread(&c, 5 * sizeof(uint32_t), 1, stdin) == 1) {
        assert(c.leaves && c.leaves <= LEAVES_MAX && c.type < SW_COLL_TYPES);
        const size_t each = c.way == FINISH ? coll_partial_bytes(c.type) : coll_type_bytes(c.type);
        c.sources = read_bytes(each * c.leaves * c.count);
        c.expected = read_bytes(coll_type_bytes(c.type) * c.count);
        judge_case(&c);
        free(c.sources);
        free(c.expected);
        cases++;
    }
    printf("%s: %u cases, %llu folds are right\n", coll_fold_instructions(), cases,
           (unsigned long long)folds);
    return 0;
}
