/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a store has under way on its medium: a fixed number of tasks, each one io, and staging
 * memory in slots for what does not lie in the ring. Nothing is allocated after open.
 */
#ifndef SW_SNAPSHOT_TASK_H
#define SW_SNAPSHOT_TASK_H

#include <assert.h>

#include "snapshot/core/medium.h"
#include "snapshot/core/unit.h"

enum {
    SNAP_TASKS = 64,
    SNAP_SLOTS = 16,
    SNAP_SLOT_BLOCKS = 64,
    SNAP_SLOT_BYTES = SNAP_SLOT_BLOCKS * SNAP_BLOCK_BYTES,
};

static_assert(SNAP_SLOT_BLOCKS * SNAP_BLOCK_BYTES >= SNAP_UNIT_BLOCKS_MAX * 21 + SNAP_BLOCK_BYTES,
              "a leaf fits into a slot");

struct snap_tasks;

struct snap_task {
    struct snap_io io;
    struct snap_tasks *tasks;
    uint8_t *slot; /* NULL: the task has none */
    /* Called once, from the medium's poll; the task is free again when it returns. */
    void (*ended)(struct snap_task *task, int result);
    void *owner;
    uint64_t first, count; /* the owner's, and so are those */
    int64_t at;
    uint32_t unit;
    struct snap_task *next;
};

struct snap_tasks {
    struct snap_medium *medium;
    struct snap_task *free_tasks;
    uint8_t *free_slots[SNAP_SLOTS];
    uint32_t free_slots_count, under_way;
    uint32_t timeout_ms;
    bool is_abandoned; /* a wait has ended by timeout: ended() is not called any more */
    uint64_t ended_count, failed_reads;
    uint64_t written_bytes;
    uint8_t *memory;
    struct snap_task all[SNAP_TASKS];
};

/* 0, -ENOMEM, or what the medium says to that memory. */
int snap_tasks_open(struct snap_tasks *tasks, struct snap_medium *medium, uint32_t timeout_ms);
/* The medium is closed already: nothing is under way. */
void snap_tasks_close(struct snap_tasks *tasks);
/* NULL: all are under way. */
struct snap_task *snap_task_take(struct snap_tasks *tasks, bool has_slot);
/* Not needed after all. */
void snap_task_put(struct snap_task *task);
void snap_task_submit(struct snap_task *task, enum snap_io_kind kind, uint64_t block,
                      uint64_t blocks, void *data);

/* Sleeps until the medium may have something, and runs it; or for a moment. */
void snap_tasks_rest(struct snap_tasks *tasks);

/* Those below block. -ETIMEDOUT: nothing has ended for timeout_ms, and the medium has failed by it;
 * what is under way never calls ended() then. */
int snap_tasks_wait(struct snap_tasks *tasks); /* until all have ended */
int snap_task_take_waiting(struct snap_tasks *tasks, bool has_slot, struct snap_task **task);

#endif
