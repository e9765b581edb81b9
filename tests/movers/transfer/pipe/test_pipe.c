// SPDX-License-Identifier: BSD-2-Clause
// Pipes between two processes: the child answers, the parent looks at every byte.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sidewire/pipe.h"

enum { SOON_MS = 30000 };
static const uint8_t token[SW_PIPE_TOKEN_BYTES] = "a token of both";

static uint64_t soon(void)
{
    return sw_xfer_deadline_ms(SOON_MS);
}

struct child {
    pid_t pid;
    int fd; // a word from the child, or its end
};

typedef void child_main(struct sw_pipe *pipe, int fd);

// In the child nothing may be asserted: it ends with 1 where it cannot go on.
static void need_ok(enum sw_xfer_status status)
{
    if (status)
        _exit(1);
}

static void connect_child(int fd, child_main *run)
{
    char port[8] = "";
    struct sw_pipe *pipe;
    if (read(fd, port, sizeof(port)) != sizeof(port))
        _exit(1);
    need_ok(sw_pipe_connect("127.0.0.1", port, token, soon(), NULL, &pipe));
    run(pipe, fd);
    const enum sw_xfer_status status = sw_pipe_flush(pipe, soon());
    if (status != SW_XFER_PEER_GONE) // the parent has seen all, and may be quicker
        need_ok(status);
    sw_pipe_close(pipe);
    _exit(0);
}

// The child is forked before a device is open, as both sides of a pipe are processes of their own.
static struct sw_pipe *start_child(child_main *run, struct child *child)
{
    struct sw_pipe_listener *listener;
    struct sw_xfer_error error;
    struct sw_pipe *pipe = NULL;
    int pair[2];
    char port[8] = "";
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    child->pid = fork();
    if (!child->pid) {
        close(pair[0]);
        connect_child(pair[1], run);
    }
    close(pair[1]);
    child->fd = pair[0];
    assert_int_equal(sw_pipe_listen("127.0.0.1", NULL, NULL, &listener), SW_XFER_OK);
    snprintf(port, sizeof(port), "%u", (unsigned)sw_pipe_listener_port(listener));
    assert_int_equal(write(child->fd, port, sizeof(port)), sizeof(port));
    if (sw_pipe_accept(listener, token, soon(), &error, &pipe))
        fail_msg("accept: %s", error.text);
    sw_pipe_listener_close(listener);
    return pipe;
}

static void end_child(struct child *child, struct sw_pipe *pipe, int expected)
{
    int how = -1;
    if (pipe)
        sw_pipe_close(pipe);
    assert_int_equal(waitpid(child->pid, &how, 0), child->pid);
    assert_int_equal(how, expected);
    close(child->fd);
}

static void send_bytes(struct sw_pipe *pipe, const void *data, size_t bytes)
{
    const struct sw_pipe_part part = {data, bytes};
    assert_int_equal(sw_pipe_send(pipe, &part, 1, soon()), SW_XFER_OK);
}

static void echo_until_empty(struct sw_pipe *pipe, int fd)
{
    uint8_t data[SW_PIPE_MESSAGE_MAX];
    size_t bytes;
    (void)fd;
    for (;;) {
        need_ok(sw_pipe_receive(pipe, data, sizeof(data), soon(), &bytes));
        if (!bytes)
            return;
        need_ok(sw_pipe_send(pipe, &(struct sw_pipe_part){data, bytes}, 1, soon()));
    }
}

static void send__all_lengths_come_back(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(echo_until_empty, &child);
    static uint8_t data[SW_PIPE_MESSAGE_MAX], back[SW_PIPE_MESSAGE_MAX];
    unsigned seed = 3;
    for (int i = 0; i < 3000; i++) {
        size_t got = 0;
        const size_t bytes = i < 2 ? SW_PIPE_MESSAGE_MAX : 1 + (size_t)rand_r(&seed) % sizeof(data);
        memset(data, i % 4 ? i : 0x80, bytes);
        const size_t cut = bytes / 3;
        const struct sw_pipe_part parts[] = {{data, cut}, {NULL, 0}, {data + cut, bytes - cut}};
        assert_int_equal(sw_pipe_send(pipe, parts, 3, soon()), SW_XFER_OK);
        assert_int_equal(sw_pipe_receive(pipe, back, sizeof(back), soon(), &got), SW_XFER_OK);
        assert_int_equal(got, bytes);
        assert_memory_equal(back, data, bytes);
    }
    send_bytes(pipe, NULL, 0);
    end_child(&child, pipe, 0);
}

