/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registry of processes on this host (more exactly: in this network namespace). A process owns
 * slot N while it has the abstract Unix socket "@sidewire.N" bound: claiming is atomic, nothing is
 * left when it dies.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "link/direct/direct.h"

unsigned int sw_registry_address(uint32_t slot, struct sockaddr_un *out)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    int len = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "sidewire.%u", slot);
    return (unsigned int)(offsetof(struct sockaddr_un, sun_path) + 1 + (unsigned int)len);
}

/* A random start makes it unlikely that a slot (and with it a QPN) is taken over soon after its
 * owner died. */
int sw_registry_claim(int *listener, uint32_t *slot)
{
    uint32_t start = 0;
    if (getrandom(&start, sizeof(start), GRND_NONBLOCK) != sizeof(start))
        start = (uint32_t)getpid();
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        goto failed;
    for (uint32_t tried = 0; tried < SW_SLOT_MAX; tried++) {
        uint32_t candidate = 1 + (start + tried) % SW_SLOT_MAX;
        struct sockaddr_un address;
        unsigned int len = sw_registry_address(candidate, &address);
        if (bind(fd, (struct sockaddr *)&address, len) == 0) {
            if (listen(fd, 128))
                goto failed;
            *listener = fd;
            *slot = candidate;
            return 0;
        }
        if (errno != EADDRINUSE)
            goto failed;
    }
    close(fd);
    sw_error("all %u process slots of this host are in use", SW_SLOT_MAX);
    return -EAGAIN;

failed:;
    int err = errno;
    sw_error("cannot claim a process slot: abstract Unix socket refused: %s", strerror(err));
    if (fd >= 0)
        close(fd);
    return -err;
}

static bool same_user_namespace(pid_t pid)
{
    char path[64], own[64], other[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    ssize_t own_len = readlink("/proc/self/ns/user", own, sizeof(own));
    /* Reading the peer's link needs ptrace rights over it, so it proves the same user by itself. */
    ssize_t other_len = readlink(path, other, sizeof(other));
    return own_len > 0 && own_len == other_len && !memcmp(own, other, (size_t)own_len);
}

static bool is_overflow_uid(uid_t uid)
{
    uid_t overflow = 65534;
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
    if (file) {
        unsigned int value;
        if (fscanf(file, "%u", &value) == 1)
            overflow = value;
        fclose(file);
    }
    return uid == overflow;
}

bool sw_registry_same_user(int socket, pid_t *pid)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.uid != geteuid())
        return false;
    /* In a user namespace without a mapping every foreign user shows as the overflow uid, as we do.
     */
    if (is_overflow_uid(cred.uid) && cred.pid != getpid() && !same_user_namespace(cred.pid))
        return false;
    *pid = cred.pid;
    return true;
}
