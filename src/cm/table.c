/* SPDX-License-Identifier: BSD-2-Clause */
/* Where ids are found: by local communication id, by that of the peer, by its QPN. */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "cm/cm_impl.h"

enum { COMM_BITS = 21, COMM_MASK = (1 << COMM_BITS) - 1 };
/* Which sequence that follows from the key; say.c has another one. */
enum { OF_COMM_IDS = 2 };
/* Some are left free, so that a free one is always near. */
enum { ID_COUNT_MAX = COMM_MASK - COMM_MASK / 4 };

static_assert((SW_CM_BUCKETS & (SW_CM_BUCKETS - 1)) == 0, "a power of two");

#define ID_OF(link, member) \
    ((struct sw_cm_id *)(void *)((char *)(link)-offsetof(struct sw_cm_id, member)))

static void link_add(struct sw_cm_link **chain, struct sw_cm_link *link)
{
    *link = (struct sw_cm_link){.next = *chain, .back = chain};
    if (link->next)
        link->next->back = &link->next;
    *chain = link;
}

static void link_remove(struct sw_cm_link *link)
{
    *link->back = link->next;
    if (link->next)
        link->next->back = link->back;
    *link = (struct sw_cm_link){.next = NULL};
}

/* Keyed, as peers choose what is hashed. */
static uint32_t table_bucket_of(const struct sw_cm *cm, uint64_t a, uint64_t b)
{
    return (uint32_t)sw_siphash(&cm->config.key, a, b) & (SW_CM_BUCKETS - 1);
}

/* SIDR has no GUID, so the node is its address. */
static uint64_t node_of(const struct sw_cm *cm, const struct sw_cm_path *path)
{
    uint64_t halves[2];
    memcpy(halves, path->remote_gid, sizeof(halves));
    return sw_siphash(&cm->config.key, halves[0], halves[1]);
}

static uint32_t remote_bucket(const struct sw_cm *cm, const struct sw_cm_id *id)
{
    return table_bucket_of(cm, id->remote_comm_id,
                           id->is_sidr ? node_of(cm, &id->path) : id->remote_ca_guid);
}

/* A number that nobody can foresee, of those that no id has. */
static uint32_t draw_comm_id(struct sw_cm *cm)
{
    uint32_t comm_id;
    do {
        uint64_t drawn = sw_siphash(&cm->config.key, OF_COMM_IDS, cm->comms_drawn++);
        comm_id = (uint32_t)cm->config.slot << COMM_BITS | ((uint32_t)drawn & COMM_MASK);
    } while (!comm_id || sw_cm_by_local(cm, comm_id));
    return comm_id;
}

bool sw_cm_has_room(const struct sw_cm *cm)
{
    return cm->id_count < ID_COUNT_MAX;
}

bool sw_cm_attach(struct sw_cm *cm, struct sw_cm_id *id)
{
    if (!sw_cm_has_room(cm))
        return false;
    id->local_comm_id = draw_comm_id(cm);
    id->cm = cm;
    id->local_known = true;
    link_add(&cm->by_local[id->local_comm_id & (SW_CM_BUCKETS - 1)], &id->local_link);
    cm->id_count++;
    return true;
}

void sw_cm_know_remote(struct sw_cm *cm, struct sw_cm_id *id)
{
    id->remote_known = true;
    link_add(&cm->by_remote[remote_bucket(cm, id)], &id->remote_link);
}

void sw_cm_know_remote_qpn(struct sw_cm *cm, struct sw_cm_id *id)
{
    id->remote_qpn_known = true;
    link_add(&cm->by_remote_qpn[table_bucket_of(cm, id->remote_qpn, id->remote_ca_guid)],
             &id->qpn_link);
}

void sw_cm_forget_remote(struct sw_cm_id *id)
{
    if (id->remote_known)
        link_remove(&id->remote_link);
    id->remote_known = false;
}

void sw_cm_forget_remote_qpn(struct sw_cm_id *id)
{
    if (id->remote_qpn_known)
        link_remove(&id->qpn_link);
    id->remote_qpn_known = false;
}

void sw_cm_detach(struct sw_cm *cm, struct sw_cm_id *id)
{
    sw_cm_timer_clear(&cm->timers, &id->timer);
    sw_cm_forget_remote(id);
    sw_cm_forget_remote_qpn(id);
    sw_cm_uncount_asking(cm, id);
    sw_cm_stop_lingering(cm, id);
    if (id->local_known) {
        link_remove(&id->local_link);
        cm->id_count--;
    }
    id->local_known = false;
    id->state = SW_CM_IDLE;
}

struct sw_cm_id *sw_cm_by_local(const struct sw_cm *cm, uint32_t comm_id)
{
    struct sw_cm_link *link = cm->by_local[comm_id & (SW_CM_BUCKETS - 1)];
    while (link && ID_OF(link, local_link)->local_comm_id != comm_id)
        link = link->next;
    return link ? ID_OF(link, local_link) : NULL;
}

