/* SPDX-License-Identifier: BSD-2-Clause */
/* What one visitor may take of an agent, beside others: places, notices, time. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "world.h"

enum { PLACES = 16, RESERVED = PLACES / 8, BLOCK = 1 << 20, BLOCKS = 32, TURN_BLOCKS = 4 };

static struct sw_xfer_agent *open_agent(const char *address)
{
    struct sw_xfer_agent_options options;
    struct sw_xfer_agent *agent;
    struct sw_xfer_error error;
    sw_xfer_agent_options_init(&options);
    options.address = address;
    options.visitors_max = options.notices_max = PLACES;
    options.drain_timeout_ms = options.connect_timeout_ms = PATIENCE_MS;
    if (sw_xfer_agent_open(&options, &error, &agent))
        fail_msg("%s", error.text);
    return agent;
}

/* A server, and two peers of it at different addresses. */
struct shares {
    struct sw_xfer_agent *server, *one, *other;
    uint8_t card[CARD_MAX];
    size_t card_bytes;
};

static void open_shares(struct shares *s)
{
    s->server = open_agent("127.0.0.1");
    s->one = open_agent("127.0.0.2");
    s->other = open_agent("127.0.0.3");
    must(sw_xfer_card_make(s->server, NULL, 0, s->card, sizeof(s->card), &s->card_bytes));
}

static void close_shares(struct shares *s)
{
    sw_xfer_agent_close(s->one);
    sw_xfer_agent_close(s->other);
    sw_xfer_agent_close(s->server);
}

static void poll_all(struct shares *s)
{
    sw_xfer_poll(s->server);
    sw_xfer_poll(s->one);
    sw_xfer_poll(s->other);
}

/* NULL: it is refused. */
static struct sw_xfer_peer *connect_from(struct shares *s, struct sw_xfer_agent *agent)
{
    struct sw_xfer_error error;
    struct sw_xfer_peer *peer;
    if (sw_xfer_connect(agent, s->card, s->card_bytes, &error, &peer))
        fail_msg("%s", error.text);
    const uint64_t deadline = sw_xfer_deadline_ms(PATIENCE_MS);
    while (sw_xfer_peer_state_of(peer) == SW_XFER_CONNECTING && sw_xfer_deadline_ms(0) < deadline)
        poll_all(s);
    if (sw_xfer_peer_state_of(peer) == SW_XFER_LIVE)
        return peer;
    sw_xfer_peer_error(peer, &error);
    assert_int_equal(error.status, SW_XFER_REFUSED);
    return NULL;
}

static void places__the_last_ones_are_for_other_addresses(void **state)
{
    (void)state;
    struct shares s;
    open_shares(&s);
    for (int i = 0; i < PLACES - RESERVED; i++)
        assert_non_null(connect_from(&s, s.one));
    assert_null(connect_from(&s, s.one));
    for (int i = 0; i < RESERVED; i++)
        assert_non_null(connect_from(&s, s.other));
    assert_null(connect_from(&s, s.other));
    close_shares(&s);
}

/* Agents of the host itself, as many as the caller has said. */
static void places__a_host_has_all_of_its_own(void **state)
{
    (void)state;
    struct shares s;
    open_shares(&s);
    sw_xfer_agent_close(s.one);
    s.one = open_agent(NULL);
    for (int i = 0; i < PLACES; i++)
        assert_non_null(connect_from(&s, s.one));
    assert_null(connect_from(&s, s.one));
    close_shares(&s);
}

static struct sw_xfer_transfer *notify(struct sw_xfer_peer *peer, const char *text)
{
    struct sw_xfer_error error;
    struct sw_xfer_transfer *transfer;
    if (sw_xfer_prepare(peer, SW_XFER_NOTIFY, NULL, NULL, &error, &transfer))
        fail_msg("%s", error.text);
    must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){
                                    .notice = text, .notice_bytes = (uint32_t)strlen(text)}));
    return transfer;
}

static void poll_often(struct shares *s)
{
    for (int i = 0; i < 2000; i++)
        poll_all(s);
}

static void hear(struct shares *s, struct sw_xfer_peer *peer)
{
    const struct sw_xfer_transfer *heard = notify(peer, "help");
    const uint64_t deadline = sw_xfer_deadline_ms(PATIENCE_MS);
    while (sw_xfer_state_of(heard) == SW_XFER_POSTED && sw_xfer_deadline_ms(0) < deadline)
        poll_all(s);
    assert_int_equal(sw_xfer_state_of(heard), SW_XFER_DONE);
}

