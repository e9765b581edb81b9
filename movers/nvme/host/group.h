/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A controller over several paths: what it has of this system, around the machine of multipath/.
 * Each path is a controller of its own. Locks in their order: the group's, then a path's.
 */
#ifndef SW_MOVERS_NVME_HOST_GROUP_H
#define SW_MOVERS_NVME_HOST_GROUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/memory.h"
#include "nvme/host/multipath/lanes.h"
#include "nvme/host/multipath/paths.h"
#include "sidewire/nvme.h"

struct nvh_group_path {
    struct nvh_group *group;
    struct sw_nvme_controller *controller; /* NULL: there is no such address */
    char *where;
    bool is_live, has_pd; /* as the machine was told; it was live once */
    uint32_t epoch;       /* of the controller, when it was looked at last */
    struct sw_nvme_info info;
    struct sw_nvme_mem *answer; /* memory of the commands of the machine */
    bool is_asked;              /* one is under way */
    uint32_t asked_epoch;
    _Atomic bool is_answered;
    struct sw_nvme_result result;
    struct nvh_lane_counts totals; /* of queues that were closed */
};

struct nvh_group_queue {
    struct nvh_lanes lanes; /* first: a handle is both */
    struct nvh_group *group;
    struct nvh_group_queue *next;
    int epoll_fd, timer_fd;
    uint32_t polls, spin_us;
    uint64_t next_tend_ns, next_open_ns;
};

struct nvh_group_mem {
    struct sw_nvme_mem mem; /* first: a handle is both */
    struct sw_nvme_mem *of_path[NVH_PATHS_MAX];
    bool is_ours;
    struct nvh_group_mem *next;
};

struct nvh_group {
    struct sw_nvme_controller controller; /* first: a handle is both */
    pthread_mutex_t lock;                 /* of all below */
    struct nvh_paths machine;
    struct nvh_group_path paths[NVH_PATHS_MAX];
    uint32_t count;
    struct nvh_group_queue *queues;
    struct nvh_group_mem *mems;
    uint64_t begun_ns, next_look_ns, lost_ns;
    uint64_t live_ns; /* since the first path could be used */
    bool has_info;

    pthread_t thread;
    bool has_thread;
    _Atomic bool thread_ends;
};

static inline struct nvh_group *nvh_group_of(struct sw_nvme_controller *controller)
{
    return (struct nvh_group *)controller;
}

/* Those of <sidewire/nvme.h>, for a controller over several paths. */
enum sw_nvme_status nvh_group_start(const struct sw_nvme_options *options,
                                    struct sw_nvme_error *error,
                                    struct sw_nvme_controller **controller);
void nvh_group_poll(struct sw_nvme_controller *controller);
void nvh_group_sleep(struct sw_nvme_controller *controller);
void nvh_group_last_error(struct sw_nvme_controller *controller, struct sw_nvme_error *error);
void nvh_group_info_of(struct sw_nvme_controller *controller, struct sw_nvme_info *info);
bool nvh_group_take_event(struct sw_nvme_controller *controller, uint32_t *event);
enum sw_nvme_status nvh_group_disconnect(struct sw_nvme_controller *controller);
enum sw_nvme_status nvh_group_admin(struct sw_nvme_controller *controller,
                                    const struct sw_nvme_admin *command,
                                    struct sw_nvme_result *result);
enum sw_nvme_status nvh_group_mem_register(struct sw_nvme_controller *controller, void *data,
                                           size_t bytes, bool is_ours, struct sw_nvme_mem **mem);
void nvh_group_mem_release(struct sw_nvme_mem *mem);
enum sw_nvme_status nvh_group_queue_start(struct sw_nvme_controller *controller, uint32_t spin_us,
                                          struct sw_nvme_error *error,
                                          struct sw_nvme_queue **queue);
enum sw_nvme_status nvh_group_queue_open(struct sw_nvme_controller *controller, uint32_t spin_us,
                                         struct sw_nvme_error *error, struct sw_nvme_queue **queue);
void nvh_group_queue_close(struct sw_nvme_queue *queue);
uint32_t nvh_group_queue_poll(struct sw_nvme_queue *queue);
bool nvh_group_queue_arm(struct sw_nvme_queue *queue);
void nvh_group_queue_sleep(struct sw_nvme_queue *queue, uint64_t deadline_ns);

/* ---- among the files of the group; with its lock held ---- */

/* Looks at all paths, and asks what the machine wants to know. */
void nvh_group_look(struct nvh_group *group, uint64_t now_ns);
/* Registers what programs have registered with the group, for a path that is live for the first
 * time. False: no memory. */
bool nvh_group_mems_add_path(struct nvh_group *group, uint32_t path);

#endif
