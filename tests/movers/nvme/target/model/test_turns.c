/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hosts that want more memory than there is, for long: each gets its part, whatever the others ask
 * for. Each has so many writes with the target at any time. Their data comes in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/target/model/memory.h"
#include "test_model_host.h"

enum { HOSTS_MAX = 6, MOST = 1 << 20, ROUNDS = 4000, POOL_BYTES = 4 << 20 };
#define SECOND_NS 1000000000ull

struct crowd_host {
    struct nvt_queue admin, io;
    uint16_t blocks; /* of 4 KiB, of each write */
    int served;
};

static struct crowd_host hosts[HOSTS_MAX];
static int host_count;
static uint32_t dice;

static int setup_crowd(void **state)
{
    const struct nvt_backend_setup backing = {.size_bytes = 8 << 20};
    const struct nvt_config_namespace config = {.nsid = 1};
    struct nvt_backend *backend;
    char error[128];
    setup(state);
    target.threads[0].now_ns = 0;
    nvt_namespace_remove(subsystem->namespaces[1]);
    assert_int_equal(nvt_backend_find("null")->open(&backing, &backend, error, sizeof(error)), 0);
    assert_int_equal(nvt_namespace_add(subsystem, &config, backend, NULL), 0);
    host_count = 0;
    dice = 1;
    return 0;
}

static int teardown_crowd(void **state)
{
    for (int i = 0; i < host_count; i++) {
        struct list_node *node;
        while ((node = list_first(&hosts[i].io.with_host)))
            nvt_request_fetched(LIST_MEMBER(node, struct nvt_request, wait), false);
        assert_true(nvt_queue_gone(&hosts[i].io));
        assert_true(nvt_queue_gone(&hosts[i].admin));
    }
    assert_int_equal(target.threads[0].pool.free_bytes, POOL_BYTES);
    assert_int_equal(target.threads[0].pool.kept, -1);
    return teardown(state);
}

static void write_more(struct crowd_host *one)
{
    const struct nvf_sqe sqe = transfer(nvme_cmd_write, 0, one->blocks, 0);
    assert_int_equal(say(&one->io, &sqe), WAITS);
}

/* A host that keeps so many writes under way. */
static struct crowd_host *add_host(uint16_t blocks, int depth, const char *address)
{
    struct crowd_host *one = &hosts[host_count++];
    holds = false;
    *one = (struct crowd_host){.blocks = blocks};
    make_queue_from(&one->admin, 0, address);
    make_queue_from(&one->io, 1, address);
    begin_as(&one->admin, &one->io, (uint8_t)host_count);
    holds = true;
    while (depth--)
        write_more(one);
    return one;
}

static void add_hosts(int count, uint16_t blocks, int depth, bool is_one_address)
{
    for (int i = 0; i < count; i++) {
        char address[32];
        snprintf(address, sizeof(address), "192.0.2.%d", is_one_address ? 9 : host_count + 10);
        add_host(blocks, depth, address);
    }
}

static uint32_t roll(uint32_t sides)
{
    dice = dice * 1664525 + 1013904223;
    return (dice >> 8) % sides;
}

/* Any of those whose data is to come, but for those of `stopped`. */
static struct nvt_request *choose_request(const struct crowd_host *stopped)
{
    struct nvt_request *chosen = NULL;
    uint32_t count = 0;
    for (int i = 0; i < host_count; i++) {
        const struct list *list = &hosts[i].io.with_host;
        for (struct list_node *node = list_first(list); node && &hosts[i] != stopped;
             node = list_after(list, node))
            if (roll(++count) == 0)
                chosen = LIST_MEMBER(node, struct nvt_request, wait);
    }
    return chosen;
}

/* Data comes, and its host writes more: before others are looked at, or later. */
static void run_rounds(int rounds, const struct crowd_host *stopped)
{
    for (int i = 0; i < rounds; i++) {
        struct nvt_request *request = choose_request(stopped);
        assert_non_null(request);
        struct crowd_host *one = LIST_MEMBER(request->queue, struct crowd_host, io);
        const bool is_quick = roll(2);
        nvt_request_fetched(request, true);
        one->served++;
        if (is_quick)
            write_more(one);
        nvt_thread_feed(&target.threads[0], true);
        if (!is_quick)
            write_more(one);
        nvt_thread_feed(&target.threads[0], true);
    }
}

static void check_all_got_alike(void)
{
    int least = ROUNDS, most = 0;
    for (int i = 0; i < host_count; i++) {
        if (hosts[i].served < least)
            least = hosts[i].served;
        if (hosts[i].served > most)
            most = hosts[i].served;
    }
    if (most > 2 * least)
        fail_msg("one host had %d served, another %d", most, least);
}

