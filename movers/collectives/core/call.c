/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/call.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/minmax.h"

/* What a kind of operation uses of a call. */
static const struct {
    bool has_op, has_root, has_blocks;
} call_kinds[SW_COLL_KINDS] = {
    [SW_COLL_ALL_REDUCE] = {.has_op = true},
    [SW_COLL_REDUCE_SCATTER] = {.has_op = true, .has_blocks = true},
    [SW_COLL_ALL_GATHER] = {.has_blocks = true},
    [SW_COLL_ALL_TO_ALL] = {.has_blocks = true},
    [SW_COLL_BROADCAST] = {.has_root = true},
    [SW_COLL_REDUCE] = {.has_op = true, .has_root = true},
    [SW_COLL_GATHER] = {.has_root = true, .has_blocks = true},
    [SW_COLL_SCATTER] = {.has_root = true, .has_blocks = true},
};

struct sw_coll_call coll_call_plain(const struct sw_coll_call *call, uint32_t rank)
{
    struct sw_coll_call plain = {.kind = call->kind, .leaves = 1};
    if (call->kind == SW_COLL_BARRIER)
        return plain;
    plain.type = call->type;
    plain.op = call_kinds[call->kind].has_op ? call->op : 0;
    plain.root = call_kinds[call->kind].has_root ? call->root : 0;
    plain.count = call->counts ? 0 : call->count;
    plain.counts = call->counts;
    plain.recv_counts = call->recv_counts;
    plain.leaves = call->leaves ? call->leaves : 1;
    plain.send = coll_call_send(call, rank);
    plain.recv = call->recv;
    return plain;
}

bool coll_kind_has_blocks(enum sw_coll_kind kind)
{
    return call_kinds[kind].has_blocks;
}

/* ---- sizes ---- */

uint64_t coll_blocks_before(const uint64_t *counts, uint64_t count, uint32_t rank)
{
    if (!counts)
        return count * rank;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < rank; i++)
        sum += counts[i];
    return sum;
}

static uint64_t own_block(const struct sw_coll_call *call, uint32_t rank)
{
    return call->counts ? call->counts[rank] : call->count;
}

static uint64_t largest_block(const struct sw_coll_call *call, uint32_t size)
{
    if (!call->counts)
        return call->count;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < size; i++)
        largest = mover_max_u64(largest, call->counts[i]);
    return largest;
}

struct coll_extents coll_call_extents(const struct sw_coll_call *call, const struct coll_site *site)
{
    const uint64_t bytes = sw_coll_type_bytes(call->type), leaves = call->leaves ? call->leaves : 1;
    const bool is_root = site->rank == call->root;
    const uint64_t own = own_block(call, site->rank) * bytes, whole = call->count * bytes;
    const uint64_t all = call_kinds[call->kind].has_blocks
                             ? coll_blocks_before(call->counts, call->count, site->size) * bytes
                             : 0;
    switch (call->kind) {
    case SW_COLL_ALL_REDUCE:
        return (struct coll_extents){leaves * whole, whole};
    case SW_COLL_REDUCE:
        return (struct coll_extents){leaves * whole, is_root ? whole : 0};
    case SW_COLL_REDUCE_SCATTER:
        return (struct coll_extents){leaves * all, own};
    case SW_COLL_ALL_GATHER:
        return (struct coll_extents){own, all};
    case SW_COLL_GATHER:
        return (struct coll_extents){own, is_root ? all : 0};
    case SW_COLL_SCATTER:
        return (struct coll_extents){is_root ? all : 0, own};
    case SW_COLL_ALL_TO_ALL:
        return (struct coll_extents){
            all, coll_blocks_before(call->recv_counts, call->count, site->size) * bytes};
    case SW_COLL_BROADCAST:
        return (struct coll_extents){is_root && call->send ? whole : 0,
                                     !is_root || call->recv || !call->send ? whole : 0};
    case SW_COLL_BARRIER:
    case SW_COLL_KINDS:
        break;
    }
    return (struct coll_extents){0};
}

