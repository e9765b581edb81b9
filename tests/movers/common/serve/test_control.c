/* SPDX-License-Identifier: BSD-2-Clause */
/* A server that is asked by its control socket, by the asker of the commands and by strangers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/serve/ask.h"
#include "common/serve/control.h"

static char runtime[] = "/tmp/sidewire-control-XXXXXX", folder[64], socket_path[80];
static struct mover_loop loop;
static struct mover_control control;
static struct mover_watch end;
static pthread_t thread;
static int asked;

static bool is_impatient;

/* The ones who are impatient wait for 20 ms instead of seconds. */
int setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    static const struct timeval impatience = {.tv_usec = 20000};
    const bool is_time = is_impatient && (name == SO_SNDTIMEO || name == SO_RCVTIMEO);
    return (int)syscall(SYS_setsockopt, fd, level, name, is_time ? &impatience : value, bytes);
}

static const struct mover_ask ask = {
    .mover = "test", .command = "test status", .noun = "server", .start = "sidewire test serve"};

static json_t *make_status(void *context)
{
    int *count = context;
    return json_pack("{s:i, s:s}", "asked", ++*count, "long", "x");
}

static bool add_words(struct mover_order *order)
{
    const char *word = json_string_value(json_object_get(order->request, "word"));
    assert_ptr_equal(order->context, &asked);
    mover_order_say(order, word ? word : "no word");
    mover_order_say(order, "and no more");
    return word;
}

/* As of the path of a file, or cut within a character. */
static bool say_no_utf8(struct mover_order *order)
{
    mover_order_say(order, "caf\xe9 is away");
    return false;
}

static const struct mover_metric metrics[] = {
    {"asked_total", "asked", "Times it was asked", MOVER_COUNTER}, {0}};
static const struct mover_control_command commands[] = {
    {"add", add_words}, {"remove", say_no_utf8}, {0}};

static int open_at(const char *path, struct mover_control *at, char *error, size_t error_bytes)
{
    const struct mover_control_setup setup = {.mover = "test",
                                              .path = path,
                                              .context = &asked,
                                              .status = make_status,
                                              .metrics = metrics,
                                              .commands = commands};
    return mover_control_open(at, &loop, &setup, error, error_bytes);
}

static void end_server(struct mover_watch *watch)
{
    (void)watch;
    mover_loop_stop(&loop);
}

static void *run_server(void *arg)
{
    (void)arg;
    mover_loop_run(&loop);
    return NULL;
}

static int begin_server(void **state)
{
    char error[256];
    int ends[2];
    (void)state;
    asked = 0;
    if (mover_loop_open(&loop) || open_at(NULL, &control, error, sizeof(error)) || pipe(ends))
        return -1;
    end = (struct mover_watch){.fd = ends[0], .ready = end_server, .context = &ends[1]};
    snprintf(folder, sizeof(folder), "%s/sidewire-test", runtime);
    snprintf(socket_path, sizeof(socket_path), "%s/%d.sock", folder, (int)getpid());
    *state = (void *)(intptr_t)ends[1];
    return mover_loop_watch(&loop, &end) || pthread_create(&thread, NULL, run_server, NULL);
}

static int finish_server(void **state)
{
    const int tell = (int)(intptr_t)*state;
    if (write(tell, "", 1) != 1 || pthread_join(thread, NULL))
        return -1;
    mover_control_close(&control);
    mover_control_close(&control); /* does nothing */
    close(end.fd);
    close(tell);
    mover_loop_close(&loop);
    return !access(socket_path, F_OK) || rmdir(folder);
}

