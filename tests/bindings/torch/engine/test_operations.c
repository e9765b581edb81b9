// SPDX-License-Identifier: BSD-2-Clause
// Operations of a process group: from any thread, with a caller that waits and without.
#include "members.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 1 << 17, THREADS = 3 };

static void need_sums(const struct member *member, const uint64_t *sum, uint64_t count,
                      uint64_t value)
{
    const uint64_t size = member->size;
    for (uint64_t i = 0; i < count; i++)
        need(sum[i] == size * (size - 1) / 2 + size * (value + i));
}

static void fill_numbers(const struct member *member, uint64_t *mine, uint64_t count,
                         uint64_t value)
{
    for (uint64_t i = 0; i < count; i++)
        mine[i] = member->rank + value + i;
}

// ---- a caller that waits, or not ----

static void sum_many(struct member *member)
{
    enum { ROUNDS = 300 };
    uint64_t *mine = calloc(LARGE, 8), *sum = calloc(LARGE, 8);
    need(mine && sum);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t count = round % 60 == 59 ? LARGE : 1 + round;
        struct work work;
        fill_numbers(member, mine, count, round);
        work_sum(&work, mine, sum, count);
        work_submit(member, &work);
        if (round % 3 == 0) {
            work_end(member, &work, SW_COLL_OK);
        } else if (round % 3 == 1) {
            while (!pge_test(member->engine, &work.operation))
                continue;
            work_watch(&work);
        } else { /* as a future: the engine's thread has to drive */
            if (round % 2)
                pge_urge(member->engine);
            work_watch(&work);
        }
        need_sums(member, sum, count, round);
    }
    need(pge_sequence(member->engine) == ROUNDS);
    pge_sequence_set(member->engine, 7);
    sum_once(member, 1);
    need(pge_sequence(member->engine) == 8);
    free(mine);
    free(sum);
}

static void wait__by_any_means(void **state)
{
    (void)state;
    members_run(1, sum_many, 0);
    members_run(2, sum_many, 0);
    members_run(3, sum_many, 0);
}

// Many at once, which are awaited in another order.
static void sum_in_flight(struct member *member)
{
    enum { FLIGHT = 20, COUNT = 500 };
    static uint64_t mine[FLIGHT][COUNT], sums[FLIGHT][COUNT];
    static struct work works[FLIGHT];
    struct pge_operation *operations[FLIGHT];
    for (uint64_t i = 0; i < FLIGHT; i++) {
        fill_numbers(member, mine[i], COUNT, i);
        work_sum(&works[i], mine[i], sums[i], COUNT);
        operations[i] = &works[i].operation;
    }
    pge_submit(member->engine, operations, FLIGHT);
    for (uint64_t i = FLIGHT; i-- > 0;) {
        work_end(member, &works[(i + 7) % FLIGHT], SW_COLL_OK);
        need_sums(member, sums[(i + 7) % FLIGHT], COUNT, (i + 7) % FLIGHT);
    }
}

static void submit__many_at_once(void **state)
{
    (void)state;
    members_run(2, sum_in_flight, 0);
}

// Arguments that are wrong end one operation, and nothing else.
static void submit_wrong(struct member *member)
{
    struct work work;
    uint64_t value = 0;
    work_sum(&work, NULL, &value, 1);
    work_submit(member, &work);
    work_end(member, &work, SW_COLL_INVALID);
    work_send(&work, 9, 0, &value, 8);
    work_submit(member, &work);
    work_end(member, &work, SW_COLL_INVALID);
    work_recv(&work, 9, 0, &value, 8);
    work_submit(member, &work);
    work_end(member, &work, SW_COLL_INVALID);
    need(pge_error(member->engine, NULL) == SW_COLL_OK);
    sum_once(member, 3);
}

static void submit__a_wrong_one_ends_alone(void **state)
{
    (void)state;
    members_run(2, submit_wrong, 0);
}

// A wait whose deadline passes leaves the operation alone.
static void wait_shortly(struct member *member)
{
    const uint64_t mine = member->rank;
    uint64_t sum = 0;
    struct work work;
    work_sum(&work, &mine, &sum, 1);
    if (member->rank)
        flag_await(member, 0, 1);
    work_submit(member, &work);
    if (!member->rank) {
        for (int i = 0; i < 3; i++)
            need(pge_wait(member->engine, &work.operation, sw_coll_deadline_ms(10), NULL) ==
                 SW_COLL_AGAIN);
        flag_raise(member, 0);
    }
    work_end(member, &work, SW_COLL_OK);
    need(sum == 1);
}

static void wait__a_deadline_changes_nothing(void **state)
{
    (void)state;
    members_run(2, wait_shortly, 0);
}

// ---- threads ----

struct talker {
    struct member *member;
    uint64_t tag;
};