uint64_t coll_call_mailed(const struct sw_coll_call *call, uint32_t from, uint32_t to)
{
    const uint64_t bytes = sw_coll_type_bytes(call->type), whole = call->count * bytes;
    switch (call->kind) {
    case SW_COLL_ALL_REDUCE:
        return call->leaves * whole;
    case SW_COLL_REDUCE:
        return to == call->root ? call->leaves * whole : 0;
    case SW_COLL_REDUCE_SCATTER:
        return call->leaves * own_block(call, to) * bytes;
    case SW_COLL_ALL_GATHER:
        return own_block(call, from) * bytes;
    case SW_COLL_GATHER:
        return to == call->root ? own_block(call, from) * bytes : 0;
    case SW_COLL_SCATTER:
        return from == call->root ? own_block(call, to) * bytes : 0;
    case SW_COLL_ALL_TO_ALL:
        return whole;
    case SW_COLL_BROADCAST:
        return from == call->root ? whole : 0;
    case SW_COLL_BARRIER:
    case SW_COLL_KINDS:
        break;
    }
    return 0;
}

/* The tree has partials of each rank where its leaves are a subtree. */
static bool can_halve(const struct sw_coll_call *call, uint32_t size)
{
    const uint32_t leaves = call->leaves ? call->leaves : 1;
    return size > 1 && call_kinds[call->kind].has_op && (leaves & (leaves - 1)) == 0;
}

static bool can_go_around(const struct sw_coll_call *call, uint32_t size)
{
    return size > 1 && (call->kind == SW_COLL_ALL_REDUCE ||
                        (call->kind == SW_COLL_REDUCE_SCATTER && !call->counts));
}

enum coll_plan coll_call_plan(const struct sw_coll_call *call, const struct coll_site *site)
{
    if (call->kind == SW_COLL_BARRIER)
        return COLL_PLAN_EAGER;
    if (site->wanted == COLL_PLAN_HALVING && can_halve(call, site->size))
        return COLL_PLAN_HALVING;
    if (site->wanted == COLL_PLAN_RING && can_go_around(call, site->size))
        return COLL_PLAN_RING;
    if (site->wanted == COLL_PLAN_OWNERS || (call->kind == SW_COLL_ALL_TO_ALL && call->counts))
        return COLL_PLAN_OWNERS;
    const uint64_t leaves = call_kinds[call->kind].has_op && call->leaves ? call->leaves : 1;
    const uint64_t largest = leaves * largest_block(call, site->size);
    return largest * sw_coll_type_bytes(call->type) <= site->eager_bytes ? COLL_PLAN_EAGER
                                                                         : COLL_PLAN_OWNERS;
}

/* ---- whether it makes sense ---- */

