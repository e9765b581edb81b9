/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The machine of operations among ranks of a simulated world: results, waits, errors. With an
 * argument: so many seeds for each number of ranks up to 64, which takes longer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world.h"

static unsigned long seeds_more;

static struct world_options options_of(uint64_t seed, uint32_t size)
{
    static const enum coll_plan ways[] = {COLL_PLAN_OWNERS, COLL_PLAN_ANY,     COLL_PLAN_HALVING,
                                          COLL_PLAN_ANY,    COLL_PLAN_HALVING, COLL_PLAN_RING};
    return (struct world_options){
        .draw = {.seed = seed, .size = size, .kind = -1, .count_max = size > 16 ? 100 : 300},
        .wanted = ways[seed % (sizeof(ways) / sizeof(*ways))],
        .eager_bytes = seed % 2 ? 256 : 1024,
        .operations = 6,
        .absent = size,
        .dies = size,
        .stops = size,
    };
}

static void add_result(struct world_result *sum, const struct world_result *one)
{
    sum->operations += one->operations;
    sum->requests += one->requests;
    sum->mails += one->mails;
    sum->ahead += one->ahead;
}

static void machine__gives_the_results_that_are_defined(void **state)
{
    (void)state;
    static const uint32_t usual[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31};
    struct world_result sum = {0}, one;
    const unsigned sizes = seeds_more ? 64 : sizeof(usual) / sizeof(*usual);
    for (unsigned i = 0; i < sizes; i++) {
        const uint32_t size = seeds_more ? i + 1 : usual[i];
        for (uint64_t seed = 1; seed <= (seeds_more ? seeds_more : 120 / size + 4); seed++) {
            const struct world_options options = options_of(seed + size, size);
            world_run(&options, &one);
            if (*one.failure)
                fail_msg("%u ranks, seed %lu: %s", size, (unsigned long)seed + size, one.failure);
            add_result(&sum, &one);
        }
    }
    printf("%lu operations of ranks, %lu mails, %lu reads and writes, %lu begun while another rank "
           "was in the one before\n",
           (unsigned long)sum.operations, (unsigned long)sum.mails, (unsigned long)sum.requests,
           (unsigned long)sum.ahead);
    /* A world in which nothing happens would prove nothing. */
    assert_true(sum.operations > 10000 && sum.requests > sum.operations);
    assert_true(sum.ahead > sum.operations / 2);
}

/* Each kind, both ways, each root, by few ranks. */
static void machine__does_each_kind(void **state)
{
    (void)state;
    struct world_result one;
    for (int kind = 0; kind < SW_COLL_KINDS; kind++) {
        for (uint32_t size = 1; size <= 5; size++) {
            for (uint64_t seed = 1; seed <= 12; seed++) {
                struct world_options options = options_of(seed, size);
                options.draw.kind = kind;
                world_run(&options, &one);
                if (*one.failure)
                    fail_msg("%s, %u ranks, seed %lu: %s", sw_coll_kind_name(kind), size,
                             (unsigned long)seed, one.failure);
            }
        }
    }
}

/* Numbers of ranks that are no powers of two have blocks of their own, each of another size. */
static void machine__sums_in_rounds_among_any_number_of_ranks(void **state)
{
    (void)state;
    static const int kinds[] = {SW_COLL_ALL_REDUCE, SW_COLL_REDUCE_SCATTER, SW_COLL_REDUCE};
    struct world_result sum = {0}, one;
    static const enum coll_plan ways[] = {COLL_PLAN_HALVING, COLL_PLAN_HALVING, COLL_PLAN_HALVING,
                                          COLL_PLAN_RING, COLL_PLAN_RING};
    for (uint32_t size = 2; size <= CALLS_RANKS_MAX; size++) {
        for (uint64_t seed = 0; seed < 5 * (seeds_more ? seeds_more : 1); seed++) {
            struct world_options options = options_of(seed * 100 + size, size);
            options.draw.kind = kinds[seed % 5 % 3];
            options.wanted = ways[seed % 5];
            options.operations = size > 16 ? 1 : 4;
            world_run(&options, &one);
            if (*one.failure)
                fail_msg("%s, %u ranks, seed %lu: %s", sw_coll_kind_name(options.draw.kind), size,
                         (unsigned long)seed, one.failure);
            add_result(&sum, &one);
        }
    }
    assert_true(sum.requests > sum.operations * 5);
}

