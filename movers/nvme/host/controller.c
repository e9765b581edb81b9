/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/controller.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/serve/thread.h"
#include "common/time/clock.h"
#include "nvme/host/admin.h"
#include "nvme/host/completion.h"
#include "nvme/host/connection.h"
#include "nvme/host/group.h"
#include "nvme/host/identity.h"
#include "nvme/host/machine/call.h"
#include "nvme/host/machine/reconnect.h"
#include "nvme/host/queue.h"
#include "nvme/host/secrets.h"

enum { SHUTDOWN_MS = 3000, CC_OFFSET = 0x14, CSTS_OFFSET = 0x1c, THREAD_NAP_MS = 50 };

uint64_t sw_nvme_deadline_ms(uint32_t from_now_ms)
{
    return mover_now_ns() + from_now_ms * NS_PER_MS;
}

enum sw_nvme_status nvh_error(struct sw_nvme_error *error, enum sw_nvme_status status,
                              const char *format, ...)
{
    if (!error)
        return status;
    *error = (struct sw_nvme_error){.status = status};
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return status;
}

void sw_nvme_options_init(struct sw_nvme_options *options)
{
    *options = (struct sw_nvme_options){
        .nr_io_queues = 1,
        .queue_size = 128,
        .keep_alive_ms = 5000,
        .ctrl_loss_tmo_s = 600,
        .reconnect_delay_s = 10,
        .fast_io_fail_tmo_s = -1,
        .connect_timeout_ms = 10000,
        .io_timeout_ms = 30000,
        .quiesce_tmo_s = -1,
    };
}

/* ---- the machine's port ---- */

static void lock_controller(struct sw_nvme_controller *controller)
{
    pthread_mutex_lock(&nvh_host_of(controller)->lock);
}

static bool try_lock_controller(struct sw_nvme_controller *controller)
{
    return !pthread_mutex_trylock(&nvh_host_of(controller)->lock);
}

static void unlock_controller(struct sw_nvme_controller *controller)
{
    pthread_mutex_unlock(&nvh_host_of(controller)->lock);
}

const struct nvh_port nvh_system_port = {
    .now_ns = mover_now_ns,
    .lock = lock_controller,
    .try_lock = try_lock_controller,
    .unlock = unlock_controller,
    .start = nvh_connection_start,
    .look = nvh_connection_look,
    .end = nvh_connection_end,
    .send = nvh_post_sends,
    .drain = nvh_drain_completions,
    .auth_start = nvh_secrets_start,
    .auth_send = nvh_secrets_send,
    .auth_receive = nvh_secrets_receive,
    .auth_end = nvh_secrets_end,
};

/* ---- life ---- */

static void free_device(struct nvh_host *host)
{
    if (host->bounce_mr)
        ibv_dereg_mr(host->bounce_mr);
    if (host->bounce)
        munmap(host->bounce, SW_NVME_ADMIN_MAX);
    if (host->pd)
        ibv_dealloc_pd(host->pd);
    pthread_mutex_destroy(&host->lock);
    pthread_mutex_destroy(&host->bounce_lock);
}

static void free_host(struct nvh_host *host)
{
    nvh_link_free(&host->admin);
    if (!nvh_is_forked(&host->controller)) /* else a thread of the parent may hold the locks */
        free_device(host);
    nvh_secrets_forget(host);
    mover_fork_guard_close(&host->controller.guard);
    free(host->controller.where);
    free(host);
}

static void *keep_alive_thread(void *arg)
{
    struct nvh_host *host = arg;
    while (!atomic_load(&host->thread_ends)) {
        sw_nvme_poll(&host->controller);
        poll(NULL, 0, THREAD_NAP_MS);
    }
    return NULL;
}

