/* SPDX-License-Identifier: BSD-2-Clause */
/* Both machines together: what must have happened at the end, whatever the
 * network did. */
#include "transport/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000000ull
enum { READ_ONLY = PAIR_MEMORY / 2 }; /* from here on nothing is written */

/* What memory must be like: the same requests, done one after the other. */
struct model {
    uint8_t memory[PAIR_MEMORY];
    uint64_t counter;
    uint32_t messages, flushes;
    uint32_t lens[PAIR_RECEIVED];
    uint64_t sums[PAIR_RECEIVED];
};

static void model_message(struct model *m, uint32_t len, uint8_t fill, bool bytes)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; bytes && i < len; i++)
        sum += (uint64_t)pair_byte(fill, i) * (i + 1);
    m->lens[m->messages] = len;
    m->sums[m->messages++] = sum;
}

struct plan {
    uint32_t offset, len;
    uint8_t kind, fill;
    uint64_t original;
};

static uint32_t some_len(struct pair *p)
{
    static const uint32_t lens[] = {0, 1, 7, 64, 1023, 1024, 1025, 2048, 5000, 16384, 70000};
    return lens[pair_random(p) % (sizeof(lens) / sizeof(*lens))];
}

/* As a storage target answers: a WRITE and a SEND in turn, now and then something else. */
static struct plan post_answer(struct pair *p, struct model *m, uint32_t index)
{
    struct plan plan = {.fill = (uint8_t)index, .kind = SW_REQUEST_WRITE, .len = 1024};
    plan.offset = index % 64 * 1024 + 64;
    if (index % 2) {
        plan.kind = SW_REQUEST_SEND;
        plan.len = 16;
        pair_post(p, SW_REQUEST_SEND, 0, plan.len, plan.fill, 0);
        model_message(m, plan.len, plan.fill, true);
        return plan;
    }
    pair_post(p, SW_REQUEST_WRITE, plan.offset, plan.len, plan.fill, 0);
    for (uint32_t i = 0; i < plan.len; i++)
        m->memory[plan.offset + i] = pair_byte(plan.fill, i);
    return plan;
}

static struct plan post_some(struct pair *p, struct model *m)
{
    struct plan plan = {.fill = (uint8_t)pair_random(p), .len = some_len(p)};
    uint8_t fence = pair_random(p) % 8 == 0 ? SW_REQUEST_FENCE : 0;
    plan.offset = pair_random(p) % (READ_ONLY - (1 << 17)) + 64;
    plan.kind = (uint8_t)(pair_random(p) % 6);
    switch (plan.kind) {
    case 0:
        plan.kind = SW_REQUEST_SEND;
        pair_post(p, SW_REQUEST_SEND, 0, plan.len, plan.fill, fence);
        model_message(m, plan.len, plan.fill, true);
        break;
    case 1:
    case 2: {
        bool imm = plan.kind == 2;
        plan.kind = SW_REQUEST_WRITE;
        pair_post(p, SW_REQUEST_WRITE, plan.offset, plan.len, plan.fill,
                  (uint8_t)(fence | (imm ? SW_REQUEST_IMM : 0)));
        for (uint32_t i = 0; i < plan.len; i++)
            m->memory[plan.offset + i] = pair_byte(plan.fill, i);
        if (imm)
            model_message(m, plan.len, 0, false);
        break;
    }
    case 3:
        plan.kind = SW_REQUEST_READ;
        plan.offset = READ_ONLY + pair_random(p) % (READ_ONLY - (1 << 17));
        pair_post(p, SW_REQUEST_READ, plan.offset, plan.len, plan.fill, fence);
        break;
    case 4:
        plan.kind = SW_REQUEST_FETCH_ADD;
        plan.original = m->counter;
        pair_post(p, SW_REQUEST_FETCH_ADD, 0, 8, plan.fill, fence);
        m->counter += plan.fill;
        break;
    default:
        plan.kind = SW_REQUEST_FLUSH;
        pair_post(p, SW_REQUEST_FLUSH, plan.offset, plan.len, 0, fence);
        m->flushes++;
        break;
    }
    return plan;
}

static void check_answer(struct pair *p, const struct model *m, const struct plan *plan,
                         uint32_t position)
{
    uint32_t slot = position % PAIR_ENTRIES;
    if (plan->kind == SW_REQUEST_READ)
        assert_memory_equal(p->local[slot], m->memory + plan->offset, plan->len);
    if (plan->kind == SW_REQUEST_FETCH_ADD)
        assert_int_equal(p->original[slot], plan->original);
}

static void check_end(struct pair *p, struct model *m)
{
    memcpy(m->memory, &m->counter, sizeof(m->counter));
    assert_memory_equal(p->memory, m->memory, PAIR_MEMORY);
    assert_int_equal(p->received_count, m->messages);
    for (uint32_t i = 0; i < m->messages; i++) {
        assert_int_equal(p->received[i].len, m->lens[i]);
        assert_true(p->received[i].sum == m->sums[i]);
    }
    assert_int_equal(p->executed[SW_DEMAND_FLUSH], m->flushes);
}

enum program { ANYTHING, ANSWERS, MOSTLY_ANSWERS };

static struct plan post_next(struct pair *p, struct model *m, enum program program, uint32_t index)
{
    if (program == ANYTHING || (program == MOSTLY_ANSWERS && pair_random(p) % 16 == 0))
        return post_some(p, m);
    return post_answer(p, m, index);
}