static void send__of_what_is_too_long(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(echo_until_empty, &child);
    static const uint8_t data[SW_PIPE_MESSAGE_MAX + 1];
    const struct sw_pipe_part one = {data, sizeof(data)};
    const struct sw_pipe_part two[] = {{data, SIZE_MAX}, {data, 2}};
    uint8_t back[10];
    size_t got;
    assert_int_equal(sw_pipe_send(pipe, &one, 1, soon()), SW_XFER_INVALID);
    assert_int_equal(sw_pipe_send(pipe, two, 2, soon()), SW_XFER_INVALID);
    send_bytes(pipe, "eleven byte", 11);
    assert_int_equal(sw_pipe_receive(pipe, back, 10, soon(), &got), SW_XFER_INVALID);
    uint8_t room[11];
    assert_int_equal(sw_pipe_receive(pipe, room, 11, soon(), &got), SW_XFER_OK); // it has stayed
    assert_memory_equal(room, "eleven byte", 11);
    send_bytes(pipe, NULL, 0);
    end_child(&child, pipe, 0);
}

enum { FLOOD = 50000 };

// Numbers, each in a message whose length follows from it.
static void count_flood(struct sw_pipe *pipe, int fd)
{
    uint8_t data[SW_PIPE_MESSAGE_MAX];
    size_t bytes;
    (void)fd;
    for (uint32_t i = 0; i < FLOOD; i++) {
        uint32_t number;
        need_ok(sw_pipe_receive(pipe, data, sizeof(data), soon(), &bytes));
        memcpy(&number, data, sizeof(number));
        if (number != i || bytes != 4 + i * 7 % 300)
            _exit(2);
        if (i % 10000 == 0)
            usleep(2000); // the sender has no room meanwhile, and sleeps
    }
    need_ok(sw_pipe_send(pipe, &(struct sw_pipe_part){"done", 4}, 1, soon()));
}

static void send__more_than_the_ring_has_room_for(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(count_flood, &child);
    uint8_t data[304] = {0};
    size_t got;
    for (uint32_t i = 0; i < FLOOD; i++) {
        memcpy(data, &i, sizeof(i));
        send_bytes(pipe, data, 4 + i * 7 % 300);
    }
    assert_int_equal(sw_pipe_receive(pipe, data, sizeof(data), soon(), &got), SW_XFER_OK);
    assert_memory_equal(data, "done", 4);
    end_child(&child, pipe, 0);
}

static void sleep_longer(struct sw_pipe *pipe, int fd)
{
    uint8_t data[8];
    size_t bytes;
    sw_pipe_set_spin(pipe, 0);
    for (int i = 0; i < 2000; i++) {
        need_ok(sw_pipe_receive(pipe, data, sizeof(data), soon(), &bytes));
        need_ok(sw_pipe_send(pipe, &(struct sw_pipe_part){data, bytes}, 1, soon()));
    }
    if (!sw_pipe_sleeps(pipe))
        _exit(2);
    (void)fd;
}

// Without polling each message has to wake, or find the other before it sleeps.
static void receive__asleep_each_time(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(sleep_longer, &child);
    unsigned seed = 5;
    sw_pipe_set_spin(pipe, 0);
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t back = 0;
        size_t got;
        if (i % 50 == 0)
            usleep((useconds_t)(rand_r(&seed) % 500));
        send_bytes(pipe, &i, sizeof(i));
        assert_int_equal(sw_pipe_receive(pipe, &back, sizeof(back), soon(), &got), SW_XFER_OK);
        assert_int_equal(back, i);
    }
    end_child(&child, pipe, 0);
}

