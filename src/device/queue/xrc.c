/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains. An SRQ of a domain has a number, made like a QPN (slot and index) and published, so
 * that an initiator checks remote accesses against its PD (IBTA Vol1 annex A14: the SRQ that a
 * packet names stands for the process it is meant for).
 */
#include "device/queue/xrc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "device/nic/context.h"
#include "device/nic/nic.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/queue/srq_impl.h"
#include "device/queue/stand_in.h"
#include "device/queue/xrc_impl.h"

struct sw_xrcd *sw_xrcds;
/* By index. Written under nic.lock; read with a target QP locked, see sw_xrcd_remove_srq(). */
static struct sw_srq *_Atomic numbered[SW_MAX_SRQ];

/* One domain is opened or closed at a time: whether another process has it open is asked without
 * nic.lock. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

#define ANONYMOUS (1ull << 63)

/* The kernel's device numbers have 32 bits. An inode number is not used again while the file is
 * open here. */
static int name_domain(struct sw_xrcd *xrcd, struct sw_context *ctx, int fd)
{
    struct stat file;
    struct sw_netdev_info netdev;
    xrcd->inode = xrcd->announcement = -1;
    if (fd == -1) {
        sw_random_fill(xrcd->name.id, sizeof(xrcd->name.id));
        xrcd->name.id[1] |= ANONYMOUS;
        return 0;
    }
    xrcd->inode = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (xrcd->inode < 0)
        return errno == EMFILE ? -EMFILE : -EBADF;
    if (fstat(xrcd->inode, &file))
        return -EBADF;
    sw_netdev_read(sw_context_netdev(ctx), &netdev);
    xrcd->name.id[0] = file.st_ino;
    xrcd->name.id[1] =
        ((uint64_t)netdev.ifindex << 32 | (uint32_t)file.st_dev) & (uint64_t)~ANONYMOUS;
    return 0;
}

bool sw_domain_is(const struct sw_pub_domain *one, const struct sw_pub_domain *other)
{
    return one->id[0] == other->id[0] && one->id[1] == other->id[1];
}

static void free_domain(struct sw_xrcd *xrcd)
{
    if (xrcd->announcement >= 0)
        close(xrcd->announcement);
    if (xrcd->inode >= 0)
        close(xrcd->inode);
    if (xrcd->no_cq)
        sw_cq_destroy(xrcd->no_cq);
    if (xrcd->ctx)
        sw_context_close(xrcd->ctx);
    free(xrcd);
}

static int make_domain(struct sw_context *ctx, int fd, struct sw_xrcd **out)
{
    struct sw_xrcd *xrcd = calloc(1, sizeof(*xrcd));
    if (!xrcd)
        return -ENOMEM;
    int rc = name_domain(xrcd, ctx, fd);
    if (!rc)
        rc = sw_context_open(sw_context_netdev(ctx), NULL, NULL, &xrcd->ctx);
    if (!rc)
        rc = sw_cq_create(xrcd->ctx, 1, NULL, NULL, &xrcd->no_cq);
    if (rc)
        free_domain(xrcd);
    else
        *out = xrcd;
    return rc;
}

static struct sw_xrcd *find_domain(const struct sw_pub_domain *name)
{
    sw_mutex_assert_held(&sw_nic.lock);
    struct sw_xrcd *at = sw_xrcds;
    while (at && !sw_domain_is(&at->name, name))
        at = at->next;
    return at;
}

/* The domain of `fresh`'s name: an open one, or itself if nobody has it yet. */
static int open_or_make(struct sw_xrcd *fresh, int oflags, struct sw_xrcd **out)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_xrcd *xrcd = find_domain(&fresh->name);
    bool refused = xrcd && oflags & O_EXCL;
    if (xrcd && !refused)
        xrcd->opens++;
    pthread_mutex_unlock(&sw_nic.lock);
    if (refused)
        return -EINVAL;
    if (!xrcd) {
        if (fresh->inode >= 0)
            fresh->announcement = sw_nic.link->domain_announce(&fresh->name, oflags);
        if (fresh->inode >= 0 && fresh->announcement < 0)
            return fresh->announcement;
        xrcd = fresh;
        pthread_mutex_lock(&sw_nic.lock);
        xrcd->opens = 1;
        xrcd->next = sw_xrcds;
        sw_xrcds = xrcd;
        pthread_mutex_unlock(&sw_nic.lock);
    }
    *out = xrcd;
    return 0;
}

int sw_xrcd_open(struct sw_context *ctx, int fd, int oflags, struct sw_xrcd **out)
{
    struct sw_xrcd *fresh;
    int rc = sw_nic_start(); /* again in a forked child */
    if (!rc)
        rc = make_domain(ctx, fd, &fresh);
    if (rc)
        return rc;
    struct sw_xrcd *xrcd = NULL;
    pthread_mutex_lock(&opening);
    rc = open_or_make(fresh, oflags, &xrcd);
    pthread_mutex_unlock(&opening);
    if (xrcd != fresh)
        free_domain(fresh);
    if (!rc)
        *out = xrcd;
    return rc;
}

