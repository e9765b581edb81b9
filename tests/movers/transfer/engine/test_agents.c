/* SPDX-License-Identifier: BSD-2-Clause */
/* Agents: data in random layouts, notices, leases, cards and instances, kinds of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "world.h"

enum { BLOCKS_MAX = 600 };

/* ---- blocks and transfers ---- */

/* Disjoint blocks of the given lengths, in a random order, with gaps or without. */
static uint32_t draw_layout(const uint64_t *lengths, uint32_t count, struct sw_xfer_extent *extents)
{
    uint64_t offset = 0;
    uint32_t order[BLOCKS_MAX];
    const bool has_gaps = rand() % 2, is_shuffled = rand() % 3;
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count; is_shuffled && i > 1; i--) {
        const uint32_t other = (uint32_t)rand() % i, kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (has_gaps)
            offset += (uint64_t)rand() % 64;
        extents[order[i]] =
            (struct sw_xfer_extent){.offset = offset, .bytes = lengths[order[i]], .count = 1};
        offset += lengths[order[i]];
    }
    return count;
}

static void post__random_layouts_arrive(void **state)
{
    struct world *w = *state;
    static uint64_t lengths[BLOCKS_MAX];
    static struct sw_xfer_extent local[BLOCKS_MAX], remote[BLOCKS_MAX];
    for (int round = 0; round < 40; round++) {
        const uint32_t count = 1 + (uint32_t)rand() % (BLOCKS_MAX - 1);
        const enum sw_xfer_op op = rand() % 2 ? SW_XFER_WRITE : SW_XFER_READ;
        for (uint32_t i = 0; i < count; i++)
            lengths[i] = 1 + (uint64_t)rand() % 6000;
        draw_layout(lengths, count, local);
        draw_layout(lengths, count, remote);
        describe(w, local, count, remote, count);
        struct sw_xfer_transfer *transfer = prepare(w, op);
        must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}));
        assert_int_equal(end_of(w, transfer), SW_XFER_DONE);
        for (uint32_t i = 0; i < count; i++)
            if (op == SW_XFER_WRITE)
                memcpy(w->there.model + remote[i].offset, w->here.model + local[i].offset,
                       lengths[i]);
            else
                memcpy(w->here.model + local[i].offset, w->there.model + remote[i].offset,
                       lengths[i]);
        check_both(w);
        const struct sw_xfer_info info = info_of(transfer);
        assert_int_equal(info.blocks_done, count);
        assert_true(info.is_drained);
        assert_int_equal(sw_xfer_block_of(transfer, count - 1), SW_XFER_BLOCK_IN_PLACE);
        release(w, transfer);
    }
}

static void post__by_index_moves_those(void **state)
{
    struct world *w = *state;
    static const uint32_t from[] = {7, 1, 3}, to[] = {0, 9, 2}, wrong[] = {10};
    const struct sw_xfer_extent ten = {.bytes = 5000, .stride = 8192, .count = 10};
    const struct sw_xfer_extent five = {.bytes = 5000, .stride = 8192, .count = 5};
    describe(w, &ten, 1, &ten, 1);
    struct sw_xfer_transfer *transfer = prepare(w, SW_XFER_WRITE);
    for (int round = 0; round < 2; round++) {
        must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){
                                        .local_index = from, .remote_index = to, .count = 3}));
        assert_int_equal(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}),
                         SW_XFER_BUSY);
        assert_int_equal(end_of(w, transfer), SW_XFER_DONE);
    }
    for (int i = 0; i < 3; i++)
        memcpy(w->there.model + to[i] * 8192, w->here.model + from[i] * 8192, 5000);
    check_both(w);
    assert_int_equal(
        sw_xfer_post(transfer, &(struct sw_xfer_post_options){.local_index = wrong, .count = 1}),
        SW_XFER_INVALID);
    must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}));
    assert_int_equal(end_of(w, transfer), SW_XFER_DONE);
    assert_int_equal(info_of(transfer).blocks, 10);
    release(w, transfer);
    describe(w, &ten, 1, &five, 1); /* of different counts: by index only */
    transfer = prepare(w, SW_XFER_READ);
    assert_int_equal(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}),
                     SW_XFER_INVALID);
    must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.local_index = from, .count = 3}));
    assert_int_equal(end_of(w, transfer), SW_XFER_DONE);
    assert_memory_equal(w->here.data + from[2] * 8192, w->there.data + 2 * 8192, 5000);
    release(w, transfer);
}

