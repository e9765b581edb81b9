/* SPDX-License-Identifier: BSD-2-Clause */
/* The client library against a server in a thread of this process, which ends and begins anew. */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_rig.h"

enum { MANY = 400 };

static void pieces__are_scattered_and_gathered(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    uint8_t *there = w->region.memory.base;
    connect_client(w);
    for (uint32_t i = 0; i < LOCAL; i++)
        w->local[i] = (uint8_t)(i * 31 + i / 256);
    struct sw_pmem_op ops[2] = {
        {.opcode = SW_PMEM_OP_WRITE, .offset = 1000, .pieces_count = SW_PMEM_PIECES_MAX},
        {.opcode = SW_PMEM_OP_READ, .offset = 1000, .pieces_count = 2}};
    for (uint32_t i = 0; i < SW_PMEM_PIECES_MAX; i++)
        ops[0].pieces[i] = (struct sw_pmem_piece){w->local + 8192 * (7 - i) + i, 100 + i, w->mem};
    ops[1].pieces[0] = (struct sw_pmem_piece){w->local + 100000, 500, w->mem};
    ops[1].pieces[1] = (struct sw_pmem_piece){w->local + 120000, 328, w->mem};
    const struct sw_pmem_chain chain = {
        .ops = ops, .count = 2, .done = count_result, .arg = &tally};
    assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_OK);
    await(w, &tally, 1);
    assert_int_equal(tally.of[SW_PMEM_OK], 1);
    for (uint32_t i = 0, at = 1000; i < SW_PMEM_PIECES_MAX; at += 100 + i++)
        assert_memory_equal(there + at, w->local + 8192 * (7 - i) + i, 100 + i);
    assert_memory_equal(w->local + 100000, there + 1000, 500);
    assert_memory_equal(w->local + 120000, there + 1500, 328);
}

static void publish__is_one_word(void **state)
{
    struct world *w = *state;
    const uint64_t deadline_ns = sw_pmem_deadline_ms(WAIT_MS);
    for (int without = 0; without < 2; without++) {
        w->options.no_atomic_write = w->options.no_flush = without;
        connect_client(w);
        const uint64_t word = 0x1122334455667788 + (uint64_t)without;
        assert_int_equal(sw_pmem_publish(w->pmem, 64, word, SW_PMEM_FLUSH_VISIBLE, deadline_ns),
                         SW_PMEM_OK);
        assert_memory_equal((uint8_t *)w->region.memory.base + 64, &word, sizeof(word));
        assert_int_equal(sw_pmem_publish(w->pmem, 65, 1, SW_PMEM_FLUSH_VISIBLE, deadline_ns),
                         SW_PMEM_INVALID);
        assert_int_equal(sw_pmem_publish(w->pmem, 64, 1, SW_PMEM_FLUSH_PERSISTENT, deadline_ns),
                         SW_PMEM_UNSUPPORTED);
        assert_memory_equal((uint8_t *)w->region.memory.base + 64, &word, sizeof(word));
        sw_pmem_mem_release(w->mem);
        sw_pmem_close(w->pmem);
        w->pmem = NULL;
        w->mem = NULL;
    }
}

static void arguments__are_checked(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    connect_client(w);
    struct sw_pmem_op op = write_op(w, REGION - 63, 64);
    struct sw_pmem_chain chain = {.ops = &op, .count = 1, .done = count_result, .arg = &tally};
    assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_DENIED);
    op = write_op(w, UINT64_MAX - 1, 64);
    assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_DENIED);
    op = write_op(w, 0, 64);
    op.pieces[0].data = w->local + LOCAL - 63;
    assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_NOT_REGISTERED);
    op.pieces_count = SW_PMEM_PIECES_MAX + 1;
    assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_INVALID);
    chain.count = SW_PMEM_CHAIN_MAX + 1;
    assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_INVALID);
    assert_int_equal(sw_pmem_used(w->pmem), 0);
    assert_int_equal(sw_pmem_wait(w->pmem, sw_pmem_deadline_ms(1)), SW_PMEM_AGAIN);
}

static void rights__of_this_client(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    world_end(w);
    world_begin(w, "127.0.0.1:0-64K:r");
    connect_client(w);
    assert_int_equal(post_write(w, &tally, 0, 0), SW_PMEM_DENIED);
    assert_int_equal(sw_pmem_read(w->pmem, 0, w->local, 4096, w->mem, sw_pmem_deadline_ms(WAIT_MS)),
                     SW_PMEM_OK);
    assert_int_equal(
        sw_pmem_read(w->pmem, 65536, w->local, 1, w->mem, sw_pmem_deadline_ms(WAIT_MS)),
        SW_PMEM_DENIED);
    assert_int_equal(tally.sum, 0);
}

static void alone__wants_the_right_to_write(void **state)
{
    struct world *w = *state;
    struct sw_pmem_error error;
    world_end(w);
    world_begin(w, "*:*:r");
    w->options.port = w->port;
    w->options.alone = true;
    w->options.loss_timeout_ms = 0;
    assert_int_equal(sw_pmem_open(&w->options, &error, &w->pmem), SW_PMEM_REFUSED);
    w->pmem = NULL;
}

