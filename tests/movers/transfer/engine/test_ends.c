/* SPDX-License-Identifier: BSD-2-Clause */
/* How transfers end: cancelled, by their deadline, in a child of fork(), by sums, in turns. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/lane.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/visitor.h"
#include "world.h"

static void cancel__is_quick_and_quiet(void **state)
{
    struct world *w = *state;
    describe_row(w, 1 << 16, CACHE >> 16);
    struct sw_xfer_transfer *transfer = prepare(w, SW_XFER_WRITE);
    for (int round = 0; round < 30; round++) {
        memset(w->here.data, round + 1, CACHE);
        must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}));
        for (int i = rand() % 4; i > 0; i--)
            sw_xfer_poll(w->here.agent);
        sw_xfer_cancel(transfer);
        const enum sw_xfer_state ended = end_of(w, transfer);
        assert_true(ended == SW_XFER_WAS_CANCELLED || ended == SW_XFER_DONE);
        const struct sw_xfer_info info = info_of(transfer);
        assert_true(info.is_drained);
        for (uint32_t i = 0; i < info.blocks_done; i++)
            assert_memory_equal(w->there.data + (i << 16), w->here.data + (i << 16), 1 << 16);
        for (uint32_t i = 0; i < info.blocks; i++) {
            const enum sw_xfer_block_state block = sw_xfer_block_of(transfer, i);
            assert_int_equal(block == SW_XFER_BLOCK_IN_PLACE, i < info.blocks_done);
            if (block == SW_XFER_BLOCK_WAITS)
                assert_int_not_equal(w->there.data[i << 16], round + 1);
        }
    }
    assert_int_equal(sw_xfer_peer_state_of(w->peer), SW_XFER_LIVE);
    release(w, transfer);
}

static void deadline__ends_one_transfer(void **state)
{
    struct world *w = *state;
    struct sw_xfer_transfer *late = prepare_notice(w), *other;
    static struct sw_xfer_notice notice;
    for (int i = 0; i < 4; i++) { /* fills the room of the other side */
        post_notice(late, "x");
        assert_int_equal(end_of(w, late), SW_XFER_DONE);
    }
    must(sw_xfer_post(late, &(struct sw_xfer_post_options){
                                .notice = "y", .deadline_ns = sw_xfer_deadline_ms(20)}));
    assert_int_equal(sw_xfer_wait(late, sw_xfer_deadline_ms(PATIENCE_MS)), SW_XFER_DEADLINE);
    assert_int_equal(sw_xfer_peer_state_of(w->peer), SW_XFER_LIVE);
    for (int i = 0; i < 4; i++)
        must(sw_xfer_notice_take(w->there.agent, &notice));
    describe_row(w, 4096, 2);
    other = prepare(w, SW_XFER_READ);
    must(sw_xfer_post(other, &(struct sw_xfer_post_options){.notice = "z", .notice_bytes = 1}));
    assert_int_equal(end_of(w, other), SW_XFER_DONE);
    release(w, other);
}

static void fork__the_child_has_no_part_in_it(void **state)
{
    struct world *w = *state;
    describe_row(w, 1 << 14, CACHE >> 14);
    struct sw_xfer_transfer *transfer = prepare(w, SW_XFER_WRITE);
    for (int round = 0; round < 6; round++) {
        memset(w->here.data, 100 + round, CACHE);
        must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.notice = "f"}));
        const pid_t child = fork();
        if (!child) {
            if (sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}) !=
                SW_XFER_FORKED)
                _exit(1);
            if (sw_xfer_wait(transfer, SW_XFER_NEVER) != SW_XFER_FORKED)
                _exit(2);
            memset(w->here.data, 0, CACHE);
            if (round % 2) {
                sw_xfer_agent_close(w->here.agent);
                sw_xfer_agent_close(w->there.agent);
            }
            _exit(0);
        }
        int status;
        static struct sw_xfer_notice notice;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(end_of(w, transfer), SW_XFER_DONE);
        assert_memory_equal(w->there.data, w->here.data, CACHE);
        must(sw_xfer_notice_take(w->there.agent, &notice));
    }
    release(w, transfer);
}