static void blocks__outside_are_refused(void **state)
{
    struct world *w = *state;
    const struct sw_xfer_extent wrong[] = {
        {.bytes = CACHE + 1, .count = 1},
        {.offset = CACHE, .bytes = 1, .count = 1},
        {.bytes = 4096, .stride = 4096, .count = CACHE / 4096 + 1},
        {.bytes = 1, .stride = UINT64_MAX / 2, .count = 4},
        {.part = 1, .bytes = 1, .count = 1},
        {.bytes = 0, .count = 1},
        {.bytes = 1, .count = 0},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(
            sw_xfer_blocks_local(w->here.agent, &w->here.memory, 1, &wrong[i], 1, &w->local),
            SW_XFER_INVALID);
        assert_int_equal(
            sw_xfer_blocks_remote(w->peer, w->card, w->card_bytes, &wrong[i], 1, &w->remote),
            SW_XFER_INVALID);
    }
}

static void ended__each_once(void **state)
{
    struct world *w = *state;
    struct sw_xfer_transfer *transfers[4], *got[8];
    describe_row(w, 4096, 8);
    for (int i = 0; i < 4; i++) {
        transfers[i] = prepare(w, SW_XFER_WRITE);
        must(sw_xfer_post(transfers[i], &(struct sw_xfer_post_options){.arg = &transfers[i]}));
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(end_of(w, transfers[i]), SW_XFER_DONE);
    assert_int_equal(sw_xfer_ended(w->here.agent, got, 8), 4);
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(got[i], transfers[i]);
        assert_ptr_equal(info_of(got[i]).arg, &transfers[i]);
    }
    assert_int_equal(sw_xfer_ended(w->here.agent, got, 8), 0);
    for (int i = 0; i < 3; i++)
        sw_xfer_release(transfers[i]);
    assert_int_equal(sw_xfer_blocks_release(w->local), SW_XFER_BUSY);
    release(w, transfers[3]);
}

/* ---- notices ---- */

static void notice__comes_behind_the_data(void **state)
{
    struct world *w = *state;
    static struct sw_xfer_notice notice;
    describe_row(w, 1 << 16, CACHE >> 16);
    struct sw_xfer_transfer *transfer = prepare(w, SW_XFER_WRITE);
    for (int round = 0; round < 20; round++) {
        memset(w->here.data, round, CACHE);
        post_notice(transfer, "all is there");
        while (sw_xfer_notice_take(w->there.agent, &notice) == SW_XFER_AGAIN)
            poll_both(w);
        assert_memory_equal(w->there.data, w->here.data, CACHE);
        assert_int_equal(notice.bytes, 12);
        assert_memory_equal(notice.data, "all is there", 12);
        assert_true(sw_xfer_visitor_is_live(w->there.agent, notice.visitor));
        assert_int_equal(end_of(w, transfer), SW_XFER_DONE);
    }
    release(w, transfer);
}