static enum sw_coll_status call_refuse(struct sw_coll_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static enum sw_coll_status call_refuse(struct sw_coll_error *error, const char *format, ...)
{
    va_list arguments;
    if (!error)
        return SW_COLL_INVALID;
    va_start(arguments, format);
    error->status = SW_COLL_INVALID;
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return SW_COLL_INVALID;
}

static enum sw_coll_status check_numbers(const struct sw_coll_call *call,
                                         const struct coll_site *site, struct sw_coll_error *error)
{
    const char *kind = sw_coll_kind_name(call->kind);
    if ((unsigned)call->type >= SW_COLL_TYPES)
        return call_refuse(error, "%s: there is no type %u", kind, (unsigned)call->type);
    if (call_kinds[call->kind].has_op && (unsigned)call->op >= SW_COLL_OPS)
        return call_refuse(error, "%s: there is no operator %u", kind, (unsigned)call->op);
    if (call_kinds[call->kind].has_root && call->root >= site->size)
        return call_refuse(error, "%s: the root is rank %u, and there are %u ranks", kind,
                           call->root, site->size);
    if (call->leaves > SW_COLL_LEAVES_MAX)
        return call_refuse(error, "%s: %u leaves are more than %d", kind, call->leaves,
                           SW_COLL_LEAVES_MAX);
    if (call->leaves > 1 && !call_kinds[call->kind].has_op)
        return call_refuse(error, "%s: leaves are for operations with an operator", kind);
    if (call->counts && !call_kinds[call->kind].has_blocks)
        return call_refuse(error, "%s has one count: its counts have to be NULL", kind);
    if (call->recv_counts && call->kind != SW_COLL_ALL_TO_ALL)
        return call_refuse(error, "%s: recv_counts are for all_to_all", kind);
    if (call->kind == SW_COLL_ALL_TO_ALL && !call->counts != !call->recv_counts)
        return call_refuse(error, "all_to_all: give counts and recv_counts, or neither");
    return SW_COLL_OK;
}

/* All bytes of the buffers have numbers. */
static bool sums_fit(const struct sw_coll_call *call, const uint64_t *counts,
                     const struct coll_site *site)
{
    uint64_t sum = counts ? 0 : call->count;
    for (uint32_t i = 0; counts && i < site->size; i++) {
        if (__builtin_add_overflow(sum, counts[i], &sum))
            return false;
    }
    const uint64_t ranks = counts || !call_kinds[call->kind].has_blocks ? 1 : site->size;
    const uint64_t leaves = call->leaves ? call->leaves : 1;
    return !__builtin_mul_overflow(sum, ranks * leaves * sw_coll_type_bytes(call->type), &sum) &&
           sum <= INT64_MAX;
}

/* `send` and `recv` do not overlap, or as coll.h allows it. */
static bool overlap_is_allowed(const struct sw_coll_call *call, const struct coll_site *site,
                               struct coll_extents extents)
{
    const uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    if (!extents.send_bytes || !extents.recv_bytes || send + extents.send_bytes <= recv ||
        recv + extents.recv_bytes <= send)
        return true;
    const uint64_t before =
        coll_blocks_before(call->counts, call->count, site->rank) * sw_coll_type_bytes(call->type);
    switch (call->kind) {
    case SW_COLL_ALL_REDUCE:
    case SW_COLL_REDUCE:
    case SW_COLL_BROADCAST:
        return send == recv;
    case SW_COLL_ALL_GATHER:
    case SW_COLL_GATHER:
        return send == recv + before;
    case SW_COLL_REDUCE_SCATTER:
    case SW_COLL_SCATTER:
        return recv == send + before;
    case SW_COLL_ALL_TO_ALL:
    case SW_COLL_BARRIER:
    case SW_COLL_KINDS:
        break;
    }
    return false;
}

static enum sw_coll_status refuse_overlap(const struct sw_coll_call *call,
                                          const struct coll_site *site, struct sw_coll_error *error)
{
    const char *kind = sw_coll_kind_name(call->kind);
    const bool is_whole = call->kind == SW_COLL_ALL_GATHER || call->kind == SW_COLL_GATHER;
    if (call->kind == SW_COLL_ALL_TO_ALL)
        return call_refuse(error, "%s is not done in place: send and recv overlap", kind);
    if (!call_kinds[call->kind].has_blocks)
        return call_refuse(error, "%s: send and recv overlap; in place they are the same", kind);
    return call_refuse(
        error, "%s: send and recv overlap; in place %s is %" PRIu64 " bytes behind %s", kind,
        is_whole ? "send" : "recv",
        coll_blocks_before(call->counts, call->count, site->rank) * sw_coll_type_bytes(call->type),
        is_whole ? "recv" : "send");
}

static enum sw_coll_status check_buffers(const struct sw_coll_call *call,
                                         const struct coll_site *site, struct sw_coll_error *error)
{
    const char *kind = sw_coll_kind_name(call->kind);
    if (!sums_fit(call, call->counts, site) || !sums_fit(call, call->recv_counts, site))
        return call_refuse(error, "%s: a buffer would have more than 2^63 bytes", kind);
    const struct coll_extents extents = coll_call_extents(call, site);
    if (extents.send_bytes && !call->send)
        return call_refuse(error, "%s: send is NULL", kind);
    if (extents.recv_bytes && !call->recv)
        return call_refuse(error, "%s: recv is NULL", kind);
    if ((uintptr_t)call->send > UINTPTR_MAX - extents.send_bytes ||
        (uintptr_t)call->recv > UINTPTR_MAX - extents.recv_bytes)
        return call_refuse(error, "%s: a buffer ends behind the last address", kind);
    if (call->kind == SW_COLL_ALL_TO_ALL && call->counts &&
        call->counts[site->rank] != call->recv_counts[site->rank])
        return call_refuse(error,
                           "all_to_all: rank %u sends itself %" PRIu64 " elements and awaits "
                           "%" PRIu64,
                           site->rank, call->counts[site->rank], call->recv_counts[site->rank]);
    if (!overlap_is_allowed(call, site, extents))
        return refuse_overlap(call, site, error);
    return SW_COLL_OK;
}

enum sw_coll_status coll_call_check(const struct sw_coll_call *call, const struct coll_site *site,
                                    struct sw_coll_error *error)
{
    if ((unsigned)call->kind >= SW_COLL_KINDS)
        return call_refuse(error, "there is no kind of operation %u", (unsigned)call->kind);
    if (call->kind == SW_COLL_BARRIER)
        return SW_COLL_OK;
    const enum sw_coll_status status = check_numbers(call, site, error);
    return status ? status : check_buffers(call, site, error);
}
