/* SPDX-License-Identifier: BSD-2-Clause */
#include "attach_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device/nic/netdev.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/proof.h"
#include "link/direct/process/state.h"
#include "link/names/registry.h"

uint32_t played_slot;

int count_fds(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

void wait_fds(int count)
{
    for (int i = 0; i < 2000 && count_fds() != count; i++)
        usleep(1000);
    assert_int_equal(count_fds(), count);
}

void send_message(int fd, const void *bytes, size_t len, const int *fds, int count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec iov = {(void *)bytes, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, (size_t)count * sizeof(int));
    }
    assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), (ssize_t)len);
}

/* Waits for a message; its length, 0 when the other end hung up. */
ssize_t receive_message(int fd, struct sw_message *out, int fds[FDS])
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS * sizeof(int))];
    struct iovec iov = {out, sizeof(*out)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    for (int i = 0; i < FDS; i++)
        fds[i] = -1;
    assert_int_equal(poll(&ready, 1, 5000), 1);
    ssize_t len = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    struct cmsghdr *cmsg = len > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (cmsg)
        memcpy(fds, CMSG_DATA(cmsg), cmsg->cmsg_len - CMSG_LEN(0));
    return len < 0 && errno == ECONNRESET ? 0 : len;
}

void hangs_up(int fd)
{
    struct sw_message in;
    int fds[FDS];
    assert_int_equal(receive_message(fd, &in, fds), 0);
    close(fd);
}

void close_all(const int fds[FDS])
{
    for (int i = 0; i < FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

int claim_slot(void)
{
    int listener;
    assert_int_equal(sw_registry_claim(&listener, &played_slot), 0);
    assert_int_equal(fcntl(listener, F_SETFL, 0), 0); /* blocking */
    return listener;
}

/* What both ends do first (test_proof.c): the pid is this process's own. */
static void prove_self(int fd)
{
    pid_t pid = 0;
    assert_int_equal(sw_proof_run(fd, 5000, &pid), 0);
    assert_int_equal(pid, getpid());
}

int dial(void)
{
    int fd = sw_registry_connect(sw_nic.slot);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0); /* blocking */
    prove_self(fd);
    return fd;
}

/* Waits until the engine is up and has let go of all who called before: descriptors can be counted.
 */
void settle(void)
{
    struct sw_message bad = {0};
    int fd = dial();
    send_message(fd, &bad, sizeof(bad), NULL, 0);
    hangs_up(fd);
    for (int i = 0; i < 5000; i++) {
        pthread_mutex_lock(&sw_direct.lock);
        bool none = !sw_direct.inboxes;
        pthread_mutex_unlock(&sw_direct.lock);
        if (none)
            return;
        usleep(1000);
    }
    fail_msg("the engine keeps the inbox of a client that is gone");
}

int owner_up(void **state)
{
    struct owner *owner = calloc(1, sizeof(*owner));
    rig_open(&owner->rig);
    settle();
    owner->before = count_fds();
    owner->listener = claim_slot();
    owner->peer = sw_peer_get(played_slot);
    *state = owner;
    return 0;
}

int owner_down(void **state)
{
    struct owner *owner = *state;
    close(owner->listener);
    sw_peer_put(owner->peer);
    if (owner->before >= 0)
        wait_fds(owner->before); /* nothing of what was sent is left open */
    rig_close(&owner->rig);
    free(owner);
    return 0;
}

/* The engine calls; returns its connection. */
/* -1: it is a survivor of another test, which has called a slot that this one has claimed. */
static int accept_own_call(struct owner *owner)
{
    struct ucred caller;
    socklen_t len = sizeof(caller);
    const int fd = accept4(owner->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &caller, &len), 0);
    if (caller.pid == getpid())
        return fd;
    close(fd);
    return -1;
}

int answer_call(struct owner *owner)
{
    struct sw_message in;
    struct pollfd calling = {.fd = owner->listener, .events = POLLIN};
    int fds[FDS], fd;
    do
        fd = accept_own_call(owner);
    while (fd < 0 && poll(&calling, 1, CALL_MS) == 1);
    if (fd < 0)
        return fd;
    prove_self(fd);
    assert_int_equal(receive_message(fd, &in, fds), sizeof(in));
    assert_int_equal(in.type, SW_MESSAGE_ATTACH);
    assert_int_equal(in.version, SW_PUB_VERSION);
    assert_int_equal(in.slot, sw_nic.slot);
    assert_int_equal(in.nonce, sw_nic.nonce);
    close_all(fds);
    return fd;
}
