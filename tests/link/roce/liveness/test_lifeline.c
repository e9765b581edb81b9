/* SPDX-License-Identifier: BSD-2-Clause */
/* The line to another process, which the test plays: calling it, what the two say, and its death.
 * Time is the test's; the sockets are real, on the loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "link/roce/liveness/lifeline_impl.h"
#include "link/roce/roce.h"

enum { OWN_SLOT = 5, PEER_SLOT = 9, QPN = 0x1007, PEER_QPN = 0x2003, PATIENCE_MS = 5000 };
enum { CALLER = 0x1111, CALLED = 0x2222, PING = 0x3333 }; /* tokens */

static struct sw_lifeline *line;
static struct sw_roce_path path;
static int listener, peer; /* the other process's sockets; -1: closed */
static uint16_t port;
static uint64_t now_ns;
static uint32_t deaths;

static bool note_death(const struct in6_addr *dest, uint32_t slot)
{
    assert_memory_equal(dest, &path.dest, sizeof(*dest));
    assert_int_equal(slot, PEER_SLOT);
    deaths++;
    return true; /* the program is told of it first */
}

static void step(void)
{
    sw_lifeline_want_engine();
    sw_lifeline_step(now_ns);
}

/* The kernel may take a moment to bring what was sent. */
static void step_until(enum sw_liveness_state state)
{
    for (int i = 0; i < PATIENCE_MS && line->liveness.state != state; i++) {
        step();
        usleep(1000);
    }
    assert_int_equal(line->liveness.state, state);
}

static void listen_there(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t len = sizeof(own);
    assert_int_equal(inet_pton(AF_INET, "127.0.0.2", &own.sin_addr), 1);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&own, len), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&own, &len), 0);
    port = ntohs(own.sin_port);
}

/* The answer by MAD to the question where it listens. */
static void tell_port(uint64_t nonce)
{
    line->asks = false; /* the question has left */
    sw_lifelines.mads[0] = (struct sw_lifeline_mad){.own = path.source,
                                                    .peer = path.dest,
                                                    .message = {.kind = SW_LIVENESS_MAD_TELL,
                                                                .from = PEER_SLOT,
                                                                .to = OWN_SLOT,
                                                                .port = port,
                                                                .nonce = nonce,
                                                                .caller = CALLER,
                                                                .called = CALLED}};
    sw_lifelines.mad_count = 1;
    step();
}

static void say_bytes(const void *bytes, size_t len)
{
    assert_int_equal(send(peer, bytes, len, MSG_NOSIGNAL), len);
}

static void say(struct sw_liveness_word word)
{
    uint8_t bytes[SW_LIVENESS_WORD_BYTES];
    sw_liveness_word_encode(&word, bytes);
    say_bytes(bytes, sizeof(bytes));
}

static struct sw_liveness_word hear(void)
{
    uint8_t bytes[SW_LIVENESS_WORD_BYTES];
    struct sw_liveness_word word = {0};
    for (int i = 0; i < PATIENCE_MS; i++) {
        step();
        const ssize_t got = recv(peer, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0) {
            assert_int_equal(got, sizeof(bytes));
            assert_true(sw_liveness_word_decode(bytes, &word));
            return word;
        }
        usleep(1000);
    }
    fail_msg("nothing was said");
    return word;
}

