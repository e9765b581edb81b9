/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/group.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/serve/thread.h"
#include "common/time/clock.h"
#include "nvme/host/controller.h"
#include "nvme/host/machine/keepalive.h"
#include "nvme/host/machine/reconnect.h"

enum { GROUP_NAP_MS = 5 };

/* ---- life ---- */

static void group_free(struct nvh_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        sw_nvme_mem_release(group->paths[i].answer);
        sw_nvme_disconnect(group->paths[i].controller);
        free(group->paths[i].where);
    }
    if (!nvh_is_forked(&group->controller))
        pthread_mutex_destroy(&group->lock);
    mover_fork_guard_close(&group->controller.guard);
    free(group->controller.where);
    free(group);
}

static void *group_thread(void *arg)
{
    struct nvh_group *group = arg;
    while (!atomic_load(&group->thread_ends)) {
        nvh_group_poll(&group->controller);
        poll(NULL, 0, GROUP_NAP_MS);
    }
    return NULL;
}

/* A path whose address leads nowhere is none; the others go on. */
static enum sw_nvme_status start_path(struct nvh_group *group, const struct sw_nvme_options *all,
                                      const struct sw_nvme_address *address,
                                      struct sw_nvme_error *error)
{
    const uint32_t index = group->count;
    struct nvh_group_path *path = &group->paths[index];
    struct sw_nvme_options own = *all;
    own.traddr = address->traddr;
    own.trsvcid = address->trsvcid;
    own.host_traddr = address->host_traddr;
    own.more_count = 0;
    own.background = false;
    own.ctrl_loss_tmo_s = -1; /* the whole gives up, not a path */
    own.fast_io_fail_tmo_s = -1;
    path->group = group;
    const enum sw_nvme_status status = nvh_start(&own, true, error, &path->controller);
    if (asprintf(&path->where, "%s:%s", address->traddr ? address->traddr : "?",
                 address->trsvcid && *address->trsvcid ? address->trsvcid : "4420") < 0) {
        path->where = NULL;
        return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for a path");
    }
    group->count++;
    if (status == SW_NVME_ADDRESS) {
        nvh_path_lost(&group->machine, index, 0, true, error->text);
        return SW_NVME_OK;
    }
    return status;
}

static enum sw_nvme_status start_paths(struct nvh_group *group,
                                       const struct sw_nvme_options *options,
                                       struct sw_nvme_error *error)
{
    const struct sw_nvme_address first = {options->traddr, options->trsvcid, options->host_traddr};
    enum sw_nvme_status status = start_path(group, options, &first, error);
    for (uint32_t i = 0; i < options->more_count && !status; i++)
        status = start_path(group, options, &options->more[i], error);
    for (uint32_t i = 0; i < group->count; i++)
        if (group->paths[i].controller)
            return status;
    return status ? status : SW_NVME_ADDRESS;
}

static void own_options(struct nvh_group *group, const struct sw_nvme_options *options)
{
    struct sw_nvme_options *own = &group->controller.options;
    *own = *options;
    /* The strings are the caller's. */
    own->traddr = own->trsvcid = own->host_traddr = own->subsysnqn = NULL;
    own->hostnqn = own->hostid = own->dhchap_secret = own->dhchap_ctrl_secret = NULL;
    own->more = NULL;
}

enum sw_nvme_status nvh_group_start(const struct sw_nvme_options *options,
                                    struct sw_nvme_error *error,
                                    struct sw_nvme_controller **controller)
{
    struct sw_nvme_error why = {0};
    if (options->more_count >= NVH_PATHS_MAX)
        return nvh_error(error, SW_NVME_INVALID, "a controller has up to %d paths, not %u",
                         NVH_PATHS_MAX, options->more_count + 1);
    if (options->iopolicy > SW_NVME_NUMA)
        return nvh_error(error, SW_NVME_INVALID, "there is no policy of that number");
    struct nvh_group *group = calloc(1, sizeof(*group));
    if (!group)
        return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for a controller");
    pthread_mutex_init(&group->lock, NULL);
    group->controller.group = group;
    group->begun_ns = mover_now_ns();
    own_options(group, options);
    nvh_paths_init(&group->machine, options->more_count + 1, options->quiesce_tmo_s);
    enum sw_nvme_status status = SW_NVME_NO_MEMORY;
    nvh_error(&why, status, "no memory for a controller");
    if (mover_fork_guard_open(&group->controller.guard))
        status = start_paths(group, options, &why);
    if (!status && !(group->controller.where = strdup(group->paths[0].where)))
        status = SW_NVME_NO_MEMORY;
    if (status) {
        group_free(group);
        if (error)
            *error = why;
        return status;
    }
    nvh_group_poll(&group->controller);
    if (options->background)
        group->has_thread = !mover_thread_start(&group->thread, group_thread, group);
    *controller = &group->controller;
    return SW_NVME_OK;
}

enum sw_nvme_status nvh_group_disconnect(struct sw_nvme_controller *controller)
{
    struct nvh_group *group = nvh_group_of(controller);
    if (group->queues || group->mems)
        return SW_NVME_INVALID;
    if (group->has_thread && !nvh_is_forked(controller)) {
        atomic_store(&group->thread_ends, true);
        pthread_join(group->thread, NULL);
    }
    group_free(group);
    return SW_NVME_OK;
}

enum sw_nvme_status sw_nvme_iopolicy_parse(const char *text, enum sw_nvme_iopolicy *policy)
{
    static const char *const names[] = {[SW_NVME_ROUND_ROBIN] = "round-robin",
                                        [SW_NVME_QUEUE_DEPTH] = "queue-depth",
                                        [SW_NVME_NUMA] = "numa"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(text, names[i])) {
            *policy = (enum sw_nvme_iopolicy)i;
            return SW_NVME_OK;
        }
    return SW_NVME_INVALID;
}