/* Returns how many packets left behind later ones on purpose. */
static uint64_t run_program(enum program program, bool selective, const struct pair_faults *faults,
                            uint64_t seed)
{
    struct sw_requester_config requester = pair_requester_config;
    struct sw_responder_config responder = pair_responder_config;
    requester.offer_selective = responder.offer_selective = selective;
    struct pair *p = pair_new(&requester, &responder, seed);
    struct model *m = calloc(1, sizeof(*m));
    struct plan plans[200];
    assert_non_null(m);
    for (uint32_t i = READ_ONLY; i < PAIR_MEMORY; i++)
        p->memory[i] = m->memory[i] = (uint8_t)pair_random(p);
    p->faults = *faults;
    uint32_t checked = 0;
    for (uint32_t i = 0; i < 200; i++) {
        while (p->requester.tail - p->requester.done == PAIR_ENTRIES)
            assert_true(pair_step(p));
        for (; checked != p->requester.done; checked++)
            check_answer(p, m, &plans[checked], checked);
        plans[i] = post_next(p, m, program, i);
    }
    if (!pair_run(p, 60 * SECOND) || p->failure != SW_FAILURE_NONE) {
        fprintf(stderr, "seed %lu: done %u of %u, failure %d\n", (unsigned long)seed,
                p->requester.done, p->requester.tail, p->failure);
        fail();
    }
    for (; checked != p->requester.done; checked++)
        check_answer(p, m, &plans[checked], checked);
    check_end(p, m);
    if (faults->loss == 0) {
        assert_int_equal(p->requester.counts.resent, 0);
        assert_false(p->requester.reorders);
    }
    const uint64_t deferred = p->requester.counts.deferred;
    free(m);
    pair_free(p);
    return deferred;
}

static void run_random(bool selective, const struct pair_faults *faults, uint64_t seed)
{
    run_program(ANYTHING, selective, faults, seed);
}

static const struct pair_faults clean = {.delay_ns = 10000};
static const struct pair_faults bad = {.rnr = 6000,
                                       .loss = 2000,
                                       .copy = 600,
                                       .reorder = 2000,
                                       .delay_ns = 20000,
                                       .reorder_ns = 60000};

static void pair__clean_path_needs_no_retransmission(void **state)
{
    (void)state;
    run_random(false, &clean, 1);
    run_random(true, &clean, 2);
}

static void pair__plain_peers_on_a_bad_path(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_random(false, &bad, seed);
}

static void pair__sidewire_peers_on_a_bad_path(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_random(true, &bad, seed);
}

/* A packet that leaves behind later ones on purpose is neither lost nor a path that reorders. */
static void pair__deferred_packets_are_not_taken_for_lost(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_true(run_program(ANSWERS, true, &clean, seed) > 20);
        assert_int_equal(run_program(ANSWERS, false, &clean, seed), 0);
    }
}

static void pair__deferred_packets_on_a_bad_path(void **state)
{
    (void)state;
    uint64_t deferred = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        deferred += run_program(ANSWERS, true, &bad, seed);
        deferred += run_program(MOSTLY_ANSWERS, true, &bad, seed);
    }
    assert_true(deferred > 1000);
}

/* All requests before one that is refused end well, whatever is lost, and that one with the reason.
 */
static void run_refused(bool selective, uint64_t seed)
{
    enum { GOOD = 40 };
    struct sw_requester_config requester = pair_requester_config;
    struct sw_responder_config responder = pair_responder_config;
    requester.offer_selective = responder.offer_selective = selective;
    struct pair *p = pair_new(&requester, &responder, seed);
    struct model *m = calloc(1, sizeof(*m));
    struct plan plans[GOOD];
    assert_non_null(m);
    for (uint32_t i = READ_ONLY; i < PAIR_MEMORY; i++)
        p->memory[i] = m->memory[i] = (uint8_t)pair_random(p);
    p->faults = bad;
    for (uint32_t i = 0; i < GOOD; i++)
        plans[i] = post_some(p, m);
    pair_post(p, SW_REQUEST_WRITE, PAIR_MEMORY, 100, 1, 0); /* beyond */
    pair_post(p, SW_REQUEST_WRITE, 64, 100, 1, 0);
    assert_true(pair_run(p, 60 * SECOND));
    if (p->failure != SW_FAILURE_NAK || p->syndrome != 0x62 || p->requester.done != GOOD) {
        fprintf(stderr, "seed %lu: done %u of %u, failure %d\n", (unsigned long)seed,
                p->requester.done, GOOD, p->failure);
        fail();
    }
    for (uint32_t i = 0; i < GOOD; i++)
        check_answer(p, m, &plans[i], i);
    check_end(p, m);
    free(m);
    pair_free(p);
}

static void pair__a_refusal_spoils_nothing_before_it(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        run_refused(false, seed);
        run_refused(true, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair__clean_path_needs_no_retransmission),
        cmocka_unit_test(pair__plain_peers_on_a_bad_path),
        cmocka_unit_test(pair__sidewire_peers_on_a_bad_path),
        cmocka_unit_test(pair__deferred_packets_are_not_taken_for_lost),
        cmocka_unit_test(pair__deferred_packets_on_a_bad_path),
        cmocka_unit_test(pair__a_refusal_spoils_nothing_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
