/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/inbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/direct/process/block.h"
#include "link/direct/process/state.h"
#include "link_rig.h"

#define SLOT 1234u /* of a client that does not exist: there is no engine in this program */

struct taken {
    struct sw_inbox *inbox;
    uint32_t index;
    struct sw_block *block;
};

static struct taken take(void)
{
    struct taken taken = {0};
    assert_int_equal(sw_inbox_take(SLOT, &taken.inbox, &taken.index), 0);
    assert_true(taken.index < SW_INBOX_BLOCKS);
    taken.block = sw_inbox_block(taken.inbox->base, taken.index);
    return taken;
}

static void sw_inbox_take__one_inbox_for_each_client(void **state)
{
    (void)state;
    struct taken a = take(), b = take();
    struct sw_inbox *other;
    uint32_t index;
    assert_int_equal(sw_inbox_take(SLOT + 1, &other, &index), 0);
    assert_ptr_equal(a.inbox, b.inbox);
    assert_ptr_not_equal(a.inbox, other);
    assert_int_not_equal(a.index, b.index);
    assert_int_equal(a.inbox->users, 2);
    sw_inbox_give(other, index);
    sw_inbox_give(a.inbox, a.index);
    sw_inbox_give(b.inbox, b.index);
    assert_int_equal(a.inbox->users, 0);
}

/* A dead client's writes must never reach the next one. */
static void sw_inbox_take__not_from_a_dead_client(void **state)
{
    (void)state;
    struct taken a = take();
    atomic_store(&a.inbox->dead, true);
    struct taken b = take();
    assert_ptr_not_equal(a.inbox, b.inbox);
    sw_inbox_give(a.inbox, a.index);
    sw_inbox_give(b.inbox, b.index);
}

/* All but the count of accesses, which goes on. */
static void assert_wiped(const struct sw_block *block)
{
    static const uint8_t zero[SW_BLOCK_BYTES];
    const size_t first = sizeof(block->access_seq);
    assert_memory_equal((const uint8_t *)block + first, zero, SW_BLOCK_BYTES - first);
    assert_int_equal(atomic_load(&block->access_seq) & 1, 0);
}

/* A QP that was bound to the block and comes late never finds a count that it knows. */
static void sw_inbox_give__a_count_that_no_earlier_tenant_knows(void **state)
{
    (void)state;
    struct taken first = take();
    bool known[4096] = {false};
    uint32_t rounds = 0;
    for (uint32_t i = 0; rounds < 40; i++) {
        struct taken taken = take();
        uint32_t seq = atomic_load(&taken.block->access_seq);
        assert_true(seq != 0 && seq % 2 == 0 && seq < 4096);
        if (taken.index == (first.index + 1) % SW_INBOX_BLOCKS) {
            assert_false(known[seq]);
            for (uint32_t sections = rounds++ % 7 + 1; sections > 0; sections--) {
                known[seq] = true;
                seq += 2;
            }
            known[seq] = true;
            atomic_store(&taken.block->access_seq, seq);
        }
        sw_inbox_give(taken.inbox, taken.index);
        if (taken.index == (first.index + 1) % SW_INBOX_BLOCKS)
            assert_true(atomic_load(&taken.block->access_seq) > seq);
    }
    sw_inbox_give(first.inbox, first.index);
}

static void sw_inbox_give__zeroes_and_does_not_hand_out_again_at_once(void **state)
{
    (void)state;
    struct taken a = take();
    memset(a.block, 0xaa, sizeof(*a.block));
    atomic_store(&a.block->access_seq, 2);
    sw_inbox_give(a.inbox, a.index);
    assert_wiped(a.block);
    struct taken b = take();
    assert_int_not_equal(a.index, b.index);
    sw_inbox_give(b.inbox, b.index);
}

static void sw_inbox_give__wherever_it_was_written_to(void **state)
{
    (void)state;
    static const size_t places[] = {
        4, 4096, 8191, 8192, 100000, sizeof(struct sw_block) - 1, SW_BLOCK_BYTES - 1};
    struct taken first = take(); /* keeps the inbox */
    struct stat before, after;
    assert_int_equal(fstat(first.inbox->fd, &before), 0);
    for (size_t i = 0; i < 300 * sizeof(places) / sizeof(places[0]); i++) {
        struct taken taken = take();
        uint8_t *bytes = (uint8_t *)taken.block;
        assert_int_equal(bytes[places[i % 7]], 0);
        bytes[places[i % 7]] = 0xaa;
        atomic_store(&taken.block->access_seq, 2);
        sw_inbox_give(taken.inbox, taken.index);
        if (i % 97 == 0)
            assert_wiped(taken.block);
    }
    assert_int_equal(fstat(first.inbox->fd, &after), 0);
    assert_true((after.st_blocks - before.st_blocks) * 512 < 4 << 20); /* not all of it stays */
    sw_inbox_give(first.inbox, first.index);
}

