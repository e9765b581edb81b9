/* SPDX-License-Identifier: BSD-2-Clause */
/* The look at all paths: what became of them, what they ask, and the state of the whole. */
#include <string.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "nvme/host/controller.h"
#include "nvme/host/group.h"
#include "nvme/host/machine/call.h"
#include "nvme/wire/sgl.h"

enum {
    OTHERS_WAIT_MS = 1000, /* for paths beside the first that can be used */
    FIRST_AGAIN_MS = 250,  /* between tries while no path has been there */
};

/* What a path's controller is at one moment. */
struct path_view {
    enum sw_nvme_state state;
    uint32_t epoch;
    struct sw_nvme_info info;
    struct sw_nvme_error error;
};

static struct path_view view_path(struct sw_nvme_controller *c)
{
    struct nvh_host *host = nvh_host_of(c);
    pthread_mutex_lock(&host->lock);
    const struct path_view view = {.state = (enum sw_nvme_state)atomic_load(&c->state),
                                   .epoch = atomic_load(&c->epoch),
                                   .info = c->info,
                                   .error = c->error};
    pthread_mutex_unlock(&host->lock);
    return view;
}

/* ---- commands of the machine ---- */

/* With the path's lock held, so it only leaves the answer. */
static void path_answers(void *arg, const struct sw_nvme_result *result)
{
    struct nvh_group_path *path = arg;
    path->result = *result;
    atomic_store(&path->is_answered, true);
}

static void group_take_answer(struct nvh_group *group, uint32_t index, uint64_t now_ns)
{
    struct nvh_group_path *path = &group->paths[index];
    if (!path->is_asked || !atomic_exchange(&path->is_answered, false))
        return;
    path->is_asked = false;
    /* An answer of an older connection is nobody's. */
    if (path->is_live && path->asked_epoch == path->epoch && group->machine.paths[index].waits)
        nvh_path_answered(&group->machine, index, now_ns, &path->result,
                          sw_nvme_mem_data(path->answer));
}

static void send_ask(struct nvh_group *group, uint32_t index, uint64_t now_ns)
{
    struct nvh_group_path *path = &group->paths[index];
    struct nvh_ask ask;
    if (!path->is_live || path->is_asked || !nvh_path_ask(&group->machine, index, now_ns, &ask))
        return;
    struct nvf_sqe sqe = {.opcode = ask.opcode,
                          .nsid = htole32(ask.nsid),
                          .cdw10 = htole32(ask.cdw10),
                          .cdw11 = htole32(ask.cdw11),
                          .cdw12 = htole32(ask.cdw12),
                          .cdw13 = htole32(ask.cdw13)};
    nvf_sgl_set_none(&sqe);
    memset(sw_nvme_mem_data(path->answer), 0, NVH_ASK_BYTES);
    if (ask.bytes)
        nvf_sgl_set_keyed(&sqe, (uintptr_t)path->answer->data, ask.bytes, path->answer->rkey,
                          false);
    struct nvh_host *host = nvh_host_of(path->controller);
    pthread_mutex_lock(&host->lock);
    const bool is_same = atomic_load(&path->controller->epoch) == path->epoch;
    const enum sw_nvme_status status =
        is_same ? nvh_admin_submit(path->controller, &sqe, path_answers, path)
                : SW_NVME_UNREACHABLE;
    pthread_mutex_unlock(&host->lock);
    path->is_asked = !status;
    path->asked_epoch = path->epoch;
    const struct sw_nvme_result result = {.status = status};
    if (status)
        nvh_path_answered(&group->machine, index, now_ns, &result, NULL);
}

/* ---- paths that come and go ---- */

/* The target may be there a moment later: members of a group that come back, say. */
static bool error_may_pass(const struct sw_nvme_error *error)
{
    return error->status == SW_NVME_REFUSED || error->status == SW_NVME_UNREACHABLE ||
           error->status == SW_NVME_TIMEOUT ||
           (error->status == SW_NVME_FAILED && !(error->nvme_status & NVME_SC_DNR));
}

