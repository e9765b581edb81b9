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

int nvt_commits_open(struct nvt_namespace *ns,
                     int (*propose)(struct nvt_commits *commits,
                                    const struct nvt_reservation *proposed, uint64_t id),
                     void *context)
{
    struct nvt_commits *commits = calloc(1, sizeof(*commits));
    assert(!ns->commits);
    if (!commits)
        return -ENOMEM;
    commits->ns = ns;
    commits->propose = propose;
    commits->context = context;
    list_init(&commits->waiting);
    ns->commits = commits;
    ns->reservation.persists = true;
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
    if (!commits->propose(commits, &commits->proposed, commits->id))
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

void nvt_commits_done(struct nvt_commits *commits, uint64_t id, int rc)
{
    if (!id || id != commits->id)
        return;
    const bool is_orphaned = commits->is_orphaned;
    commits->id = 0;
    commits->is_orphaned = false;
    struct nvt_request *request = is_orphaned ? NULL : take_first(commits);
    if (!rc)
        commits->ns->reservation = commits->proposed;
    if (is_orphaned && !rc) {
        nvt_resv_take_effect(commits->ns, &commits->effect);
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
