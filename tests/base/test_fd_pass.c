/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fd_pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool ends_early;

/* That of libc; once it tells of an end that has come after it looked for messages. */
ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
    if (ends_early) {
        ends_early = false;
        message->msg_controllen = 0;
        return 0;
    }
    return syscall(SYS_recvmsg, socket, message, flags);
}

struct pair {
    int ends[2];
};

static int open_pair(void **state)
{
    static struct pair pair;
    *state = &pair;
    return socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair.ends);
}

static int close_pair(void **state)
{
    const struct pair *pair = *state;
    return close(pair->ends[0]) | close(pair->ends[1]);
}

static ssize_t receive_byte(const struct pair *pair, char *byte, int *fd, size_t *count)
{
    return sw_fd_pass_receive(pair->ends[1], byte, 1, fd, 1, count, MSG_DONTWAIT);
}

static void receive__last_words_behind_the_end(void **state)
{
    const struct pair *pair = *state;
    char byte = 0;
    int fd;
    size_t count;
    assert_int_equal(sw_fd_pass_send(pair->ends[0], "x", 1, pair->ends, 1, 0), 0);
    assert_int_equal(shutdown(pair->ends[0], SHUT_WR), 0);
    ends_early = true;
    assert_int_equal(receive_byte(pair, &byte, &fd, &count), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(count, 1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(receive_byte(pair, &byte, &fd, &count), 0);
    assert_int_equal(count, 0);
}

static void receive__keeps_the_descriptor_of_an_empty_message(void **state)
{
    const struct pair *pair = *state;
    char byte = 0;
    int fd;
    size_t count;
    assert_int_equal(sw_fd_pass_send(pair->ends[0], "", 0, pair->ends, 1, 0), 0);
    assert_int_equal(sw_fd_pass_send(pair->ends[0], "x", 1, NULL, 0, 0), 0);
    assert_int_equal(receive_byte(pair, &byte, &fd, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(receive_byte(pair, &byte, &fd, &count), 1);
    assert_int_equal(receive_byte(pair, &byte, &fd, &count), -EAGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(receive__last_words_behind_the_end, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(receive__keeps_the_descriptor_of_an_empty_message,
                                        open_pair, close_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