/* Nobody can use the controller yet, so the first try is not followed by a long pause. */
static void try_soon(struct sw_nvme_controller *c, uint64_t now_ns)
{
    struct nvh_host *host = nvh_host_of(c);
    const uint64_t soon_ns = now_ns + FIRST_AGAIN_MS * NS_PER_MS;
    pthread_mutex_lock(&host->lock);
    if (atomic_load(&c->state) == SW_NVME_LOST && c->next_try_ns > soon_ns)
        c->next_try_ns = soon_ns;
    pthread_mutex_unlock(&host->lock);
}

static void lose_path(struct nvh_group *group, uint32_t index, const struct path_view *view,
                      uint64_t now_ns)
{
    if (atomic_load(&group->controller.state) == SW_NVME_CONNECTING)
        try_soon(group->paths[index].controller, now_ns);
    group->paths[index].is_live = false;
    nvh_path_lost(&group->machine, index, now_ns, view->state == SW_NVME_DEAD, view->error.text);
}

static void gain_path(struct nvh_group *group, uint32_t index, const struct path_view *view,
                      uint64_t now_ns)
{
    struct nvh_group_path *path = &group->paths[index];
    const struct sw_nvme_info *own = &view->info, *all = &group->controller.info;
    if (!path->answer && sw_nvme_mem_alloc(path->controller, NVH_ASK_BYTES, &path->answer))
        return; /* the next look tries again */
    if (!path->has_pd && !nvh_group_mems_add_path(group, index))
        return;
    path->has_pd = true;
    path->is_live = true;
    path->info = *own;
    nvh_path_live(&group->machine, index, view->epoch, own->keep_alive_ms,
                  own->traffic_keeps_alive);
    if (group->has_info && (own->transfer_max_bytes < all->transfer_max_bytes ||
                            own->nr_io_queues < all->nr_io_queues))
        nvh_path_refuse(&group->machine, index, now_ns,
                        "the controller there has smaller limits than those of the other paths");
}

static void group_look_path(struct nvh_group *group, uint32_t index, uint64_t now_ns)
{
    struct nvh_group_path *path = &group->paths[index];
    uint32_t event;
    if (!path->controller)
        return;
    sw_nvme_poll(path->controller);
    const struct path_view view = view_path(path->controller);
    const bool is_same = view.epoch == path->epoch, is_live = view.state == SW_NVME_LIVE;
    if (path->is_live ? !is_same || !is_live : !is_same && !is_live)
        lose_path(group, index, &view, now_ns);
    path->epoch = view.epoch;
    group_take_answer(group, index, now_ns);
    if (is_live && !path->is_live)
        gain_path(group, index, &view, now_ns);
    while (sw_nvme_take_event(path->controller, &event) == SW_NVME_OK) {
        struct nvh_event_ring *ring = &group->controller.events;
        nvh_path_event(&group->machine, index, event);
        if (ring->tail - ring->head < NVH_EVENTS_MAX)
            ring->events[ring->tail++ % NVH_EVENTS_MAX] = event;
    }
    send_ask(group, index, now_ns);
}

/* ---- the state of the whole ---- */

static void set_state(struct nvh_group *group, enum sw_nvme_state state)
{
    atomic_store(&group->controller.state, state);
    atomic_fetch_add(&group->machine.version, 1);
}

/* The limits that all paths have that are there. */
static void own_limits(struct nvh_group *group)
{
    struct sw_nvme_info *info = &group->controller.info;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct sw_nvme_info *own = &group->paths[i].info;
        if (!atomic_load(&group->machine.paths[i].used))
            continue;
        if (!group->has_info) {
            *info = *own;
            group->has_info = true;
        }
        info->queue_size = mover_min_u32(info->queue_size, own->queue_size);
        info->nr_io_queues = mover_min_u32(info->nr_io_queues, own->nr_io_queues);
        info->transfer_max_bytes = mover_min_u32(info->transfer_max_bytes, own->transfer_max_bytes);
        info->in_capsule_bytes = mover_min_u32(info->in_capsule_bytes, own->in_capsule_bytes);
    }
}

