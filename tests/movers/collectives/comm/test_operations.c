// SPDX-License-Identifier: BSD-2-Clause
// All kinds and types between processes, compared with a plain reference.
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

// ---- elements: whole numbers, which all types have exactly ----

static uint16_t half_of(uint32_t value)
{
    uint32_t exponent = 0;
    if (!value)
        return 0;
    while (value >> (exponent + 1))
        exponent++;
    const uint32_t fraction = (value - (1u << exponent)) << (10 - exponent);
    return (uint16_t)((exponent + 15) << 10 | fraction);
}

static uint16_t bfloat_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static void put_element(enum sw_coll_type type, uint8_t *at, uint32_t value)
{
    const float f32 = (float)value;
    const double f64 = value;
    const uint64_t whole = value;
    uint16_t half;
    switch (type) {
    case SW_COLL_F16:
        half = half_of(value);
        memcpy(at, &half, 2);
        break;
    case SW_COLL_BF16:
        half = bfloat_of(f32);
        memcpy(at, &half, 2);
        break;
    case SW_COLL_F32:
        memcpy(at, &f32, 4);
        break;
    case SW_COLL_F64:
        memcpy(at, &f64, 8);
        break;
    case SW_COLL_I8:
    case SW_COLL_U8:
    case SW_COLL_I16:
    case SW_COLL_U16:
    case SW_COLL_I32:
    case SW_COLL_U32:
    case SW_COLL_I64:
    case SW_COLL_U64:
    case SW_COLL_TYPES:
        memcpy(at, &whole, sw_coll_type_bytes(type)); // little-endian
        break;
    }
}

static uint32_t element_of(enum sw_coll_op op, uint32_t rank, uint64_t index)
{
    return op == SW_COLL_PROD ? 1 + (uint32_t)(rank + index) % 2
                              : (uint32_t)(rank * 7 + index * 3) % 4;
}

static uint32_t fold_elements(enum sw_coll_op op, uint32_t size, uint64_t index)
{
    uint32_t sum = element_of(op, 0, index);
    for (uint32_t rank = 1; rank < size; rank++) {
        const uint32_t value = element_of(op, rank, index);
        if (op == SW_COLL_PROD)
            sum *= value;
        else if (op == SW_COLL_MIN)
            sum = value < sum ? value : sum;
        else if (op == SW_COLL_MAX)
            sum = value > sum ? value : sum;
        else
            sum += value;
    }
    return sum;
}

// ---- the reference ----

struct sample {
    enum sw_coll_kind kind;
    enum sw_coll_type type;
    enum sw_coll_op op;
    uint32_t root;
    uint64_t count;
    bool is_in_place;
};

static bool is_root(const struct rank *rank, const struct sample *s)
{
    return rank->rank == s->root;
}

static uint64_t send_count(const struct rank *rank, const struct sample *s)
{
    switch (s->kind) {
    case SW_COLL_REDUCE_SCATTER:
    case SW_COLL_ALL_TO_ALL:
        return s->count * rank->size;
    case SW_COLL_SCATTER:
        return is_root(rank, s) ? s->count * rank->size : 0;
    case SW_COLL_BROADCAST:
        return is_root(rank, s) ? s->count : 0;
    case SW_COLL_BARRIER:
        return 0;
    case SW_COLL_ALL_REDUCE:
    case SW_COLL_ALL_GATHER:
    case SW_COLL_REDUCE:
    case SW_COLL_GATHER:
    case SW_COLL_KINDS:
        break;
    }
    return s->count;
}

static uint64_t recv_count(const struct rank *rank, const struct sample *s)
{
    switch (s->kind) {
    case SW_COLL_ALL_GATHER:
    case SW_COLL_ALL_TO_ALL:
        return s->count * rank->size;
    case SW_COLL_GATHER:
        return is_root(rank, s) ? s->count * rank->size : 0;
    case SW_COLL_REDUCE:
        return is_root(rank, s) ? s->count : 0;
    case SW_COLL_BARRIER:
        return 0;
    case SW_COLL_ALL_REDUCE:
    case SW_COLL_REDUCE_SCATTER:
    case SW_COLL_BROADCAST:
    case SW_COLL_SCATTER:
    case SW_COLL_KINDS:
        break;
    }
    return s->count;
}

static uint32_t expected_at(const struct rank *rank, const struct sample *s, uint64_t index)
{
    const uint64_t block = s->count ? index / s->count : 0, within = index - block * s->count;
    switch (s->kind) {
    case SW_COLL_REDUCE_SCATTER:
        return fold_elements(s->op, rank->size, rank->rank * s->count + index);
    case SW_COLL_ALL_GATHER:
    case SW_COLL_GATHER:
        return element_of(s->op, (uint32_t)block, within);
    case SW_COLL_ALL_TO_ALL:
        return element_of(s->op, (uint32_t)block, rank->rank * s->count + within);
    case SW_COLL_BROADCAST:
        return element_of(s->op, s->root, index);
    case SW_COLL_SCATTER:
        return element_of(s->op, s->root, rank->rank * s->count + index);
    case SW_COLL_ALL_REDUCE:
    case SW_COLL_REDUCE:
    case SW_COLL_BARRIER:
    case SW_COLL_KINDS:
        break;
    }
    return fold_elements(s->op, rank->size, index);
}