/* ibv_fork_init() does so with what is registered, on hardware. */
static void advise_registered(struct world *w, int advice)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct xfe_scratch *scratch = w->peer->lanes[0].scratch;
    struct xfe_visitor *visitor = w->there.agent->visitors[0];
    assert_non_null(scratch);
    assert_non_null(visitor);
    assert_int_equal(madvise(scratch, (sizeof(*scratch) + page - 1) / page * page, advice), 0);
    assert_int_equal(madvise(visitor, (sizeof(*visitor) + page - 1) / page * page, advice), 0);
}

static void fork__the_child_closes_what_has_no_pages_there(void **state)
{
    struct world *w = *state;
    int status;
    advise_registered(w, MADV_DONTFORK);
    const pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL); /* not that of cmocka, which would go on with the tests */
        sw_xfer_agent_close(w->here.agent);
        sw_xfer_agent_close(w->there.agent);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    advise_registered(w, MADV_DOFORK);
    assert_int_equal(status, 0);
}

/* ---- sums ---- */

static struct sw_xfer_transfer *prepare_summed(struct world *w, enum sw_xfer_op op)
{
    struct sw_xfer_error error;
    struct sw_xfer_transfer *transfer;
    if (sw_xfer_prepare_summed(w->peer, op, w->local, w->remote, &error, &transfer))
        fail_msg("%s", error.text);
    return transfer;
}

/* All bytes are in place, and the other side was not polled: it has not said its sums. */
static void move_bytes(struct world *w, struct sw_xfer_transfer *transfer)
{
    must(sw_xfer_post(transfer,
                      &(struct sw_xfer_post_options){.notice = "all is well", .notice_bytes = 11}));
    const uint64_t deadline = sw_xfer_deadline_ms(PATIENCE_MS);
    while (info_of(transfer).bytes_done < info_of(transfer).bytes &&
           sw_xfer_deadline_ms(0) < deadline)
        sw_xfer_poll(w->here.agent);
    assert_int_equal(sw_xfer_state_of(transfer), SW_XFER_POSTED);
    assert_int_equal(info_of(transfer).bytes_done, info_of(transfer).bytes);
}

static void check_corrupt(struct world *w, enum sw_xfer_op op, uint64_t bytes, uint32_t blocks)
{
    static struct sw_xfer_notice notice;
    const uint32_t which = blocks / 3;
    /* What was moved, where it went. */
    uint8_t *byte =
        (op == SW_XFER_WRITE ? w->there.data : w->here.data) + which * bytes + bytes - 1;
    describe_row(w, bytes, blocks);
    struct sw_xfer_transfer *summed = prepare_summed(w, op), *bare = prepare(w, op);
    memset(op == SW_XFER_WRITE ? w->here.data : w->there.data, 0x17, CACHE);
    move_bytes(w, summed);
    *byte ^= 4;
    assert_int_equal(end_of(w, summed), SW_XFER_FAILED);
    assert_int_equal(info_of(summed).status, SW_XFER_CORRUPT);
    assert_int_equal(info_of(summed).blocks_done, blocks - 1);
    assert_true(info_of(summed).is_drained);
    for (uint32_t i = 0; i < blocks; i++)
        assert_int_equal(sw_xfer_block_of(summed, i),
                         i == which ? SW_XFER_BLOCK_CORRUPT : SW_XFER_BLOCK_IN_PLACE);
    assert_int_equal(sw_xfer_notice_take(w->there.agent, &notice), SW_XFER_AGAIN);
    move_bytes(w, bare); /* without sums nobody sees it */
    *byte ^= 4;
    assert_int_equal(end_of(w, bare), SW_XFER_DONE);
    must(sw_xfer_notice_take(w->there.agent, &notice));
    move_bytes(w, summed); /* again, and it is well */
    assert_int_equal(sw_xfer_block_of(summed, which), SW_XFER_BLOCK_MAYBE);
    assert_int_equal(end_of(w, summed), SW_XFER_DONE);
    assert_int_equal(info_of(summed).blocks_done, blocks);
    must(sw_xfer_notice_take(w->there.agent, &notice));
    assert_memory_equal(w->there.data, w->here.data, bytes * blocks);
    sw_xfer_release(bare);
    release(w, summed);
}

