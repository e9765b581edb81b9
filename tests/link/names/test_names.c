/* SPDX-License-Identifier: BSD-2-Clause */
/* Names that other users have bound before us: in a network namespace of its own, with nobody as
 * the squatter. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/names/names.h"
#include "link/names/registry.h"
#include "link_rig.h"

enum { NOBODY = 65534 };

static pid_t squatter;

static void bind_as(int type, const char *name, bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, name, strlen(name));
    int fd = socket(AF_UNIX, type, 0);
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) ||
        (listens && listen(fd, 8)))
        _exit(1);
}

/* Has nobody bind names, until squatter_leaves(). */
static void squat(void (*bind_all)(void))
{
    int ready[2];
    char told = 0;
    assert_int_equal(pipe(ready), 0);
    squatter = fork();
    if (squatter == 0) {
        if (setgid(NOBODY) || setuid(NOBODY))
            _exit(1);
        bind_all();
        if (write(ready[1], &told, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &told, 1), 1);
    close(ready[0]);
}

static void squatter_leaves(void)
{
    kill(squatter, SIGKILL);
    waitpid(squatter, NULL, 0);
}

static void some_names(void)
{
    bind_as(SOCK_SEQPACKET, "sidewire.test.mute", false);
    bind_as(SOCK_SEQPACKET, "sidewire.test.loud", true);
    bind_as(SOCK_DGRAM, "sidewire.test.dgram", false);
    bind_as(SOCK_DGRAM, "sidewire.7.beef", false);
}

static void sw_name_bind__once_for_our_user(void **state)
{
    (void)state;
    int fd = sw_name_bind(SOCK_DGRAM, "sidewire.test.own");
    assert_true(fd >= 0);
    assert_int_not_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    assert_int_not_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(sw_name_bind(SOCK_DGRAM, "sidewire.test.own"), -EADDRINUSE);
    close(fd);
    fd = sw_name_bind(SOCK_DGRAM, "sidewire.test.own");
    assert_true(fd >= 0);
    close(fd);
}

static void sw_name_bind__beside_a_squatter(void **state)
{
    (void)state;
    static const char *const names[] = {"sidewire.test.mute", "sidewire.test.loud"};
    squat(some_names);
    for (int i = 0; i < 2; i++) {
        uint32_t uid = 0;
        assert_int_equal(sw_name_connect(names[i]), -ECONNREFUSED); /* he is not of ours */
        assert_true(sw_name_stranger(names[i], &uid));
        assert_int_equal(uid, NOBODY);
        int fd = sw_name_bind(SOCK_SEQPACKET, names[i]);
        assert_true(fd >= 0);
        assert_int_equal(listen(fd, 4), 0);
        assert_int_equal(sw_name_bind(SOCK_SEQPACKET, names[i]), -EADDRINUSE);
        int connected = sw_name_connect(names[i]);
        assert_true(connected >= 0);
        struct pollfd calling = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&calling, 1, 1000), 1);
        close(connected);
        close(fd);
        assert_int_equal(sw_name_connect(names[i]), -ECONNREFUSED);
    }
    squatter_leaves();
}

static void sw_name_find__not_what_a_squatter_has(void **state)
{
    (void)state;
    struct sockaddr_un address;
    socklen_t len;
    uint16_t slots[4];
    squat(some_names);
    assert_false(sw_name_find("sidewire.test.dgram", &address, &len));
    assert_int_equal(sw_registry_announcers("beef", slots, 4), 0);
    int fd = sw_name_bind(SOCK_DGRAM, "sidewire.test.dgram");
    assert_true(sw_name_find("sidewire.test.dgram", &address, &len));
    assert_int_equal(sendto(fd, "x", 1, 0, (struct sockaddr *)&address, len), 1);
    char byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 1);
    close(fd);
    int group = sw_name_bind(SOCK_DGRAM, "sidewire.7.beef");
    assert_int_equal(sw_registry_announcers("beef", slots, 4), 1);
    assert_int_equal(slots[0], 7);
    close(group);
    squatter_leaves();
}

static void all_slots(void)
{
    struct rlimit limit = {SW_SLOT_MAX + 64, SW_SLOT_MAX + 64};
    if (setrlimit(RLIMIT_NOFILE, &limit))
        _exit(1);
    for (uint32_t slot = 1; slot <= SW_SLOT_MAX; slot++) {
        char name[32];
        snprintf(name, sizeof(name), "sidewire.%u", slot);
        bind_as(SOCK_SEQPACKET, name, slot % 2);
    }
}

/* All slots are taken, and each still has its owner: ours, once. */
static void sw_registry_claim__beside_a_squatter(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    int listeners[COUNT];
    uint32_t slots[COUNT];
    uint16_t found[COUNT + 1];
    squat(all_slots);
    assert_int_equal(sw_registry_announcers("", found, COUNT + 1), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(sw_registry_claim(&listeners[i], &slots[i]), 0);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(slots[i], slots[j]);
        int fd = sw_registry_connect(slots[i]);
        assert_true(fd >= 0);
        close(fd);
    }
    assert_int_equal(sw_registry_announcers("", found, COUNT + 1), COUNT);
    for (int i = 0; i < COUNT; i++)
        close(listeners[i]);
    squatter_leaves();
}

int main(void)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNET)) {
        print_message("SKIP: only root has a network namespace and becomes another user\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_name_bind__once_for_our_user),
        cmocka_unit_test(sw_name_bind__beside_a_squatter),
        cmocka_unit_test(sw_name_find__not_what_a_squatter_has),
        cmocka_unit_test(sw_registry_claim__beside_a_squatter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
