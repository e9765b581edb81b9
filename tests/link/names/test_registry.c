/* SPDX-License-Identifier: BSD-2-Clause */
/* In a network namespace of its own, so that the slots of other programs are left alone. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/names/registry.h"
#include "link_rig.h"

static unsigned int address_of(uint32_t slot, struct sockaddr_un *out)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    int len = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "sidewire.%u", slot);
    return (unsigned int)(offsetof(struct sockaddr_un, sun_path) + 1 + (unsigned int)len);
}

static void sw_registry_claim__slots_are_in_range(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        int listener = -1;
        uint32_t slot = 0;
        assert_int_equal(sw_registry_claim(&listener, &slot), 0);
        assert_in_range(slot, 1, SW_SLOT_MAX);
        assert_int_not_equal(fcntl(listener, F_GETFD) & FD_CLOEXEC, 0);
        assert_int_not_equal(fcntl(listener, F_GETFL) & O_NONBLOCK, 0);
        close(listener);
    }
}

/* Only names that end there, and each once: connections carry the listener's. */
static void sw_registry_announcers__each_slot_once(void **state)
{
    (void)state;
    int listeners[2], group;
    uint32_t slots[2];
    uint16_t found[4];
    for (int i = 0; i < 2; i++)
        assert_int_equal(sw_registry_claim(&listeners[i], &slots[i]), 0);
    struct sockaddr_un address;
    unsigned int len = address_of(slots[0], &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, len), 0);
    int accepted = accept(listeners[0], NULL, NULL);
    memcpy((char *)&address + len, ".feed", 5);
    group = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(group, (struct sockaddr *)&address, len + 5), 0);

    assert_int_equal(sw_registry_announcers("", found, 4), 2);
    assert_true(found[0] == slots[0] || found[0] == slots[1]);
    assert_int_equal(found[0] + found[1], slots[0] + slots[1]);
    assert_int_equal(sw_registry_announcers("", found, 1), 1);
    assert_int_equal(sw_registry_announcers("feed", found, 4), 1);
    assert_int_equal(found[0], slots[0]);
    assert_int_equal(sw_registry_announcers("fee", found, 4), 0);
    int fds[] = {listeners[0], listeners[1], fd, accepted, group};
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    assert_int_equal(sw_registry_announcers("", found, 4), 0);
}

/* Many at once, each in a process of its own that then waits to be killed. */
static void sw_registry_claim__many_processes_at_once(void **state)
{
    (void)state;
    enum { COUNT = 48 };
    pid_t pids[COUNT];
    int go[2], told[2];
    bool taken[SW_SLOT_MAX + 1] = {false};
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(told), 0);
    for (int i = 0; i < COUNT; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            int listener;
            uint32_t slot = 0;
            char start;
            close(go[1]);
            if (read(go[0], &start, 1) != 0 || sw_registry_claim(&listener, &slot) ||
                write(told[1], &slot, sizeof(slot)) != sizeof(slot))
                _exit(1);
            for (;;)
                pause();
        }
        assert_true(pids[i] > 0);
    }
    close(go[1]); /* all begin now */
    uint32_t slots[COUNT];
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(read(told[0], &slots[i], sizeof(slots[i])), sizeof(slots[i]));
        assert_in_range(slots[i], 1, SW_SLOT_MAX);
        assert_false(taken[slots[i]]);
        taken[slots[i]] = true;
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
    }
    for (int i = 0; i < COUNT; i++) { /* nothing is left of them */
        struct sockaddr_un address;
        unsigned int len = address_of(slots[i], &address);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
        close(fd);
    }
    close(go[0]);
    close(told[0]);
    close(told[1]);
}

static void sw_registry_claim__all_taken(void **state)
{
    (void)state;
    struct rlimit limit = {SW_SLOT_MAX + 64, SW_SLOT_MAX + 64};
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit.rlim_max = before.rlim_max;
    if (before.rlim_max < limit.rlim_cur)
        skip();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    static int fds[SW_SLOT_MAX];
    int last, none = -7;
    uint32_t slot, untouched = 99;
    for (uint32_t i = 0; i < SW_SLOT_MAX; i++)
        assert_int_equal(sw_registry_claim(&fds[i], &slot), 0);
    assert_int_equal(sw_registry_claim(&none, &untouched), -EAGAIN);
    assert_int_equal(none, -7);
    assert_int_equal(untouched, 99);
    close(fds[1000]);
    assert_int_equal(sw_registry_claim(&last, &slot), 0); /* the one that is free is found */
    fds[1000] = last;
    for (uint32_t i = 0; i < SW_SLOT_MAX; i++)
        close(fds[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Whether a connection from a child, that became `uid` first, is taken for one of this user. */
static int same_user_as(uid_t uid, pid_t *child)
{
    int listener = -1;
    uint32_t slot;
    assert_int_equal(sw_registry_claim(&listener, &slot), 0);
    assert_int_equal(fcntl(listener, F_SETFL, 0), 0);
    *child = fork();
    if (*child == 0) {
        struct sockaddr_un address;
        unsigned int len = address_of(slot, &address);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (uid != geteuid() && setuid(uid))
            _exit(1);
        if (connect(fd, (struct sockaddr *)&address, len))
            _exit(2);
        for (;;)
            pause();
    }
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    pid_t pid = 0;
    int same = sw_registry_same_user(fd, &pid);
    if (same)
        assert_int_equal(pid, *child);
    else
        assert_int_equal(pid, 0);
    close(fd);
    close(listener);
    kill(*child, SIGKILL);
    waitpid(*child, NULL, 0);
    return same;
}

static void sw_registry_same_user__own(void **state)
{
    (void)state;
    pid_t child;
    assert_int_equal(same_user_as(geteuid(), &child), 1);
}

static void sw_registry_same_user__stranger(void **state)
{
    (void)state;
    pid_t child;
    if (geteuid() != 0)
        skip(); /* only root can become somebody else */
    assert_int_equal(same_user_as(12345, &child), 0);
}

static void sw_registry_same_user__no_socket(void **state)
{
    (void)state;
    pid_t pid = 5;
    assert_false(sw_registry_same_user(-1, &pid));
    assert_int_equal(pid, 5);
}

int main(void)
{
    if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_registry_claim__slots_are_in_range),
        cmocka_unit_test(sw_registry_announcers__each_slot_once),
        cmocka_unit_test(sw_registry_claim__many_processes_at_once),
        cmocka_unit_test(sw_registry_claim__all_taken),
        cmocka_unit_test(sw_registry_same_user__own),
        cmocka_unit_test(sw_registry_same_user__stranger),
        cmocka_unit_test(sw_registry_same_user__no_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