static int connect_stranger(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* Says that, and takes the answer. */
static void check_answer(const void *message, size_t bytes, const char *expected)
{
    char answer[256] = "";
    const int fd = connect_stranger(socket_path);
    assert_int_equal(send(fd, message, bytes, MSG_NOSIGNAL), bytes);
    assert_true(recv(fd, answer, sizeof(answer) - 1, 0) > 0);
    if (!strstr(answer, expected))
        fail_msg("%s instead of %s", answer, expected);
    assert_int_equal(recv(fd, answer, sizeof(answer), 0), 0); /* one message a connection */
    close(fd);
}

static void check_asked(const struct mover_ask *of, const char *request, const char *expected)
{
    char *text = mover_ask(of, json_loads(request, 0, NULL));
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

static void control__shows_the_status_and_its_metrics(void **state)
{
    (void)state;
    check_asked(&ask, "{\"command\": \"status\"}", "{\"asked\":1,\"long\":\"x\"}");
    check_asked(&ask, "{\"command\": \"metrics\"}",
                "# HELP sidewire_test_asked_total Times it was asked\n"
                "# TYPE sidewire_test_asked_total counter\n"
                "sidewire_test_asked_total 2\n");
}

static void control__carries_out_commands(void **state)
{
    (void)state;
    check_asked(&ask, "{\"command\": \"add\", \"word\": \"yes\"}", "yes\nand no more");
    assert_null(mover_ask(&ask, json_pack("{s:s}", "command", "add")));
    check_answer("{\"command\": \"add\"}", 18, "{\"ok\":false,\"text\":\"no word\\nand no more\"}");
    check_answer("{\"command\": \"remove\"}", 21, "{\"ok\":false,\"text\":\"caf? is away\"}");
}

static void control__is_found_by_its_number_and_its_path(void **state)
{
    struct mover_ask other = ask;
    char number[16];
    (void)state;
    snprintf(number, sizeof(number), "%d", (int)getpid());
    other.pid = number;
    check_asked(&other, "{\"command\": \"add\", \"word\": \"a\"}", "a\nand no more");
    other.pid = "1";
    assert_null(mover_ask(&other, json_pack("{s:s}", "command", "status")));
    other.path = socket_path; /* says it all */
    check_asked(&other, "{\"command\": \"add\", \"word\": \"a\"}", "a\nand no more");
}

static void control__answers_whatever_is_said(void **state)
{
    static char long_message[MOVER_CONTROL_MESSAGE_MAX + 1];
    (void)state;
    memset(long_message, ' ', sizeof(long_message));
    check_answer("{\"command\": \"fly\"}", 18, "knows no such command");
    check_answer("{\"command\": 1}", 14, "knows no such command");
    check_answer("{}", 2, "knows no such command");
    check_answer("[]", 2, "not a JSON object");
    check_answer("{\"command\": \"status\", \"command\": \"x\"}", 37, "not a JSON object");
    check_answer("\0\xff", 2, "not a JSON object");
    check_answer(long_message, sizeof(long_message), "too long");
    assert_int_equal(asked, 0);
}

/* The ones that connect and are silent hold no place that others need. */
static void control__makes_room_for_the_next_client(void **state)
{
    int fds[2 * MOVER_CONTROL_CLIENTS_MAX];
    const int count = 2 * MOVER_CONTROL_CLIENTS_MAX;
    char byte;
    (void)state;
    for (int i = 0; i < count; i++)
        fds[i] = connect_stranger(socket_path);
    check_asked(&ask, "{\"command\": \"add\", \"word\": \"a\"}", "a\nand no more");
    assert_int_equal(recv(fds[0], &byte, 1, 0), 0);
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static void control__refuses_a_path_that_is_taken_or_too_long(void **state)
{
    struct mover_control second;
    char error[256], path[200];
    (void)state;
    assert_int_equal(open_at(socket_path, &second, error, sizeof(error)), -EADDRINUSE);
    assert_non_null(strstr(error, "another server has it"));
    mover_control_close(&second); /* does nothing */
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = 0;
    assert_int_equal(open_at(path, &second, error, sizeof(error)), -ENAMETOOLONG);
    assert_non_null(strstr(error, "at most 107"));
    mover_control_close(&second);
    check_asked(&ask, "{\"command\": \"add\", \"word\": \"a\"}", "a\nand no more");
}

static int is_stranger_answered(void)
{
    char byte;
    const int fd = connect_stranger(socket_path);
    (void)!send(fd, "{\"command\": \"status\"}", 21, MSG_NOSIGNAL);
    return recv(fd, &byte, 1, 0) > 0;
}

static void control__lets_no_other_user_in(void **state)
{
    struct stat stat;
    (void)state;
    assert_int_equal(lstat(socket_path, &stat), 0);
    assert_int_equal(stat.st_mode & 077, 0);
    assert_int_equal(lstat(folder, &stat), 0);
    assert_int_equal(stat.st_mode & 077, 0);
    if (geteuid())
        skip();
    /* Where modes are not kept, the credentials of who calls decide. */
    assert_int_equal(chmod(runtime, 0711) || chmod(folder, 0711) || chmod(socket_path, 0666), 0);
    const pid_t other = fork(); /* glibc changes the users of all threads of a process */
    if (!other)
        _exit(setuid(12345) ? 2 : is_stranger_answered());
    int status;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    assert_int_equal(asked, 0);
}

static void control__takes_the_path_of_one_that_was_killed(void **state)
{
    char error[256], path[96];
    struct mover_control again;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)state;
    snprintf(path, sizeof(path), "%s/old.sock", runtime);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    close(fd);
    assert_int_equal(mover_loop_open(&loop), 0);
    assert_int_equal(open_at(path, &again, error, sizeof(error)), 0);
    mover_control_close(&again);
    mover_loop_close(&loop);
    assert_int_equal(access(path, F_OK), -1);
}

/* A connection to what is no socket is refused as one to a socket that nobody has any more is. */
static void control__leaves_what_is_no_socket(void **state)
{
    char error[256], path[96], found[16] = "";
    struct mover_control second;
    (void)state;
    snprintf(path, sizeof(path), "%s/precious", folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "data", 4), 4);
    assert_int_equal(open_at(path, &second, error, sizeof(error)), -ENOTSOCK);
    assert_non_null(strstr(error, "take another path"));
    mover_control_close(&second);
    check_asked(&ask, "{\"command\": \"add\", \"word\": \"a\"}", "a\nand no more");
    const int again = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(again, found, sizeof(found)), 4);
    close(again);
    close(fd);
    unlink(path);
}

