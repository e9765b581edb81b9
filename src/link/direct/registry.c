/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registry of processes on this host (more exactly: in this network namespace). A process owns
 * slot N while it has the abstract Unix socket "@sidewire.N" bound: claiming is atomic, nothing is
 * left when it dies. What else a process wants others to know it has bound as "@sidewire.N.WHAT";
 * the kernel lists all such names, so nothing needs to be asked of processes that are not
 * concerned.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"
#include "device/nic.h"
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
    int fd = sw_fd_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
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

bool sw_registry_same_user(int socket, pid_t *pid)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.uid != geteuid())
        return false;
    *pid = cred.pid;
    return true;
}

/* Binds what was printed into the address behind its leading zero. */
static int bind_name(const struct sockaddr_un *address, int len)
{
    int fd = sw_fd_own(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len))) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

int sw_registry_announce(const char *what)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "sidewire.%u.%s",
                       sw_nic.slot, what);
    int fd = bind_name(&address, len);
    if (fd < 0)
        sw_warn("cannot announce %s: %s", what, strerror(-fd));
    return fd;
}

int sw_registry_announce_alone(const char *what)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "sidewire.%s", what);
    return bind_name(&address, len);
}

/* The slot in one line of /proc/net/unix; 0 if that is another name. */
static uint32_t slot_of(const char *line, const char *what)
{
    const char *name = strstr(line, "@sidewire.");
    unsigned int slot;
    int len = 0;
    if (!name || sscanf(name, "@sidewire.%u%n", &slot, &len) != 1 || slot < 1 || slot > SW_SLOT_MAX)
        return 0;
    name += len;
    if (*what && *name++ != '.')
        return 0;
    size_t what_len = strlen(what);
    return !strncmp(name, what, what_len) && name[what_len] == '\n' ? slot : 0;
}

uint32_t sw_registry_announcers(const char *what, uint16_t *slots, uint32_t max)
{
    uint32_t count = 0;
    uint64_t seen[SW_SLOT_MAX / 64 + 1] = {0}; /* connections have the listener's name, too */
    char line[256];
    FILE *file = fopen("/proc/self/net/unix", "re");
    while (file && count < max && fgets(line, sizeof(line), file)) {
        uint32_t slot = slot_of(line, what);
        if (!slot || seen[slot / 64] >> slot % 64 & 1)
            continue;
        seen[slot / 64] |= 1ull << slot % 64;
        slots[count++] = (uint16_t)slot;
    }
    if (file)
        fclose(file);
    else
        sw_warn("cannot read /proc/self/net/unix: who has \"%s\" is not known (%s)", what,
                strerror(errno));
    return count;
}
