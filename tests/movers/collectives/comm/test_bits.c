// SPDX-License-Identifier: BSD-2-Clause
// Whole operations on the cases that it reads, each of which brings the bits that have to come of
// it (test_bits.py). Odd ranks have callers with flush-to-zero and another way of rounding.
//
// usage: test_bits RANKS EAGER_BYTES [ALGORITHM [NAMESPACE ADDRESS]...] <CASES
//
// An empty ALGORITHM is none, and so is an empty NAMESPACE. Ranks take turns in these.
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

enum { GUARD = 64, GUARD_BYTE = 0xa5, FLOATS_DISTURBED = 0x1f80 | 0x8040 | 0x2000 };
enum bits_place { APART, IN_PLACE, ROOT_HAS_RECV, ROOT_HAS_SEND };

struct bits_head {
    uint32_t kind, type, op, root, leaves, place;
    uint64_t count, has_counts;
};

// A rank's part of a case.
struct bits_part {
    uint64_t send_bytes, recv_bytes;
    uint64_t counts[RANKS], recv_counts[RANKS];
};

struct bits_case {
    struct bits_head head;
    struct bits_part part; // of this rank
    const uint8_t *send, *wanted;
};

static uint8_t *cases;
static size_t cases_bytes;
static uint32_t eager_bytes;
static const char *algorithm;

static void read_cases(void)
{
    size_t room = 1 << 20, got;
    cases = malloc(room);
    while (cases && (got = fread(cases + cases_bytes, 1, room - cases_bytes, stdin)))
        if ((cases_bytes += got) == room)
            cases = realloc(cases, room *= 2);
    need(cases && cases_bytes);
}

// The case there. Returns where the next one is.
static const uint8_t *take_case(const uint8_t *at, const struct rank *rank, struct bits_case *one)
{
    static struct bits_part parts[RANKS];
    need(at + sizeof(one->head) <= cases + cases_bytes);
    memcpy(&one->head, at, sizeof(one->head));
    at += sizeof(one->head);
    memcpy(parts, at, rank->size * sizeof(*parts));
    at += rank->size * sizeof(*parts);
    one->part = parts[rank->rank];
    for (uint32_t i = 0; i < rank->size; at += parts[i++].send_bytes)
        one->send = i == rank->rank ? at : one->send;
    for (uint32_t i = 0; i < rank->size; at += parts[i++].recv_bytes)
        one->wanted = i == rank->rank ? at : one->wanted;
    need(at <= cases + cases_bytes);
    return at;
}

// ---- one operation ----

struct bits_buffers {
    uint8_t *memory[2];
    size_t bytes[2];
    uint8_t *send, *recv;
};

static uint8_t *make_guarded(struct bits_buffers *buffers, int which, uint64_t bytes, size_t offset)
{
    buffers->bytes[which] = bytes + offset + 2 * (size_t)GUARD;
    buffers->memory[which] = malloc(buffers->bytes[which]);
    need(buffers->memory[which]);
    memset(buffers->memory[which], GUARD_BYTE, buffers->bytes[which]);
    return buffers->memory[which] + GUARD + offset;
}

// In place the smaller one is the block of this rank in the larger one.
static void lay_out_buffers(const struct rank *rank, const struct bits_case *one, size_t offset,
                            struct bits_buffers *buffers)
{
    const struct bits_head *head = &one->head;
    const uint64_t send = one->part.send_bytes, recv = one->part.recv_bytes;
    const bool is_gathered = head->kind == SW_COLL_ALL_GATHER || head->kind == SW_COLL_GATHER;
    const bool is_scattered = head->kind == SW_COLL_REDUCE_SCATTER || head->kind == SW_COLL_SCATTER;
    uint64_t block = 0;
    for (uint32_t i = 0; i < rank->rank; i++)
        block += one->part.counts[i] * sw_coll_type_bytes(head->type);
    buffers->send = make_guarded(buffers, 0, send > recv ? send : recv, offset);
    buffers->recv = make_guarded(buffers, 1, recv, offset);
    if (head->place == IN_PLACE && send && recv) {
        buffers->recv = buffers->send;
        buffers->send += is_gathered ? block : 0;
        buffers->recv += is_scattered ? block : 0;
    }
    if (send)
        memcpy(buffers->send, one->send, send);
}

