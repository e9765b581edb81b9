/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/paired/trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "device/queue/counters.h"
#include "link/engine.h"
#include "link/paired/hosts.h"
#include "link/paired/paired.h"
#include "link/paired/socket.h"
#include "link/roce/port/path.h"
#include "link/roce/qp/fallback.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"

static bool is_on;
static struct sw_qp_set moved; /* that the port still looks for packets of; the engine's */
static bool has_moved;

/* ---- a queue pair ---- */

static bool knows_host(const struct sw_qp *qp)
{
    const struct sw_roce_qp *r = qp->link_state;
    return sw_hosts_is_found(&r->path.dest);
}

struct sw_paired *sw_paired_try(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_fallback *fallback = is_on ? sw_roce_fallback(qp) : NULL;
    struct sw_paired *p = fallback ? sw_paired_add(qp) : NULL;
    if (!p)
        return NULL;
    p->is_trial = true;
    fallback->is_lower = sw_paired_is_lower(p);
    return p;
}

static void trial_call_peer(struct sw_qp *qp)
{
    if (!sw_paired_of(qp))
        sw_paired_try(qp);
    sw_paired_look();
}

static void hang_up(struct sw_qp *qp)
{
    struct sw_paired *p = sw_paired_of(qp);
    if (p)
        sw_paired_remove(p);
}

/* ---- a pairing ---- */

bool sw_paired_tell_trial(const struct sw_paired *p, enum sw_fallback_event event)
{
    struct sw_fallback *fallback = p->is_trial ? sw_roce_fallback(p->qp) : NULL;
    return !p->is_trial || (fallback && sw_fallback_take(fallback, event, 0) != SW_FALLBACK_REFUSE);
}

bool sw_paired_is_vain(const struct sw_paired *p)
{
    const struct sw_fallback *fallback = sw_roce_fallback(p->qp);
    return !fallback || fallback->state == SW_FALLBACK_BY_PACKETS;
}

/* The rule has said so: TCP carries the queue pair from here on. The end that missed answers tells
 * its owner, also if the peer's call came first. */
void sw_paired_take_over(struct sw_paired *p)
{
    struct sw_qp *qp = p->qp;
    sw_lock_assert_held(&qp->lock);
    const struct sw_fallback *fallback = sw_roce_fallback(qp);
    if (fallback->has_missed)
        sw_hosts_note_found(&p->peer);
    sw_roce_let_go(qp);
    p->is_trial = false;
    p->has_moved = true;
    p->gap_ns = p->again_ns = 0;
    qp->link = &sw_paired_qp_ops;
    sw_qp_publish(qp, qp->state);
    sw_qp_set_add(&moved, qp->index);
    has_moved = true;
    sw_counter_add(qp->ctx->netdev, SW_TCP_FALLBACKS);
}

uint64_t sw_paired_step_moved(uint64_t now_ns)
{
    if (!has_moved)
        return UINT64_MAX;
    has_moved = false;
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_qp_set_next(&moved, 0); i < SW_MAX_QP; i = sw_qp_set_next(&moved, i + 1)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (!qp || sw_roce_unlist(qp))
            sw_qp_set_remove(&moved, i);
        else
            has_moved = true;
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return has_moved ? now_ns + SW_NS_PER_MS : UINT64_MAX;
}

static const struct sw_roce_fallback_ops fallback_ops = {
    .knows = knows_host,
    .call = trial_call_peer,
    .hang_up = hang_up,
};

bool sw_paired_trials_are_on(void)
{
    return is_on;
}

void sw_paired_trials_start(void)
{
    const char *text = getenv("SIDEWIRE_TCP_FALLBACK");
    is_on = !text || strcmp(text, "never") != 0;
    if (is_on && text && *text && strcmp(text, "auto") != 0)
        sw_warn("SIDEWIRE_TCP_FALLBACK=%s is neither auto nor never; using auto", text);
    sw_roce_set_fallback(is_on ? &fallback_ops : NULL);
}

void sw_paired_trials_fork_child(void)
{
    has_moved = false;
}