static void notice__match_is_exact_and_room_is_bounded(void **state)
{
    struct world *w = *state;
    static struct sw_xfer_notice notice;
    static const char *const texts[] = {"req", "req-1", "req-11", "", "5", "6"};
    struct sw_xfer_transfer *transfers[6];
    for (int i = 0; i < 6; i++) {
        transfers[i] = prepare_notice(w);
        post_notice(transfers[i], texts[i]);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(end_of(w, transfers[i]), SW_XFER_DONE);
    for (int i = 0; i < 2000; i++) /* the agent holds four */
        poll_both(w);
    assert_int_equal(sw_xfer_state_of(transfers[4]), SW_XFER_POSTED);
    assert_int_equal(sw_xfer_notice_match(w->there.agent, 0, "re", 2, &notice), SW_XFER_AGAIN);
    must(sw_xfer_notice_match(w->there.agent, 0, "req-1", 5, &notice));
    must(sw_xfer_notice_match(w->there.agent, notice.visitor, "", 0, &notice));
    assert_int_equal(notice.bytes, 0);
    assert_int_equal(sw_xfer_notice_match(w->there.agent, notice.visitor + 1, "req", 3, &notice),
                     SW_XFER_AGAIN);
    for (int i = 4; i < 6; i++)
        assert_int_equal(end_of(w, transfers[i]), SW_XFER_DONE);
    static const char *const left[] = {"req", "req-11", "5", "6"};
    for (int i = 0; i < 4; i++) {
        must(sw_xfer_notice_take(w->there.agent, &notice));
        assert_memory_equal(notice.data, left[i], strlen(left[i]));
    }
    assert_int_equal(sw_xfer_notice_take(w->there.agent, &notice), SW_XFER_AGAIN);
}

/* ---- leases ---- */

/* A transfer after the end of its lease is denied; another of the same peer goes on. */
static void check_denied(struct world *w, struct sw_xfer_lease *ended, bool is_window)
{
    uint8_t card[CARD_MAX];
    size_t bytes;
    struct sw_xfer_blocks *other;
    struct sw_xfer_transfer *bad, *good;
    struct sw_xfer_error error;
    const struct sw_xfer_extent row = {.bytes = 4096, .stride = 8192, .count = 40};
    assert_int_equal(sw_xfer_lease_is_window(ended), is_window);
    must(sw_xfer_card_make(w->there.agent, &ended, 1, card, sizeof(card), &bytes));
    must(sw_xfer_blocks_remote(w->peer, card, bytes, &row, 1, &other));
    describe(w, &row, 1, &row, 1);
    if (sw_xfer_prepare(w->peer, SW_XFER_WRITE, w->local, other, &error, &bad))
        fail_msg("%s", error.text);
    good = prepare(w, SW_XFER_WRITE);
    must(sw_xfer_post(bad, &(struct sw_xfer_post_options){.count = 0}));
    assert_int_equal(end_of(w, bad), SW_XFER_DONE);
    for (int i = 0; i < 40; i++)
        memcpy(w->there.model + i * 8192, w->here.model + i * 8192, 4096);
    must(sw_xfer_lease_revoke(ended));
    must(sw_xfer_lease_revoke(ended));
    assert_false(sw_xfer_lease_is_granted(ended));
    check_both(w);
    memset(w->here.data, 0x5a, CACHE);
    memset(w->here.model, 0x5a, CACHE);
    must(sw_xfer_post(bad, &(struct sw_xfer_post_options){.count = 0}));
    must(sw_xfer_post(good, &(struct sw_xfer_post_options){.notice = "good", .notice_bytes = 4}));
    assert_int_equal(end_of(w, bad), SW_XFER_FAILED);
    assert_int_equal(info_of(bad).status, SW_XFER_DENIED);
    assert_int_equal(info_of(bad).blocks_done, 0);
    assert_true(info_of(bad).is_drained);
    assert_int_equal(end_of(w, good), SW_XFER_DONE);
    for (int i = 0; i < 40; i++)
        memcpy(w->there.model + i * 8192, w->here.model + i * 8192, 4096);
    check_both(w);
    assert_int_equal(sw_xfer_peer_state_of(w->peer), SW_XFER_LIVE);
    sw_xfer_release(bad);
    must(sw_xfer_blocks_release(other));
    release(w, good);
}

static void lease__revoked_is_denied_and_others_go_on(void **state)
{
    struct world *w = *state;
    check_denied(w, grant(w, (struct sw_xfer_lease_options){.rights = SW_XFER_MAY_WRITE}), false);
}

static void lease__window_of_a_visitor(void **state)
{
    struct world *w = *state;
    check_denied(w,
                 grant(w, (struct sw_xfer_lease_options){.rights = SW_XFER_MAY_WRITE,
                                                         .visitor = visitor_of(w)}),
                 true);
    assert_int_equal(
        sw_xfer_lease_grant(w->there.memory,
                            &(struct sw_xfer_lease_options){.rights = 1, .visitor = 999}, NULL,
                            &w->lease),
        SW_XFER_PEER_GONE);
}

static void wait_for_rails(struct world *w, struct sw_xfer_rail rails[2], uint32_t connections)
{
    const uint64_t deadline = sw_xfer_deadline_ms(PATIENCE_MS);
    do {
        poll_both(w);
        assert_int_equal(sw_xfer_peer_rails(w->peer, rails, 2), 2);
    } while ((!rails[0].is_up || !rails[1].is_up ||
              rails[0].connections + rails[1].connections < connections) &&
             sw_xfer_deadline_ms(0) < deadline);
    assert_int_equal(rails[0].connections + rails[1].connections, connections);
}

static void lease__windows_of_two_rails(void **state)
{
    struct world *w = *state;
    struct sw_xfer_rail rails[2];
    wait_for_rails(w, rails, 2);
    check_denied(w,
                 grant(w, (struct sw_xfer_lease_options){.rights = SW_XFER_MAY_WRITE,
                                                         .visitor = visitor_of(w)}),
                 !is_iwarp());
}

/* One that is revoked ends a lane, and the other goes on by the same key when that is there anew.
 */
static void lease__windows_outlive_a_lane(void **state)
{
    struct world *w = *state;
    struct sw_xfer_rail rails[2];
    struct sw_xfer_blocks *other;
    struct sw_xfer_transfer *bad, *good;
    const struct sw_xfer_extent row = {.bytes = 65536, .stride = 65536, .count = 64};
    const struct sw_xfer_lease_options options = {.rights = SW_XFER_MAY_WRITE,
                                                  .visitor = visitor_of(w)};
    uint8_t card[CARD_MAX];
    size_t bytes;
    wait_for_rails(w, rails, 2);
    w->lease = grant(w, options);
    make_card(w);
    struct sw_xfer_lease *ended = grant(w, options);
    must(sw_xfer_card_make(w->there.agent, &ended, 1, card, sizeof(card), &bytes));
    must(sw_xfer_blocks_remote(w->peer, card, bytes, &row, 1, &other));
    describe(w, &row, 1, &row, 1);
    must(sw_xfer_prepare(w->peer, SW_XFER_WRITE, w->local, other, NULL, &bad));
    good = prepare(w, SW_XFER_WRITE);
    must(sw_xfer_lease_revoke(ended));
    const uint32_t first = 0;
    must(sw_xfer_post(bad, &(struct sw_xfer_post_options){
                               .local_index = &first, .remote_index = &first, .count = 1}));
    assert_int_equal(end_of(w, bad), SW_XFER_FAILED);
    assert_int_equal(info_of(bad).status, SW_XFER_DENIED);
    check_both(w);
    wait_for_rails(w, rails, 3);
    assert_int_equal(sw_xfer_lease_is_window(w->lease), !is_iwarp());
    must(sw_xfer_post(good, &(struct sw_xfer_post_options){.notice = "good", .notice_bytes = 4}));
    assert_int_equal(end_of(w, good), SW_XFER_DONE);
    memcpy(w->there.model, w->here.model, CACHE);
    check_both(w);
    sw_xfer_peer_rails(w->peer, rails, 2);
    assert_true(rails[0].bytes && rails[1].bytes);
    sw_xfer_release(bad);
    must(sw_xfer_blocks_release(other));
    release(w, good);
}

static void lease__ends_by_its_deadline(void **state)
{
    struct world *w = *state;
    struct sw_xfer_lease *lease =
        grant(w, (struct sw_xfer_lease_options){.rights = SW_XFER_MAY_READ,
                                                .deadline_ns = sw_xfer_deadline_ms(30)});
    assert_true(sw_xfer_lease_is_granted(lease));
    while (sw_xfer_lease_is_granted(lease))
        sw_xfer_run_once(w->there.agent, SW_XFER_NEVER); /* its timer wakes it */
    sw_xfer_lease_release(lease);
    assert_int_equal(sw_xfer_memory_release(w->there.memory), SW_XFER_BUSY);
    sw_xfer_lease_release(w->lease);
    must(sw_xfer_memory_release(w->there.memory));
}

static void prepare__rights_are_looked_at(void **state)
{
    struct world *w = *state;
    struct sw_xfer_transfer *transfer;
    w->lease = grant(w, (struct sw_xfer_lease_options){.rights = SW_XFER_MAY_READ});
    make_card(w);
    describe_row(w, 4096, 2);
    assert_int_equal(sw_xfer_prepare(w->peer, SW_XFER_WRITE, w->local, w->remote, NULL, &transfer),
                     SW_XFER_DENIED);
    must(sw_xfer_prepare(w->peer, SW_XFER_READ, w->local, w->remote, NULL, &transfer));
}

/* ---- cards and instances ---- */

static void connect__a_new_instance_is_not_the_old(void **state)
{
    struct world *w = *state;
    struct sw_xfer_card card;
    struct sw_xfer_error error;
    struct sw_xfer_agent_options options;
    char port[8];
    describe_row(w, 4096, 2);
    struct sw_xfer_transfer *transfer = prepare(w, SW_XFER_WRITE);
    must(sw_xfer_card_read(w->card, w->card_bytes, &card));
    assert_int_equal(sscanf(card.addresses[0], "127.0.0.1 port %7s", port), 1);
    sw_xfer_agent_close(w->there.agent);
    sw_xfer_agent_options_init(&options);
    options.address = "127.0.0.1";
    options.port = port;
    if (sw_xfer_agent_open(&options, &error, &w->there.agent))
        fail_msg("%s", error.text);
    while (sw_xfer_peer_state_of(w->peer) == SW_XFER_LIVE)
        poll_both(w);
    assert_int_equal(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}),
                     SW_XFER_PEER_GONE);
    struct sw_xfer_peer *peer = connect_to(w);
    assert_int_equal(settle(w, peer), SW_XFER_GONE);
    sw_xfer_peer_error(peer, &error);
    assert_int_equal(error.status, SW_XFER_INSTANCE);
    must(sw_xfer_peer_release(peer));
    assert_int_equal(sw_xfer_peer_release(w->peer), SW_XFER_BUSY);
    check_both(w);
}