static struct sw_coll_call call_of_case(const struct rank *rank, const struct bits_case *one,
                                        const struct bits_buffers *buffers)
{
    const struct bits_head *head = &one->head;
    struct sw_coll_call call = {.kind = head->kind,
                                .type = head->type,
                                .op = head->op,
                                .root = head->root,
                                .count = head->count,
                                .leaves = head->leaves,
                                .send = one->part.send_bytes ? buffers->send : NULL,
                                .recv = one->part.recv_bytes ? buffers->recv : NULL};
    if (head->has_counts)
        call.counts = one->part.counts;
    if (head->has_counts && head->kind == SW_COLL_ALL_TO_ALL)
        call.recv_counts = one->part.recv_counts;
    if (head->kind != SW_COLL_BROADCAST || head->root != rank->rank)
        return call;
    if (head->place == ROOT_HAS_SEND)
        call.recv = NULL;
    if (head->place == ROOT_HAS_RECV && call.recv) {
        memcpy(call.recv, call.send, one->part.send_bytes);
        call.send = NULL;
    }
    return call;
}

static enum sw_coll_status run_disturbed(struct rank *rank, const struct sw_coll_call *call,
                                         struct sw_coll_error *error)
{
#if defined(__SSE2__)
    const unsigned before = _mm_getcsr();
    if (rank->rank % 2)
        _mm_setcsr(FLOATS_DISTURBED);
    const enum sw_coll_status status = sw_coll_run(rank->coll, call, 0, error);
    need(!(rank->rank % 2) || (_mm_getcsr() & ~0x3fu) == FLOATS_DISTURBED);
    _mm_setcsr(before);
    return status;
#else
    return sw_coll_run(rank->coll, call, 0, error);
#endif
}

static bool has_guards(const struct bits_buffers *buffers)
{
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < GUARD; at++)
            if (buffers->memory[i][at] != GUARD_BYTE ||
                buffers->memory[i][buffers->bytes[i] - 1 - at] != GUARD_BYTE)
                return false;
    return true;
}

static void check_buffers(const struct rank *rank, const struct bits_case *one, unsigned number,
                          const struct sw_coll_call *call, const struct bits_buffers *buffers)
{
    const struct bits_part *part = &one->part;
    const bool is_kept = one->head.place != APART || !part->send_bytes ||
                         !memcmp(call->send, one->send, part->send_bytes);
    const bool is_right = !call->recv || !memcmp(call->recv, one->wanted, part->recv_bytes);
    if (is_kept && is_right && has_guards(buffers))
        return;
    fprintf(stderr, "case %u, rank %u: %s, %s, %s, root %u, %u leaves, place %u: %s\n", number,
            rank->rank, sw_coll_kind_name(call->kind), sw_coll_type_name(call->type),
            sw_coll_op_name(call->op), call->root, call->leaves, one->head.place,
            !is_right  ? "a wrong result"
            : !is_kept ? "send has changed"
                       : "something beside the buffers has changed");
    need(false);
}

static void run_cases(struct rank *rank)
{
    unsigned number = 0;
    for (const uint8_t *at = cases; at < cases + cases_bytes; number++) {
        struct bits_case one = {0};
        struct bits_buffers buffers;
        struct sw_coll_error error;
        at = take_case(at, rank, &one);
        lay_out_buffers(rank, &one, (number * 7 + rank->rank * 3) % 61, &buffers);
        const struct sw_coll_call call = call_of_case(rank, &one, &buffers);
        need_ok(rank, run_disturbed(rank, &call, &error), &error);
        check_buffers(rank, &one, number, &call, &buffers);
        free(buffers.memory[0]);
        free(buffers.memory[1]);
    }
    if (!rank->rank)
        printf("%u cases\n", number);
}

// Pairs of NAMESPACE ADDRESS.
static char **hosts;
static uint32_t hosts_count;

static void set_bits_options(struct rank *rank)
{
    rank->options.eager_bytes = eager_bytes;
    rank->options.algorithm = algorithm && *algorithm ? algorithm : NULL;
    if (rank->options.algorithm && !strcmp(algorithm, "ring"))
        rank->options.order = SW_COLL_ORDER_ANY;
    if (!hosts_count)
        return;
    char **host = hosts + 2 * (size_t)(rank->rank % hosts_count);
    if (*host[0])
        rank_enter(host[0]);
    rank->options.address = host[1];
}

static uint32_t ranks_count;

static void run__has_the_bits_of_numpy(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, ranks_count, run_cases, set_bits_options);
    ranks_end(&ranks, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(run__has_the_bits_of_numpy)};
    if (argc < 3 || (ranks_count = (uint32_t)atoi(argv[1])) > RANKS)
        return 2;
    eager_bytes = (uint32_t)atoi(argv[2]);
    algorithm = argv[3];
    hosts_count = argc > 4 ? (uint32_t)(argc - 4) / 2 : 0;
    hosts = argv + 4;
    read_cases();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