static enum sw_nvme_status controller_check_options(const struct sw_nvme_options *options,
                                                    struct sw_nvme_error *error)
{
    if (!options->traddr)
        return nvh_error(error, SW_NVME_INVALID, "no address (traddr) is given");
    if (options->queue_size < 2 || options->queue_size > NVH_QUEUE_MAX)
        return nvh_error(error, SW_NVME_INVALID, "a queue has 2 to %d entries, not %u",
                         NVH_QUEUE_MAX, options->queue_size);
    if (!options->nr_io_queues || options->nr_io_queues > NVH_QUEUES_MAX)
        return nvh_error(error, SW_NVME_INVALID, "a controller has 1 to %d I/O queues, not %u",
                         NVH_QUEUES_MAX, options->nr_io_queues);
    return SW_NVME_OK;
}

enum sw_nvme_status nvh_start(const struct sw_nvme_options *options, bool is_path,
                              struct sw_nvme_error *error, struct sw_nvme_controller **out)
{
    enum sw_nvme_status status = controller_check_options(options, error);
    if (status)
        return status;
    struct nvh_host *host = calloc(1, sizeof(*host));
    if (!host)
        return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for a controller");
    pthread_mutex_init(&host->lock, NULL);
    pthread_mutex_init(&host->bounce_lock, NULL);
    host->controller.options = *options;
    host->controller.is_path = is_path;
    host->controller.admin = &host->admin.queue;
    if (!mover_fork_guard_open(&host->controller.guard))
        status = nvh_error(error, SW_NVME_NO_MEMORY, "no memory for a controller");
    if (!status)
        status = nvh_secrets_take(host, options, error);
    if (!status)
        status = nvh_identity(host, options, error);
    if (!status) {
        status = nvh_link_init(&host->admin, &host->controller, 0, NVF_ADMIN_DEPTH_MIN);
        nvh_error(error, status, "no memory for the admin queue");
    }
    if (status) {
        free_host(host);
        return status;
    }
    sw_nvme_poll(&host->controller);
    if (options->background)
        host->has_thread = !mover_thread_start(&host->thread, keep_alive_thread, host);
    *out = &host->controller;
    return SW_NVME_OK;
}

enum sw_nvme_status sw_nvme_start(const struct sw_nvme_options *options,
                                  struct sw_nvme_error *error, struct sw_nvme_controller **out)
{
    return options->more_count ? nvh_group_start(options, error, out)
                               : nvh_start(options, false, error, out);
}

enum sw_nvme_status sw_nvme_connect(const struct sw_nvme_options *options,
                                    struct sw_nvme_error *error, struct sw_nvme_controller **out)
{
    struct sw_nvme_controller *c;
    enum sw_nvme_status status = sw_nvme_start(options, error, &c);
    if (status)
        return status;
    status = sw_nvme_wait_live(c, sw_nvme_deadline_ms(options->connect_timeout_ms));
    if (!status) {
        *out = c;
        return SW_NVME_OK;
    }
    if (sw_nvme_state_of(c) != SW_NVME_DEAD)
        nvh_error(error, status, "%s did not connect in %u ms", c->where,
                  options->connect_timeout_ms);
    else if (error)
        sw_nvme_last_error(c, error);
    sw_nvme_disconnect(c);
    return status;
}

enum sw_nvme_state sw_nvme_poll(struct sw_nvme_controller *controller)
{
    if (nvh_is_forked(controller))
        return SW_NVME_DEAD;
    if (controller->group) {
        nvh_group_poll(controller);
        return sw_nvme_state_of(controller);
    }
    lock_controller(controller);
    nvh_admin_tend(controller, mover_now_ns());
    unlock_controller(controller);
    return sw_nvme_state_of(controller);
}

static void sleep_on_admin(struct sw_nvme_controller *c)
{
    if (c->group)
        return nvh_group_sleep(c);
    struct nvh_link *admin = &nvh_host_of(c)->admin;
    lock_controller(c);
    const bool sleeps = nvh_queue_arm(admin);
    struct pollfd fd = {.fd = admin->epoll_fd, .events = POLLIN};
    unlock_controller(c);
    if (sleeps)
        poll(&fd, 1, NVH_TEND_NS / 1000000);
}