/* Ranks whose hosts lie among each other have places in the tree that are not their numbers. */
static void machine__sums_in_the_order_of_places(void **state)
{
    (void)state;
    static const int kinds[] = {SW_COLL_ALL_REDUCE, SW_COLL_REDUCE_SCATTER, SW_COLL_REDUCE, -1};
    struct world_result sum = {0}, one;
    for (uint32_t size = 3; size <= (seeds_more ? CALLS_RANKS_MAX : 12); size++) {
        uint16_t ranks[CALLS_RANKS_MAX], places[CALLS_RANKS_MAX];
        for (uint64_t seed = 0; seed < 24; seed++) {
            uint64_t random = seed * 77 + size;
            for (uint32_t i = 0; i < size; i++)
                ranks[i] = (uint16_t)i;
            for (uint32_t i = size - 1; i > 0; i--) {
                const uint32_t other = (uint32_t)(calls_random(&random) % (i + 1));
                const uint16_t rank = ranks[i];
                ranks[i] = ranks[other];
                ranks[other] = rank;
            }
            for (uint32_t i = 0; i < size; i++)
                places[ranks[i]] = (uint16_t)i;
            struct world_options options = options_of(seed, size);
            options.draw.kind = kinds[seed / 6];
            options.draw.ranks = ranks;
            options.draw.places = places;
            options.operations = 3;
            world_run(&options, &one);
            if (*one.failure)
                fail_msg("%s, %u ranks, seed %lu: %s", sw_coll_kind_name(options.draw.kind), size,
                         (unsigned long)seed, one.failure);
            add_result(&sum, &one);
        }
    }
    assert_true(sum.requests > sum.operations * 2);
}

/* Tiny ones, one after the other: a mailbox that was overrun would show. */
static void machine__goes_on_for_long(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 4; size++) {
        struct world_options options = options_of(size, size);
        struct world_result one;
        options.draw.count_max = 4;
        options.operations = seeds_more ? 3000 * (uint32_t)seeds_more : 600;
        world_run(&options, &one);
        if (*one.failure)
            fail_msg("%u ranks: %s", size, one.failure);
        assert_int_equal(one.operations, (uint64_t)size * options.operations);
    }
}

static void machine__finds_faults_on_purpose(void **state)
{
    (void)state;
    static const char *const names[WORLD_FAULTS] = {
        [WORLD_SETTLES_EARLY] = "requests that are said to have completed, and go on",
        [WORLD_DONE_OVERTAKES] = "a DONE that is seen before what was pushed",
        [WORLD_KEEPS_MAIL] = "an old message that is taken again",
        [WORLD_ONE_SIDE] = "mailboxes with one side",
        [WORLD_DONE_FORGOTTEN] = "a rank that does not await DONE",
        [WORLD_SETTLE_FORGOTTEN] = "a rank that ends while its requests go on",
        [WORLD_PULLS_FORGOTTEN] = "a chunk that is folded before it is there",
        [WORLD_PARITY_FORGOTTEN] = "a chunk that is pulled over the one before",
        [WORLD_SLICE_SHIFTED] = "a slice that is read beside its place",
        [WORLD_PUSH_TOO_LONG] = "a slice that is written beyond its end",
        [WORLD_LEAVES_FORGOTTEN] = "a leaf that is counted twice",
        [WORLD_PEER_FORGOTTEN] = "a rank that is left out",
        [WORLD_STEP_FORGOTTEN] = "a rank that does not await STEP",
        [WORLD_HALF_MISTAKEN] = "a half that is taken for the other one",
        [WORLD_PARTIALS_SWAPPED] = "partials that are taken for those of another round",
        [WORLD_LINE_FOR_TREE] = "another order of the sum",
        [WORLD_TREE_FOR_RING] = "another order than that of a ring",
    };
    for (unsigned fault = WORLD_NO_FAULT + 1; fault < WORLD_FAULTS; fault++) {
        struct world_result result = {0};
        uint64_t seed = 0;
        while (!*result.failure && seed++ < 300) {
            struct world_options options = options_of(seed, 3 + (uint32_t)(seed % 4));
            options.fault = fault;
            world_run(&options, &result);
        }
        if (!*result.failure)
            fail_msg("%s: not found", names[fault]);
        printf("%s: found by seed %lu: %s\n", names[fault], (unsigned long)seed, result.failure);
    }
}

/* ---- unlike calls ---- */

static void change_kind(struct sw_coll_call *call, uint32_t rank)
{
    (void)rank;
    call->kind = call->kind == SW_COLL_BARRIER ? SW_COLL_ALL_REDUCE : SW_COLL_BARRIER;
    call->counts = call->recv_counts = NULL;
    call->leaves = 0;
}