static void fall_silent(struct sw_pipe *pipe, int fd)
{
    char word;
    (void)pipe;
    if (read(fd, &word, 1) < 0)
        _exit(1);
}

static void receive__in_time(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(fall_silent, &child);
    uint8_t data[SW_PIPE_MESSAGE_MAX] = {0};
    size_t got;
    const struct sw_pipe_part part = {data, sizeof(data)};
    int sent = 0;
    assert_int_equal(sw_pipe_receive(pipe, data, sizeof(data), 0, &got), SW_XFER_TIMEOUT);
    for (int i = 0; i < 5; i++)
        assert_int_equal(sw_pipe_receive(pipe, data, sizeof(data), sw_xfer_deadline_ms(5), &got),
                         SW_XFER_TIMEOUT);
    while (!sw_pipe_send(pipe, &part, 1, sw_xfer_deadline_ms(5))) // nobody reads
        assert_in_range(++sent, 1, 16);
    assert_int_equal(sw_pipe_send(pipe, &part, 1, sw_xfer_deadline_ms(5)), SW_XFER_TIMEOUT);
    assert_int_equal(write(child.fd, "", 1), 1);
    end_child(&child, pipe, 0);
}

static void say_and_wait(struct sw_pipe *pipe, int fd)
{
    char word;
    for (int i = 0; i < 3; i++)
        need_ok(sw_pipe_send(pipe, &(struct sw_pipe_part){&i, sizeof(i)}, 1, soon()));
    need_ok(sw_pipe_flush(pipe, soon()));
    if (write(fd, "", 1) != 1 || read(fd, &word, 1) < 0)
        _exit(1);
}

static void expect_three_and_the_end(struct sw_pipe *pipe)
{
    size_t got;
    int number;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sw_pipe_receive(pipe, &number, sizeof(number), soon(), &got), SW_XFER_OK);
        assert_int_equal(number, i);
    }
    assert_int_equal(sw_pipe_receive(pipe, &number, sizeof(number), soon(), &got),
                     SW_XFER_PEER_GONE);
    assert_int_equal(sw_pipe_send(pipe, &(struct sw_pipe_part){"x", 1}, 1, soon()),
                     SW_XFER_PEER_GONE);
}

static void receive__what_came_before_the_peer_was_killed(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(say_and_wait, &child);
    char word;
    assert_int_equal(read(child.fd, &word, 1), 1);
    kill(child.pid, SIGKILL);
    expect_three_and_the_end(pipe);
    end_child(&child, pipe, SIGKILL);
}

static void receive__what_came_before_the_peer_closed(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(say_and_wait, &child);
    char word;
    assert_int_equal(read(child.fd, &word, 1), 1);
    assert_int_equal(write(child.fd, "", 1), 1);
    expect_three_and_the_end(pipe);
    end_child(&child, pipe, 0);
}

// Between hosts the line that tells of a death stands some milliseconds after the first packets.
static void send__into_a_peer_that_is_killed(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(echo_until_empty, &child);
    uint8_t data[1000] = {0};
    const struct sw_pipe_part part = {data, sizeof(data)};
    enum sw_xfer_status status = SW_XFER_OK;
    size_t got;
    send_bytes(pipe, data, 1);
    assert_int_equal(sw_pipe_receive(pipe, data, sizeof(data), soon(), &got), SW_XFER_OK);
    usleep(100000);
    kill(child.pid, SIGKILL);
    for (int i = 0; i < 1000 && !status; i++) // what has room is sent; then it sleeps
        status = sw_pipe_send(pipe, &part, 1, soon());
    assert_int_equal(status, SW_XFER_PEER_GONE);
    end_child(&child, pipe, SIGKILL);
}

