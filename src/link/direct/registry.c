/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registry of processes on this host (more exactly: in this network namespace). A process owns
 * slot N while it has the abstract Unix socket "@sidewire.N" bound: claiming is atomic, nothing is
 * left when it dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
    *pid = cred.pid;
    return true;
}

/*
 * In a user namespace that does not map our user, we and every stranger show as the overflow uid.
 * What the kernel still tells apart is who may open a file of mode 0600: an unnamed one that the
 * peer made and we may open for writing was made by our user.
 */
bool sw_registry_proves_user(int fd)
{
    if (!is_overflow_uid(geteuid()))
        return true; /* the credentials were proof enough */
    struct stat info;
    if (fd < 0 || fstat(fd, &info) || info.st_nlink != 0 || (info.st_mode & 0777) != 0600)
        return false;
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    if (again < 0)
        return false;
    close(again);
    return true;
}