static void alone__ends_the_sessions_of_other_writers(void **state)
{
    struct world *w = *state;
    struct sw_pmem *other;
    struct sw_pmem_error error;
    connect_client(w);
    const uint64_t session = sw_pmem_session(w->pmem);
    struct sw_pmem_options options = w->options;
    options.alone = true;
    assert_int_equal(sw_pmem_open(&options, &error, &other), SW_PMEM_OK);
    const uint64_t deadline_ns = sw_pmem_deadline_ms(WAIT_MS);
    while (sw_pmem_session(w->pmem) == session && sw_pmem_deadline_ms(0) < deadline_ns) {
        sw_pmem_poll(w->pmem);
        poll(NULL, 0, 1);
    }
    assert_int_equal(sw_pmem_session(w->pmem), session + 1);
    sw_pmem_poll(other);
    assert_int_equal(sw_pmem_state_of(other), SW_PMEM_LIVE);
    sw_pmem_close(other);
}

/* ---- losses ---- */

static void loss__what_waits_is_posted_then(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    struct sw_pmem_info before, after;
    connect_client(w);
    sw_pmem_info_of(w->pmem, &before);
    world_end(w);
    await_state(w, SW_PMEM_LOST);
    memset(w->local, 7, 64);
    assert_int_equal(post_write(w, &tally, 0, 0), SW_PMEM_OK);
    assert_int_equal(post_write(w, &tally, 0, before.session), SW_PMEM_OK);
    world_begin(w, "*:*:rw");
    await(w, &tally, 2);
    assert_int_equal(tally.of[SW_PMEM_OK], 1);
    assert_int_equal(tally.of[SW_PMEM_NEW_SESSION], 1);
    assert_memory_equal((uint8_t *)w->region.memory.base + 4096, w->local, 64);
    sw_pmem_info_of(w->pmem, &after);
    assert_int_equal(after.session, before.session + 1);
    assert_memory_equal(after.identity, before.identity, sizeof(after.identity));
    assert_memory_not_equal(after.instance, before.instance, sizeof(after.instance));
    assert_int_equal(post_write(w, &tally, 0, before.session), SW_PMEM_NEW_SESSION);
}

/* Chains that are posted as fast as it goes while the server goes and comes. */
static void run_through_losses(struct world *w, uint32_t flags, struct tally *tally)
{
    uint32_t posted = 0;
    for (int turn = 0; turn < 4; turn++) {
        for (const uint32_t until = posted + MANY; posted < until;) {
            if (post_write(w, tally, flags, 0) == SW_PMEM_OK)
                posted++;
            else
                sw_pmem_poll(w->pmem);
        }
        world_end(w);
        sw_pmem_poll(w->pmem);
        world_begin(w, "*:*:rw");
    }
    await(w, tally, posted);
    assert_int_equal(tally->of[SW_PMEM_OK] + tally->of[SW_PMEM_MAYBE_DONE], posted);
}

static void loss__repeats_only_what_may_be(void **state)
{
    struct world *w = *state;
    struct tally once = {.sum = 0}, again = {.sum = 0};
    connect_client(w);
    run_through_losses(w, SW_PMEM_REPEAT, &again);
    assert_int_equal(again.of[SW_PMEM_MAYBE_DONE], 0);
    run_through_losses(w, 0, &once);
}

static void loss__given_up(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    w->options.loss_timeout_ms = 100;
    connect_client(w);
    world_end(w);
    await_state(w, SW_PMEM_LOST);
    assert_int_equal(post_write(w, &tally, SW_PMEM_REPEAT, 0), SW_PMEM_OK);
    await(w, &tally, 1);
    assert_int_equal(tally.of[SW_PMEM_NOT_DONE], 1);
    assert_int_equal(sw_pmem_state_of(w->pmem), SW_PMEM_DEAD);
    assert_int_equal(post_write(w, &tally, 0, 0), SW_PMEM_UNREACHABLE);
}

static void loss__another_region_in_its_place(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    connect_client(w);
    world_end(w);
    await_state(w, SW_PMEM_LOST);
    assert_int_equal(post_write(w, &tally, SW_PMEM_REPEAT, 0), SW_PMEM_OK);
    w->region.memory.identity[0]++;
    world_begin(w, "*:*:rw");
    await(w, &tally, 1);
    assert_int_equal(tally.of[SW_PMEM_NOT_DONE], 1);
    assert_int_equal(post_write(w, &tally, 0, 0), SW_PMEM_OTHER_REGION);
}

/* A domain of the device cannot be freed before all that was made in it. */
static uint32_t domains_in_use;

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    int (*const next)(struct ibv_pd *) = (int (*)(struct ibv_pd *))dlsym(RTLD_NEXT, __func__);
    const int rc = next(pd);
    domains_in_use += rc != 0;
    return rc;
}

