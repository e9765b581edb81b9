/* SPDX-License-Identifier: BSD-2-Clause */
/* Lock order: the groups' lock, then a QP's. */
#include "device/serve/mcast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "device/rules/device_limits.h"
#include "device/serve/datagram.h"

struct group {
    struct group *next;
    union ibv_gid gid;
    uint32_t qp_count;
    struct sw_qp *qps[SW_MAX_MCAST_QPS];
};

static struct sw_lock lock;
static struct group *groups;
static uint32_t group_count;

static struct group *find_group(const union ibv_gid *gid)
{
    struct group *group = groups;
    while (group && memcmp(&group->gid, gid, sizeof(*gid)))
        group = group->next;
    return group;
}

static uint32_t position_of(const struct group *group, const struct sw_qp *qp)
{
    uint32_t at = 0;
    while (at < group->qp_count && group->qps[at] != qp)
        at++;
    return at;
}

/* How many of the group's QPs are on a device. */
static uint32_t count_on(const struct group *group, const struct sw_netdev *dev)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->qp_count; i++)
        count += group->qps[i]->ctx->netdev == dev;
    return count;
}

static int create_group(const union ibv_gid *gid, struct group **out)
{
    struct group *group = group_count < SW_MAX_MCAST_GROUPS ? calloc(1, sizeof(*group)) : NULL;
    if (!group)
        return -ENOMEM;
    group->gid = *gid;
    int rc = sw_nic.link->group_join(gid);
    if (rc) {
        free(group);
        return rc;
    }
    group->next = groups;
    groups = group;
    group_count++;
    *out = group;
    return 0;
}

static int attach_locked(struct sw_qp *qp, const union ibv_gid *gid)
{
    struct group *group = find_group(gid);
    if (group && position_of(group, qp) < group->qp_count)
        return 0;
    if (group && group->qp_count == SW_MAX_MCAST_QPS)
        return -ENOMEM;
    int rc = group ? 0 : create_group(gid, &group);
    if (rc)
        return rc;
    group->qps[group->qp_count++] = qp;
    atomic_fetch_add(&qp->groups, 1);
    if (sw_nic.link->group_hear && count_on(group, qp->ctx->netdev) == 1)
        sw_nic.link->group_hear(qp->ctx->netdev, gid);
    return 0;
}

int sw_mcast_attach(struct sw_qp *qp, const union ibv_gid *gid)
{
    if (qp->type != IBV_QPT_UD || qp->orphan || !sw_gid_is_multicast(gid))
        return -EINVAL;
    sw_lock_acquire(&lock);
    int rc = attach_locked(qp, gid);
    sw_lock_release(&lock);
    return rc;
}

static void free_group(struct group *group)
{
    struct group **at = &groups;
    while (*at != group)
        at = &(*at)->next;
    *at = group->next;
    group_count--;
    sw_nic.link->group_leave(&group->gid);
    free(group);
}

int sw_mcast_detach(struct sw_qp *qp, const union ibv_gid *gid)
{
    int rc = -EINVAL;
    sw_lock_acquire(&lock);
    struct group *group = find_group(gid);
    uint32_t at = group ? position_of(group, qp) : 0;
    if (group && at < group->qp_count) {
        group->qps[at] = group->qps[--group->qp_count];
        atomic_fetch_sub(&qp->groups, 1);
        if (sw_nic.link->group_unhear && !count_on(group, qp->ctx->netdev))
            sw_nic.link->group_unhear(qp->ctx->netdev, gid);
        if (!group->qp_count)
            free_group(group);
        rc = 0;
    }
    sw_lock_release(&lock);
    return rc;
}

bool sw_mcast_is_group(const union ibv_gid *gid)
{
    sw_lock_acquire(&lock);
    bool is_group = find_group(gid);
    sw_lock_release(&lock);
    return is_group;
}

void sw_mcast_deliver(const union ibv_gid *gid, struct sw_netdev *dev,
                      const struct sw_datagram *datagram)
{
    sw_lock_acquire(&lock);
    struct group *group = find_group(gid);
    struct sw_datagram one = *datagram;
    one.is_multicast = true;
    for (uint32_t i = 0; group && i < group->qp_count; i++) {
        struct sw_qp *qp = group->qps[i];
        if (dev && qp->ctx->netdev != dev)
            continue;
        if (qp->blocks_own_multicast && qp->qpn == one.src_qpn && !one.is_far)
            continue; /* numbers are of one process each on this host */
        sw_datagram_deliver(qp, &one);
        one.is_copy = true;
    }
    sw_lock_release(&lock);
    if (!group)
        sw_counter_add(dev, SW_RX_DROP_NO_QP);
}

void sw_mcast_fork_child(void)
{
    lock = (struct sw_lock){0};
    groups = NULL; /* another thread of the parent may have been changing the list: left alone */
    group_count = 0;
}
