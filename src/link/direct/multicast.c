/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is in a multicast group: a process with attached QPs has the abstract Unix socket
 * "@sidewire.SLOT.GROUP" bound beside that of its slot. The kernel lists all such names and takes
 * them back when the process ends; nothing needs to be asked of processes that are not members.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "device/nic.h"
#include "link/direct/datagram.h"

/* A list of members is used for so long: a join is news to a busy sender only then. */
#define FRESH_NS (5 * SW_NS_PER_MS)
#define LISTS 16u
#define NAME_BYTES 64u

struct joined {
    struct joined *next;
    union ibv_gid gid;
    int socket;
};

struct list {
    union ibv_gid gid;
    uint64_t read_ns; /* 0: never */
    uint32_t count;
    uint16_t slots[SW_MULTICAST_MEMBERS];
};

static struct sw_lock lock; /* leaf */
static struct joined *joined;
static struct list lists[LISTS];
static uint32_t next_list;

static void name_group(const union ibv_gid *gid, char out[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", gid->raw[i]);
}

static int bind_name(const union ibv_gid *gid)
{
    char group[33];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    name_group(gid, group);
    int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "sidewire.%u.%s",
                       sw_nic.slot, group);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len))) {
        int err = errno;
        close(fd);
        sw_warn("cannot announce a multicast group: %s", strerror(err));
        return -err;
    }
    return fd;
}

int sw_multicast_join(const union ibv_gid *gid)
{
    struct joined *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    entry->gid = *gid;
    entry->socket = bind_name(gid);
    if (entry->socket < 0) {
        int rc = entry->socket;
        free(entry);
        return rc;
    }
    sw_lock_acquire(&lock);
    entry->next = joined;
    joined = entry;
    for (uint32_t i = 0; i < LISTS; i++)
        lists[i].read_ns = 0; /* our own sends know at once */
    sw_lock_release(&lock);
    return 0;
}

void sw_multicast_leave(const union ibv_gid *gid)
{
    sw_lock_acquire(&lock);
    struct joined **at = &joined;
    while (*at && memcmp(&(*at)->gid, gid, sizeof(*gid)))
        at = &(*at)->next;
    struct joined *entry = *at;
    if (entry)
        *at = entry->next;
    for (uint32_t i = 0; i < LISTS; i++)
        lists[i].read_ns = 0;
    sw_lock_release(&lock);
    if (entry)
        close(entry->socket);
    free(entry);
}

/* One line of /proc/net/unix; 0 if it is no member of the group. */
static uint32_t slot_of(const char *line, const char group[33])
{
    const char *name = strstr(line, "@sidewire.");
    unsigned int slot;
    char found[34];
    if (!name || sscanf(name, "@sidewire.%u.%33s", &slot, found) != 2 || strcmp(found, group) ||
        slot < 1 || slot > SW_SLOT_MAX)
        return 0;
    return slot;
}

static void read_members(struct list *list)
{
    char group[33], line[256];
    name_group(&list->gid, group);
    list->count = 0;
    FILE *file = fopen("/proc/self/net/unix", "re");
    while (file && fgets(line, sizeof(line), file)) {
        uint32_t slot = slot_of(line, group);
        if (slot && list->count < SW_MULTICAST_MEMBERS)
            list->slots[list->count++] = (uint16_t)slot;
    }
    if (file)
        fclose(file);
    else
        sw_warn("cannot read /proc/self/net/unix: multicast reaches nobody (%s)", strerror(errno));
}

static struct list *list_of(const union ibv_gid *gid)
{
    for (uint32_t i = 0; i < LISTS; i++)
        if (!memcmp(&lists[i].gid, gid, sizeof(*gid)))
            return &lists[i];
    struct list *list = &lists[next_list++ % LISTS];
    list->gid = *gid;
    list->read_ns = 0;
    return list;
}

uint32_t sw_multicast_members(const union ibv_gid *gid, uint16_t slots[SW_MULTICAST_MEMBERS])
{
    uint64_t now_ns = sw_clock_ns();
    sw_lock_acquire(&lock);
    struct list *list = list_of(gid);
    if (!list->read_ns || now_ns - list->read_ns > FRESH_NS) {
        read_members(list);
        list->read_ns = now_ns;
    }
    uint32_t count = list->count;
    memcpy(slots, list->slots, count * sizeof(*slots));
    sw_lock_release(&lock);
    return count;
}

void sw_multicast_fork_child(void)
{
    for (struct joined *entry = joined; entry; entry = entry->next)
        close(entry->socket); /* the groups are our parent's */
    joined = NULL;
    lock = (struct sw_lock){0};
    memset(lists, 0, sizeof(lists));
}
