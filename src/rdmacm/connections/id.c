/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "rdmacm/connections/farewell.h"
#include "rdmacm/connections/resolving.h"
#include "rdmacm/connections/service.h"
#include "rdmacm/connections/unheard.h"
#include "rdmacm/iwarp/iwarp.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/ports.h"
#include "wire/psn.h"

/* librdmacm keeps IDs in an index of 16 bits. Numbers are given out in turn: it forgets one only
 * after we have, in another thread perhaps. */
#define HANDLES 65536u

struct table {
    void *entries[HANDLES];
    uint32_t next;
};
static struct table ids, groups;

static int claim_handle(struct table *table, void *entry, uint32_t *handle)
{
    for (uint32_t tried = 0; tried < HANDLES; tried++) {
        uint32_t at = table->next++ % HANDLES;
        if (!table->entries[at]) {
            table->entries[at] = entry;
            *handle = at;
            return 0;
        }
    }
    return -ENOMEM;
}

static uint32_t random_psn(void)
{
    return (uint32_t)sw_random64() & SW_PSN_MASK;
}

static void enter_channel(struct sw_ucm_id *id, struct sw_ucm_channel *channel)
{
    id->channel = channel;
    id->next = channel->ids;
    id->back = &channel->ids;
    if (id->next)
        id->next->back = &id->next;
    channel->ids = id;
}

static void leave_channel(struct sw_ucm_id *id)
{
    *id->back = id->next;
    if (id->next)
        id->next->back = id->back;
}

int sw_ucm_id_create(struct sw_ucm_channel *channel, uint32_t port_space, uint8_t qp_type,
                     struct sw_ucm_id **out)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_id *id = calloc(1, sizeof(*id));
    if (!id)
        return -ENOMEM;
    int rc = claim_handle(&ids, id, &id->handle);
    if (rc) {
        free(id);
        return rc;
    }
    sw_cm_id_init(&id->cm, id);
    id->port_space = port_space;
    id->qp_type = qp_type;
    id->psn = random_psn();
    enter_channel(id, channel);
    *out = id;
    return 0;
}

int sw_ucm_id_find_any(struct sw_ucm_channel *channel, uint32_t handle, struct sw_ucm_id **out)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_id *id = handle < HANDLES ? ids.entries[handle] : NULL;
    if (!id)
        return -ENOENT;
    if (id->channel != channel)
        return -EINVAL;
    *out = id;
    return 0;
}

int sw_ucm_id_find(struct sw_ucm_channel *channel, uint32_t handle, struct sw_ucm_id **out)
{
    int rc = sw_ucm_id_find_any(channel, handle, out);
    return rc ? rc : (*out)->state == SW_UCM_DEVICE_REMOVAL ? -ENXIO : 0;
}

int sw_ucm_id_find_bound(struct sw_ucm_channel *channel, uint32_t handle, struct sw_ucm_id **out)
{
    int rc = sw_ucm_id_find(channel, handle, out);
    return rc ? rc : (*out)->dev ? 0 : -EINVAL;
}

int sw_ucm_group_find(struct sw_ucm_channel *channel, uint32_t handle, struct sw_ucm_group **out)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_group *group = handle < HANDLES ? groups.entries[handle] : NULL;
    if (!group)
        return -ENOENT;
    if (group->id->channel != channel)
        return -EINVAL;
    *out = group;
    return 0;
}

int sw_ucm_group_create(struct sw_ucm_id *id, struct sw_ucm_group **out)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_group *group = calloc(1, sizeof(*group));
    if (!group)
        return -ENOMEM;
    int rc = claim_handle(&groups, group, &group->handle);
    if (rc) {
        free(group);
        return rc;
    }
    group->id = id;
    group->next = id->groups;
    id->groups = group;
    *out = group;
    return 0;
}

static void free_events(struct sw_ucm_event *event)
{
    while (event) {
        struct sw_ucm_event *next = event->next;
        free(event);
        event = next;
    }
}

static int is_of_group(const struct sw_ucm_event *event, const void *group)
{
    return event->group == group;
}

static int is_of_id(const struct sw_ucm_event *event, const void *id)
{
    return event->id == id;
}

uint32_t sw_ucm_group_destroy(struct sw_ucm_group *group)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_group **at = &group->id->groups;
    uint32_t reported = group->events_reported;
    free_events(sw_ucm_channel_take(group->id->channel, is_of_group, group));
    while (*at != group)
        at = &(*at)->next;
    *at = group->next;
    groups.entries[group->handle] = NULL;
    free(group);
    return reported;
}

uint32_t sw_ucm_id_destroy(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_channel *channel = id->channel;
    struct sw_ucm_event *events = sw_ucm_channel_take(channel, is_of_id, id);
    uint32_t reported = id->events_reported;
    /* Requests that nobody has fetched are refused; they have no events of their own yet. */
    for (struct sw_ucm_event *event = events; event; event = event->next)
        if (event->request)
            sw_ucm_id_destroy(event->request);
    free_events(events);
    if (id->request)
        id->request->request = NULL; /* a program that guessed the number; the event stays */
    while (id->groups)
        sw_ucm_group_destroy(id->groups);
    sw_ucm_service_leave(id);
    sw_ucm_iwarp_forget(id);
    sw_ucm_farewell_forget(id);
    sw_ucm_resolving_forget(id);
    sw_ucm_unheard_forget(id);
    sw_cm_port_release(id->port);
    id->port = NULL;
    ids.entries[id->handle] = NULL;
    id->handle = UINT32_MAX;
    leave_channel(id);
    id->channel = NULL;
    sw_ucm_service_forget(id);
    return reported;
}

void sw_ucm_id_free(struct sw_ucm_id *id)
{
    free(id);
}

void sw_ucm_id_destroy_all(struct sw_ucm_channel *channel)
{
    sw_rdmacm_assert_locked();
    while (channel->ids)
        sw_ucm_id_destroy(channel->ids);
}

void sw_ucm_id_move(struct sw_ucm_id *id, struct sw_ucm_channel *to)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_event *event = sw_ucm_channel_take(id->channel, is_of_id, id);
    leave_channel(id);
    enter_channel(id, to);
    while (event) {
        struct sw_ucm_event *next = event->next;
        sw_ucm_channel_push(to, event);
        event = next;
    }
}

void sw_ucm_id_each(void (*fn)(struct sw_ucm_id *id, void *arg), void *arg)
{
    sw_rdmacm_assert_locked();
    for (uint32_t i = 0; i < HANDLES; i++)
        if (ids.entries[i])
            fn(ids.entries[i], arg);
}

void sw_ucm_id_fork_child(void)
{
    for (uint32_t i = 0; i < HANDLES; i++) {
        free(groups.entries[i]);
        free(ids.entries[i]);
        groups.entries[i] = ids.entries[i] = NULL;
    }
}
