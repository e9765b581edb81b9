/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/commit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/model/namespace.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/reserve.h"
#include "nvme/target/model/target.h"

/* The host may say it again: the group lacks a quorum of its log, and will have one. Or nobody
 * knows what has become of it, since another target owns the namespace by now. */
enum { LATER = NVME_SC_NS_NOT_READY, UNKNOWN = NVME_SC_INTERNAL };

/* Less than hosts wait before they give the connection up. */
#define PATIENCE_NS 5000000000ull

static struct nvt_commits *make_commits(struct nvt_namespace *ns, void *context)
{
    struct nvt_commits *commits = calloc(1, sizeof(*commits));
    assert(!ns->commits);
    if (!commits)
        return NULL;
    commits->ns = ns;
    commits->context = context;
    list_init(&commits->waiting);
    ns->commits = commits;
    ns->reservation.persists = true;
    return commits;
}

int nvt_commits_open(struct nvt_namespace *ns,
                     int (*propose)(struct nvt_commits *commits,
                                    const struct nvt_reservation *proposed, uint64_t id),
                     void *context)
{
    struct nvt_commits *commits = make_commits(ns, context);
    if (commits)
        commits->propose = propose;
    return commits ? 0 : -ENOMEM;
}

int nvt_commits_share(struct nvt_namespace *ns,
                      int (*ask)(struct nvt_commits *commits,
                                 const struct nvt_reservation_change *change, uint64_t id),
                      void (*holds)(struct nvt_commits *commits, uint64_t number), void *context)
{
    struct nvt_commits *commits = make_commits(ns, context);
    if (!commits)
        return -ENOMEM;
    commits->ask = ask;
    commits->holds = holds;
    return 0;
}

void nvt_commits_close(struct nvt_commits *commits)
{
    assert(!commits || list_is_empty(&commits->waiting));
    free(commits);
}

static struct nvt_request *take_first(struct nvt_commits *commits)
{
    struct list_node *node = list_first(&commits->waiting);
    list_remove(node);
    return LIST_MEMBER(node, struct nvt_request, wait);
}

static int ask_group(struct nvt_commits *commits, const struct nvt_request *request)
{
    if (!commits->ask)
        return commits->propose(commits, &commits->proposed, commits->id);
    const struct nvt_reservation_change change = nvt_resv_change_of(request);
    commits->status = UNKNOWN;
    return commits->ask(commits, &change, commits->id);
}

/* The first one's change, which is under way then. A status: it is not to be. */
static uint16_t propose_first(struct nvt_commits *commits)
{
    struct nvt_namespace *ns = commits->ns;
    struct nvt_request *request =
        LIST_MEMBER(list_first(&commits->waiting), struct nvt_request, wait);
    if (request->queue->is_gone)
        return NVME_SC_ABORT_REQ;
    commits->proposed = ns->reservation;
    const uint16_t status = nvt_resv_compute(request, &commits->proposed, &commits->effect);
    if (status)
        return status;
    commits->id = ++ns->target->commit_serial;
    if (!ask_group(commits, request))
        return 0;
    commits->id = 0;
    return LATER;
}

static void propose_next(struct nvt_commits *commits)
{
    while (!commits->id && !list_is_empty(&commits->waiting)) {
        const uint16_t status = propose_first(commits);
        if (status)
            nvt_request_finish(take_first(commits), status);
    }
}

void nvt_commits_add(struct nvt_commits *commits, struct nvt_request *request)
{
    if (commits->is_orphaned)
        return nvt_request_finish(request, LATER);
    request->since_ns = commits->ns->target->now_ns;
    list_append(&commits->waiting, &request->wait);
    propose_next(commits);
}

/* ---- of a namespace that all targets serve ---- */

/* Commands that wait here come after each change that is applied meanwhile. */
static uint32_t put_behind(struct nvt_commits *commits)
{
    uint32_t count = 0;
    for (struct list_node *node = list_first(&commits->waiting); node;
         node = list_after(&commits->waiting, node)) {
        LIST_MEMBER(node, struct nvt_request, wait)->ns_entry = commits->ns->preemptions + 1;
        count++;
    }
    return count;
}

void nvt_commits_apply(struct nvt_commits *commits, const struct nvt_applied *applied)
{
    struct nvt_namespace *ns = commits->ns;
    struct nvt_reservation_effect *effect = &commits->effect;
    struct nvt_reservation after = ns->reservation;
    const bool is_own = applied->id && applied->id == commits->id;
    struct list_node *first = list_first(&commits->waiting);
    if (applied->number <= commits->number)
        return;
    if (applied->is_next) {
        const uint16_t status = nvt_reservation_change(&after, &applied->change, effect);
        if (status)
            memset(effect, 0, sizeof(*effect));
        if (is_own)
            commits->status = status;
    } else {
        nvt_reservation_compare(&ns->reservation, &applied->after, effect);
    }
    ns->reservation = applied->after;
    ns->reservation.persists = true;
    commits->number = applied->number;
    nvt_resv_take_effect(ns, effect,
                         is_own && !commits->is_orphaned && first
                             ? LIST_MEMBER(first, struct nvt_request, wait)
                             : NULL);
    if (effect->abort_count || !applied->is_next)
        nvt_resv_await_calm(ns, &commits->barrier, put_behind(commits));
    else if (!commits->barrier.steps_left)
        commits->holds(commits, commits->number);
}

void nvt_commits_are_calm(struct nvt_commits *commits)
{
    commits->holds(commits, commits->number);
}

static void finish_shared(struct nvt_commits *commits, bool is_orphaned, int rc)
{
    const uint16_t status = rc == -ESTALE ? UNKNOWN : rc ? LATER : commits->status;
    if (!is_orphaned)
        nvt_request_finish(take_first(commits), status);
    propose_next(commits);
}

void nvt_commits_done(struct nvt_commits *commits, uint64_t id, int rc)
{
    if (!id || id != commits->id)
        return;
    const bool is_orphaned = commits->is_orphaned;
    commits->id = 0;
    commits->is_orphaned = false;
    if (commits->ask)
        return finish_shared(commits, is_orphaned, rc);
    struct nvt_request *request = is_orphaned ? NULL : take_first(commits);
    if (!rc)
        commits->ns->reservation = commits->proposed;
    if (is_orphaned && !rc) {
        nvt_resv_take_effect(commits->ns, &commits->effect, NULL);
    } else if (request && rc) {
        nvt_request_finish(request, rc == -ESTALE ? UNKNOWN : LATER);
    } else if (request) {
        nvt_resv_conclude(request, &commits->effect);
    }
    propose_next(commits);
}

void nvt_commits_tick(struct nvt_commits *commits, uint64_t now_ns)
{
    while (commits && !list_is_empty(&commits->waiting)) {
        const struct nvt_request *first =
            LIST_MEMBER(list_first(&commits->waiting), struct nvt_request, wait);
        if (now_ns < first->since_ns + PATIENCE_NS)
            return;
        commits->is_orphaned = commits->id != 0;
        nvt_request_finish(take_first(commits), LATER);
    }
}

void nvt_commits_drop(struct nvt_commits *commits, uint16_t status)
{
    if (!commits)
        return;
    commits->id = 0;
    commits->is_orphaned = false;
    while (!list_is_empty(&commits->waiting))
        nvt_request_finish(take_first(commits), status);
}