/* One says more than anybody takes; what the other says comes all the same. */
static void notices__the_last_places_are_for_other_visitors(void **state)
{
    (void)state;
    static struct sw_xfer_notice notice;
    struct shares s;
    int taken = 0;
    open_shares(&s);
    struct sw_xfer_peer *loud = connect_from(&s, s.one), *quiet = connect_from(&s, s.other);
    for (int i = 0; i < 2 * PLACES; i++)
        notify(loud, "more");
    poll_often(&s);
    hear(&s, quiet);
    must(sw_xfer_notice_match(s.server, 0, "help", 4, &notice));
    for (int i = 0; taken < 2 * PLACES && i < 100000; i++) { /* nothing is lost */
        taken += !sw_xfer_notice_match(s.server, 0, "more", 4, &notice);
        poll_all(&s);
    }
    assert_int_equal(taken, 2 * PLACES);
    close_shares(&s);
}

/* Sessions of one address share what it has, and what one leaves behind is still its own. */
static void notices__are_counted_by_address(void **state)
{
    (void)state;
    static struct sw_xfer_notice notice;
    struct shares s;
    open_shares(&s);
    for (int round = 0; round < 4; round++) {
        struct sw_xfer_peer *loud = connect_from(&s, s.one);
        struct sw_xfer_transfer *all[PLACES];
        assert_non_null(loud);
        for (int i = 0; i < PLACES; i++)
            all[i] = notify(loud, "more");
        poll_often(&s);
        for (int i = 0; i < PLACES && round % 2; i++) { /* every second one leaves */
            sw_xfer_cancel(all[i]);
            sw_xfer_release(all[i]);
        }
        if (round % 2)
            must(sw_xfer_peer_release(loud));
        poll_often(&s);
    }
    struct sw_xfer_peer *quiet = connect_from(&s, s.other);
    for (int i = 0; i < RESERVED; i++)
        hear(&s, quiet);
    for (int i = 0; i < RESERVED; i++)
        must(sw_xfer_notice_match(s.server, 0, "help", 4, &notice));
    close_shares(&s);
}

static uint8_t *map_blocks(struct sw_xfer_agent *agent, struct sw_xfer_memory **memory)
{
    struct sw_xfer_error error;
    const size_t bytes = (size_t)BLOCK * BLOCKS;
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(data != MAP_FAILED);
    memset(data, 7, bytes);
    if (sw_xfer_memory_host(agent, data, bytes, &error, memory))
        fail_msg("%s", error.text);
    return data;
}

/* Sums of 32 MiB are asked for at once. The agent makes them in turns, so that a poll is short. */
static void sums__are_made_in_turns(void **state)
{
    (void)state;
    const struct sw_xfer_extent row = {.bytes = BLOCK, .stride = BLOCK, .count = BLOCKS};
    struct sw_xfer_memory *mine, *its;
    struct sw_xfer_blocks *local, *remote;
    struct sw_xfer_transfer *transfer;
    struct sw_xfer_lease *lease;
    struct sw_xfer_error error;
    struct shares s;
    int turns = 0;
    open_shares(&s);
    uint8_t *data[] = {map_blocks(s.one, &mine), map_blocks(s.server, &its)};
    must(sw_xfer_lease_grant(
        its, &(struct sw_xfer_lease_options){.name = "all", .rights = SW_XFER_MAY_READ}, &error,
        &lease));
    must(sw_xfer_card_make(s.server, &lease, 1, s.card, sizeof(s.card), &s.card_bytes));
    struct sw_xfer_peer *peer = connect_from(&s, s.one);
    must(sw_xfer_blocks_local(s.one, &mine, 1, &row, 1, &local));
    must(sw_xfer_blocks_remote(peer, s.card, s.card_bytes, &row, 1, &remote));
    must(sw_xfer_prepare_summed(peer, SW_XFER_READ, local, remote, &error, &transfer));
    must(sw_xfer_post(transfer, &(struct sw_xfer_post_options){.count = 0}));
    struct sw_xfer_info info = {.bytes_done = 0};
    const uint64_t deadline = sw_xfer_deadline_ms(PATIENCE_MS);
    while (info.bytes_done < (uint64_t)BLOCK * BLOCKS && sw_xfer_deadline_ms(0) < deadline) {
        sw_xfer_poll(s.one);
        sw_xfer_info_of(transfer, &info);
    }
    while (sw_xfer_state_of(transfer) == SW_XFER_POSTED && sw_xfer_deadline_ms(0) < deadline) {
        for (int i = 0; i < 200; i++)
            sw_xfer_poll(s.one);
        sw_xfer_poll(s.server);
        turns++;
    }
    assert_int_equal(sw_xfer_state_of(transfer), SW_XFER_DONE);
    assert_true(turns >= BLOCKS / TURN_BLOCKS);
    close_shares(&s);
    for (int i = 0; i < 2; i++)
        munmap(data[i], (size_t)BLOCK * BLOCKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places__the_last_ones_are_for_other_addresses),
        cmocka_unit_test(places__a_host_has_all_of_its_own),
        cmocka_unit_test(notices__are_counted_by_address),
        cmocka_unit_test(notices__the_last_places_are_for_other_visitors),
        cmocka_unit_test(sums__are_made_in_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
