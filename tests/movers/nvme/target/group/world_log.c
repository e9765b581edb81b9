/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log, as <sidewire/pmem_log.h> promises it: a new writer fences the one before, whose append
 * under way is in the log or never will be.
 */
#include <string.h>

#include "world.h"

enum { SLOW_MS = 60, FAIL_MS = 120, READ_MS = 40, CHECKPOINT = 30, OF_CROWD = 2000 };

static bool reaches_log(const struct world *w, int process)
{
    return w->has_quorum && !w->processes[process].is_cut_from_log;
}

static void put_record(struct world *w, const uint8_t *record, size_t bytes)
{
    if (w->count == WORLD_RECORDS) {
        world_fail(w, "the world's log is full");
        return;
    }
    if (record[1] == NVG_BEGIN)
        w->begin = w->count;
    w->bytes[w->count] = (uint16_t)bytes;
    memcpy(w->records[w->count++], record, bytes);
}

void world_order_log(struct world *w, int process, enum world_order order, const uint8_t *record,
                     size_t bytes)
{
    struct world_process *p = &w->processes[process];
    p->order = order;
    p->order_since = w->now;
    p->order_due = w->now + 1 + world_draw(w, order == ORDER_APPEND ? 3 : 40);
    p->read_to = 0;
    p->record_bytes = bytes;
    if (bytes)
        memcpy(p->record, record, bytes);
}

void world_close_log(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    p->order = NO_ORDER;
    p->is_writer = p->is_fenced = p->is_slow = false;
    if (w->writer == process)
        w->writer = -1;
}

static void replay(struct world *w, int process, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        nvg_machine_record(w->processes[process].machine, w->records[i], w->bytes[i]);
}

static void say_of_log(struct world *w, int process, enum nvg_journal_kind kind, bool has_quorum)
{
    const uint32_t used = w->options.is_crowd ? OF_CROWD : CHECKPOINT;
    struct nvg_journal_event event = {.kind = kind,
                                      .has_quorum = has_quorum,
                                      .epoch = w->leads,
                                      .wants_checkpoint = w->count - w->head > used,
                                      .text = "no quorum"};
    nvg_machine_journal(w->processes[process].machine, &event);
}

/* What the old writer has under way happens now, or never. */
static void fence_writer(struct world *w)
{
    if (w->writer < 0)
        return;
    struct world_process *old = &w->processes[w->writer];
    if (old->order == ORDER_APPEND && world_chance(w, 50))
        put_record(w, old->record, old->record_bytes);
    old->order = NO_ORDER;
    old->is_writer = false;
    old->is_fenced = true;
    old->fenced_at = w->now + 1 + world_draw(w, 60);
}

static void carry_out_open(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    p->order = NO_ORDER;
    if (!reaches_log(w, process)) {
        say_of_log(w, process, NVG_JOURNAL_FAILED, false);
        return;
    }
    if (w->writer != process)
        fence_writer(w);
    w->writer = process;
    p->is_writer = true;
    p->is_fenced = p->is_slow = false;
    w->leads++;
    replay(w, process, w->head, w->count);
    say_of_log(w, process, NVG_JOURNAL_OPENED, true);
}

/* Time passes between its records. */
static void carry_out_read(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    const bool has_begun = p->read_to;
    const uint32_t first = has_begun ? p->read_to : w->head, middle = (w->head + w->count) / 2;
    const bool is_first_half = !has_begun && middle > first && reaches_log(w, process);
    p->read_to = is_first_half ? middle : w->count;
    if (reaches_log(w, process))
        replay(w, process, first, p->read_to);
    if (is_first_half) {
        p->order_due = w->now + 1 + world_draw(w, READ_MS);
        return;
    }
    p->order = NO_ORDER;
    say_of_log(w, process, NVG_JOURNAL_READ, reaches_log(w, process));
}

static void carry_out_append(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    if (!reaches_log(w, process)) {
        if (!p->is_slow && w->now - p->order_since >= SLOW_MS) {
            p->is_slow = true;
            say_of_log(w, process, NVG_JOURNAL_QUORUM, false);
        }
        return;
    }
    p->order = NO_ORDER;
    put_record(w, p->record, p->record_bytes);
    say_of_log(w, process, NVG_JOURNAL_DONE, true);
}

void world_log_step(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    if (p->is_fenced && w->now >= p->fenced_at && reaches_log(w, process)) {
        p->is_fenced = false;
        if (p->order == NO_ORDER || p->order == ORDER_APPEND) {
            p->order = NO_ORDER;
            say_of_log(w, process, NVG_JOURNAL_FENCED, true);
        }
        return;
    }
    if (p->is_slow && reaches_log(w, process)) {
        p->is_slow = false;
        say_of_log(w, process, NVG_JOURNAL_QUORUM, true);
    }
    if (p->order == NO_ORDER || w->now < p->order_due)
        return;
    if (p->order == ORDER_APPEND && p->is_writer)
        carry_out_append(w, process);
    else if (p->order != ORDER_APPEND && !reaches_log(w, process) &&
             w->now - p->order_since < FAIL_MS)
        return;
    else if (p->order == ORDER_OPEN)
        carry_out_open(w, process);
    else if (p->order == ORDER_READ)
        carry_out_read(w, process);
}