// ---- one operation ----

struct trial {
    struct sample sample;
    uint8_t *send, *recv; // where the call's buffers are
    uint8_t *buffers[2];  // to be freed
    struct sw_coll_call call;
    struct sw_coll_request *request;
};

static uint8_t *make_buffer(uint64_t bytes)
{
    uint8_t *buffer = malloc(bytes + GUARD);
    need(buffer);
    memset(buffer, GUARD_BYTE, bytes + GUARD);
    return buffer;
}

// In place the smaller buffer is the block of this rank in the larger one.
static void place_buffers(const struct rank *rank, struct trial *trial)
{
    const struct sample *s = &trial->sample;
    const uint64_t element = sw_coll_type_bytes(s->type);
    const uint64_t send = send_count(rank, s) * element, recv = recv_count(rank, s) * element;
    const uint64_t block = rank->rank * s->count * element;
    trial->buffers[0] = make_buffer(recv > send ? recv : send);
    trial->send = trial->recv = trial->buffers[0];
    trial->buffers[1] = NULL;
    if (!s->is_in_place)
        trial->recv = trial->buffers[1] = make_buffer(recv);
    else if (recv > send && send)
        trial->send += block;
    else if (send > recv && recv)
        trial->recv += block;
}

static void begin_trial(struct rank *rank, struct trial *trial)
{
    const struct sample *s = &trial->sample;
    const uint64_t element = sw_coll_type_bytes(s->type);
    struct sw_coll_error error;
    place_buffers(rank, trial);
    for (uint64_t i = 0; i < send_count(rank, s); i++)
        put_element(s->type, trial->send + i * element, element_of(s->op, rank->rank, i));
    trial->call = (struct sw_coll_call){.kind = s->kind,
                                        .type = s->type,
                                        .op = s->op,
                                        .root = s->root,
                                        .send = trial->send,
                                        .recv = trial->recv,
                                        .count = s->count};
    // A root may broadcast what it has in `recv`.
    if (s->kind == SW_COLL_BROADCAST && s->is_in_place && s->count % 2)
        trial->call.send = NULL;
    need_ok(rank, sw_coll_post(rank->coll, &trial->call, 0, &error, &trial->request), &error);
}

// It has ended.
static void check_trial(struct rank *rank, struct trial *trial)
{
    const struct sample *s = &trial->sample;
    const uint64_t element = sw_coll_type_bytes(s->type), count = recv_count(rank, s);
    uint8_t wanted[8];
    for (uint64_t i = 0; i < count; i++) {
        put_element(s->type, wanted, expected_at(rank, s, i));
        if (!memcmp(trial->recv + i * element, wanted, element))
            continue;
        fprintf(stderr, "rank %u of %u: %s, %s, %s, count %llu, root %u%s: wrong at %llu\n",
                rank->rank, rank->size, sw_coll_kind_name(s->kind), sw_coll_type_name(s->type),
                sw_coll_op_name(s->op), (unsigned long long)s->count, s->root,
                s->is_in_place ? ", in place" : "", (unsigned long long)i);
        need(false);
    }
    for (uint32_t i = 0; trial->buffers[1] && i < GUARD; i++)
        need(trial->recv[count * element + i] == GUARD_BYTE);
    free(trial->buffers[0]);
    free(trial->buffers[1]);
}

static void end_trial(struct rank *rank, struct trial *trial)
{
    struct sw_coll_error error;
    need_ok(rank, sw_coll_wait(trial->request, &error), &error);
    check_trial(rank, trial);
}

// Around the thresholds: payloads in the record, with it, and neither.
static const uint64_t counts[] = {0, 1, 3, 6, 25, 511, 1024, 1025, 4097, 20011};

static struct sample draw_sample(const struct rank *rank, unsigned *seed)
{
    struct sample s = {.kind = (enum sw_coll_kind)((unsigned)rand_r(seed) % SW_COLL_KINDS),
                       .type = (enum sw_coll_type)((unsigned)rand_r(seed) % SW_COLL_TYPES),
                       .op = (enum sw_coll_op)((unsigned)rand_r(seed) % SW_COLL_AVG),
                       .root = (uint32_t)rand_r(seed) % rank->size,
                       .count = counts[(unsigned)rand_r(seed) % (sizeof(counts) / 8)],
                       .is_in_place = rand_r(seed) % 3 == 0};
    const bool is_within = s.kind != SW_COLL_ALL_TO_ALL && s.kind != SW_COLL_SCATTER &&
                           s.kind != SW_COLL_GATHER; // of these, only at the root
    s.is_in_place &= is_within;
    return s;
}