// Each thread talks to its like in the other rank, while another one sums.
static void *talk(void *arg)
{
    const struct talker *talker = arg;
    struct member *member = talker->member;
    unsigned seed = (unsigned)talker->tag;
    for (uint64_t round = 0; round < 60; round++) {
        const uint64_t count = rand_r(&seed) % 8 ? 1 + (uint64_t)rand_r(&seed) % 100 : 20000;
        uint64_t *out = calloc(count, 8), *in = calloc(count, 8);
        struct work send, recv;
        need(out && in);
        for (uint64_t i = 0; i < count; i++)
            out[i] = talker->tag * 1000003 + round + i;
        work_send(&send, !member->rank, talker->tag, out, 8 * count);
        work_recv(&recv, !member->rank, talker->tag, in, 8 * count);
        work_submit(member, &send);
        work_submit(member, &recv);
        work_end(member, &recv, SW_COLL_OK);
        need(!memcmp(in, out, 8 * count) && recv.operation.source == !member->rank);
        work_end(member, &send, SW_COLL_OK);
        free(out);
        free(in);
    }
    return NULL;
}

// What is tried is that this thread gets the communicator for itself.
static void dump_once(const struct member *member)
{
    struct sw_coll_error error = {.text = ""};
    need(pge_dump(member->engine, "/nowhere/x", &error) == SW_COLL_SYSTEM && *error.text);
}

static void talk_and_sum(struct member *member)
{
    struct talker talkers[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        talkers[i] = (struct talker){member, i + 1};
        need(!pthread_create(&threads[i], NULL, talk, &talkers[i]));
    }
    for (uint64_t i = 0; i < 100; i++) {
        sum_once(member, i);
        if (i % 20 == 0)
            dump_once(member);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void submit__from_any_thread(void **state)
{
    (void)state;
    members_run(2, talk_and_sum, 0);
}

// ---- what is called at the end ----

struct chain {
    struct work work; /* first: `context` is the work's */
    struct member *member;
    uint64_t mine, sum;
    uint32_t left;
};

static void go_on_with_chain(struct pge_operation *operation)
{
    struct chain *chain = (struct chain *)(void *)operation;
    struct work *work = &chain->work;
    need(chain->sum == chain->mine * chain->member->size);
    if (!--chain->left) {
        __atomic_store_n(&work->released, 1, __ATOMIC_SEQ_CST);
        return;
    }
    chain->mine++;
    work_sum(work, &chain->mine, &chain->sum, 1);
    operation->release = go_on_with_chain;
    pge_submit(chain->member->engine, &operation, 1);
}

// Each sum begins the next one when it has ended, in whatever thread.
static void sum_in_chain(struct member *member)
{
    static struct chain chain;
    chain = (struct chain){.member = member, .mine = 1, .left = 200};
    work_sum(&chain.work, &chain.mine, &chain.sum, 1);
    chain.work.operation.release = go_on_with_chain;
    work_submit(member, &chain.work);
    while (!__atomic_load_n(&chain.work.released, __ATOMIC_SEQ_CST))
        nap_ms(1);
    need(chain.mine == 200);
}

static void release__may_submit(void **state)
{
    (void)state;
    members_run(2, sum_in_chain, 0);
}

struct waiting {
    struct member *member;
    uint64_t depth;
    uint32_t has_ended;
};

// As callbacks of futures that wait for operations, of which the ends are callbacks, too.
static void wait_in_later(void *arg)
{
    struct waiting *waiting = arg;
    struct waiting inner = {.member = waiting->member, .depth = waiting->depth - 1};
    sum_once(waiting->member, waiting->depth);
    if (inner.depth) {
        need(pge_later(waiting->member->engine, wait_in_later, &inner));
        while (!__atomic_load_n(&inner.has_ended, __ATOMIC_SEQ_CST))
            nap_ms(1);
    }
    __atomic_store_n(&waiting->has_ended, 1, __ATOMIC_SEQ_CST);
}

static void call_later(struct member *member)
{
    struct waiting waiting = {.member = member, .depth = 5};
    need(pge_later(member->engine, wait_in_later, &waiting));
    while (!__atomic_load_n(&waiting.has_ended, __ATOMIC_SEQ_CST))
        nap_ms(1);
}

static void later__functions_may_wait(void **state)
{
    (void)state;
    members_run(2, call_later, 0);
}

// ---- several groups ----

static void use_groups(struct member *member)
{
    struct member all = *member;
    for (uint64_t i = 0; i < 20; i++)
        sum_once(member, i);
    all.engine = member_open(member, 1, member->size, NULL);
    if (member->rank < 2) { /* a group of some */
        struct member some = *member;
        some.size = 2;
        some.engine = member_open(member, 2, 2, NULL);
        for (uint64_t i = 0; i < 20; i++)
            sum_once(&some, i);
        sum_once(&all, 100);
        pge_close(some.engine);
    } else {
        sum_once(&all, 100);
    }
    for (uint64_t i = 0; i < 20; i++) {
        sum_once(member, i);
        sum_once(&all, i);
    }
    pge_close(all.engine);
    sum_once(member, 5);
}

static void groups__of_one_process(void **state)
{
    (void)state;
    members_run(3, use_groups, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait__by_any_means),
        cmocka_unit_test(submit__many_at_once),
        cmocka_unit_test(submit__a_wrong_one_ends_alone),
        cmocka_unit_test(wait__a_deadline_changes_nothing),
        cmocka_unit_test(submit__from_any_thread),
        cmocka_unit_test(release__may_submit),
        cmocka_unit_test(later__functions_may_wait),
        cmocka_unit_test(groups__of_one_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
