/* SPDX-License-Identifier: BSD-2-Clause */
#include "calls.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static uint64_t calls_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

uint64_t calls_random(uint64_t *state)
{
    return calls_mix(*state += 0x9e3779b97f4a7c15);
}

uint64_t calls_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return calls_mix(calls_mix(calls_mix(calls_mix(a) + b) + c) + d);
}

static bool is_sum(enum sw_coll_kind kind)
{
    return kind == SW_COLL_ALL_REDUCE || kind == SW_COLL_REDUCE || kind == SW_COLL_REDUCE_SCATTER;
}

static bool has_blocks(enum sw_coll_kind kind)
{
    return kind != SW_COLL_BARRIER && kind != SW_COLL_ALL_REDUCE && kind != SW_COLL_REDUCE &&
           kind != SW_COLL_BROADCAST;
}

/* How many elements one rank has for another one in ALL_TO_ALL. */
static uint64_t pair_count(const struct calls_draw *draw, uint64_t number, uint32_t from,
                           uint32_t to)
{
    const uint64_t drawn = calls_hash(draw->seed, number, from * 1000 + to, 77);
    return drawn % 4 ? drawn / 4 % (draw->count_max + 1) : 0;
}

struct sw_coll_call calls_of(const struct calls_draw *draw, uint64_t number, uint32_t rank,
                             uint64_t *counts, uint64_t *recv_counts)
{
    static const enum sw_coll_type types[] = {SW_COLL_F32, SW_COLL_F64, SW_COLL_U8, SW_COLL_I32,
                                              SW_COLL_F32};
    if (draw->recorded)
        return draw->recorded(number, rank, counts, recv_counts);
    uint64_t state = calls_hash(draw->seed, number, 1, 2);
    struct sw_coll_call call = {0};
    call.kind = draw->kind < 0 ? calls_random(&state) % SW_COLL_KINDS : (unsigned)draw->kind;
    call.type = types[calls_random(&state) % (sizeof(types) / sizeof(*types))];
    call.op = calls_random(&state) % 2 ? SW_COLL_SUM : calls_random(&state) % SW_COLL_OPS;
    if (call.op == SW_COLL_AVG && call.type != SW_COLL_F64)
        call.op = SW_COLL_SUM;
    call.root = (uint32_t)(calls_random(&state) % draw->size);
    const uint32_t size_class = (uint32_t)(calls_random(&state) % 8);
    call.count = size_class == 0   ? 0
                 : size_class <= 3 ? calls_random(&state) % 5
                                   : calls_random(&state) % (draw->count_max + 1);
    if (is_sum(call.kind) && calls_random(&state) % 3 == 0)
        call.leaves = (uint32_t)(calls_random(&state) % 4);
    if (has_blocks(call.kind) && calls_random(&state) % 3 == 0) {
        const uint64_t most = size_class <= 3 ? 4 : draw->count_max;
        for (uint32_t i = 0; i < draw->size; i++) {
            const uint64_t drawn = calls_hash(draw->seed, number, i, 3);
            counts[i] = drawn % 4 ? drawn / 4 % (most + 1) : 0;
            if (call.kind == SW_COLL_ALL_TO_ALL) {
                counts[i] = pair_count(draw, number, rank, i);
                recv_counts[i] = pair_count(draw, number, i, rank);
            }
        }
        call.counts = counts;
        call.recv_counts = call.kind == SW_COLL_ALL_TO_ALL ? recv_counts : NULL;
    }
    return call;
}

/* ---- sizes ---- */

static uint64_t block_of(const struct sw_coll_call *call, uint32_t rank)
{
    return call->counts ? call->counts[rank] : call->count;
}

static uint64_t sum_before(const uint64_t *counts, uint64_t count, uint32_t rank)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < rank; i++)
        sum += counts ? counts[i] : count;
    return sum;
}

static uint64_t leaves_of(const struct sw_coll_call *call)
{
    return call->leaves ? call->leaves : 1;
}

static uint64_t send_elements(const struct sw_coll_call *call, uint32_t rank, uint32_t size)
{
    switch (call->kind) {
    case SW_COLL_ALL_REDUCE:
    case SW_COLL_REDUCE:
        return leaves_of(call) * call->count;
    case SW_COLL_REDUCE_SCATTER:
        return leaves_of(call) * sum_before(call->counts, call->count, size);
    case SW_COLL_ALL_TO_ALL:
        return sum_before(call->counts, call->count, size);
    case SW_COLL_ALL_GATHER:
    case SW_COLL_GATHER:
        return block_of(call, rank);
    case SW_COLL_BROADCAST:
        return rank == call->root ? call->count : 0;
    case SW_COLL_SCATTER:
        return rank == call->root ? sum_before(call->counts, call->count, size) : 0;
    case SW_COLL_BARRIER:
    case SW_COLL_KINDS:
        break;
    }
    return 0;
}