/* A server that is stopped lets in as many as its socket holds, and those after them wait. */
static void control__is_not_waited_for_without_end(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct mover_ask stopped = ask;
    char path[96];
    (void)state;
    snprintf(path, sizeof(path), "%s/stopped.sock", runtime);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    stopped.path = path;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 0), 0);
    is_impatient = true;
    alarm(10);
    for (int i = 0; i < 3; i++)
        assert_null(mover_ask_command(&stopped, "status"));
    alarm(0);
    is_impatient = false;
    close(fd);
    unlink(path);
}

static void control__says_that_there_is_no_descriptor_for_an_answer(void **state)
{
    char error[256], path[96], answer[128] = "";
    struct rlimit limit, few;
    (void)state;
    snprintf(path, sizeof(path), "%s/few.sock", runtime);
    assert_int_equal(mover_loop_open(&loop), 0);
    assert_int_equal(open_at(path, &control, error, sizeof(error)), 0);
    const int fd = connect_stranger(path), next = dup(fd);
    assert_int_equal(send(fd, "{\"command\": \"status\"}", 21, MSG_NOSIGNAL), 21);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = (struct rlimit){(rlim_t)next + 1, limit.rlim_max}; /* one, for the client */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    mover_loop_turn(&loop, -1);
    mover_loop_turn(&loop, -1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(recv(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT) > 0);
    assert_non_null(strstr(answer, "no descriptor left"));
    close(fd);
    mover_control_close(&control);
    mover_loop_close(&loop);
}

/* The client that waits would wake the loop again and again. */
static void control__pauses_where_there_is_no_descriptor_for_a_client(void **state)
{
    char error[256], path[96], answer[64] = "";
    struct rlimit limit, none;
    (void)state;
    snprintf(path, sizeof(path), "%s/few.sock", runtime);
    assert_int_equal(mover_loop_open(&loop), 0);
    assert_int_equal(open_at(path, &control, error, sizeof(error)), 0);
    const int fd = connect_stranger(path);
    assert_int_equal(send(fd, "[]", 2, MSG_NOSIGNAL), 2);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){0, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    mover_loop_turn(&loop, -1);
    mover_loop_wait(&loop, 0);
    const struct mover_watch *next = mover_loop_next(&loop);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_null(next);
    while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT) < 0)
        mover_loop_turn(&loop, -1);
    assert_non_null(strstr(answer, "not a JSON object"));
    close(fd);
    mover_control_close(&control);
    mover_loop_close(&loop);
}

static int make_runtime(void **state)
{
    (void)state;
    return !mkdtemp(runtime) || setenv("XDG_RUNTIME_DIR", runtime, 1);
}

static int remove_runtime(void **state)
{
    (void)state;
    return rmdir(runtime);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_server, finish_server)
    const struct CMUnitTest tests[] = {
        TEST(control__shows_the_status_and_its_metrics),
        TEST(control__carries_out_commands),
        TEST(control__is_found_by_its_number_and_its_path),
        TEST(control__answers_whatever_is_said),
        TEST(control__makes_room_for_the_next_client),
        TEST(control__refuses_a_path_that_is_taken_or_too_long),
        TEST(control__lets_no_other_user_in),
        TEST(control__leaves_what_is_no_socket),
        cmocka_unit_test(control__is_not_waited_for_without_end),
        cmocka_unit_test(control__says_that_there_is_no_descriptor_for_an_answer),
        cmocka_unit_test(control__takes_the_path_of_one_that_was_killed),
        cmocka_unit_test(control__pauses_where_there_is_no_descriptor_for_a_client),
    };
    return cmocka_run_group_tests(tests, make_runtime, remove_runtime);
}
