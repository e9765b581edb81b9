/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registry of processes on this host (more exactly: in this network namespace). A process owns
 * slot N while it has the name "sidewire.N" (names.h): claiming is atomic, nothing is left when it
 * dies. Other things that a process wants others to know it has bound as "sidewire.N.WHAT"; the
 * kernel lists all such names, so nothing needs to be asked of processes that are not concerned.
 */
#include "link/names/registry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"
#include "device/nic/nic.h"
#include "link/names/names.h"

void sw_registry_name(uint32_t slot, const char *what, char out[SW_NAME_BYTES])
{
    snprintf(out, SW_NAME_BYTES, "sidewire.%u%s%s", slot, *what ? "." : "", what);
}

int sw_registry_connect(uint32_t slot)
{
    char name[SW_NAME_BYTES];
    sw_registry_name(slot, "", name);
    return sw_name_connect(name);
}

/* Tells who has the slots, where none could be had. */
static void report_full(void)
{
    uint32_t strangers = 0, uid = 0, last = 0;
    for (uint32_t slot = 1; slot <= SW_SLOT_MAX; slot += 97) {
        char name[SW_NAME_BYTES];
        sw_registry_name(slot, "", name);
        if (sw_name_stranger(name, &uid)) {
            strangers++;
            last = uid;
        }
    }
    if (strangers)
        sw_error("all %u process slots of this host are in use, many of them by user %u",
                 SW_SLOT_MAX, last);
    else
        sw_error("all %u process slots of this host are in use", SW_SLOT_MAX);
}

static int listen_as(int fd, uint32_t slot, int *listener, uint32_t *out)
{
    if (listen(fd, 128)) {
        int err = errno;
        close(fd);
        return -err;
    }
    *listener = fd;
    *out = slot;
    return 0;
}

/* The first slot from `start` on whose plain name is free. -EADDRINUSE: none is. */
static int claim_plain(uint32_t start, int *listener, uint32_t *out)
{
    int fd = sw_fd_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -errno;
    for (uint32_t tried = 0; tried < SW_SLOT_MAX; tried++) {
        struct sockaddr_un address;
        char name[SW_NAME_BYTES];
        uint32_t slot = 1 + (start + tried) % SW_SLOT_MAX;
        sw_registry_name(slot, "", name);
        const socklen_t len = sw_name_address(name, &address);
        if (bind(fd, (struct sockaddr *)&address, len) == 0)
            return listen_as(fd, slot, listener, out);
        if (errno != EADDRINUSE)
            break;
    }
    int err = errno;
    close(fd);
    return -err;
}

/* Where all plain names are taken: one that a process of another user has. */
static int claim_suffixed(uint32_t start, int *listener, uint32_t *out)
{
    uint16_t slots[SW_SLOT_MAX];
    bool is_ours[SW_SLOT_MAX + 1] = {false};
    uint32_t count = sw_registry_announcers("", slots, SW_SLOT_MAX);
    for (uint32_t i = 0; i < count; i++)
        is_ours[slots[i]] = true;
    for (uint32_t tried = 0, attempts = 0; tried < SW_SLOT_MAX && attempts < 8; tried++) {
        char name[SW_NAME_BYTES];
        uint32_t slot = 1 + (start + tried) % SW_SLOT_MAX;
        if (is_ours[slot])
            continue;
        sw_registry_name(slot, "", name);
        int fd = sw_name_bind(SOCK_SEQPACKET, name);
        if (fd >= 0)
            return listen_as(fd, slot, listener, out);
        attempts++;
    }
    return -EADDRINUSE;
}

/* A random start makes it unlikely that a slot (and with it a QPN) is taken over soon after its
 * owner died. */
int sw_registry_claim(int *listener, uint32_t *slot)
{
    uint32_t start = 0;
    if (getrandom(&start, sizeof(start), GRND_NONBLOCK) != sizeof(start))
        start = (uint32_t)getpid();
    int rc = claim_plain(start, listener, slot);
    if (rc == -EADDRINUSE)
        rc = claim_suffixed(start, listener, slot);
    if (rc == -EADDRINUSE) {
        report_full();
        return -EAGAIN;
    }
    if (rc)
        sw_error("cannot claim a process slot: abstract Unix socket refused: %s", strerror(-rc));
    return rc;
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

int sw_registry_announce(const char *what)
{
    char name[SW_NAME_BYTES];
    sw_registry_name(sw_nic.slot, what, name);
    int fd = sw_name_bind(SOCK_DGRAM, name);
    if (fd < 0)
        sw_warn("cannot announce %s: %s", what, strerror(-fd));
    return fd;
}

int sw_registry_announce_alone(const char *what)
{
    char name[SW_NAME_BYTES];
    snprintf(name, sizeof(name), "sidewire.%s", what);
    return sw_name_bind(SOCK_DGRAM, name);
}

struct announcers {
    const char *what;
    uint64_t seen[SW_SLOT_MAX / 64 + 1];
    uint16_t *slots;
    uint32_t count, max;
};

static bool take_announcer(void *context, const char *name)
{
    struct announcers *found = context;
    unsigned int slot;
    int len = 0;
    if (sscanf(name, "sidewire.%u%n", &slot, &len) != 1 || slot < 1 || slot > SW_SLOT_MAX)
        return true;
    name += len;
    if (*found->what && *name++ != '.')
        return true;
    if (strcmp(name, found->what) != 0 || found->seen[slot / 64] >> slot % 64 & 1)
        return true;
    found->seen[slot / 64] |= 1ull << slot % 64;
    found->slots[found->count++] = (uint16_t)slot;
    return found->count < found->max;
}

uint32_t sw_registry_announcers(const char *what, uint16_t *slots, uint32_t max)
{
    struct announcers found = {.what = what, .slots = slots, .max = max};
    if (!sw_names_visit("sidewire.", take_announcer, &found))
        sw_warn("the names of processes cannot be listed: who has \"%s\" is not known", what);
    return found.count;
}