static void change_type(struct sw_coll_call *call, uint32_t rank)
{
    (void)rank;
    call->type = call->type == SW_COLL_F64 ? SW_COLL_U8 : SW_COLL_F64;
}

static void change_op(struct sw_coll_call *call, uint32_t rank)
{
    (void)rank;
    call->op = call->op == SW_COLL_SUM ? SW_COLL_MAX : SW_COLL_SUM;
}

static void change_count(struct sw_coll_call *call, uint32_t rank)
{
    (void)rank;
    call->count++;
}

/* Across every threshold of sizes. */
static void change_count_far(struct sw_coll_call *call, uint32_t rank)
{
    (void)rank;
    call->count += 150;
}

static void change_root(struct sw_coll_call *call, uint32_t rank)
{
    (void)rank;
    call->root = call->root ? call->root - 1 : 1;
}

static void change_leaves(struct sw_coll_call *call, uint32_t rank)
{
    (void)rank;
    call->leaves = call->leaves > 1 ? 1 : 4;
}

/* The two lowest that other ranks have, if there are two; this one's own stays. */
static void change_counts(struct sw_coll_call *call, uint32_t rank)
{
    uint64_t *counts = (uint64_t *)call->counts;
    counts[rank ? 0 : 1]++;
    counts[rank ? 1 + (rank == 1) : 2]++;
}

static void change_counts_away(struct sw_coll_call *call, uint32_t rank)
{
    (void)rank;
    call->counts = call->recv_counts = NULL;
}

struct unlike_case {
    void (*change)(struct sw_coll_call *call, uint32_t rank);
    const char *field; /* in the error */
    bool wants_op, wants_root, wants_one_count, wants_counts;
};

static const struct unlike_case unlike_cases[] = {
    {change_kind, "barrier", .wants_op = false},
    {change_type, " with type ", .wants_op = false},
    {change_op, " with operator ", .wants_op = true},
    {change_count, " with count ", .wants_one_count = true},
    {change_count_far, " with count ", .wants_one_count = true},
    {change_root, " with root ", .wants_root = true},
    {change_leaves, " leaves, rank 0 with ", .wants_op = true},
    {change_counts, NULL, .wants_counts = true},
    {change_counts_away, "with one count", .wants_counts = true},
};

static bool suits_case(const struct unlike_case *at, const struct sw_coll_call *call)
{
    const bool has_op = call->kind == SW_COLL_ALL_REDUCE || call->kind == SW_COLL_REDUCE ||
                        call->kind == SW_COLL_REDUCE_SCATTER;
    const bool has_root = call->kind == SW_COLL_BROADCAST || call->kind == SW_COLL_REDUCE ||
                          call->kind == SW_COLL_GATHER || call->kind == SW_COLL_SCATTER;
    return (call->kind != SW_COLL_BARRIER || at->change == change_kind) &&
           (has_op || !at->wants_op) && (has_root || !at->wants_root) &&
           (!call->counts || !at->wants_one_count) && (call->counts || !at->wants_counts);
}

/* The words that all ranks have to say. */
static void compare_words(const struct unlike_case *at, const struct sw_coll_call *call,
                          uint32_t rank, const char *error)
{
    char begin[100];
    snprintf(begin, sizeof(begin), "operation 3: ");
    assert_non_null(strstr(error, begin));
    if (at->change == change_counts && call->kind == SW_COLL_ALL_TO_ALL) {
        snprintf(begin, sizeof(begin),
                 ": rank %u calls all_to_all with count %lu for rank %u, which awaits %lu", rank,
                 (unsigned long)call->counts[rank ? 0 : 1] + 1, rank ? 0 : 1,
                 (unsigned long)call->counts[rank ? 0 : 1]);
        assert_non_null(strstr(error, begin));
        return;
    }
    /* Where rank 0 is the odd one, rank 1 is the first that differs from it. */
    snprintf(begin, sizeof(begin), ": rank %u calls ", rank ? rank : 1);
    if (!strstr(error, begin))
        fail_msg("no \"%s\" in \"%s\"", begin, error);
    if (at->change == change_counts)
        snprintf(begin, sizeof(begin), " with %lu in counts[%u], rank 0 with %lu",
                 (unsigned long)call->counts[rank ? 0 : 1] + !!rank, rank ? 0 : 1,
                 (unsigned long)call->counts[rank ? 0 : 1] + !rank);
    const char *field = at->change == change_counts ? begin : at->field;
    if (!strstr(error, field))
        fail_msg("no \"%s\" in \"%s\"", field, error);
}