static void turns__hosts_share_what_is_too_little_for_all(void **state)
{
    (void)state;
    add_hosts(6, MOST / 4096, 4, false);
    run_rounds(ROUNDS, NULL);
    check_all_got_alike();
}

/* They have one piece at a time: the other one is for other addresses. */
static void turns__hosts_of_one_address_share_its_part(void **state)
{
    (void)state;
    struct mover_pool *pool = &target.threads[0].pool;
    uint8_t *rest[2];
    for (int i = 0; i < 2; i++)
        rest[i] = mover_pool_take(pool, MOST);
    add_hosts(2, MOST / 4096, 4, true);
    run_rounds(ROUNDS, NULL);
    check_all_got_alike();
    for (int i = 0; i < 2; i++)
        mover_pool_give(pool, rest[i]);
}

/* One piece for all: an address with many controllers has no more turns than one with a single one.
 */
static void turns__go_by_address(void **state)
{
    (void)state;
    enum { OF_ONE_ADDRESS = 5, TURNS = 40 };
    struct mover_pool *pool = &target.threads[0].pool;
    uint8_t *rest[3];
    for (int i = 0; i < 3; i++)
        rest[i] = mover_pool_take(pool, MOST);
    add_hosts(OF_ONE_ADDRESS, MOST / 4096, 4, true);
    const struct crowd_host *one = add_host(MOST / 4096, 4, "192.0.2.1");
    run_rounds(TURNS, NULL);
    assert_in_range(one->served, TURNS / 2 - 2, TURNS / 2 + 2);
    host_count--;
    check_all_got_alike(); /* those at the one address */
    host_count++;
    for (int i = 0; i < 3; i++)
        mover_pool_give(pool, rest[i]);
}

/* Pieces of the others lie all over the pool, and what becomes free between them is small. */
static void turns__a_large_request_comes_beside_small_ones(void **state)
{
    (void)state;
    add_hosts(3, 32, 24, false);
    const struct crowd_host *large = add_host(MOST / 4096, 4, "192.0.2.1");
    run_rounds(ROUNDS, NULL);
    if (large->served < ROUNDS / 100)
        fail_msg("the large request was served %d times of %d", large->served, ROUNDS);
}

/* The others at its address hold too much for another request. */
static void turns__a_large_request_comes_beside_small_ones_of_its_address(void **state)
{
    (void)state;
    add_hosts(4, 32, 24, true);
    const struct crowd_host *large = add_host(MOST / 4096, 4, "192.0.2.9");
    run_rounds(ROUNDS, NULL);
    if (large->served < ROUNDS / 100)
        fail_msg("the large request was served %d times of %d", large->served, ROUNDS);
}

/* Its data does not come, and it has a piece where the large request's would be. */
static void turns__a_host_that_is_stopped_holds_no_large_request_up(void **state)
{
    (void)state;
    const struct crowd_host *stopped = add_host(1, 1, "192.0.2.1");
    struct mover_pool *pool = &target.threads[0].pool;
    const struct list_node *node = list_first(&stopped->io.with_host);
    const uint8_t *piece = LIST_MEMBER(node, struct nvt_request, wait)->data;
    const int32_t chunk = (int32_t)((piece - pool->region.base) / MOST);
    add_hosts(3, 32, 24, false);
    pool->last_kept = chunk - 1; /* it is the next one that is kept */
    const struct crowd_host *large = add_host(MOST / 4096, 1, "192.0.2.2");
    run_rounds(ROUNDS, stopped);
    assert_int_equal(pool->kept, chunk);
    assert_int_equal(large->served, 0);
    assert_true(hosts[1].served > ROUNDS / 4); /* the others go on meanwhile */
    target.threads[0].now_ns = 2 * SECOND_NS;
    run_rounds(ROUNDS, stopped);
    assert_true(large->served > 0);
}

static void turns__one_that_goes_leaves_what_was_kept_for_it(void **state)
{
    (void)state;
    add_hosts(3, 32, 24, false);
    struct crowd_host *large = add_host(MOST / 4096, 1, "192.0.2.1");
    run_rounds(1, NULL);
    assert_true(target.threads[0].pool.kept >= 0);
    assert_true(nvt_queue_gone(&large->io));
    assert_int_equal(target.threads[0].pool.kept, -1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_crowd, teardown_crowd)
    const struct CMUnitTest tests[] = {
        CASE(turns__hosts_share_what_is_too_little_for_all),
        CASE(turns__hosts_of_one_address_share_its_part),
        CASE(turns__go_by_address),
        CASE(turns__a_large_request_comes_beside_small_ones),
        CASE(turns__a_large_request_comes_beside_small_ones_of_its_address),
        CASE(turns__a_host_that_is_stopped_holds_no_large_request_up),
        CASE(turns__one_that_goes_leaves_what_was_kept_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