enum sw_nvme_status sw_nvme_wait_live(struct sw_nvme_controller *controller, uint64_t deadline_ns)
{
    if (nvh_is_forked(controller))
        return SW_NVME_FORKED;
    for (;;) {
        const enum sw_nvme_state state = sw_nvme_poll(controller);
        if (state == SW_NVME_LIVE)
            return SW_NVME_OK;
        if (state == SW_NVME_DEAD) {
            struct sw_nvme_error error;
            sw_nvme_last_error(controller, &error);
            return error.status ? error.status : SW_NVME_UNREACHABLE;
        }
        if (mover_now_ns() >= deadline_ns)
            return SW_NVME_TIMEOUT;
        sleep_on_admin(controller);
    }
}

enum sw_nvme_state sw_nvme_state_of(struct sw_nvme_controller *controller)
{
    return nvh_is_forked(controller) ? SW_NVME_DEAD
                                     : (enum sw_nvme_state)atomic_load(&controller->state);
}

void sw_nvme_last_error(struct sw_nvme_controller *controller, struct sw_nvme_error *error)
{
    if (nvh_is_forked(controller)) {
        nvh_error(error, SW_NVME_FORKED, "%s", sw_nvme_status_text(SW_NVME_FORKED));
        return;
    }
    if (controller->group)
        return nvh_group_last_error(controller, error);
    lock_controller(controller);
    *error = controller->error;
    unlock_controller(controller);
}

void sw_nvme_info_of(struct sw_nvme_controller *controller, struct sw_nvme_info *info)
{
    if (nvh_is_forked(controller)) { /* which may have forked while a thread held the lock */
        *info = controller->info;
        return;
    }
    if (controller->group)
        return nvh_group_info_of(controller, info);
    lock_controller(controller);
    *info = controller->info;
    unlock_controller(controller);
}

/* The controller writes back what it holds. It has seconds for it, and no more. */
static void shut_down(struct sw_nvme_controller *c)
{
    enum { SHUTDOWN_STATUS = 0xc, SHUTDOWN_DONE = 0x8, PERIOD_MS = 2 };
    const uint64_t deadline = sw_nvme_deadline_ms(SHUTDOWN_MS);
    const struct nvf_sqe set = nvh_property_set(CC_OFFSET, nvh_cc(true));
    const struct nvf_sqe get = nvh_property_get(CSTS_OFFSET, false);
    struct sw_nvme_result result;
    if (nvh_call_wait(c, &set, deadline, &result))
        return;
    while (!nvh_call_wait(c, &get, deadline, &result) &&
           (result.value & SHUTDOWN_STATUS) != SHUTDOWN_DONE && mover_now_ns() < deadline)
        poll(NULL, 0, PERIOD_MS);
}

enum sw_nvme_status sw_nvme_take_event(struct sw_nvme_controller *controller, uint32_t *event)
{
    if (nvh_is_forked(controller))
        return SW_NVME_FORKED;
    if (controller->group)
        return nvh_group_take_event(controller, event) ? SW_NVME_OK : SW_NVME_AGAIN;
    lock_controller(controller);
    const bool is_there = nvh_event_take(&controller->events, event);
    unlock_controller(controller);
    return is_there ? SW_NVME_OK : SW_NVME_AGAIN;
}

static void end_host(struct nvh_host *host)
{
    struct sw_nvme_controller *controller = &host->controller;
    if (host->has_thread) {
        atomic_store(&host->thread_ends, true);
        pthread_join(host->thread, NULL);
    }
    if (sw_nvme_state_of(controller) == SW_NVME_LIVE)
        shut_down(controller);
    atomic_store(&controller->state, SW_NVME_DEAD);
    controller->admin->phase = NVH_ENDED;
    nvh_queue_down(controller->admin, false);
}

enum sw_nvme_status sw_nvme_disconnect(struct sw_nvme_controller *controller)
{
    if (!controller)
        return SW_NVME_OK;
    if (controller->group)
        return nvh_group_disconnect(controller);
    struct nvh_host *host = nvh_host_of(controller);
    if (atomic_load(&host->queues) || atomic_load(&host->mems))
        return SW_NVME_INVALID;
    if (!nvh_is_forked(controller))
        end_host(host);
    free_host(host);
    return SW_NVME_OK;
}