static void sums__a_block_that_changed_is_told(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 2; i++) {
        const enum sw_xfer_op op = i ? SW_XFER_READ : SW_XFER_WRITE;
        check_corrupt(w, op, 4096, 300);         /* several messages of sums, and joined requests */
        check_corrupt(w, op, (1 << 20) + 77, 3); /* blocks of two requests each */
    }
}

static void sums__need_the_right_to_read(void **state)
{
    struct world *w = *state;
    struct sw_xfer_transfer *transfer;
    describe_row(w, 4096, 8);
    transfer = prepare_summed(w, SW_XFER_WRITE);
    move_bytes(w, transfer);
    must(sw_xfer_lease_revoke(w->lease)); /* what it was for is not summed either */
    assert_int_equal(end_of(w, transfer), SW_XFER_FAILED);
    assert_int_equal(info_of(transfer).status, SW_XFER_DENIED);
    assert_int_equal(sw_xfer_block_of(transfer, 0), SW_XFER_BLOCK_MAYBE);
    assert_int_equal(sw_xfer_peer_state_of(w->peer), SW_XFER_LIVE);
    release(w, transfer);
    w->lease = grant(w, (struct sw_xfer_lease_options){.rights = SW_XFER_MAY_WRITE});
    make_card(w);
    describe_row(w, 4096, 8);
    assert_int_equal(
        sw_xfer_prepare_summed(w->peer, SW_XFER_WRITE, w->local, w->remote, NULL, &transfer),
        SW_XFER_DENIED);
    assert_int_equal(sw_xfer_prepare_summed(w->peer, SW_XFER_NOTIFY, NULL, NULL, NULL, &transfer),
                     SW_XFER_INVALID);
}

/* ---- turns ---- */

/* Counted, not timed: how much of a large one is moved when a small one behind it is done. */
static void post__a_large_one_holds_up_no_small_one(void **state)
{
    struct world *w = *state;
    enum { DEPTH = 256, SLICE = 16, ROWS = 2000 };
    const struct sw_xfer_extent rows = {.bytes = 1024, .stride = 2048, .count = ROWS};
    const struct sw_xfer_extent small_row = {.bytes = 64, .stride = 64, .count = 1};
    describe(w, &rows, 1, &rows, 1);
    struct sw_xfer_transfer *large = prepare(w, SW_XFER_WRITE);
    struct sw_xfer_blocks *local = w->local, *remote = w->remote;
    describe(w, &small_row, 1, &small_row, 1);
    struct sw_xfer_transfer *small = prepare(w, SW_XFER_WRITE);
    must(sw_xfer_post(large, &(struct sw_xfer_post_options){.notice = "large"}));
    must(sw_xfer_post(small, &(struct sw_xfer_post_options){.count = 0}));
    assert_int_equal(info_of(large).requests, ROWS);
    assert_int_equal(end_of(w, small), SW_XFER_DONE);
    assert_int_equal(sw_xfer_state_of(large), SW_XFER_POSTED);
    /* What the device had, and a slice; what it had behind that may have been polled with it. */
    assert_true(info_of(large).blocks_done <= DEPTH + SLICE + DEPTH);
    assert_int_equal(end_of(w, large), SW_XFER_DONE);
    release(w, small);
    w->local = local;
    w->remote = remote;
    release(w, large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(cancel__is_quick_and_quiet),
        CASE(deadline__ends_one_transfer),
        CASE(fork__the_child_has_no_part_in_it),
        CASE(fork__the_child_closes_what_has_no_pages_there),
        CASE(sums__a_block_that_changed_is_told),
        CASE(sums__need_the_right_to_read),
        CASE(post__a_large_one_holds_up_no_small_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
