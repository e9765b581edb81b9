// SPDX-License-Identifier: BSD-2-Clause
// Connections that are made when they are needed, and that end while they are made.
#include "ranks.h"

#include <string.h>

#include "collectives/comm/comm.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/peer.h"
#include "collectives/comm/send.h"
#include "collectives/comm/wait.h"

enum { READY, GO };

// A communicator of so many ranks that each connects when it needs to. Two of them are here.
static int exchange_two_cards(void *context, const void *card, size_t bytes, void *cards,
                              uint64_t deadline_ns)
{
    struct rank *rank = context;
    memcpy(rank->shared->cards[rank->rank], card, bytes);
    flag_raise(rank->shared, GO);
    flag_await(rank->shared, GO, 2);
    (void)deadline_ns;
    for (uint32_t i = 0; i < COLL_MESH_MAX + 1; i++) {
        struct coll_card one;
        need(coll_card_get(rank->shared->cards[i == 1], &one) == COLL_CARD_FINE);
        one.rank = i;
        coll_card_put((uint8_t *)cards + i * bytes, &one);
    }
    return 0;
}

static void be_two_of_many(struct rank *rank)
{
    rank->options.size = COLL_MESH_MAX + 1;
    rank->options.exchange = exchange_two_cards;
}

static void run_two_of_many(rank_main *run)
{
    struct ranks ranks;
    ranks_start(&ranks, 2, run, be_two_of_many);
    ranks_end(&ranks, 0);
}

// Rank 1 sees the end of a connection before it looks whether that was accepted.
static void end_before_it_is_up(struct rank *rank)
{
    struct sw_coll *coll = rank->coll;
    struct coll_peer *other = &coll->peers[!rank->rank];
    if (!rank->rank) {
        coll_peer_want(other);
        while (other->state != COLL_PEER_UP)
            coll_take_events(coll, 10);
        sw_coll_close(coll);
        rank->coll = NULL;
        flag_raise(rank->shared, READY);
        return;
    }
    while (other->state != COLL_PEER_ASKED)
        coll_take_events(coll, 10);
    flag_await(rank->shared, READY, 1);
    for (int i = 0; i < 200 && other->state != COLL_PEER_ENDED; i++) {
        coll_send_poll(coll);
        nap_ms(1);
    }
    coll_take_events(coll, 10);
    coll_take_events(coll, 10);
    need(!coll->failure.is_set && other->state == COLL_PEER_ENDED);
}

// Rank 0 has closed when rank 1 looks at its call.
static void call_and_close(struct rank *rank)
{
    struct sw_coll *coll = rank->coll;
    struct coll_peer *other = &coll->peers[!rank->rank];
    if (rank->rank) {
        flag_await(rank->shared, READY, 1);
        for (int i = 0; i < 20; i++)
            coll_take_events(coll, 10);
        need(!coll->failure.is_set);
        return;
    }
    coll_peer_want(other);
    while (!other->connection.id->qp)
        coll_take_events(coll, 10);
    sw_coll_close(coll);
    rank->coll = NULL;
    flag_raise(rank->shared, READY);
}

// Rank 1 has failed, and has not closed yet.
static void call_one_that_has_failed(struct rank *rank)
{
    struct sw_coll *coll = rank->coll;
    if (rank->rank) {
        coll_fail(coll, SW_COLL_SYSTEM, "a failure");
        while (!__atomic_load_n(&rank->shared->flags[READY], __ATOMIC_SEQ_CST))
            coll_take_events(coll, 10);
        return;
    }
    coll_peer_want(&coll->peers[1]);
    while (!coll->failure.is_set) {
        coll_take_events(coll, 10);
        coll_failure_look(coll);
    }
    need(coll->failure.is_agreeing && coll->peers[1].state == COLL_PEER_ENDED);
    flag_raise(rank->shared, READY);
}

static void peer__ends_while_it_connects(void **state)
{
    (void)state;
    run_two_of_many(end_before_it_is_up);
    run_two_of_many(call_and_close);
    run_two_of_many(call_one_that_has_failed);
}

// Rank 1 has not heard that the connection is up: the last word of its making was lost.
static void be_told_by_a_doorbell(struct rank *rank)
{
    static const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};
    struct sw_coll_error error = {.text = ""};
    struct coll_peer *other = &rank->coll->peers[1 - rank->rank];
    need(other->state == COLL_PEER_UP);
    if (rank->rank) {
        other->state = COLL_PEER_ASKED;
        flag_raise(rank->shared, READY);
    } else {
        flag_await(rank->shared, READY, 1);
        sw_coll_revoke(rank->coll);
    }
    need(sw_coll_run(rank->coll, &barrier, sw_coll_deadline_ms(100), &error) == SW_COLL_REVOKED);
}

static void peer__is_up_when_it_rings(void **state)
{
    (void)state;
    ranks_run(2, be_told_by_a_doorbell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peer__ends_while_it_connects),
        cmocka_unit_test(peer__is_up_when_it_rings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