static void draw_many(struct rank *rank)
{
    unsigned seed = 7 + rank->size;
    for (int i = 0; i < 120; i++) {
        struct trial trial = {.sample = draw_sample(rank, &seed)};
        begin_trial(rank, &trial);
        end_trial(rank, &trial);
    }
}

static void run__all_kinds_and_types(void **state)
{
    (void)state;
    ranks_run(2, draw_many);
    ranks_run(3, draw_many);
    ranks_run(5, draw_many);
}

static void run__one_rank(void **state)
{
    (void)state;
    ranks_run(1, draw_many);
}

// Posted at once; they end in the order of their posts, and are asked for backwards.
static void post_many(struct rank *rank)
{
    enum { AT_ONCE = 7 };
    unsigned seed = 99;
    struct trial trials[AT_ONCE];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            trials[i].sample = draw_sample(rank, &seed);
            begin_trial(rank, &trials[i]);
        }
        struct sw_coll_error error;
        while (sw_coll_test(trials[AT_ONCE - 1].request, &error) == SW_COLL_AGAIN)
            nap_ms(0);
        check_trial(rank, &trials[AT_ONCE - 1]);
        for (int i = AT_ONCE - 2; i >= 0; i--)
            end_trial(rank, &trials[i]);
    }
}

static void post__several_at_once(void **state)
{
    (void)state;
    ranks_run(3, post_many);
}

static void add_up(struct rank *rank)
{
    struct sw_coll_error error;
    for (uint64_t i = 0; i < 8; i++) {
        const uint64_t mine = rank->rank + i;
        uint64_t sum = 0;
        need_ok(rank,
                sw_coll_all_reduce(rank->coll, &mine, &sum, 1, SW_COLL_U64, SW_COLL_SUM, 0, &error),
                &error);
        need(sum == rank->size * (rank->size - 1) / 2 + rank->size * i);
    }
}

static void run__more_ranks_than_processors(void **state)
{
    (void)state;
    ranks_run(16, add_up);
}

// ---- at an address ----

static char where_to_meet[32];

static void meet_there(struct rank *rank)
{
    rank->options.exchange = NULL;
    rank->options.meet = where_to_meet;
}

// A port that is free; somebody else could take it meanwhile.
static uint16_t find_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_false(bind(fd, (struct sockaddr *)&address, sizeof(address)));
    assert_false(getsockname(fd, (struct sockaddr *)&address, &bytes));
    close(fd);
    return ntohs(address.sin_port);
}

static void open__at_an_address(void **state)
{
    struct ranks ranks;
    (void)state;
    snprintf(where_to_meet, sizeof(where_to_meet), "127.0.0.1:%u", (unsigned)find_free_port());
    ranks_start(&ranks, 3, add_up, meet_there);
    ranks_end(&ranks, 0);
}

// ---- memory that comes and goes ----

enum { MAPPED = 300 << 10 };

// In one call: between munmap() and mmap() a thread of the device, that maps what a peer has
// registered, may get the place, and MAP_FIXED would take it away.
static void *map_anew(void *where)
{
    void *data = mmap(where, MAPPED, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);
    need(data != MAP_FAILED);
    return data;
}

static void sum_mapped(struct rank *rank, uint32_t *send, uint32_t *recv, uint32_t round)
{
    const uint64_t count = MAPPED / sizeof(*send);
    struct sw_coll_error error;
    for (uint64_t i = 0; i < count; i++)
        send[i] = (uint32_t)i * (rank->rank + 1) + round;
    need_ok(rank,
            sw_coll_all_reduce(rank->coll, send, recv, count, SW_COLL_U32, SW_COLL_SUM, 0, &error),
            &error);
    for (uint64_t i = 0; i < count; i++)
        need(recv[i] == (uint32_t)i * 6 + 3 * round);
}

static void map_again_and_again(struct rank *rank)
{
    uint32_t *send = map_anew(NULL), *recv = map_anew(NULL);
    for (uint32_t round = 0; round < 12; round++) {
        if (round % 3 == 1)
            send = map_anew(send);
        if (round % 3 == 2)
            recv = map_anew(recv);
        if (round % 4 == 3)
            need(!madvise(send, MAPPED, MADV_DONTNEED));
        sum_mapped(rank, send, recv, round);
    }
}

static void regions__memory_is_mapped_anew(void **state)
{
    (void)state;
    ranks_run(3, map_again_and_again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run__all_kinds_and_types),
        cmocka_unit_test(run__one_rank),
        cmocka_unit_test(post__several_at_once),
        cmocka_unit_test(run__more_ranks_than_processors),
        cmocka_unit_test(open__at_an_address),
        cmocka_unit_test(regions__memory_is_mapped_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
