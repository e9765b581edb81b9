/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/compare.h"

#include <inttypes.h>
#include <stdio.h>

/* In the order in which they are told. */
enum record_field {
    FIELD_NONE,
    FIELD_KIND,
    FIELD_TYPE,
    FIELD_OP,
    FIELD_HAS_COUNTS,
    FIELD_COUNT,
    FIELD_ROOT,
    FIELD_LEAVES,
    FIELD_COUNTS,
    FIELD_PLAN,
};

/* ---- digests ---- */

static uint64_t compare_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t hash_pair(uint32_t from, uint32_t to, uint64_t count)
{
    return compare_mix(compare_mix((uint64_t)from << 32 | to) + 0x9e3779b97f4a7c15 + count);
}

static uint64_t digest_of(const struct sw_coll_call *call, const struct coll_site *site)
{
    uint64_t digest = 0;
    for (uint32_t i = 0; i < site->size; i++) {
        if (call->kind == SW_COLL_ALL_TO_ALL)
            digest += hash_pair(site->rank, i, call->counts[i]) -
                      hash_pair(i, site->rank, call->recv_counts[i]);
        else
            digest += hash_pair(0, i, call->counts[i]);
    }
    return digest;
}

/* ---- records ---- */

void coll_record_of_call(struct coll_record *record, const struct sw_coll_call *call,
                         const struct coll_site *site, enum coll_plan plan)
{
    *record = (struct coll_record){
        .count = call->count,
        .digest = call->counts ? digest_of(call, site) : 0,
        .root = call->root,
        .kind = (uint8_t)call->kind,
        .type = (uint8_t)call->type,
        .op = (uint8_t)call->op,
        .leaves = (uint8_t)call->leaves,
        .plan = (uint8_t)plan,
        .has_counts = call->counts != NULL,
    };
}

bool coll_record_is_sane(const struct coll_record *record, uint32_t size)
{
    return record->kind < SW_COLL_KINDS && record->type < SW_COLL_TYPES &&
           record->op < SW_COLL_OPS && record->root < size && record->leaves >= 1 &&
           record->leaves <= SW_COLL_LEAVES_MAX && record->plan > COLL_PLAN_ANY &&
           record->plan < COLL_PLANS && record->has_counts <= 1;
}

static enum record_field first_difference(const struct coll_record *one,
                                          const struct coll_record *other)
{
    if (one->kind != other->kind)
        return FIELD_KIND;
    if (one->type != other->type)
        return FIELD_TYPE;
    if (one->op != other->op)
        return FIELD_OP;
    if (one->has_counts != other->has_counts)
        return FIELD_HAS_COUNTS;
    const bool is_paired = one->kind == SW_COLL_ALL_TO_ALL && one->has_counts;
    if (!is_paired && one->count != other->count)
        return FIELD_COUNT;
    if (one->root != other->root)
        return FIELD_ROOT;
    if (one->leaves != other->leaves)
        return FIELD_LEAVES;
    if (!is_paired && one->digest != other->digest)
        return FIELD_COUNTS;
    return one->plan != other->plan ? FIELD_PLAN : FIELD_NONE;
}

bool coll_records_are_alike(const struct coll_record *one, const struct coll_record *other)
{
    return first_difference(one, other) == FIELD_NONE;
}

/* ---- text ---- */

static const char *named_or_unknown(const char *name)
{
    return name ? name : "?";
}

static uint32_t first_unlike(const struct coll_record *records, uint32_t size)
{
    uint32_t rank = 1;
    while (rank + 1 < size && coll_records_are_alike(&records[rank], &records[0]))
        rank++;
    return rank;
}

uint32_t coll_mismatch_of_counts(const struct coll_record *records, uint32_t size)
{
    const uint32_t rank = first_unlike(records, size);
    return records[rank].has_counts && first_difference(&records[rank], &records[0]) == FIELD_COUNTS
               ? rank
               : size;
}

void coll_counts_text(const struct coll_record *records, uint32_t rank, const uint64_t *counts,
                      const uint64_t *first_counts, uint32_t size, char *text, size_t room)
{
    const char *kind = named_or_unknown(sw_coll_kind_name(records[0].kind));
    uint32_t at = 0;
    while (at < size && counts[at] == first_counts[at])
        at++;
    if (at == size) /* it shows others than those that it was called with */
        snprintf(text, room, "rank %u calls %s with other counts than rank 0", rank, kind);
    else
        snprintf(text, room,
                 "rank %u calls %s with %" PRIu64 " in counts[%u], rank 0 with %" PRIu64, rank,
                 kind, counts[at], at, first_counts[at]);
}

void coll_mismatch_text(const struct coll_record *records, uint32_t size, char *text, size_t room)
{
    const uint32_t rank = first_unlike(records, size);
    const struct coll_record *one = &records[rank], *first = &records[0];
    const char *kind = named_or_unknown(sw_coll_kind_name(one->kind));
    const char *first_kind = named_or_unknown(sw_coll_kind_name(first->kind));
    switch (first_difference(one, first)) {
    case FIELD_KIND:
        snprintf(text, room, "rank %u calls %s, rank 0 %s", rank, kind, first_kind);
        return;
    case FIELD_TYPE:
        snprintf(text, room, "rank %u calls %s with type %s, rank 0 with %s", rank, kind,
                 named_or_unknown(sw_coll_type_name(one->type)),
                 named_or_unknown(sw_coll_type_name(first->type)));
        return;
    case FIELD_OP:
        snprintf(text, room, "rank %u calls %s with operator %s, rank 0 with %s", rank, kind,
                 named_or_unknown(sw_coll_op_name(one->op)),
                 named_or_unknown(sw_coll_op_name(first->op)));
        return;
    case FIELD_HAS_COUNTS:
        snprintf(text, room, "rank %u calls %s with %s, rank 0 with %s", rank, kind,
                 one->has_counts ? "a count for each rank" : "one count",
                 first->has_counts ? "a count for each rank" : "one count");
        return;
    case FIELD_COUNT:
        snprintf(text, room, "rank %u calls %s with count %" PRIu64 ", rank 0 with %" PRIu64, rank,
                 kind, one->count, first->count);
        return;
    case FIELD_ROOT:
        snprintf(text, room, "rank %u calls %s with root %u, rank 0 with %u", rank, kind, one->root,
                 first->root);
        return;
    case FIELD_LEAVES:
        snprintf(text, room, "rank %u calls %s with %u leaves, rank 0 with %u", rank, kind,
                 one->leaves, first->leaves);
        return;
    case FIELD_COUNTS: /* coll_counts_text() says which */
    case FIELD_PLAN:
        snprintf(text, room, "rank %u does %s by algorithm %s, rank 0 by %s: their options differ",
                 rank, kind, named_or_unknown(coll_plan_name(one->plan)),
                 named_or_unknown(coll_plan_name(first->plan)));
        return;
    case FIELD_NONE:
        break;
    }
    snprintf(text, room, "the ranks' calls differ");
}

void coll_verdict_text(uint32_t rank, const struct coll_record *verdict, char *text, size_t room)
{
    snprintf(text, room,
             "rank %u calls all_to_all with count %" PRIu64 " for rank %u, which awaits %" PRIu64,
             verdict->root, verdict->count, rank, verdict->digest);
}