static void machine__tells_all_ranks_who_differs(void **state)
{
    (void)state;
    unsigned tried[sizeof(unlike_cases) / sizeof(*unlike_cases)] = {0}, pairs = 0;
    for (uint64_t seed = 1; seed <= (seeds_more ? 1500 * seeds_more : 1500); seed++) {
        const unsigned index = (unsigned)(seed % (sizeof(unlike_cases) / sizeof(*unlike_cases)));
        const struct unlike_case *at = &unlike_cases[index];
        struct world_options options = options_of(seed, 2 + (uint32_t)(seed % 5));
        options.operations = 3;
        const uint32_t rank = (uint32_t)(seed / 7 % options.draw.size);
        uint64_t counts[CALLS_RANKS_MAX], recv_counts[CALLS_RANKS_MAX];
        const struct sw_coll_call call = calls_of(&options.draw, 3, rank, counts, recv_counts);
        if (!suits_case(at, &call))
            continue;
        options.change = (struct world_change){rank, at->change};
        struct world_result result;
        world_run(&options, &result);
        if (*result.failure)
            fail_msg("seed %lu: %s", (unsigned long)seed, result.failure);
        compare_words(at, &call, rank, result.error);
        tried[index]++;
        pairs += at->change == change_counts && call.kind == SW_COLL_ALL_TO_ALL;
    }
    for (unsigned i = 0; i < sizeof(tried) / sizeof(*tried); i++)
        assert_true(tried[i] >= 10);
    assert_true(pairs >= 5);
}

/* One that is not there is named by all others, in the same words. */
static void machine__names_who_is_absent(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct world_options options = options_of(seed, 2 + (uint32_t)(seed % 7));
        options.operations = 3;
        options.absent = (uint32_t)(seed / 5 % options.draw.size);
        struct world_result result;
        world_run(&options, &result);
        if (*result.failure)
            fail_msg("seed %lu: %s", (unsigned long)seed, result.failure);
        char begin[100];
        snprintf(begin, sizeof(begin), "rank %u has not begun operation 3 (", options.absent);
        assert_memory_equal(result.waits, begin, strlen(begin));
    }
}

/* What ranks say that they wait for leads to the one that has stopped, in each algorithm. */
static void machine__waits_lead_to_who_has_stopped(void **state)
{
    (void)state;
    struct world_result one;
    uint64_t held = 0, followed = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct world_options options = options_of(seed, 2 + (uint32_t)(seed % 7));
        options.stops = (uint32_t)(seed / 5 % options.draw.size);
        world_run(&options, &one);
        if (*one.failure)
            fail_msg("seed %lu: %s", (unsigned long)seed, one.failure);
        held += one.held;
        followed += one.followed;
    }
    printf("%lu ranks waited, %lu of them for one that waited itself\n", (unsigned long)held,
           (unsigned long)followed);
    assert_true(held > 500 && followed > 20);
}

/* A rank that dies at any instant: nothing that is sent changes, nobody goes on without it. */
static void machine__survives_a_death(void **state)
{
    (void)state;
    struct world_result sum = {0}, one;
    for (uint64_t seed = 1; seed <= (seeds_more ? 600 * seeds_more : 400); seed++) {
        struct world_options options = options_of(seed, 2 + (uint32_t)(seed % 7));
        options.dies = (uint32_t)(seed / 5 % options.draw.size);
        world_run(&options, &one);
        if (*one.failure)
            fail_msg("seed %lu: %s", (unsigned long)seed, one.failure);
        add_result(&sum, &one);
        sum.gone += one.gone;
    }
    printf("%lu operations ended well, %lu by a death\n", (unsigned long)sum.operations,
           (unsigned long)sum.gone);
    assert_true(sum.gone > 400 && sum.operations > 4000);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine__gives_the_results_that_are_defined),
        cmocka_unit_test(machine__does_each_kind),
        cmocka_unit_test(machine__sums_in_rounds_among_any_number_of_ranks),
        cmocka_unit_test(machine__sums_in_the_order_of_places),
        cmocka_unit_test(machine__goes_on_for_long),
        cmocka_unit_test(machine__finds_faults_on_purpose),
        cmocka_unit_test(machine__tells_all_ranks_who_differs),
        cmocka_unit_test(machine__names_who_is_absent),
        cmocka_unit_test(machine__waits_lead_to_who_has_stopped),
        cmocka_unit_test(machine__survives_a_death),
    };
    if (argc > 1)
        seeds_more = strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