void sw_xrcd_close(struct sw_xrcd *xrcd)
{
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&sw_nic.lock);
    bool last = --xrcd->opens == 0;
    for (struct sw_xrcd **at = &sw_xrcds; last && *at; at = &(*at)->next) {
        if (*at == xrcd) {
            *at = xrcd->next;
            break;
        }
    }
    while (last && xrcd->pins) {
        pthread_mutex_unlock(&sw_nic.lock);
        usleep(100);
        pthread_mutex_lock(&sw_nic.lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    if (last) {
        sw_stand_in_remove_all(xrcd);
        free_domain(xrcd);
    }
    pthread_mutex_unlock(&opening);
}

void sw_xrcd_fork_child(void)
{
    pthread_mutex_init(&opening, NULL);
    for (struct sw_xrcd *xrcd = sw_xrcds; xrcd; xrcd = xrcd->next) {
        if (xrcd->announcement >= 0)
            close(xrcd->announcement);
        if (xrcd->inode >= 0)
            close(xrcd->inode);
        xrcd->announcement = xrcd->inode = -1;
    }
}

/* Whether an SRQ before `end` in the list has the CQ: each CQ counts once. */
static bool has_cq(const struct sw_xrcd *xrcd, const struct sw_cq *cq, const struct sw_srq *end)
{
    for (const struct sw_srq *srq = xrcd->srqs; srq != end; srq = srq->domain_next)
        if (srq->cq == cq)
            return true;
    return false;
}

static int attach_all(struct sw_xrcd *xrcd, struct sw_cq *cq)
{
    for (struct sw_qp *qp = xrcd->qps; qp; qp = qp->domain_next) {
        int rc = sw_cq_attach(cq, qp);
        if (rc) {
            for (struct sw_qp *done = xrcd->qps; done != qp; done = done->domain_next)
                sw_cq_detach(cq, done);
            return rc;
        }
    }
    return 0;
}

static uint32_t claim_number(struct sw_srq *srq)
{
    sw_mutex_assert_held(&sw_nic.lock);
    for (uint32_t tried = 0; tried < sw_draw_all(&sw_nic.srq_draw); tried++) {
        uint32_t index = sw_draw(&sw_nic.srq_draw);
        if (!atomic_load(&numbered[index])) {
            atomic_store(&numbered[index], srq);
            return sw_qpn_make(sw_nic.slot, index);
        }
    }
    return 0;
}

static struct sw_pub_srq *xrc_entry_of(const struct sw_srq *srq)
{
    return &sw_nic.pub->srqs[sw_srq_index(srq->num)];
}

static void publish_srq(struct sw_srq *srq)
{
    struct sw_pub_srq *entry = xrc_entry_of(srq);
    entry->domain = srq->xrcd->name;
    entry->pd = srq->pd->id;
    entry->cq = srq->cq->index;
    entry->generation++;
    atomic_store_explicit(&entry->word, (uint64_t)entry->generation << 32 | srq->num,
                          memory_order_release);
}

int sw_xrcd_add_srq(struct sw_xrcd *xrcd, struct sw_srq *srq, struct sw_cq *cq)
{
    int rc = 0;
    pthread_mutex_lock(&sw_nic.lock);
    uint32_t num = claim_number(srq);
    if (!num)
        rc = -ENOMEM;
    else if (!has_cq(xrcd, cq, NULL))
        rc = attach_all(xrcd, cq);
    if (!rc) {
        srq->num = num;
        srq->cq = cq;
        srq->xrcd = xrcd;
        srq->domain_next = xrcd->srqs;
        xrcd->srqs = srq;
        atomic_fetch_add(&cq->refs, 1);
        publish_srq(srq);
    } else if (num) {
        atomic_store(&numbered[sw_srq_index(num)], NULL);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return rc;
}

void sw_xrcd_remove_srq(struct sw_srq *srq)
{
    struct sw_xrcd *xrcd = srq->xrcd;
    pthread_mutex_lock(&sw_nic.lock);
    atomic_store(&xrc_entry_of(srq)->word, 0);
    for (struct sw_srq **at = &xrcd->srqs; *at; at = &(*at)->domain_next) {
        if (*at == srq) {
            *at = srq->domain_next;
            break;
        }
    }
    atomic_store(&numbered[sw_srq_index(srq->num)], NULL);
    bool last = !has_cq(xrcd, srq->cq, NULL);
    for (struct sw_qp *qp = xrcd->qps; qp; qp = qp->domain_next) {
        sw_lock_acquire(&qp->lock); /* whoever serves a request for it has finished */
        sw_lock_release(&qp->lock);
        if (last)
            sw_cq_detach(srq->cq, qp);
    }
    atomic_fetch_sub(&srq->cq->refs, 1);
    pthread_mutex_unlock(&sw_nic.lock);
}

uint32_t sw_srq_num(const struct sw_srq *srq)
{
    return srq->num;
}

static void detach_from(struct sw_xrcd *xrcd, struct sw_qp *qp, const struct sw_srq *end)
{
    for (struct sw_srq *srq = xrcd->srqs; srq != end; srq = srq->domain_next)
        if (!has_cq(xrcd, srq->cq, srq))
            sw_cq_detach(srq->cq, qp);
}

int sw_xrcd_add_qp(struct sw_xrcd *xrcd, struct sw_qp *qp)
{
    int rc = 0;
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_srq *srq = xrcd->srqs;
    for (; srq && !rc; srq = rc ? srq : srq->domain_next)
        if (!has_cq(xrcd, srq->cq, srq))
            rc = sw_cq_attach(srq->cq, qp);
    if (rc) {
        detach_from(xrcd, qp, srq);
    } else {
        qp->domain_next = xrcd->qps;
        xrcd->qps = qp;
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return rc;
}

void sw_xrcd_remove_qp(struct sw_qp *qp)
{
    struct sw_xrcd *xrcd = qp->xrcd;
    pthread_mutex_lock(&sw_nic.lock);
    for (struct sw_qp **at = &xrcd->qps; *at; at = &(*at)->domain_next) {
        if (*at == qp) {
            *at = qp->domain_next;
            break;
        }
    }
    detach_from(xrcd, qp, NULL);
    pthread_mutex_unlock(&sw_nic.lock);
}

void sw_xrcd_purge_qp(struct sw_qp *qp)
{
    pthread_mutex_lock(&sw_nic.lock);
    for (struct sw_srq *srq = qp->xrcd->srqs; srq; srq = srq->domain_next) {
        sw_lock_acquire(&srq->cq->poll_lock);
        sw_cq_purge(srq->cq, qp->qpn);
        sw_lock_release(&srq->cq->poll_lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}

bool sw_xrcd_is_overrun(const struct sw_qp *qp, bool tell)
{
    bool overrun = false;
    for (struct sw_srq *srq = qp->xrcd->srqs; srq; srq = srq->domain_next) {
        overrun |= sw_cq_is_overrun(srq->cq);
        if (tell)
            sw_cq_tell_overflow(srq->cq);
    }
    return overrun;
}

static struct sw_qp *xrc_find_target(const struct sw_xrcd *xrcd, uint32_t qpn)
{
    sw_mutex_assert_held(&sw_nic.lock);
    struct sw_qp *qp = xrcd->qps;
    while (qp && (qp->shown_qpn != qpn || sw_stand_in_is(qp)))
        qp = qp->domain_next;
    return qp;
}

/* A QP of ours in RESET that holds one of another process. */
static int open_foreign(struct sw_xrcd *xrcd, uint32_t qpn, struct sw_qp **out)
{
    struct sw_qp_init init = {.type = IBV_QPT_XRC_RECV, .xrcd = xrcd};
    int held = sw_nic.link->target_open(&xrcd->name, qpn);
    if (held < 0)
        return held;
    int rc = sw_qp_create(xrcd->ctx, &init, out);
    if (rc) {
        close(held);
        return rc;
    }
    pthread_mutex_lock(&sw_nic.lock);
    (*out)->shown_qpn = qpn;
    (*out)->held = held;
    pthread_mutex_unlock(&sw_nic.lock);
    return 0;
}

int sw_xrcd_open_qp(struct sw_xrcd *xrcd, uint32_t qpn, struct sw_qp **out, void **owner)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = xrc_find_target(xrcd, qpn);
    if (qp) {
        qp->opens++;
        *out = qp;
        *owner = qp->owner;
    }
    pthread_mutex_unlock(&sw_nic.lock);
    if (qp)
        return 0;
    *owner = NULL;
    return sw_qpn_slot(qpn) == sw_nic.slot ? -EINVAL : open_foreign(xrcd, qpn, out);
}

int sw_xrcd_hold_qp(const struct sw_pub_domain *domain, uint32_t qpn, struct sw_qp **out)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_xrcd *xrcd = find_domain(domain);
    struct sw_qp *qp = xrcd ? xrc_find_target(xrcd, qpn) : NULL;
    if (qp && qp->qpn != qpn) /* not ours either */
        qp = NULL;
    if (qp) {
        qp->opens++;
        qp->holds++;
        xrcd->opens++;
        *out = qp;
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return qp ? 0 : -EINVAL;
}

void sw_xrcd_release_qp(struct sw_qp *qp)
{
    struct sw_xrcd *xrcd = qp->xrcd;
    sw_qp_release(qp);
    sw_xrcd_close(xrcd);
}

static struct sw_srq *find_srq(uint32_t srq_num)
{
    if (sw_qpn_index(srq_num) >= SW_MAX_SRQ)
        return NULL;
    struct sw_srq *srq = atomic_load(&numbered[sw_srq_index(srq_num)]);
    return srq && srq->num == srq_num ? srq : NULL;
}

struct sw_srq *sw_xrcd_srq_of(const struct sw_qp *qp, uint32_t srq_num)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_srq *srq = find_srq(srq_num);
    return srq && srq->xrcd == qp->xrcd ? srq : NULL;
}

struct sw_xrcd *sw_xrcd_of_srq(uint32_t srq_num)
{
    sw_mutex_assert_held(&sw_nic.lock);
    struct sw_srq *srq = find_srq(srq_num);
    return srq ? srq->xrcd : NULL;
}
