/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/datagram/multicast.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "link/names/registry.h"

/* A list of members is used for so long: a join is news to a busy sender only then. */
#define FRESH_NS (5 * SW_NS_PER_MS)
#define LISTS 16u

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

int sw_multicast_join(const union ibv_gid *gid)
{
    struct joined *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    char group[33];
    entry->gid = *gid;
    name_group(gid, group);
    entry->socket = sw_registry_announce(group);
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

static void read_members(struct list *list)
{
    char group[33];
    name_group(&list->gid, group);
    list->count = sw_registry_announcers(group, list->slots, SW_MULTICAST_MEMBERS);
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