static bool is_at(const struct sw_cm_id *id, const struct sw_cm_path *path)
{
    return memcmp(id->path.remote_gid, path->remote_gid, sizeof(path->remote_gid)) == 0;
}

struct sw_cm_id *sw_cm_by_remote(const struct sw_cm *cm, uint32_t comm_id, uint64_t ca_guid,
                                 const struct sw_cm_path *path)
{
    struct sw_cm_link *link = cm->by_remote[table_bucket_of(cm, comm_id, ca_guid)];
    for (; link; link = link->next) {
        struct sw_cm_id *id = ID_OF(link, remote_link);
        if (!id->is_sidr && id->remote_comm_id == comm_id && id->remote_ca_guid == ca_guid &&
            is_at(id, path))
            return id;
    }
    return NULL;
}

struct sw_cm_id *sw_cm_by_request(const struct sw_cm *cm, uint32_t request_id,
                                  const struct sw_cm_path *path)
{
    struct sw_cm_link *link = cm->by_remote[table_bucket_of(cm, request_id, node_of(cm, path))];
    for (; link; link = link->next) {
        struct sw_cm_id *id = ID_OF(link, remote_link);
        if (id->is_sidr && id->remote_comm_id == request_id && is_at(id, path))
            return id;
    }
    return NULL;
}

struct sw_cm_id *sw_cm_by_remote_qpn(const struct sw_cm *cm, uint32_t qpn, uint64_t ca_guid,
                                     const struct sw_cm_path *path)
{
    struct sw_cm_link *link = cm->by_remote_qpn[table_bucket_of(cm, qpn, ca_guid)];
    for (; link; link = link->next) {
        struct sw_cm_id *id = ID_OF(link, qpn_link);
        if (id->remote_qpn == qpn && id->remote_ca_guid == ca_guid && is_at(id, path))
            return id;
    }
    return NULL;
}

struct sw_cm_id *sw_cm_id_after(const struct sw_cm *cm, const struct sw_cm_id *id)
{
    const struct sw_cm_link *link = id ? id->local_link.next : NULL;
    uint32_t bucket = id ? (id->local_comm_id & (SW_CM_BUCKETS - 1)) + 1 : 0;
    for (; !link && bucket < SW_CM_BUCKETS; bucket++)
        link = cm->by_local[bucket];
    return link ? ID_OF(link, local_link) : NULL;
}

struct sw_cm_id *sw_cm_by_slot(const struct sw_cm *cm, uint16_t slot)
{
    struct sw_cm_id *id = sw_cm_id_after(cm, NULL);
    while (id && id->path.slot != slot)
        id = sw_cm_id_after(cm, id);
    return id;
}

static struct sw_cm_listener *listener_at(struct sw_cm_link *link)
{
    return (struct sw_cm_listener *)(void *)((char *)link - offsetof(struct sw_cm_listener, link));
}

static uint32_t service_bucket(const struct sw_cm *cm, uint64_t service_id)
{
    return table_bucket_of(cm, service_id, 0);
}

struct sw_cm_listener *sw_cm_listener_of(const struct sw_cm *cm, uint64_t service_id)
{
    struct sw_cm_link *link = cm->listeners[service_bucket(cm, service_id)];
    for (; link; link = link->next)
        if (listener_at(link)->service_id == service_id)
            return listener_at(link);
    for (link = cm->masked; link; link = link->next)
        if (((listener_at(link)->service_id ^ service_id) & listener_at(link)->mask) == 0)
            return listener_at(link);
    return NULL;
}

static bool is_taken(const struct sw_cm *cm, uint64_t service_id, uint64_t mask)
{
    if (mask == UINT64_MAX) {
        const struct sw_cm_listener *other = sw_cm_listener_of(cm, service_id);
        return other && other->mask == UINT64_MAX;
    }
    for (struct sw_cm_link *link = cm->masked; link; link = link->next) {
        const struct sw_cm_listener *other = listener_at(link);
        if (((other->service_id ^ service_id) & other->mask & mask) == 0)
            return true;
    }
    return false;
}

int sw_cm_listen(struct sw_cm *cm, struct sw_cm_listener *listener, uint64_t service_id,
                 uint64_t mask, void *user)
{
    if (is_taken(cm, service_id, mask))
        return -EADDRINUSE;
    *listener = (struct sw_cm_listener){
        .service_id = service_id, .mask = mask, .user = user, .listening = true};
    link_add(mask == UINT64_MAX ? &cm->listeners[service_bucket(cm, service_id)] : &cm->masked,
             &listener->link);
    return 0;
}

void sw_cm_unlisten(struct sw_cm *cm, struct sw_cm_listener *listener)
{
    (void)cm;
    if (listener->listening)
        link_remove(&listener->link);
    listener->listening = false;
}