static uint64_t recv_elements(const struct sw_coll_call *call, uint32_t rank, uint32_t size)
{
    switch (call->kind) {
    case SW_COLL_ALL_REDUCE:
    case SW_COLL_BROADCAST:
        return call->count;
    case SW_COLL_REDUCE:
        return rank == call->root ? call->count : 0;
    case SW_COLL_REDUCE_SCATTER:
    case SW_COLL_SCATTER:
        return block_of(call, rank);
    case SW_COLL_ALL_TO_ALL:
        return sum_before(call->recv_counts, call->count, size);
    case SW_COLL_ALL_GATHER:
        return sum_before(call->counts, call->count, size);
    case SW_COLL_GATHER:
        return rank == call->root ? sum_before(call->counts, call->count, size) : 0;
    case SW_COLL_BARRIER:
    case SW_COLL_KINDS:
        break;
    }
    return 0;
}

uint64_t calls_send_bytes(const struct sw_coll_call *call, uint32_t rank, uint32_t size)
{
    return send_elements(call, rank, size) * sw_coll_type_bytes(call->type);
}

uint64_t calls_recv_bytes(const struct sw_coll_call *call, uint32_t rank, uint32_t size)
{
    return recv_elements(call, rank, size) * sw_coll_type_bytes(call->type);
}

/* ---- contributions ---- */

union calls_value {
    float f32;
    double f64;
    uint8_t u8;
    int32_t i32;
};

/* Floats that cancel: another order of a sum has other bits. */
static union calls_value value_of(const struct calls_draw *draw, uint64_t number,
                                  enum sw_coll_type type, uint32_t rank, uint64_t index)
{
    static const float pool[] = {1e8f, 1, -1e8f, 3.5f, -1e8f, 1e-3f, 1e8f, -1};
    const uint64_t drawn = calls_hash(draw->seed, number, rank, index);
    const float picked = pool[drawn % 8] * (float)(1 + drawn / 8 % 4);
    if (type == SW_COLL_F32)
        return (union calls_value){.f32 = picked};
    if (type == SW_COLL_F64)
        return (union calls_value){.f64 = (double)picked * (drawn / 32 % 2 ? 1e10 : 1)};
    if (type == SW_COLL_U8)
        return (union calls_value){.u8 = (uint8_t)(drawn >> 20)};
    assert(type == SW_COLL_I32);
    return (union calls_value){.i32 = (int32_t)(drawn >> 20)};
}

static void put_value(void *buffer, enum sw_coll_type type, uint64_t index, union calls_value value)
{
    const size_t bytes = sw_coll_type_bytes(type);
    memcpy((uint8_t *)buffer + index * bytes, &value, bytes);
}

void calls_contribute(const struct calls_draw *draw, uint64_t number, uint32_t rank, void *send)
{
    uint64_t counts[CALLS_RANKS_MAX], recv_counts[CALLS_RANKS_MAX];
    const struct sw_coll_call call = calls_of(draw, number, rank, counts, recv_counts);
    const uint64_t elements = send_elements(&call, rank, draw->size);
    for (uint64_t i = 0; i < elements; i++)
        put_value(send, call.type, i, value_of(draw, number, call.type, rank, i));
}

/* ---- what has to come of it ---- */

#define APPLY(a, b, op, sum_type)                           \
    ((op) == SW_COLL_MIN    ? ((a) < (b) ? (a) : (b))       \
     : (op) == SW_COLL_MAX  ? ((a) > (b) ? (a) : (b))       \
     : (op) == SW_COLL_PROD ? (sum_type)(a) * (sum_type)(b) \
                            : (sum_type)(a) + (sum_type)(b))

static union calls_value apply_op(const struct sw_coll_call *call, union calls_value a,
                                  union calls_value b)
{
    if (call->type == SW_COLL_F32)
        return (union calls_value){.f32 = APPLY(a.f32, b.f32, call->op, float)};
    if (call->type == SW_COLL_F64)
        return (union calls_value){.f64 = APPLY(a.f64, b.f64, call->op, double)};
    if (call->type == SW_COLL_U8)
        return (union calls_value){.u8 = (uint8_t)APPLY(a.u8, b.u8, call->op, unsigned)};
    return (union calls_value){
        .i32 = call->op == SW_COLL_MIN || call->op == SW_COLL_MAX
                   ? APPLY(a.i32, b.i32, call->op, int32_t)
                   : (int32_t)APPLY((uint32_t)a.i32, (uint32_t)b.i32, call->op, uint32_t)};
}

