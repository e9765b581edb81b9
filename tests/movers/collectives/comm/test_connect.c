// SPDX-License-Identifier: BSD-2-Clause
// Connections that are made when they are needed, and that end while they are made.
#include "ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/comm/comm.h"
#include "collectives/comm/door.h"
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

// Rank 1 has no descriptors for a connection.
static void call_one_without_room(struct rank *rank)
{
    struct sw_coll *coll = rank->coll;
    const int epoll_fd = coll->epoll_fd;
    struct pollfd call = {.fd = rank->rank ? coll->events->fd : -1, .events = POLLIN};
    if (rank->rank) {
        need(poll(&call, 1, PATIENCE_MS) == 1);
        coll->epoll_fd = -1;
        coll_door_events(coll);
        coll->epoll_fd = epoll_fd;
        need(coll->failure.is_set && !coll->strangers);
    } else {
        coll_peer_want(&coll->peers[1]);
        while (!coll->failure.is_set)
            coll_take_events(coll, 10);
        need(strstr(coll->failure.error.text, "rank 1 has no room"));
    }
    need(coll->failure.error.status == SW_COLL_NO_MEMORY);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, 2);
}

static void peer__ends_while_it_connects(void **state)
{
    (void)state;
    run_two_of_many(end_before_it_is_up);
    run_two_of_many(call_and_close);
    run_two_of_many(call_one_that_has_failed);
    run_two_of_many(call_one_without_room);
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

// ---- at the address where ranks meet ----

static char meeting[32];

// What is said while the ranks meet, though the program has named no log.
static void meet_without_log(struct rank *rank)
{
    static const char garbage[64] = "what is this?";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char answer[256];
    rank->options.exchange = NULL;
    rank->options.meet = meeting;
    rank->options.log = NULL;
    if (!rank->rank) { // its words come into memory
        need(dup2(memfd_create("words", 0), STDERR_FILENO) == STDERR_FILENO);
        close(fd);
        return;
    }
    address.sin_port = htons((uint16_t)strtoul(strchr(meeting, ':') + 1, NULL, 10));
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)))
        nap_ms(1);
    need(send(fd, garbage, sizeof(garbage), 0) == sizeof(garbage));
    while (recv(fd, answer, sizeof(answer), 0) > 0)
        continue;
    close(fd);
}

static void read_own_words(struct rank *rank)
{
    char words[1024] = "";
    if (rank->rank)
        return;
    const ssize_t bytes = pread(STDERR_FILENO, words, sizeof(words) - 1, 0);
    snprintf(rank->result->log, sizeof(rank->result->log), "%.*s", (int)bytes, words);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 1);
}

// A port that was free a moment ago.
static void choose_meeting(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_false(bind(fd, (struct sockaddr *)&address, bytes));
    assert_false(getsockname(fd, (struct sockaddr *)&address, &bytes));
    close(fd);
    snprintf(meeting, sizeof(meeting), "127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
}

static void log__of_a_meeting_goes_to_standard_error(void **state)
{
    struct ranks ranks;
    char words[256];
    (void)state;
    choose_meeting();
    ranks_start(&ranks, 2, read_own_words, meet_without_log);
    flag_await(ranks.shared, READY, 1);
    memcpy(words, ranks.shared->results[0].log, sizeof(words));
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
    assert_non_null(strstr(words, "sidewire-coll: refused 127.0.0.1"));
}

static void open__a_rank_beyond_the_last(void **state)
{
    struct sw_coll_options options;
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *coll;
    (void)state;
    sw_coll_options_init(&options);
    options.rank = options.size = 2;
    assert_int_equal(sw_coll_open(&options, &error, &coll), SW_COLL_INVALID);
    assert_string_equal(error.text, "rank 2 of 2: ranks are numbered from 0 to 1");
    options.rank = options.size = 0;
    assert_int_equal(sw_coll_open(&options, &error, &coll), SW_COLL_INVALID);
    assert_string_equal(error.text, "rank 0 of 0: there may be 1 to 1024 ranks");
}

static void be_no_rank(struct rank *rank)
{
    (void)rank;
    need(false);
}

static void give_orders(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    rank->options.order = rank->rank == 1 ? SW_COLL_ORDER_ANY : SW_COLL_ORDER_TREE;
    need(sw_coll_open(&rank->options, &error, &rank->coll) == SW_COLL_MISMATCH);
    need(strstr(error.text, "rank 1 wants order any of sums, and rank 0 tree"));
    exit(0);
}

static void open__orders_of_sums_that_differ(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, be_no_rank, give_orders);
    ranks_end(&ranks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open__a_rank_beyond_the_last),
        cmocka_unit_test(peer__ends_while_it_connects),
        cmocka_unit_test(peer__is_up_when_it_rings),
        cmocka_unit_test(log__of_a_meeting_goes_to_standard_error),
        cmocka_unit_test(open__orders_of_sums_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