static void sw_inbox_take__exhaustion(void **state)
{
    (void)state;
    struct sw_inbox *inbox = NULL;
    bool *seen = calloc(SW_INBOX_BLOCKS, sizeof(*seen));
    uint32_t index = 0;
    for (uint32_t i = 0; i < SW_INBOX_BLOCKS; i++) {
        assert_int_equal(sw_inbox_take(SLOT, &inbox, &index), 0);
        assert_false(seen[index]);
        seen[index] = true;
    }
    struct sw_inbox *none = NULL;
    assert_int_equal(sw_inbox_take(SLOT, &none, &index), -ENOMEM);
    assert_null(none);
    sw_inbox_give(inbox, 77);
    assert_int_equal(sw_inbox_take(SLOT, &inbox, &index), 0);
    assert_int_equal(index, 77);
    for (uint32_t i = 0; i < SW_INBOX_BLOCKS; i++)
        sw_inbox_give(inbox, i);
    free(seen);
}

static void sw_inbox_wait__nobody_inside(void **state)
{
    (void)state;
    struct taken a = take();
    for (uint32_t seq = 0; seq < 6; seq += 2) {
        atomic_store(&a.block->access_seq, seq);
        assert_true(sw_inbox_wait(a.inbox, a.index));
    }
    sw_inbox_give(a.inbox, a.index);
}

static void *leave_later(void *arg)
{
    struct sw_block *block = arg;
    usleep(30000);
    atomic_fetch_add(&block->access_seq, 1);
    return NULL;
}

static void sw_inbox_wait__until_the_section_ends(void **state)
{
    (void)state;
    struct taken a = take();
    pthread_t thread;
    uint64_t start_ns = sw_clock_ns();
    atomic_store(&a.block->access_seq, UINT32_MAX); /* odd; the end of it is 0 */
    assert_int_equal(pthread_create(&thread, NULL, leave_later, a.block), 0);
    assert_true(sw_inbox_wait(a.inbox, a.index));
    assert_int_equal(atomic_load(&a.block->access_seq), 0);
    assert_true(sw_clock_ns() - start_ns >= 29 * SW_NS_PER_MS);
    pthread_join(thread, NULL);
    sw_inbox_give(a.inbox, a.index);
}

/* Another section than the one that was seen: the seen one is over. */
static void *enter_again_later(void *arg)
{
    struct sw_block *block = arg;
    usleep(30000);
    atomic_fetch_add(&block->access_seq, 2);
    return NULL;
}

static void sw_inbox_wait__a_later_section_does_not_matter(void **state)
{
    (void)state;
    struct taken a = take();
    pthread_t thread;
    atomic_store(&a.block->access_seq, 5);
    assert_int_equal(pthread_create(&thread, NULL, enter_again_later, a.block), 0);
    assert_true(sw_inbox_wait(a.inbox, a.index));
    pthread_join(thread, NULL);
    atomic_store(&a.block->access_seq, 0);
    sw_inbox_give(a.inbox, a.index);
}

static void sw_inbox_wait__dead_client(void **state)
{
    (void)state;
    struct taken a = take();
    uint64_t start_ns = sw_clock_ns();
    atomic_store(&a.block->access_seq, 1);
    atomic_store(&a.inbox->dead, true);
    assert_true(sw_inbox_wait(a.inbox, a.index));
    assert_true(sw_clock_ns() - start_ns < 900 * SW_NS_PER_MS);
    sw_inbox_give(a.inbox, a.index);
}

/* Its death has not been seen yet by the engine, which may be the one who waits. */
static void sw_inbox_wait__client_that_hung_up(void **state)
{
    (void)state;
    struct taken a = take();
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    a.inbox->socket = sockets[0];
    close(sockets[1]);
    uint64_t start_ns = sw_clock_ns();
    atomic_store(&a.block->access_seq, 1);
    assert_true(sw_inbox_wait(a.inbox, a.index));
    assert_true(sw_clock_ns() - start_ns < 900 * SW_NS_PER_MS);
    close(sockets[0]);
    a.inbox->socket = -1;
    sw_inbox_give(a.inbox, a.index);
    atomic_store(&a.inbox->dead, true);
}