/* Why there is no path: what the first one says, as a rule. */
static void explain_paths(struct nvh_group *group)
{
    struct sw_nvme_error *error = &group->controller.error;
    const struct nvh_path *first = &group->machine.paths[0];
    enum sw_nvme_status status = SW_NVME_UNREACHABLE;
    if (group->paths[0].controller) {
        const struct path_view view = view_path(group->paths[0].controller);
        status = view.error.status ? view.error.status : status;
    }
    nvh_error(error, first->state == SW_NVME_PATH_REFUSED ? SW_NVME_UNSUPPORTED : status,
              "no path can be used; %s: %.200s", group->paths[0].where, first->why);
}

/* The first time: one of the paths may still come, in the time that its user has for it. */
static bool one_may_come(struct nvh_group *group, uint64_t now_ns)
{
    const struct sw_nvme_options *options = &group->controller.options;
    uint64_t limit_ns = options->connect_timeout_ms * NS_PER_MS;
    if (options->ctrl_loss_tmo_s >= 0)
        limit_ns = mover_min_u64(limit_ns, (uint64_t)options->ctrl_loss_tmo_s * NS_PER_S);
    for (uint32_t i = 0; i < group->count && now_ns - group->begun_ns < limit_ns; i++) {
        if (!group->paths[i].controller || group->machine.paths[i].state != SW_NVME_PATH_AWAY)
            continue;
        const struct path_view view = view_path(group->paths[i].controller);
        if (error_may_pass(&view.error))
            return true;
    }
    return false;
}

/* The first time: others have a moment to come, too. */
static void begin_live(struct nvh_group *group, uint32_t used, uint32_t tried, uint64_t now_ns)
{
    if (used && !group->live_ns)
        group->live_ns = now_ns;
    if (used && (tried == group->count || now_ns - group->live_ns > OTHERS_WAIT_MS * NS_PER_MS)) {
        own_limits(group);
        set_state(group, SW_NVME_LIVE);
    } else if (!used && tried == group->count && !one_may_come(group, now_ns)) {
        explain_paths(group);
        set_state(group, SW_NVME_DEAD);
    }
}

static void group_go_on(struct nvh_group *group, uint32_t used, uint32_t over, uint64_t now_ns)
{
    const int32_t tmo = group->controller.options.ctrl_loss_tmo_s;
    const enum sw_nvme_state state = (enum sw_nvme_state)atomic_load(&group->controller.state);
    if (used) {
        if (state != SW_NVME_LIVE)
            set_state(group, SW_NVME_LIVE);
        return;
    }
    if (state == SW_NVME_LIVE) {
        group->lost_ns = now_ns;
        explain_paths(group);
        set_state(group, SW_NVME_LOST);
    }
    if (over == group->count || (tmo >= 0 && now_ns - group->lost_ns >= (uint64_t)tmo * NS_PER_S)) {
        explain_paths(group);
        set_state(group, SW_NVME_DEAD);
    }
}

void nvh_group_look(struct nvh_group *group, uint64_t now_ns)
{
    uint32_t used = 0, tried = 0, over = 0;
    if (atomic_load(&group->controller.state) == SW_NVME_DEAD)
        return;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct nvh_path *p = &group->machine.paths[i];
        group_look_path(group, i, now_ns);
        used += atomic_load(&p->used) != 0;
        tried += p->was_tried && p->state != SW_NVME_PATH_CHECKED;
        over += p->state == SW_NVME_PATH_GIVEN_UP;
    }
    if (atomic_load(&group->controller.state) == SW_NVME_CONNECTING)
        begin_live(group, used, tried, now_ns);
    else
        group_go_on(group, used, over, now_ns);
}
