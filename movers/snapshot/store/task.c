/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/task.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/time/clock.h"

int snap_tasks_open(struct snap_tasks *tasks, struct snap_medium *medium, uint32_t timeout_ms)
{
    *tasks = (struct snap_tasks){.medium = medium, .timeout_ms = timeout_ms};
    size_t bytes = (size_t)SNAP_SLOTS * SNAP_SLOT_BYTES;
    tasks->memory = aligned_alloc(SNAP_BLOCK_BYTES, bytes);
    if (tasks->memory == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < SNAP_SLOTS; i++)
        tasks->free_slots[tasks->free_slots_count++] = tasks->memory + (size_t)i * SNAP_SLOT_BYTES;
    for (uint32_t i = 0; i < SNAP_TASKS; i++) {
        tasks->all[i] = (struct snap_task){.tasks = tasks, .next = tasks->free_tasks};
        tasks->free_tasks = &tasks->all[i];
    }
    int result = medium->ops->use(medium, tasks->memory, bytes);
    if (result != 0)
        snap_tasks_close(tasks);
    return result;
}

void snap_tasks_close(struct snap_tasks *tasks)
{
    free(tasks->memory);
    tasks->memory = NULL;
}

struct snap_task *snap_task_take(struct snap_tasks *tasks, bool has_slot)
{
    struct snap_task *task = tasks->free_tasks;
    if (task == NULL || (has_slot && tasks->free_slots_count == 0))
        return NULL;
    tasks->free_tasks = task->next;
    *task = (struct snap_task){.tasks = tasks};
    if (has_slot)
        task->slot = tasks->free_slots[--tasks->free_slots_count];
    return task;
}

void snap_task_put(struct snap_task *task)
{
    struct snap_tasks *tasks = task->tasks;
    if (task->slot != NULL)
        tasks->free_slots[tasks->free_slots_count++] = task->slot;
    task->next = tasks->free_tasks;
    tasks->free_tasks = task;
}

static void end_store_task(struct snap_io *io, int result)
{
    struct snap_task *task = io->context;
    struct snap_tasks *tasks = task->tasks;
    if (!tasks->is_abandoned)
        task->ended(task, result);
    assert(tasks->under_way > 0);
    tasks->under_way--;
    tasks->ended_count++;
    tasks->failed_reads += io->kind == SNAP_IO_READ && result != 0;
    snap_task_put(task);
}

void snap_task_submit(struct snap_task *task, enum snap_io_kind kind, uint64_t block,
                      uint64_t blocks, void *data)
{
    struct snap_tasks *tasks = task->tasks;
    assert(blocks <= SNAP_IO_BYTES_MAX / SNAP_BLOCK_BYTES);
    task->io = (struct snap_io){.kind = kind,
                                .offset = block * SNAP_BLOCK_BYTES,
                                .bytes = (uint32_t)blocks * SNAP_BLOCK_BYTES,
                                .data = data,
                                .done = end_store_task,
                                .context = task};
    tasks->under_way++;
    if (kind == SNAP_IO_WRITE)
        tasks->written_bytes += task->io.bytes;
    tasks->medium->ops->submit(tasks->medium, &task->io);
}

void snap_tasks_rest(struct snap_tasks *tasks)
{
    struct snap_medium *medium = tasks->medium;
    uint64_t before = tasks->ended_count;
    medium->ops->poll(medium);
    if (tasks->ended_count != before || !medium->ops->arm(medium))
        return;
    struct pollfd pollfd = {.fd = medium->fd, .events = POLLIN};
    poll(&pollfd, 1, medium->fd < 0 ? 1 : 100);
    medium->ops->poll(medium);
}

/* One round of waiting; `since` is when something ended last. */
static int task_wait_round(struct snap_tasks *tasks, uint64_t *since)
{
    uint64_t before = tasks->ended_count;
    snap_tasks_rest(tasks);
    uint64_t now = mover_now_ns();
    if (tasks->ended_count != before)
        *since = now;
    if (now - *since <= tasks->timeout_ms * NS_PER_MS && !tasks->is_abandoned)
        return 0;
    tasks->is_abandoned = true;
    if (tasks->medium->error == 0) {
        tasks->medium->error = -ETIMEDOUT;
        snprintf(tasks->medium->why, sizeof(tasks->medium->why), "it does not answer any more");
    }
    return -ETIMEDOUT;
}

int snap_tasks_wait(struct snap_tasks *tasks)
{
    uint64_t since = mover_now_ns();
    int result = 0;
    while (tasks->under_way > 0 && result == 0)
        result = task_wait_round(tasks, &since);
    return result;
}

int snap_task_take_waiting(struct snap_tasks *tasks, bool has_slot, struct snap_task **task)
{
    uint64_t since = mover_now_ns();
    int result = 0;
    while ((*task = snap_task_take(tasks, has_slot)) == NULL && result == 0)
        result = task_wait_round(tasks, &since);
    return *task != NULL ? 0 : result;
}