/* Whether the other end has closed the connection. */
static bool is_hung_up(void)
{
    uint8_t byte;
    for (int i = 0; i < PATIENCE_MS; i++) {
        const ssize_t got = recv(peer, &byte, 1, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return true;
        usleep(1000);
    }
    return false;
}

static int start(void **state)
{
    (void)state;
    sw_nic.slot = OWN_SLOT;
    sw_lifelines.port = &sw_roce.port;
    sw_lifelines.is_watched = true; /* there is no engine */
    sw_roce.port.rx_lock.held = 1;
    sw_lifeline_on_death(note_death);
    deaths = 0;
    now_ns = sw_clock_ns();
    peer = -1;
    listen_there();
    path = (struct sw_roce_path){.is_ipv4 = true, .ifindex = if_nametoindex("lo")};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", &path.source), 1);
    assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.2", &path.dest), 1);
    line = sw_lifeline_join(&path, PEER_SLOT);
    assert_non_null(line);
    assert_true(line->asks);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    if (peer >= 0)
        close(peer);
    if (listener >= 0)
        close(listener);
    sw_lifeline_fork_child(); /* frees all lines */
    sw_roce.port.rx_lock.held = 0;
    return 0;
}

/* Takes the call, and hears what is said first. */
static struct sw_liveness_word accept_call(void)
{
    if (peer >= 0)
        close(peer);
    peer = accept(listener, NULL, NULL);
    assert_true(peer >= 0);
    return hear();
}

static struct sw_liveness_word be_called(void)
{
    tell_port(line->nonce);
    step_until(SW_LIVENESS_CALLING);
    return accept_call();
}

static void welcome(uint64_t token)
{
    say((struct sw_liveness_word){.kind = SW_LIVENESS_WELCOME, .token = token});
}

static void stand(void)
{
    be_called();
    welcome(CALLED);
    step_until(SW_LIVENESS_UP);
}

static void call__says_who_calls(void **state)
{
    (void)state;
    const struct sw_liveness_word hello = be_called();
    assert_int_equal(hello.kind, SW_LIVENESS_HELLO);
    assert_int_equal(hello.from, OWN_SLOT);
    assert_int_equal(hello.to, PEER_SLOT);
    assert_int_equal(hello.token, CALLER);
    assert_int_equal(hello.port, sw_lifeline_callers_port(&path.source));
    assert_true(hello.port != 0);
    welcome(CALLED);
    step_until(SW_LIVENESS_UP);
}

static void call__not_by_another_answer(void **state)
{
    (void)state;
    tell_port(line->nonce + 1);
    assert_int_equal(line->liveness.state, SW_LIVENESS_ASKING);
    assert_int_equal(line->fd, -1);
}

/* A stranger has the port. */
static void call__a_wrong_welcome_proves_nothing(void **state)
{
    (void)state;
    be_called();
    welcome(CALLED + 1);
    for (int i = 0; i < PATIENCE_MS && line->liveness.state == SW_LIVENESS_CALLING;
         i++, usleep(1000))
        step();
    assert_true(line->liveness.state != SW_LIVENESS_UP);
    assert_true(is_hung_up());
    assert_int_equal(deaths, 0);
}

static void word__in_two_parts(void **state)
{
    (void)state;
    uint8_t bytes[SW_LIVENESS_WORD_BYTES];
    sw_liveness_word_encode(
        &(struct sw_liveness_word){
            .kind = SW_LIVENESS_PING, .from = PEER_QPN, .to = QPN, .token = PING},
        bytes);
    stand();
    say_bytes(bytes, 10);
    for (int i = 0; i < PATIENCE_MS && line->in_bytes < 10; i++, usleep(1000))
        step();
    assert_int_equal(line->in_bytes, 10);
    assert_false(sw_lifeline_owes());
    say_bytes(bytes + 10, sizeof(bytes) - 10);
    for (int i = 0; i < PATIENCE_MS && !sw_lifeline_owes(); i++, usleep(1000))
        step();
    assert_true(sw_lifeline_owes());
    sw_lifeline_answer();
    assert_false(sw_lifeline_owes());
    const struct sw_liveness_word pong = hear();
    assert_int_equal(pong.kind, SW_LIVENESS_PONG);
    assert_int_equal(pong.token, PING);
    assert_int_equal(pong.from, QPN);
    assert_int_equal(pong.to, PEER_QPN);
}

/* The line was broken, and the other process still listens: it is called anew, and lives. */
static void is_made_anew(void)
{
    step_until(SW_LIVENESS_CHECKING);
    assert_int_equal(accept_call().kind, SW_LIVENESS_HELLO);
    welcome(CALLED);
    step_until(SW_LIVENESS_UP);
    assert_int_equal(deaths, 0);
}

static void word__that_nobody_says(void **state)
{
    (void)state;
    const uint8_t bytes[SW_LIVENESS_WORD_BYTES] = {0xff, 0xff, 0xff};
    stand();
    say_bytes(bytes, sizeof(bytes));
    step_until(SW_LIVENESS_CHECKING);
    assert_true(is_hung_up());
    is_made_anew();
}

static void death__not_where_the_network_broke_it(void **state)
{
    (void)state;
    stand();
    close(peer);
    peer = -1;
    is_made_anew();
}

/* Its last packets may still be under way, so it is told later. */
static void death__nobody_listens_any_more(void **state)
{
    (void)state;
    stand();
    close(listener);
    close(peer);
    listener = peer = -1;
    step_until(SW_LIVENESS_DEAD);
    assert_int_equal(line->fd, -1);
    assert_true(line->bury_ns > now_ns);
    now_ns = line->bury_ns - 1;
    step();
    assert_int_equal(deaths, 0);
    now_ns++;
    step();
    assert_int_equal(deaths, 1);
    assert_true(line->bury_ns > now_ns); /* its queue pairs end later still */
    step();
    assert_int_equal(deaths, 1);
    const struct sw_lifeline *next = sw_lifeline_join(&path, PEER_SLOT);
    assert_true(next && next != line); /* another process may have that slot */
}

static void leave__is_told_and_ends_an_idle_line(void **state)
{
    (void)state;
    stand();
    sw_lifeline_leave(line, QPN, PEER_QPN, 3);
    const struct sw_liveness_word left = hear();
    assert_int_equal(left.kind, SW_LIVENESS_LEFT);
    assert_int_equal(left.from, QPN);
    assert_int_equal(left.to, PEER_QPN);
    assert_int_equal(left.mark, 3);
    assert_int_equal(sw_lifelines.count, 1);
    now_ns += 10 * SW_NS_PER_S - 1;
    step();
    assert_int_equal(sw_lifelines.count, 1);
    now_ns++;
    assert_int_equal(hear().kind, SW_LIVENESS_GOODBYE);
    assert_int_equal(sw_lifelines.count, 0);
}

static void join__one_line_for_all_queue_pairs(void **state)
{
    (void)state;
    assert_ptr_equal(sw_lifeline_join(&path, PEER_SLOT), line);
    assert_int_equal(line->users, 2);
    assert_ptr_not_equal(sw_lifeline_join(&path, PEER_SLOT + 1), line);
    path.dest = path.source;
    assert_null(sw_lifeline_join(&path, OWN_SLOT)); /* itself */
    assert_null(sw_lifeline_join(&path, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(call__says_who_calls, start, stop),
        cmocka_unit_test_setup_teardown(call__not_by_another_answer, start, stop),
        cmocka_unit_test_setup_teardown(call__a_wrong_welcome_proves_nothing, start, stop),
        cmocka_unit_test_setup_teardown(word__in_two_parts, start, stop),
        cmocka_unit_test_setup_teardown(word__that_nobody_says, start, stop),
        cmocka_unit_test_setup_teardown(death__nobody_listens_any_more, start, stop),
        cmocka_unit_test_setup_teardown(death__not_where_the_network_broke_it, start, stop),
        cmocka_unit_test_setup_teardown(leave__is_told_and_ends_an_idle_line, start, stop),
        cmocka_unit_test_setup_teardown(join__one_line_for_all_queue_pairs, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
