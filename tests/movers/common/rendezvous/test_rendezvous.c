/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranks as threads of this process, and some that are played by hand, byte by byte. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../preload/namespace.h"
#include "by_hand.h"
#include "common/rendezvous/message.h"
#include "common/rendezvous/rendezvous.h"
#include "common/rendezvous/socket.h"
#include "common/time/clock.h"

enum { SIZE_MAX_HERE = 33 };

struct rank {
    struct mover_rendezvous how;
    uint32_t patience_ms;
    uint64_t card, cards[SIZE_MAX_HERE];
    int code;
    char error[256];
    atomic_int notes;
    char note[300];
    pthread_t thread;
};

static struct rank ranks[SIZE_MAX_HERE];
static char at[40];

/* A free port of this host. */
static void choose_port(const char *format)
{
    struct addrinfo *address;
    struct sockaddr_storage name;
    socklen_t len = sizeof(name);
    char host[64], port[8];
    assert_int_equal(getaddrinfo(strchr(format, '[') ? "::1" : "127.0.0.1", NULL, NULL, &address),
                     0);
    const int fd = mover_meet_listen(address);
    freeaddrinfo(address);
    assert_true(fd >= 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
    getnameinfo((struct sockaddr *)&name, len, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
    close(fd);
    snprintf(at, sizeof(at), "%s:%s", format, port);
}

static void keep_note(void *context, const char *line)
{
    struct rank *rank = context;
    snprintf(rank->note, sizeof(rank->note), "%s", line);
    rank->notes++;
}

static void *run_rank(void *context)
{
    struct rank *rank = context;
    const uint64_t deadline_ns = mover_now_ns() + rank->patience_ms * NS_PER_MS;
    rank->code = mover_rendezvous(&rank->how, &rank->card, CARD_BYTES, rank->cards, deadline_ns,
                                  rank->error, sizeof(rank->error));
    return NULL;
}

static struct rank *prepare_rank(uint32_t place, uint32_t rank, uint32_t size)
{
    struct rank *one = &ranks[place];
    memset(one, 0, sizeof(*one));
    one->how = (struct mover_rendezvous){
        .rank = rank, .size = size, .at = at, .log = keep_note, .log_context = one};
    one->patience_ms = PATIENCE_MS;
    one->card = 1000 + rank;
    return one;
}

static void start_rank(struct rank *rank)
{
    assert_int_equal(pthread_create(&rank->thread, NULL, run_rank, rank), 0);
}

static void start_ranks(uint32_t first, uint32_t end, uint32_t size)
{
    for (uint32_t i = first; i < end; i++)
        start_rank(prepare_rank(i, i, size));
}

static void join_ranks(uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void expect_cards(uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        assert_string_equal(ranks[i].error, "");
        assert_int_equal(ranks[i].code, 0);
        for (uint32_t k = 0; k < size; k++)
            assert_int_equal(ranks[i].cards[k], 1000 + k);
    }
}

/* Each of them got this code, and a text with these words. */
static void expect_failure(uint32_t first, uint32_t end, int code, const char *words)
{
    for (uint32_t i = first; i < end; i++) {
        if (!strstr(ranks[i].error, words))
            fail_msg("rank %u: %s", i, ranks[i].error);
        assert_int_equal(ranks[i].code, code);
    }
}

/* ---- all are there ---- */

static void all__get_the_cards_of_all(void **state)
{
    static const uint32_t sizes[] = {1, 2, 9, SIZE_MAX_HERE};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        choose_port(i % 2 ? "[::1]" : "127.0.0.1");
        start_ranks(0, sizes[i], sizes[i]);
        join_ranks(0, sizes[i]);
        expect_cards(sizes[i]);
    }
}

static void rank_0__may_come_last(void **state)
{
    (void)state;
    choose_port("localhost");
    for (uint32_t i = 1; i < 4; i++) {
        prepare_rank(i, i, 4)->how.note_ms = 1;
        start_rank(&ranks[i]);
    }
    while (!ranks[1].notes || !ranks[2].notes || !ranks[3].notes)
        usleep(1000);
    start_ranks(0, 1, 4);
    join_ranks(0, 4);
    assert_non_null(strstr(ranks[1].note, "rank 1 waits for rank 0"));
    expect_cards(4);
}

static void same_port__serves_one_job_after_another(void **state)
{
    (void)state;
    choose_port("127.0.0.1");
    for (int i = 0; i < 20; i++) {
        start_ranks(0, 3, 3);
        join_ranks(0, 3);
        expect_cards(3);
    }
}

/* Fewer than the places that strangers may have. */
static void descriptors__may_be_few(void **state)
{
    const struct rlimit few = {48, 48};
    int how = -1;
    (void)state;
    choose_port("127.0.0.1");
    const pid_t child = fork();
    if (!child) {
        const bool is_limited = !setrlimit(RLIMIT_NOFILE, &few);
        for (uint32_t i = 0; i < 3; i++)
            prepare_rank(i, i, 3)->patience_ms = 5000;
        for (uint32_t i = 0; i < 3; i++)
            start_rank(&ranks[i]);
        join_ranks(0, 3);
        _exit(!is_limited || ranks[0].code || ranks[1].code || ranks[2].code);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

/* All but rank 0 are played by one thread: so many processes would be a storm. */
static void ranks__may_be_1024(void **state)
{
    enum { ALL = MOVER_RENDEZVOUS_RANKS_MAX };
    static int fds[ALL];
    static uint8_t cards[ALL * CARD_BYTES];
    uint64_t *own = calloc(ALL, sizeof(*own));
    struct rlimit limit;
    (void)state;
    choose_port("127.0.0.1");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < 2 * ALL + 100) {
        free(own);
        skip();
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    struct rank *first = prepare_rank(0, 0, ALL);
    first->card = 1000;
    char error[200] = "";
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        const uint64_t deadline_ns = mover_now_ns() + PATIENCE_MS * NS_PER_MS;
        first->how.log = NULL;
        _exit(mover_rendezvous(&first->how, &first->card, CARD_BYTES, own, deadline_ns, error,
                               sizeof(error)) != 0);
    }
    for (uint32_t i = 1; i < ALL; i++)
        fds[i] = hand_join(at, i, ALL);
    for (uint32_t i = 1; i < ALL; i++) {
        hand_await_taken(fds[i]);
        assert_int_equal(hand_read_end(fds[i], cards, sizeof(cards)), MOVER_MEET_CARDS);
        for (uint32_t k = 0; k < ALL; k++)
            assert_int_equal(((uint64_t *)cards)[k], 1000 + k);
        close(fds[i]);
    }
    free(own);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- strangers ---- */

static void token__strangers_are_refused_and_the_job_goes_on(void **state)
{
    (void)state;
    choose_port("127.0.0.1");
    for (uint32_t i = 0; i < 2; i++) {
        prepare_rank(i, i, 3)->how.token = "a secret of this job";
        start_rank(&ranks[i]);
    }
    /* One with another token, one without, both as rank 2. */
    for (uint32_t i = 4; i < 6; i++) {
        prepare_rank(i, 2, 3)->how.token = i == 4 ? "a secret" : NULL;
        start_rank(&ranks[i]);
    }
    join_ranks(4, 6);
    expect_failure(4, 6, -EACCES, "token");
    prepare_rank(2, 2, 3)->how.token = "a secret of this job";
    start_rank(&ranks[2]);
    join_ranks(0, 3);
    expect_cards(3);
    assert_int_equal(ranks[0].notes, 2);
    assert_non_null(strstr(ranks[0].note, "does not know the token"));
}

static void token__is_asked_of_rank_0_too(void **state)
{
    (void)state;
    choose_port("127.0.0.1");
    start_ranks(0, 1, 3);
    prepare_rank(1, 1, 3)->how.token = "a secret";
    start_rank(&ranks[1]);
    join_ranks(0, 2);
    expect_failure(1, 2, -EACCES, "does not know the token of this job");
    expect_failure(0, 1, -ECONNRESET, "rank 1");
}

static void strangers__cost_a_place_for_a_time(void **state)
{
    enum { STRANGERS = 200 };
    static int fds[STRANGERS];
    static const char garbage[] = "GET / HTTP/1.1\r\nHost: a name that is longer than a header\r\n";
    (void)state;
    choose_port("127.0.0.1");
    start_ranks(0, 1, 3);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = hand_call(at);
        if (i % 2)
            send(fds[i], garbage, sizeof(garbage), MSG_NOSIGNAL);
    }
    start_ranks(1, 3, 3);
    join_ranks(0, 3);
    expect_cards(3);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
}

static void hostile_bytes__do_no_harm(void **state)
{
    uint64_t random = 88172645463325252;
    (void)state;
    choose_port("127.0.0.1");
    start_ranks(0, 1, 2);
    for (int i = 0; i < 300; i++) {
        const int fd = hand_call(at);
        struct message message = hand_make_join(fd, 1, 2, NULL);
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        if (i % 3 == 0) /* more than a join may have */
            memset(message.bytes + 8, 0xff, 4);
        else if (i % 3 == 1) /* another kind, or another protocol */
            message.bytes[random % 2 ? 6 : random / 2 % 4] ^= (uint8_t)(random >> 8 | 1);
        else /* a card that is not there */
            memset(message.bytes + MOVER_MEET_HEADER_BYTES + 8, 0xee, 4);
        send(fd, &message, sizeof(message), MSG_NOSIGNAL);
        close(fd);
    }
    start_ranks(1, 2, 2);
    join_ranks(0, 2);
    expect_cards(2);
}

/* ---- what does not fit ---- */

static void same_rank__is_named_to_all(void **state)
{
    (void)state;
    choose_port("127.0.0.1");
    start_ranks(0, 3, 4);
    start_rank(prepare_rank(3, 2, 4));
    join_ranks(0, 4);
    expect_failure(0, 4, -EPROTO, "two processes claim to be rank 2");
}

static void other_size__is_named_to_all(void **state)
{
    (void)state;
    choose_port("127.0.0.1");
    start_ranks(0, 2, 3);
    start_rank(prepare_rank(2, 2, 4));
    join_ranks(0, 3);
    expect_failure(0, 3, -EPROTO, "says that there are 4 ranks, and rank 0 3");
}

static void other_version__is_named_to_all(void **state)
{
    uint8_t refusal[500];
    (void)state;
    choose_port("127.0.0.1");
    start_ranks(0, 2, 3);
    const int fd = hand_call(at);
    struct message message = hand_make_join(fd, 2, 3, NULL);
    message.bytes[4] = 9;
    send(fd, &message, sizeof(message), 0);
    assert_int_equal(hand_read_end(fd, refusal, sizeof(refusal)), MOVER_MEET_REFUSAL);
    close(fd);
    join_ranks(0, 2);
    expect_failure(0, 2, -EPROTONOSUPPORT, "speaks version 9");
}

/* ---- the absent, the slow, the dead ---- */

/* The earliest deadline counts. */
static void absent__are_named_to_all_that_are_there(void **state)
{
    (void)state;
    choose_port("127.0.0.1");
    prepare_rank(0, 0, 9)->how.note_ms = 50; /* it tells those that have joined, too */
    start_rank(&ranks[0]);
    for (uint32_t i = 1; i < 4; i++)
        start_rank(prepare_rank(i, i, 9));
    for (uint32_t i = 0; i < 4; i++)
        while (!ranks[i].notes)
            usleep(1000);
    prepare_rank(4, 4, 9)->patience_ms = 3000;
    start_rank(&ranks[4]);
    join_ranks(0, 5);
    expect_failure(0, 5, -ETIMEDOUT, "ranks 5 to 8 did not come to 127.0.0.1:");
    for (uint32_t i = 0; i < 4; i++)
        assert_non_null(strstr(ranks[i].note, " to 8 at 127.0.0.1:"));
}

static void rank_0__absent_is_named(void **state)
{
    (void)state;
    choose_port("127.0.0.1");
    for (uint32_t i = 1; i < 3; i++) {
        prepare_rank(i, i, 3)->patience_ms = 200;
        start_rank(&ranks[i]);
    }
    join_ranks(1, 3);
    expect_failure(1, 3, -ETIMEDOUT, "rank 0 did not come to 127.0.0.1:");
}

static void slow__is_waited_for(void **state)
{
    uint8_t cards[3 * CARD_BYTES];
    (void)state;
    choose_port("127.0.0.1");
    start_ranks(0, 2, 3);
    const int fd = hand_call(at);
    const struct message message = hand_make_join(fd, 2, 3, NULL);
    for (size_t i = 0; i < sizeof(message); i++) {
        assert_int_equal(send(fd, message.bytes + i, 1, 0), 1);
        usleep(1000);
    }
    join_ranks(0, 2);
    hand_await_taken(fd);
    assert_int_equal(hand_read_end(fd, cards, sizeof(cards)), MOVER_MEET_CARDS);
    close(fd);
    ranks[2] = ranks[1];
    expect_cards(3);
}

static void dead__is_named_to_all(void **state)
{
    (void)state;
    choose_port("127.0.0.1");
    start_ranks(0, 3, 5);
    const int fd = hand_join(at, 3, 5);
    hand_await_taken(fd);
    close(fd);
    start_ranks(4, 5, 5); /* it may come late */
    join_ranks(0, 3);
    join_ranks(4, 5);
    expect_failure(0, 3, -ECONNRESET, "rank 3 at 127.0.0.1:");
    expect_failure(4, 5, -ECONNRESET, "rank 3 at 127.0.0.1:");
}

/* A rank ends just as the last one comes. Whether that is before all are there or after it, rank 0
 * gets what the others get. */
static void dead__is_the_same_to_rank_0(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        uint8_t body[MOVER_MEET_REFUSAL_BYTES + MOVER_MEET_TEXT_MAX];
        choose_port("127.0.0.1");
        start_ranks(0, 1, 3);
        const int dying = hand_join(at, 2, 3), last = hand_call(at);
        hand_await_taken(dying);
        const struct message message = hand_make_join(last, 1, 3, NULL);
        assert_int_equal(send(last, &message, sizeof(message), 0), sizeof(message));
        close(dying);
        uint16_t kind;
        while ((kind = hand_read_end(last, body, sizeof(body))) == MOVER_MEET_NOTE)
            continue;
        join_ranks(0, 1);
        close(last);
        assert_int_equal(ranks[0].code, kind == MOVER_MEET_CARDS ? 0 : -ECONNRESET);
    }
}

/* A listener that says this to the first who connects, some time after it has read its join, and
 * closes. */
static void play_slow_host(const void *says, size_t bytes, uint32_t after_ms)
{
    struct addrinfo *addresses;
    struct message message;
    uint8_t welcome[MOVER_MEET_HEADER_BYTES + MOVER_MEET_NONCE_BYTES] = {0};
    char error[100];
    assert_int_equal(mover_meet_resolve(at, &addresses, error, sizeof(error)), 0);
    const int listener = mover_meet_listen(addresses);
    freeaddrinfo(addresses);
    start_ranks(1, 2, 2);
    int fd;
    while ((fd = accept(listener, NULL, NULL)) < 0)
        usleep(1000);
    close(listener);
    mover_meet_put_header(welcome, MOVER_MEET_WELCOME, MOVER_MEET_NONCE_BYTES);
    send(fd, welcome, sizeof(welcome), 0);
    hand_read(fd, &message, sizeof(message));
    usleep(after_ms * 1000);
    send(fd, says, bytes, MSG_NOSIGNAL);
    close(fd);
    join_ranks(1, 2);
}

static void play_host(const void *says, size_t bytes)
{
    play_slow_host(says, bytes, 0);
}

/* One that was stopped. Another try would be a second process of that rank. */
static void rank_0__slow_is_waited_for(void **state)
{
    uint8_t bytes[2 * MOVER_MEET_HEADER_BYTES + 2 * CARD_BYTES];
    (void)state;
    choose_port("127.0.0.1");
    mover_meet_put_header(bytes, MOVER_MEET_NOTE, 0);
    mover_meet_put_header(bytes + MOVER_MEET_HEADER_BYTES, MOVER_MEET_CARDS, 2 * CARD_BYTES);
    memset(bytes + 2 * MOVER_MEET_HEADER_BYTES, 7, 2 * CARD_BYTES);
    play_slow_host(bytes, sizeof(bytes), 5200);
    assert_int_equal(ranks[1].code, 0);
}

static void rank_0__dead_is_named(void **state)
{
    uint8_t note[MOVER_MEET_HEADER_BYTES];
    (void)state;
    choose_port("127.0.0.1");
    mover_meet_put_header(note, MOVER_MEET_NOTE, 0);
    play_host(note, sizeof(note));
    expect_failure(1, 2, -ECONNRESET, "rank 0 at 127.0.0.1:");
}

static void rank_0__may_be_something_else(void **state)
{
    uint8_t bytes[2 * MOVER_MEET_HEADER_BYTES + 8];
    (void)state;
    choose_port("127.0.0.1");
    memset(bytes, 'x', sizeof(bytes));
    play_host(bytes, sizeof(bytes));
    expect_failure(1, 2, -EPROTO, "is no rank 0 of a job");
    /* Too few cards, and cards before it was taken. */
    mover_meet_put_header(bytes, MOVER_MEET_CARDS, 8);
    play_host(bytes, MOVER_MEET_HEADER_BYTES + 8);
    expect_failure(1, 2, -EPROTO, "no part of a rendezvous");
    mover_meet_put_header(bytes, MOVER_MEET_NOTE, 0);
    mover_meet_put_header(bytes + MOVER_MEET_HEADER_BYTES, MOVER_MEET_CARDS, 8);
    play_host(bytes, sizeof(bytes));
    expect_failure(1, 2, -EPROTO, "too few cards");
    /* More than there can be. */
    mover_meet_put_header(bytes, MOVER_MEET_NOTE, 1 << 30);
    play_host(bytes, MOVER_MEET_HEADER_BYTES);
    expect_failure(1, 2, -EPROTO, "is no rank 0 of a job");
    /* Text that would paint the terminal. */
    mover_meet_put_header(bytes, MOVER_MEET_REFUSAL, 8);
    memcpy(bytes + MOVER_MEET_HEADER_BYTES, "\2\0\0\0a\033[b", 8);
    play_host(bytes, MOVER_MEET_HEADER_BYTES + 8);
    expect_failure(1, 2, -ECONNRESET, "a?[b");
}

static void arguments__are_checked(void **state)
{
    static const char *const wrong[] = {
        "", "here", "127.0.0.1:", "[::1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:4x"};
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(at, sizeof(at), "%s", wrong[i]);
        run_rank(prepare_rank(0, 0, 2));
        expect_failure(0, 1, -EINVAL, "is not HOST:PORT of rank 0");
    }
    snprintf(at, sizeof(at), "127.0.0.1:4450");
    run_rank(prepare_rank(0, 2, 2));
    expect_failure(0, 1, -EINVAL, "rank 2 of 2");
    run_rank(prepare_rank(0, 0, 1025));
    expect_failure(0, 1, -EINVAL, "there may be 1024");
    snprintf(at, sizeof(at), "192.0.2.7:4450");
    run_rank(prepare_rank(0, 0, 2));
    expect_failure(0, 1, -EADDRNOTAVAIL, "rank 0 cannot listen at 192.0.2.7:4450");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all__get_the_cards_of_all),
        cmocka_unit_test(rank_0__may_come_last),
        cmocka_unit_test(same_port__serves_one_job_after_another),
        cmocka_unit_test(descriptors__may_be_few),
        cmocka_unit_test(ranks__may_be_1024),
        cmocka_unit_test(token__strangers_are_refused_and_the_job_goes_on),
        cmocka_unit_test(token__is_asked_of_rank_0_too),
        cmocka_unit_test(strangers__cost_a_place_for_a_time),
        cmocka_unit_test(hostile_bytes__do_no_harm),
        cmocka_unit_test(same_rank__is_named_to_all),
        cmocka_unit_test(other_size__is_named_to_all),
        cmocka_unit_test(other_version__is_named_to_all),
        cmocka_unit_test(absent__are_named_to_all_that_are_there),
        cmocka_unit_test(rank_0__absent_is_named),
        cmocka_unit_test(slow__is_waited_for),
        cmocka_unit_test(dead__is_named_to_all),
        cmocka_unit_test(dead__is_the_same_to_rank_0),
        cmocka_unit_test(rank_0__slow_is_waited_for),
        cmocka_unit_test(rank_0__dead_is_named),
        cmocka_unit_test(rank_0__may_be_something_else),
        cmocka_unit_test(arguments__are_checked),
    };
    /* A network where addresses for documentation are nobody's. Where it is refused, they rarely
     * are anybody's in that of the machine. */
    (void)namespace_own_network();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
