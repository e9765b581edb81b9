/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Callers of an iWARP listener by plain sockets, in a network namespace of the test's own: those
 * that ask while the program fetches nothing have bounds, and none of them keeps out the caller of
 * another address.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../preload/namespace.h"
#include "iwarp_rig.h"

enum {
    DESCRIPTORS = 256,
    BACKLOG = 4,
    CROWD = 60,
    WAITING = DESCRIPTORS / 8 / 2, /* of one address */
    TRIES = 9,
    PROMPT_MS = 80,
    PATIENCE_MS = 30000
};

static int tcp_from(const char *host, uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    inet_pton(AF_INET, host, &from.sin_addr);
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(peer, (const struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(peer, (const struct sockaddr *)&to, sizeof(to)), 0);
    return peer;
}

static void ask(int peer)
{
    send_start(peer, "MPA ID Req Frame", 0, 1, NULL, 0);
}

static int call_from(const char *host, uint16_t port)
{
    const int peer = tcp_from(host, port);
    ask(peer);
    return peer;
}

static int count_ended(const int *peers)
{
    int ended = 0;
    for (int i = 0; i < CROWD; i++) {
        struct pollfd end = {.fd = peers[i], .events = POLLRDHUP};
        ended += poll(&end, 1, 0) == 1;
    }
    return ended;
}

static void listen__requests_that_wait_are_bounded(void **state)
{
    (void)state;
    int peers[CROWD];
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", BACKLOG);
    const uint16_t port = rig_port(fd, listener);
    for (int i = 0; i < CROWD; i++)
        peers[i] = call_from("127.0.0.2", port);
    for (int ms = 0; count_ended(peers) < CROWD - BACKLOG - WAITING && ms < PATIENCE_MS; ms++)
        usleep(1000);
    usleep(20000); /* no more of them end */
    assert_int_equal(count_ended(peers), CROWD - BACKLOG - WAITING);
    const int other = call_from("127.0.0.3", port);
    for (int i = 0; i < BACKLOG + WAITING + 1; i++) { /* the other one is told of, too */
        struct rdma_ucm_event_resp event;
        rig_expect(fd, CONNECT_REQUEST, &event);
        destroy_ids(&event.id, 1);
    }
    is_quiet();
    for (int i = 0; i < CROWD; i++)
        close(peers[i]);
    close(other);
    destroy_ids(&listener, 1);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* They come at once, and ask a moment later: far more than may be silent at a time. False: this
 * process stood still, so that they were silent. */
static bool call_in_a_burst(const char *host)
{
    int peers[CROWD];
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", CROWD);
    const uint16_t port = rig_port(fd, listener);
    const int64_t since_ms = now_ms();
    for (int i = 0; i < CROWD; i++)
        peers[i] = tcp_from(host, port);
    usleep(20000); /* all that may be let in are */
    for (int i = 0; i < CROWD; i++)
        ask(peers[i]);
    const bool is_prompt = now_ms() < since_ms + PROMPT_MS;
    for (int i = 0; is_prompt && i < CROWD; i++) {
        struct rdma_ucm_event_resp event;
        rig_expect(fd, CONNECT_REQUEST, &event);
        destroy_ids(&event.id, 1);
    }
    for (int i = 0; i < CROWD; i++)
        close(peers[i]);
    destroy_ids(&listener, 1);
    return is_prompt;
}

static void listen__whoever_asks_a_moment_later_gets_in(void **state)
{
    (void)state;
    char host[] = "127.0.1.1"; /* each time another one: the silent are remembered */
    bool is_prompt = false;
    for (int i = 0; i < TRIES && !is_prompt; i++) {
        is_prompt = call_in_a_burst(host);
        host[6]++;
    }
    assert_true(is_prompt);
}

static void ask_as(int peer, uint8_t name)
{
    send_start(peer, "MPA ID Req Frame", 0, 1, &name, 1);
    usleep(20000); /* it is heard before the next one */
}

static void expect_of(uint8_t name)
{
    struct rdma_ucm_event_resp event;
    rig_expect(fd, CONNECT_REQUEST, &event);
    assert_int_equal(event.param.conn.private_data_len, 1);
    assert_int_equal(event.param.conn.private_data[0], name);
    destroy_ids(&event.id, 1);
}

/* In the order in which they asked, not that in which they came. */
static void listen__whoever_waits_for_longest_is_next(void **state)
{
    (void)state;
    int peers[BACKLOG];
    const uint32_t listener = rig_listener(fd, RDMA_PS_TCP, "127.0.0.1", 1);
    const uint16_t port = rig_port(fd, listener);
    for (int i = 0; i < BACKLOG; i++)
        peers[i] = tcp_from("127.0.0.4", port);
    usleep(20000);
    for (int i = BACKLOG - 1; i >= 0; i--)
        ask_as(peers[i], (uint8_t)i);
    for (int i = BACKLOG - 1; i >= 0; i--)
        expect_of((uint8_t)i);
    for (int i = 0; i < BACKLOG; i++)
        close(peers[i]);
    destroy_ids(&listener, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(listen__whoever_waits_for_longest_is_next, open_channel,
                                        close_channel),
        cmocka_unit_test_setup_teardown(listen__whoever_asks_a_moment_later_gets_in, open_channel,
                                        close_channel),
        cmocka_unit_test_setup_teardown(listen__requests_that_wait_are_bounded, open_channel,
                                        close_channel),
    };
    struct rlimit limit;
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return 77;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 1;
    limit.rlim_cur = DESCRIPTORS;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
