/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/capture/inside.h"
#include "snapshot/capture/plant.h"

/* Into the places of these blocks in the worker's sums. */
static void sum_looked_at(struct snap_capture *capture, struct snap_worker *worker,
                          struct snap_job *job)
{
    const struct snap_unit *unit = &capture->units[job->unit];
    const uint32_t tail = unit->blocks - job->tail;
    job->sums = worker->sums;
    if (job->head)
        job->code = snap_unit_sum(&capture->reading, unit, 0, job->head, worker->scratch, job->sums,
                                  &job->bad_range);
    if (job->tail && !job->code)
        job->code = snap_unit_sum(&capture->reading, unit, tail, job->tail, worker->scratch,
                                  job->sums + tail, &job->bad_range);
}

static void copy_unit(struct snap_capture *capture, struct snap_job *job)
{
    const struct snap_unit *unit = &capture->units[job->unit];
    job->sums = snap_ring_sums(&capture->ring, job->slot);
    if (SNAP_IS_PLANTED(SNAP_PLANT_ALONE) && job->phase == SNAP_PHASE_COPY)
        snap_unit_sum(&capture->reading, unit, 0, unit->blocks, NULL,
                      capture->seen + unit->first_sum, &job->bad_range);
    job->code = snap_unit_copy(&capture->reading, unit, snap_ring_slot(&capture->ring, job->slot),
                               job->sums, &job->bad_range);
}

/* ---- pages ---- */

struct found_pages {
    struct snap_capture *capture;
    const struct snap_part *part;
};

static void mark_written(void *context, struct snap_span written)
{
    const struct found_pages *pages = context;
    const uint32_t unit_bytes = pages->capture->options.unit_bytes;
    const uintptr_t data = (uintptr_t)pages->part->data;
    const uint64_t first = (written.first - data) / unit_bytes;
    const uint64_t last = (written.end - 1 - data) / unit_bytes;
    for (uint64_t i = first; i <= last; i++)
        pages->capture->written[pages->part->first_unit + i] = true;
}

void snap_job_ask(struct snap_capture *capture, struct snap_part *part)
{
    struct found_pages found = {.capture = capture, .part = part};
    if (SNAP_IS_PLANTED(SNAP_PLANT_LOOK) ||
        snap_pages_written(&capture->pages, part->span, mark_written, &found) == 0)
        return;
    /* It was mapped anew meanwhile, as memory is that is registered. */
    part->is_lost = true;
    for (uint32_t i = 0; i < part->units_count; i++)
        capture->written[part->first_unit + i] = true;
}

static void go_through_pages(struct snap_capture *capture, const struct snap_job *job)
{
    for (uint32_t i = 0; i < capture->parts_count; i++) {
        struct snap_part *part = &capture->parts[i];
        if (part->span.end == 0 || part->is_let_go)
            continue;
        if (job->phase != SNAP_PHASE_FORGET)
            snap_job_ask(capture, part);
        else if (snap_pages_forget(&capture->pages, part->span))
            part->is_lost = true;
    }
}

void snap_job_do(struct snap_capture *capture, struct snap_worker *worker, struct snap_job *job)
{
    if (job->unit == SNAP_ALL_PAGES)
        go_through_pages(capture, job);
    else if (job->slot != SNAP_NO_SLOT)
        copy_unit(capture, job);
    else
        sum_looked_at(capture, worker, job);
}