static void connect__layouts_are_compared(void **state)
{
    struct world *w = *state;
    struct sw_xfer_agent_options options;
    struct sw_xfer_peer *peer;
    sw_xfer_agent_close(w->there.agent);
    sw_xfer_agent_options_init(&options);
    options.address = "127.0.0.1";
    options.layout = sw_xfer_layout("block 16, heads 8", 17);
    must(sw_xfer_agent_open(&options, NULL, &w->there.agent));
    must(sw_xfer_card_make(w->there.agent, NULL, 0, w->card, sizeof(w->card), &w->card_bytes));
    sw_xfer_agent_close(w->here.agent);
    options.address = NULL;
    options.layout = sw_xfer_layout("block 32, heads 8", 17);
    must(sw_xfer_agent_open(&options, NULL, &w->here.agent));
    assert_int_equal(sw_xfer_connect(w->here.agent, w->card, w->card_bytes, NULL, &peer),
                     SW_XFER_LAYOUT);
    w->card[20] ^= 1;
    assert_int_equal(sw_xfer_connect(w->here.agent, w->card, w->card_bytes, NULL, &peer),
                     SW_XFER_CARD);
}

/* ---- kinds of memory ---- */

static void memory__files_and_what_is_not_supported(void **state)
{
    struct world *w = *state;
    struct sw_xfer_memory *memory;
    struct sw_xfer_transfer *transfer;
    struct sw_xfer_error error = {.status = SW_XFER_OK};
    const struct sw_xfer_extent row = {.bytes = 4096, .stride = 4096, .count = 16};
    const int fd = memfd_create("kv", MFD_CLOEXEC);
    static uint8_t page[4096];
    assert_int_equal(ftruncate(fd, 1 << 16), 0);
    must(sw_xfer_memory_file(w->here.agent, fd, 0, 0, true, &error, &memory));
    assert_int_equal(sw_xfer_memory_bytes(memory), 1 << 16);
    assert_int_equal(sw_xfer_memory_kind_of(memory), SW_XFER_FILE);
    must(sw_xfer_blocks_local(w->here.agent, &memory, 1, &row, 1, &w->local));
    must(sw_xfer_blocks_remote(w->peer, w->card, w->card_bytes, &row, 1, &w->remote));
    transfer = prepare(w, SW_XFER_READ);
    must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}));
    assert_int_equal(end_of(w, transfer), SW_XFER_DONE);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(pread(fd, page, 4096, i * 4096), 4096);
        assert_memory_equal(page, w->there.data + i * 4096, 4096);
    }
    assert_int_equal(sw_xfer_memory_file(w->here.agent, fd, 0, 1 << 17, true, &error, &memory),
                     SW_XFER_INVALID);
    assert_int_equal(sw_xfer_memory_dmabuf(w->here.agent, -1, 0, 4096, &error, &memory),
                     SW_XFER_INVALID);
    if (access("/usr/lib/x86_64-linux-gnu/libcuda.so.1", F_OK))
        assert_int_equal(sw_xfer_memory_cuda(w->here.agent, 0x10000, 4096, &error, &memory),
                         SW_XFER_NOT_SUPPORTED);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(post__random_layouts_arrive),
        CASE(post__by_index_moves_those),
        CASE(blocks__outside_are_refused),
        CASE(ended__each_once),
        CASE(notice__comes_behind_the_data),
        CASE(notice__match_is_exact_and_room_is_bounded),
        CASE(lease__revoked_is_denied_and_others_go_on),
        CASE(lease__window_of_a_visitor),
        cmocka_unit_test_setup_teardown(lease__windows_of_two_rails, set_up_rails, tear_down),
        cmocka_unit_test_setup_teardown(lease__windows_outlive_a_lane, set_up_rails, tear_down),
        CASE(lease__ends_by_its_deadline),
        CASE(prepare__rights_are_looked_at),
        CASE(connect__a_new_instance_is_not_the_old),
        CASE(connect__layouts_are_compared),
        CASE(memory__files_and_what_is_not_supported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
