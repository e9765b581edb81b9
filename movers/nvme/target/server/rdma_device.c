/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/rdma_device.h"

#include <stdatomic.h>
#include <stdio.h>

#include "common/rdma/memory.h"
#include "common/rdma/watch.h"
#include "nvme/target/server/rdma_receives.h"
#include "nvme/target/server/server.h"
#include "nvme/target/server/thread.h"

enum { CQ_ENTRIES = 4096 };

/* That there is something is all that an event says: the loop polls then. */
static void take_cq_events(struct mover_watch *watch)
{
    struct nvr_device *device = watch->context;
    (void)mover_queue_take(&device->queue); /* another one would wake the loop again */
    device->is_armed = false;
}

/* A thread that something else has woken answers while its queue is still armed: then the first
 * completion of a send has made an event, which would keep it from sleeping. */
bool nvr_device_arm(struct nvr_device *device)
{
    if (device->is_armed && device->has_polled)
        (void)mover_queue_take(&device->queue);
    device->has_polled = false;
    device->is_armed = !ibv_req_notify_cq(device->queue.cq, 0);
    return device->is_armed;
}

struct nvr_queue *nvr_device_queue(struct nvr_device *device, uint32_t qpn)
{
    struct nvr_queue *queue = device->by_qpn[qpn % NVR_QPN_CHAINS];
    while (queue && queue->qp->qp_num != qpn)
        queue = queue->next_by_qpn;
    return queue;
}

/* Looks at all threads. */
static struct nvr_queue *find_queue(const struct nvr_server *server,
                                    const struct ibv_context *verbs, uint32_t qpn)
{
    struct nvr_queue *queue = NULL;
    for (uint32_t i = 0; i < server->thread_count && !queue; i++)
        for (uint32_t j = 0; j < server->threads[i].device_count && !queue; j++)
            if (server->threads[i].devices[j].verbs == verbs)
                queue = nvr_device_queue(&server->threads[i].devices[j], qpn);
    return queue;
}

/* Only one event of a device is of use here. */
static void take_async(struct mover_watch *watch)
{
    const struct nvr_device *device = watch->context;
    struct ibv_async_event event;
    while (!ibv_get_async_event(device->verbs, &event)) {
        struct nvr_queue *queue =
            event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED
                ? find_queue(device->thread->server, device->verbs, event.element.qp->qp_num)
                : NULL;
        if (queue)
            queue->is_drained = true;
        ibv_ack_async_event(&event);
    }
}

/* `first` is the first thread's, NULL for its own. */
static bool device_open(struct nvr_device *device, const struct nvr_device *first)
{
    struct ibv_device_attr attr;
    device->cq_entries = CQ_ENTRIES;
    if (!ibv_query_device(device->verbs, &attr) && attr.max_cqe < CQ_ENTRIES)
        device->cq_entries = attr.max_cqe;
    device->pd = first ? first->pd : ibv_alloc_pd(device->verbs);
    device->watch =
        (struct mover_watch){.is_own = true, .ready = take_cq_events, .context = device};
    if (!device->pd ||
        !mover_queue_open(&device->queue, device->verbs, (uint32_t)device->cq_entries,
                          device->thread->loop.epoll_fd, &device->watch))
        return false;
    device->watch.fd = device->queue.channel->fd;
    if (first)
        return true;
    mover_no_wait(device->verbs->async_fd);
    device->async_watch =
        (struct mover_watch){.fd = device->verbs->async_fd, .ready = take_async, .context = device};
    return !mover_loop_watch(&device->thread->loop, &device->async_watch);
}

void nvr_device_close(struct nvr_device *device)
{
    for (uint32_t i = 0; i < device->shared_count; i++)
        nvr_receives_free(device->shared[i]);
    device->shared_count = 0;
    mover_queue_close(&device->queue);
    if (device->pd && device->thread->base->number == 0) /* closed last */
        ibv_dealloc_pd(device->pd);
}

struct nvr_device *nvr_device_of(struct nvr_thread *thread, struct ibv_context *verbs)
{
    const bool is_first = thread->base->number == 0;
    const struct nvr_device *first =
        is_first ? NULL : nvr_device_of(&thread->server->threads[0], verbs);
    for (uint32_t i = 0; i < thread->device_count; i++)
        if (thread->devices[i].verbs == verbs)
            return &thread->devices[i];
    if (thread->device_count == MOVER_REGION_DEVICES || (!is_first && !first))
        return NULL;
    struct nvr_device *device = &thread->devices[thread->device_count];
    *device = (struct nvr_device){.thread = thread,
                                  .verbs = verbs,
                                  .index = first ? first->index : (int)thread->device_count};
    if (device_open(device, first)) {
        thread->device_count++;
        thread->wants_wake = true; /* to ask the new queue for events */
        return device;
    }
    nvr_device_close(device);
    return NULL;
}

/* Memory of this process that is pinned, by NICs and by whomever; 0 where the system does not
 * say. */
static uint64_t pinned_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof(line), status) && sscanf(line, "VmPin: %llu", &kib) != 1)
        ;
    if (status)
        fclose(status);
    return (uint64_t)kib << 10;
}

static struct ibv_mr *register_region(const struct nvr_device *device, struct mover_region *region)
{
    const bool was_pinned = atomic_load(&region->is_pinned);
    mover_region_pin(region);
    const uint64_t before = pinned_bytes();
    struct mover_memory host = mover_memory_host(region->base, region->len_bytes);
    struct ibv_mr *mr = mover_memory_register(&host, device->pd, 0);
    if (!was_pinned && pinned_bytes() < before + region->len_bytes) /* a NIC in user space */
        atomic_store(&region->is_pinned, false);
    return mr;
}

struct ibv_mr *nvr_device_register(struct nvr_device *device, struct mover_region *region)
{
    void **registered = &region->registered[device->index];
    pthread_mutex_t *lock = &device->thread->server->register_lock;
    struct ibv_mr *mr = __atomic_load_n(registered, __ATOMIC_ACQUIRE);
    if (mr)
        return mr;
    pthread_mutex_lock(lock);
    mr = *registered; /* of a thread that was faster */
    if (!mr)
        mr = register_region(device, region);
    __atomic_store_n(registered, mr, __ATOMIC_RELEASE);
    pthread_mutex_unlock(lock);
    return mr;
}

void nvr_region_forget(struct mover_region *region)
{
    for (int i = 0; i < MOVER_REGION_DEVICES; i++)
        if (region->registered[i]) {
            ibv_dereg_mr(region->registered[i]);
            region->registered[i] = NULL;
        }
}

bool nvr_device_reserve(struct nvr_device *device, int entries)
{
    int wanted = device->cq_entries;
    while (wanted < device->cq_used + entries)
        wanted *= 2;
    if (wanted != device->cq_entries) {
        if (ibv_resize_cq(device->queue.cq, wanted))
            return false;
        device->cq_entries = wanted;
        device->thread->wants_wake = true; /* where it had asked for an event */
    }
    device->cq_used += entries;
    return true;
}