static union calls_value fold_tree(const struct sw_coll_call *call, const union calls_value *values,
                                   uint64_t count)
{
    if (count == 1)
        return values[0];
    uint64_t half = 1;
    while (half * 2 < count)
        half *= 2;
    return apply_op(call, fold_tree(call, values, half),
                    fold_tree(call, values + half, count - half));
}

static union calls_value fold_line(const struct sw_coll_call *call, const union calls_value *values,
                                   uint64_t count)
{
    union calls_value value = values[0];
    for (uint64_t i = 1; i < count; i++)
        value = apply_op(call, value, values[i]);
    return value;
}

/* The leaves of a rank are folded in the tree, then those of one rank after the other. */
static union calls_value fold_around(const struct sw_coll_call *call,
                                     const union calls_value *values, uint32_t size, uint32_t owner)
{
    const uint64_t leaves = leaves_of(call);
    union calls_value partials[CALLS_RANKS_MAX];
    for (uint32_t i = 0; i < size; i++)
        partials[i] = fold_tree(call, values + (owner + 1 + i) % size * leaves, leaves);
    return fold_line(call, partials, size);
}

/* An element of the sum; `all` elements are a leaf. `owner`: of the slice in a ring. */
static union calls_value sum_of(const struct calls_draw *draw, uint64_t number,
                                const struct sw_coll_call *call, uint64_t all, uint64_t index,
                                enum calls_order order, uint32_t owner)
{
    union calls_value values[CALLS_RANKS_MAX * 4];
    uint64_t count = 0;
    for (uint32_t place = 0; place < draw->size; place++)
        for (uint64_t leaf = 0; leaf < leaves_of(call); leaf++)
            values[count++] =
                value_of(draw, number, call->type, draw->ranks ? draw->ranks[place] : place,
                         leaf * all + index);
    union calls_value value =
        order == CALLS_RING ? fold_around(call, values, draw->size, owner)
                            : (order == CALLS_TREE ? fold_tree : fold_line)(call, values, count);
    if (call->op == SW_COLL_AVG)
        value.f64 /= (double)count;
    /* Infinity times 0: there is one NaN. */
    if (call->type == SW_COLL_F32 && isnan(value.f32))
        value.f32 = NAN;
    if (call->type == SW_COLL_F64 && isnan(value.f64))
        value.f64 = (double)NAN;
    return value;
}

/* The elements of another rank's `send` from `first` on. */
static uint64_t take_elements(const struct calls_draw *draw, uint64_t number,
                              enum sw_coll_type type, uint32_t from, uint64_t first, uint64_t count,
                              void *recv, uint64_t at)
{
    for (uint64_t i = 0; i < count; i++)
        put_value(recv, type, at + i, value_of(draw, number, type, from, first + i));
    return at + count;
}

void calls_expect(const struct calls_draw *draw, uint64_t number, uint32_t rank,
                  enum calls_order order, uint64_t slice, void *recv)
{
    uint64_t counts[CALLS_RANKS_MAX], recv_counts[CALLS_RANKS_MAX];
    const struct sw_coll_call call = calls_of(draw, number, rank, counts, recv_counts);
    const uint64_t elements = recv_elements(&call, rank, draw->size);
    const uint64_t before = sum_before(call.counts, call.count, rank);
    const uint32_t own = draw->places ? draw->places[rank] : rank;
    if (is_sum(call.kind)) {
        const bool is_part = call.kind == SW_COLL_REDUCE_SCATTER;
        const uint64_t all = is_part ? sum_before(call.counts, call.count, draw->size) : call.count;
        for (uint64_t i = 0; i < elements; i++)
            put_value(recv, call.type, i,
                      sum_of(draw, number, &call, all, i + (is_part ? before : 0), order,
                             is_part || !slice ? own : (uint32_t)(i / slice % draw->size)));
    } else if (call.kind == SW_COLL_BROADCAST) {
        take_elements(draw, number, call.type, call.root, 0, elements, recv, 0);
    } else if (call.kind == SW_COLL_SCATTER) {
        take_elements(draw, number, call.type, call.root, before, elements, recv, 0);
    } else if (elements) {
        uint64_t at = 0;
        for (uint32_t from = 0; from < draw->size; from++) {
            uint64_t sent[CALLS_RANKS_MAX], came[CALLS_RANKS_MAX];
            const struct sw_coll_call other = calls_of(draw, number, from, sent, came);
            const bool is_pair = call.kind == SW_COLL_ALL_TO_ALL;
            const uint64_t first = is_pair ? sum_before(other.counts, other.count, rank) : 0;
            at = take_elements(draw, number, call.type, from, first,
                               block_of(&other, is_pair ? rank : from), recv, at);
        }
    }
}