static void accept__who_says_another_token(void **state)
{
    (void)state;
    struct sw_pipe_listener *listener;
    struct sw_pipe *pipe;
    char port[8];
    assert_int_equal(sw_pipe_listen("127.0.0.1", NULL, NULL, &listener), SW_XFER_OK);
    snprintf(port, sizeof(port), "%u", (unsigned)sw_pipe_listener_port(listener));
    const pid_t pid = fork();
    if (!pid) {
        const uint8_t other[SW_PIPE_TOKEN_BYTES] = "another";
        const enum sw_xfer_status status =
            sw_pipe_connect("127.0.0.1", port, other, soon(), NULL, &pipe);
        _exit(status == SW_XFER_REFUSED ? 0 : 1);
    }
    int how = -1;
    while (!waitpid(pid, &how, WNOHANG))
        assert_int_equal(sw_pipe_accept(listener, token, sw_xfer_deadline_ms(10), NULL, &pipe),
                         SW_XFER_TIMEOUT);
    assert_int_equal(how, 0);
    sw_pipe_listener_close(listener);
}

static void pipe__of_the_parent_in_a_child(void **state)
{
    (void)state;
    struct child child;
    struct sw_pipe *pipe = start_child(echo_until_empty, &child);
    const pid_t pid = fork();
    if (!pid) {
        uint8_t data[8];
        size_t got;
        bool is_fine = sw_pipe_send(pipe, NULL, 0, soon()) == SW_XFER_FORKED &&
                       sw_pipe_receive(pipe, data, sizeof(data), soon(), &got) == SW_XFER_FORKED;
        sw_pipe_close(pipe);
        _exit(!is_fine);
    }
    int how = -1;
    uint8_t back[4];
    size_t got;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    send_bytes(pipe, "goes", 4);
    assert_int_equal(sw_pipe_receive(pipe, back, sizeof(back), soon(), &got), SW_XFER_OK);
    assert_memory_equal(back, "goes", 4);
    send_bytes(pipe, NULL, 0);
    end_child(&child, pipe, 0);
}

static void expect_end(pid_t pid)
{
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

static void listener__of_the_parent_in_a_child(void **state)
{
    (void)state;
    struct sw_pipe_listener *listener;
    struct sw_pipe *pipe;
    char port[8];
    assert_int_equal(sw_pipe_listen("127.0.0.1", NULL, NULL, &listener), SW_XFER_OK);
    snprintf(port, sizeof(port), "%u", (unsigned)sw_pipe_listener_port(listener));
    pid_t pid = fork();
    if (!pid) {
        const bool is_told = sw_pipe_accept(listener, token, soon(), NULL, &pipe) == SW_XFER_FORKED;
        sw_pipe_listener_close(listener);
        _exit(!is_told);
    }
    expect_end(pid);
    pid = fork();
    if (!pid) {
        need_ok(sw_pipe_connect("127.0.0.1", port, token, soon(), NULL, &pipe));
        need_ok(sw_pipe_send(pipe, NULL, 0, soon()));
        need_ok(sw_pipe_flush(pipe, soon()));
        sw_pipe_close(pipe);
        _exit(0);
    }
    uint8_t data[8];
    size_t got = 1;
    assert_int_equal(sw_pipe_accept(listener, token, soon(), NULL, &pipe), SW_XFER_OK);
    assert_int_equal(sw_pipe_receive(pipe, data, sizeof(data), soon(), &got), SW_XFER_OK);
    assert_int_equal(got, 0);
    expect_end(pid);
    sw_pipe_close(pipe);
    sw_pipe_listener_close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(send__all_lengths_come_back),
        cmocka_unit_test(send__of_what_is_too_long),
        cmocka_unit_test(send__more_than_the_ring_has_room_for),
        cmocka_unit_test(receive__asleep_each_time),
        cmocka_unit_test(receive__in_time),
        cmocka_unit_test(receive__what_came_before_the_peer_was_killed),
        cmocka_unit_test(receive__what_came_before_the_peer_closed),
        cmocka_unit_test(send__into_a_peer_that_is_killed),
        cmocka_unit_test(accept__who_says_another_token),
        cmocka_unit_test(pipe__of_the_parent_in_a_child),
        cmocka_unit_test(listener__of_the_parent_in_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
