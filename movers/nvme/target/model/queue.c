/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/queue.h"

#include "common/time/clock.h"
#include "nvme/target/backend/lines.h"
#include "nvme/target/model/authenticate.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/share.h"

/*
 * How long a host may take no data and no answer: 30 s, and less while others wait for the memory
 * that it holds. One that takes something now and then is slow; it has longer for each. A host has
 * less time while somebody waits for its request to end. A host that is stopped for longer comes
 * back by a new connection.
 */
enum { TAKES_MS = 30000, TAKES_WANTED_MS = 5000, TAKES_EACH_MS = 300000, TAKES_AWAITED_MS = 5000 };

void nvt_queue_init(struct nvt_queue *queue)
{
    list_init(&queue->requests);
    list_init(&queue->with_host);
    list_init(&queue->waiting_places);
}

/* A preemption waits for it, or the end of its namespace; all threads take turns meanwhile. */
static bool holds_up_others(const struct nvt_request *request)
{
    const struct nvt_namespace *ns = request->ns;
    return ns && (ns->is_removed || !list_is_empty(&ns->preemptors));
}

static bool is_over_since(uint64_t now_ns, uint64_t since_ns, uint64_t ms)
{
    return now_ns > since_ns + ms * NS_PER_MS;
}

/* Someone waits for one of these to end: all of them where threads take turns for that. */
static bool holds_up_too_long(const struct nvt_queue *queue, uint64_t now_ns)
{
    const struct list_node *node = list_first(&queue->with_host); /* the oldest comes first */
    for (; node && queue->target->serial; node = list_after(&queue->with_host, node)) {
        const struct nvt_request *request = LIST_MEMBER(node, struct nvt_request, wait);
        if (!is_over_since(now_ns, request->since_ns, TAKES_AWAITED_MS))
            return false;
        if (holds_up_others(request))
            return true;
    }
    return false;
}

bool nvt_queue_is_stuck(const struct nvt_queue *queue, uint64_t now_ns)
{
    const struct list_node *node = list_first(&queue->with_host);
    if (!node)
        return false;
    const bool is_wanted =
        queue->share && nvt_share_is_in_the_way(&queue->thread->shares, queue->share);
    const uint64_t since_ns = LIST_MEMBER(node, struct nvt_request, wait)->since_ns;
    const uint64_t still_ns = since_ns > queue->took_ns ? since_ns : queue->took_ns;
    return is_over_since(now_ns, still_ns, is_wanted ? TAKES_WANTED_MS : TAKES_MS) ||
           is_over_since(now_ns, since_ns, TAKES_EACH_MS) || holds_up_too_long(queue, now_ns);
}

/* One that waits for memory, an event or its turn at a disk, which may hang; all others come back
 * by themselves. */
static struct nvt_request *find_waiting(struct nvt_queue *queue)
{
    for (struct list_node *node = list_first(&queue->requests); node;
         node = list_after(&queue->requests, node)) {
        struct nvt_request *request = LIST_MEMBER(node, struct nvt_request, node);
        if (request->is_starved || request->is_parked || nvt_lines_has(&request->io))
            return request;
    }
    return NULL;
}

bool nvt_queue_gone(struct nvt_queue *queue)
{
    struct nvt_request *request;
    queue->is_gone = true;
    while ((request = find_waiting(queue))) /* anew each time: its end may end others */
        if (nvt_lines_has(&request->io))
            nvt_lines_end_io(&request->io);
        else
            nvt_request_finish(request, NVME_SC_ABORT_REQ);
    if (queue->ctrl)
        nvt_ctrl_lose_queue(queue->ctrl, queue);
    queue->ctrl = NULL;
    nvt_auth_end(queue);
    if (queue->share)
        nvt_share_release(queue->share);
    queue->share = NULL;
    if (queue->under_way) {
        queue->is_lingering = true;
        list_append(&queue->target->lingering, &queue->linger);
    }
    return queue->under_way == 0;
}

void nvt_queue_forget(struct nvt_queue *queue)
{
    struct nvt_target *target = queue->target;
    if (queue->is_lingering)
        list_remove(&queue->linger);
    queue->is_lingering = false;
    nvt_resets_look(target);
    if (target->calmed)
        target->calmed(target->calmed_context);
}