/* The chain is not over, so its memory cannot be released before. */
static void close__leaves_no_memory_behind(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    struct sw_pmem_mem *others[2];
    connect_client(w);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sw_pmem_mem_register(w->pmem, w->local, LOCAL, &others[i]), SW_PMEM_OK);
    sw_pmem_mem_release(others[0]);
    world_end(w);
    await_state(w, SW_PMEM_LOST);
    assert_int_equal(post_write(w, &tally, 0, 0), SW_PMEM_OK);
    domains_in_use = 0;
    sw_pmem_close(w->pmem);
    w->pmem = NULL;
    w->mem = NULL;
    assert_int_equal(tally.of[SW_PMEM_NOT_DONE], 1);
    assert_int_equal(domains_in_use, 0);
}

static void close__gives_each_its_result(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    connect_client(w);
    world_end(w);
    await_state(w, SW_PMEM_LOST);
    for (int i = 0; i < 10; i++)
        assert_int_equal(post_write(w, &tally, 0, 0), SW_PMEM_OK);
    sw_pmem_mem_release(w->mem);
    sw_pmem_close(w->pmem);
    w->pmem = NULL;
    w->mem = NULL;
    assert_int_equal(tally.of[SW_PMEM_NOT_DONE], 10);
}

/* ---- waiting ---- */

struct runner {
    struct world *w;
    struct tally tally;
    uint32_t left;
};

static void run_on(void *arg, const struct sw_pmem_result *result)
{
    struct runner *runner = arg;
    const struct sw_pmem_op op = write_op(runner->w, 0, 8);
    const struct sw_pmem_chain chain = {.ops = &op, .count = 1, .done = run_on, .arg = runner};
    count_result(&runner->tally, result);
    if (runner->left && runner->left--)
        assert_int_equal(sw_pmem_post(runner->w->pmem, &chain), SW_PMEM_OK);
}

static void callbacks__may_post(void **state)
{
    struct world *w = *state;
    struct runner runner = {.w = w, .left = 1000};
    connect_client(w);
    const struct sw_pmem_op op = write_op(w, 0, 8);
    const struct sw_pmem_chain chain = {.ops = &op, .count = 1, .done = run_on, .arg = &runner};
    for (uint32_t i = 0; i < sw_pmem_depth(w->pmem); i++)
        assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_OK);
    assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_AGAIN);
    await(w, &runner.tally, 1000 + sw_pmem_depth(w->pmem));
    assert_int_equal(runner.tally.of[SW_PMEM_OK], runner.tally.sum);
}

static void descriptor__wakes(void **state)
{
    struct world *w = *state;
    struct tally tally = {.sum = 0};
    const uint64_t deadline_ns = sw_pmem_deadline_ms(WAIT_MS);
    connect_client(w);
    assert_int_equal(post_write(w, &tally, 0, 0), SW_PMEM_OK);
    while (!tally.sum && sw_pmem_deadline_ms(0) < deadline_ns) {
        struct pollfd fd = {.fd = sw_pmem_fd(w->pmem), .events = POLLIN};
        if (sw_pmem_arm(w->pmem))
            assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
        sw_pmem_poll(w->pmem);
    }
    assert_int_equal(tally.of[SW_PMEM_OK], 1);
}

static void results__are_taken_in_order(void **state)
{
    struct world *w = *state;
    struct sw_pmem_result results[8];
    connect_client(w);
    const struct sw_pmem_op op = write_op(w, 0, 8);
    for (uintptr_t i = 0; i < 5; i++) {
        const struct sw_pmem_chain chain = {.ops = &op, .count = 1, .arg = (void *)i};
        assert_int_equal(sw_pmem_post(w->pmem, &chain), SW_PMEM_OK);
    }
    uint32_t got = 0;
    while (got < 5 && sw_pmem_wait(w->pmem, sw_pmem_deadline_ms(WAIT_MS)) == SW_PMEM_OK)
        got += sw_pmem_take(w->pmem, results + got, 8 - got);
    assert_int_equal(got, 5);
    for (uintptr_t i = 0; i < 5; i++) {
        assert_ptr_equal(results[i].arg, (void *)i);
        assert_int_equal(results[i].status, SW_PMEM_OK);
    }
    assert_int_equal(sw_pmem_used(w->pmem), 0);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pieces__are_scattered_and_gathered),
        CASE(publish__is_one_word),
        CASE(arguments__are_checked),
        CASE(rights__of_this_client),
        CASE(alone__wants_the_right_to_write),
        CASE(alone__ends_the_sessions_of_other_writers),
        CASE(loss__what_waits_is_posted_then),
        CASE(loss__repeats_only_what_may_be),
        CASE(loss__given_up),
        CASE(loss__another_region_in_its_place),
        CASE(close__gives_each_its_result),
        CASE(close__leaves_no_memory_behind),
        CASE(callbacks__may_post),
        CASE(descriptor__wakes),
        CASE(results__are_taken_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