/* ---- what programs ask ---- */

void nvh_group_poll(struct sw_nvme_controller *controller)
{
    struct nvh_group *group = nvh_group_of(controller);
    pthread_mutex_lock(&group->lock);
    nvh_group_look(group, mover_now_ns());
    pthread_mutex_unlock(&group->lock);
}

void nvh_group_sleep(struct sw_nvme_controller *controller)
{
    (void)controller;
    poll(NULL, 0, 1);
}

void nvh_group_last_error(struct sw_nvme_controller *controller, struct sw_nvme_error *error)
{
    struct nvh_group *group = nvh_group_of(controller);
    pthread_mutex_lock(&group->lock);
    *error = controller->error;
    pthread_mutex_unlock(&group->lock);
}

void nvh_group_info_of(struct sw_nvme_controller *controller, struct sw_nvme_info *info)
{
    struct nvh_group *group = nvh_group_of(controller);
    pthread_mutex_lock(&group->lock);
    *info = controller->info;
    info->reconnects = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        struct sw_nvme_info own = {0};
        if (group->paths[i].controller)
            sw_nvme_info_of(group->paths[i].controller, &own);
        info->reconnects += own.reconnects;
    }
    pthread_mutex_unlock(&group->lock);
}

bool nvh_group_take_event(struct sw_nvme_controller *controller, uint32_t *event)
{
    struct nvh_group *group = nvh_group_of(controller);
    pthread_mutex_lock(&group->lock);
    const bool is_there = nvh_event_take(&controller->events, event);
    pthread_mutex_unlock(&group->lock);
    return is_there;
}

/* By the first path that is there. One that is lost before the command left does no harm. */
enum sw_nvme_status nvh_group_admin(struct sw_nvme_controller *controller,
                                    const struct sw_nvme_admin *command,
                                    struct sw_nvme_result *result)
{
    struct nvh_group *group = nvh_group_of(controller);
    enum sw_nvme_status status = SW_NVME_UNREACHABLE;
    *result = (struct sw_nvme_result){.status = status};
    for (uint32_t i = 0; i < group->count; i++) {
        if (!atomic_load(&group->machine.paths[i].used))
            continue;
        status = sw_nvme_admin(group->paths[i].controller, command, result);
        if (status != SW_NVME_UNREACHABLE && status != SW_NVME_NOT_DONE)
            break;
    }
    return status;
}

/* ---- what is told of the paths ---- */

static void add_counts(struct sw_nvme_path *out, const struct nvh_lane_counts *counts)
{
    out->requests += atomic_load(&counts->requests);
    out->moved += atomic_load(&counts->moved);
    out->held += atomic_load(&counts->held);
    out->maybe_done += atomic_load(&counts->maybe_done);
}

static void describe_path(const struct nvh_group *group, uint32_t index, int ns,
                          struct sw_nvme_path *out)
{
    const struct nvh_group_path *path = &group->paths[index];
    const struct nvh_path *p = &group->machine.paths[index];
    struct sw_nvme_info info = {0};
    *out = (struct sw_nvme_path){.state = p->state, .quiesce_ms = nvh_path_quiesce_ms(p)};
    snprintf(out->address, sizeof(out->address), "%s", path->where);
    snprintf(out->why, sizeof(out->why), "%s", p->why);
    if (path->controller)
        sw_nvme_info_of(path->controller, &info);
    out->cntlid = info.cntlid;
    out->reconnects = info.reconnects;
    out->ana = ns < 0 || p->state != SW_NVME_PATH_USED
                   ? SW_NVME_ANA_INACCESSIBLE
                   : (enum sw_nvme_ana)atomic_load(&p->namespaces[ns].ana);
    add_counts(out, &path->totals);
    for (const struct nvh_group_queue *queue = group->queues; queue; queue = queue->next)
        add_counts(out, &queue->lanes.lanes[index].counts);
}

/* A controller of one path. */
static void describe_alone(struct sw_nvme_controller *controller, struct sw_nvme_path *out)
{
    struct sw_nvme_info info;
    struct sw_nvme_error error = {0};
    const enum sw_nvme_state state = sw_nvme_state_of(controller);
    sw_nvme_info_of(controller, &info);
    sw_nvme_last_error(controller, &error);
    *out = (struct sw_nvme_path){
        .state = state == SW_NVME_LIVE   ? SW_NVME_PATH_USED
                 : state == SW_NVME_DEAD ? SW_NVME_PATH_GIVEN_UP
                                         : SW_NVME_PATH_AWAY,
        .ana = SW_NVME_ANA_OPTIMIZED,
        .cntlid = info.cntlid,
        .reconnects = info.reconnects,
    };
    snprintf(out->address, sizeof(out->address), "%s", controller->where);
    if (state != SW_NVME_LIVE)
        snprintf(out->why, sizeof(out->why), "%s", error.text);
}

uint32_t sw_nvme_paths_of(struct sw_nvme_controller *controller, uint32_t nsid,
                          struct sw_nvme_path *paths, uint32_t paths_max)
{
    struct nvh_group *group = controller->group;
    if (nvh_is_forked(controller))
        return 0;
    if (!group && paths_max)
        describe_alone(controller, paths);
    if (!group)
        return 1;
    pthread_mutex_lock(&group->lock);
    const int ns =
        !nsid && group->machine.namespaces_count ? 0 : nvh_paths_find(&group->machine, nsid);
    for (uint32_t i = 0; i < group->count && i < paths_max; i++)
        describe_path(group, i, ns, &paths[i]);
    pthread_mutex_unlock(&group->lock);
    return group->count;
}