/* A stopped process is not waited for for long, and its block stays out of use. */
static void sw_inbox_give__stopped_client(void **state)
{
    (void)state;
    struct taken a = take();
    uint64_t start_ns = sw_clock_ns();
    atomic_store(&a.block->access_seq, 7);
    assert_false(sw_inbox_wait(a.inbox, a.index));
    uint64_t waited_ns = sw_clock_ns() - start_ns;
    assert_in_range(waited_ns, 900 * SW_NS_PER_MS, 10 * SW_NS_PER_S);
    const struct sw_inside inside = sw_inbox_give(a.inbox, a.index);
    assert_int_equal(a.inbox->users, 0);
    assert_true(sw_inbox_is_inside(&inside));
    atomic_store(&a.block->access_seq, 8);
    assert_false(sw_inbox_is_inside(&inside)); /* it has gone on */
    atomic_store(&a.block->access_seq, 7);
    for (uint32_t i = 0; i < SW_INBOX_BLOCKS - 1; i++) {
        struct taken other = take();
        assert_int_not_equal(other.index, a.index);
    }
    struct sw_inbox *none;
    uint32_t index;
    assert_int_equal(sw_inbox_take(SLOT, &none, &index), -ENOMEM);
    atomic_store(&a.inbox->dead, true);
}

static void *lock_of_the_engine(void *arg)
{
    uint64_t *waited_ns = arg;
    usleep(100000);
    uint64_t start_ns = sw_clock_ns();
    pthread_mutex_lock(&sw_direct.lock);
    *waited_ns = sw_clock_ns() - start_ns;
    pthread_mutex_unlock(&sw_direct.lock);
    return NULL;
}

/* However many blocks a stopped client has, it costs one wait, and nobody else waits with us. */
static void sw_inbox_wait_all__is_bounded_and_alone(void **state)
{
    (void)state;
    struct taken blocks[16];
    for (int i = 0; i < 16; i++) {
        blocks[i] = take();
        atomic_store(&blocks[i].block->access_seq, 1);
    }
    pthread_t thread;
    uint64_t lock_ns = 0, start_ns = sw_clock_ns();
    assert_int_equal(pthread_create(&thread, NULL, lock_of_the_engine, &lock_ns), 0);
    sw_inbox_wait_all();
    uint64_t waited_ns = sw_clock_ns() - start_ns;
    pthread_join(thread, NULL);
    assert_in_range(waited_ns, 900 * SW_NS_PER_MS, 10 * SW_NS_PER_S);
    assert_true(lock_ns < 800 * SW_NS_PER_MS);
    start_ns = sw_clock_ns(); /* and it is not waited for as long again, while it stays stopped */
    sw_inbox_wait_all();
    assert_in_range(sw_clock_ns() - start_ns, 2 * SW_NS_PER_MS, 800 * SW_NS_PER_MS);
    assert_true(atomic_load(&blocks[0].inbox->stopped));
    for (int i = 0; i < 16; i++) {
        atomic_store(&blocks[i].block->access_seq, 0);
        sw_inbox_give(blocks[i].inbox, blocks[i].index);
    }
    start_ns = sw_clock_ns();
    sw_inbox_wait_all();
    assert_true(sw_clock_ns() - start_ns < 900 * SW_NS_PER_MS);
    assert_false(atomic_load(&blocks[0].inbox->stopped));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_inbox_take__one_inbox_for_each_client),
        cmocka_unit_test(sw_inbox_take__not_from_a_dead_client),
        cmocka_unit_test(sw_inbox_take__exhaustion),
        cmocka_unit_test(sw_inbox_give__zeroes_and_does_not_hand_out_again_at_once),
        cmocka_unit_test(sw_inbox_give__a_count_that_no_earlier_tenant_knows),
        cmocka_unit_test(sw_inbox_give__wherever_it_was_written_to),
        cmocka_unit_test(sw_inbox_give__stopped_client),
        cmocka_unit_test(sw_inbox_wait__nobody_inside),
        cmocka_unit_test(sw_inbox_wait__until_the_section_ends),
        cmocka_unit_test(sw_inbox_wait__a_later_section_does_not_matter),
        cmocka_unit_test(sw_inbox_wait__dead_client),
        cmocka_unit_test(sw_inbox_wait__client_that_hung_up),
        cmocka_unit_test(sw_inbox_wait_all__is_bounded_and_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
