/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/dump/culprit.h"

#include <inttypes.h>
#include <stdio.h>

/* How far it has come. An operation that has ended is behind all steps of it, and the end of the
 * communicator behind all operations. A dead rank comes no further. */
struct progress {
    enum { IN_USE, AGREES, AT_REST, SHRINKS } stage;
    bool is_alive;
    uint64_t number;
    uint32_t step;
    bool is_waiting;
};

static struct progress progress_of(const struct coll_seen *seen)
{
    const struct coll_page *page = &seen->page;
    const bool is_over = page->ended >= page->state.number;
    const enum coll_activity activity = page->state.activity;
    return (struct progress){.stage = activity == COLL_IN_SHRINK      ? SHRINKS
                                      : activity == COLL_HAS_FAILED   ? AT_REST
                                      : activity == COLL_IN_AGREEMENT ? AGREES
                                                                      : IN_USE,
                             .is_alive = seen->process != COLL_PROCESS_DEAD,
                             .number = page->state.number + is_over,
                             .step = is_over ? 0 : page->state.step,
                             .is_waiting = page->state.is_waiting};
}

static bool culprit_is_behind(struct progress one, struct progress other)
{
    if (one.is_alive != other.is_alive)
        return one.is_alive < other.is_alive;
    if (one.stage != other.stage)
        return one.stage < other.stage;
    if (one.number != other.number)
        return one.number < other.number;
    if (one.step != other.step)
        return one.step < other.step;
    return one.is_waiting < other.is_waiting;
}

static const struct coll_seen *seen_of_rank(const struct coll_seen *job, size_t count,
                                            uint32_t rank)
{
    for (size_t i = 0; i < count; i++)
        if (job[i].page.rank == rank)
            return &job[i];
    return NULL;
}

/* Once a rank agrees or shrinks, it does not matter whom those wait for that know nothing of it. */
static unsigned find_last_stage(const struct coll_seen *job, size_t count)
{
    unsigned last = IN_USE;
    for (size_t i = 0; i < count; i++) {
        const struct progress progress = progress_of(&job[i]);
        if (progress.is_alive && progress.is_waiting && progress.stage > last)
            last = progress.stage;
    }
    return last;
}

/* A stopped rank says whom it waited for when it was stopped, who may have come since. */
static bool culprit_is_awaited(const struct coll_seen *job, size_t count, unsigned stage,
                               uint32_t rank)
{
    for (size_t i = 0; i < count; i++) {
        const struct progress progress = progress_of(&job[i]);
        if (progress.is_alive && job[i].process != COLL_PROCESS_STOPPED &&
            progress.stage == stage && coll_page_awaits(&job[i].page, rank))
            return true;
    }
    return false;
}

/* The least far one of those that are stopped: ranks that wait for it may be on other hosts. */
static uint32_t find_stopped(const struct coll_seen *job, size_t count)
{
    const struct coll_seen *found = NULL;
    for (size_t i = 0; i < count; i++)
        if (job[i].process == COLL_PROCESS_STOPPED && progress_of(&job[i]).is_waiting &&
            (!found || culprit_is_behind(progress_of(&job[i]), progress_of(found))))
            found = &job[i];
    return found ? found->page.rank : job->page.size;
}

/* The one that has come least far, of those that are awaited: the others wait for it, or for one
 * that does. `size`: nobody is awaited. A rank without a page counts where none with one is behind
 * the one that waits for it. */
static uint32_t find_least_far(const struct coll_seen *job, size_t count, unsigned stage)
{
    const uint32_t size = job->page.size;
    const struct coll_seen *found = NULL;
    uint32_t unseen = size;
    for (uint32_t rank = 0; rank < size; rank++) {
        if (!culprit_is_awaited(job, count, stage, rank))
            continue;
        const struct coll_seen *seen = seen_of_rank(job, count, rank);
        if (!seen && unseen == size)
            unseen = rank;
        else if (seen && (!found || culprit_is_behind(progress_of(seen), progress_of(found))))
            found = seen;
    }
    if (unseen == size && !found)
        return find_stopped(job, count);
    if (unseen == size || !found)
        return found ? found->page.rank : unseen;
    const struct progress progress = progress_of(found);
    const bool is_innocent = progress.is_alive && progress.is_waiting && progress.stage == stage &&
                             found->process != COLL_PROCESS_STOPPED;
    return is_innocent ? unseen : found->page.rank;
}

/* In another communicator of that process: NULL, in none. */
static const struct coll_seen *find_elsewhere(const struct coll_seen *all, size_t count,
                                              const struct coll_seen *seen)
{
    for (size_t i = 0; seen && i < count; i++)
        if (all[i].page.pid == seen->page.pid && all[i].page.about.host == seen->page.about.host &&
            all[i].page.job != seen->page.job && all[i].page.state.is_waiting)
            return &all[i];
    return NULL;
}

/* All that wait for it do so to open another communicator. */
static bool is_for_opening(const struct coll_seen *job, size_t count, uint32_t rank)
{
    bool is_opening = false;
    for (size_t i = 0; i < count; i++) {
        if (!coll_page_awaits(&job[i].page, rank))
            continue;
        if (job[i].page.state.activity != COLL_IN_OPENING)
            return false;
        is_opening = true;
    }
    return is_opening;
}

struct coll_culprit coll_culprit_find(const struct coll_seen *job, size_t count,
                                      const struct coll_seen *all, size_t all_count)
{
    const unsigned stage = find_last_stage(job, count);
    struct coll_culprit culprit = {.rank = find_least_far(job, count, stage), .stage = stage};
    culprit.seen = seen_of_rank(job, count, culprit.rank);
    culprit.is_for_opening = is_for_opening(job, count, culprit.rank);
    culprit.waits_in = find_elsewhere(all, all_count, culprit.seen);
    return culprit;
}

size_t coll_culprit_job_end(const struct coll_seen *all, size_t count, size_t begin)
{
    size_t end = begin + 1;
    while (end < count && all[end].page.job == all[begin].page.job)
        end++;
    return end;
}

/* What that rank does instead of what the others want of it. */
static void say_where(const struct coll_culprit *culprit, char *text, size_t room)
{
    const struct coll_page *page = &culprit->seen->page;
    const uint64_t number = page->state.number;
    const struct progress progress = progress_of(culprit->seen);
    const bool is_over = page->ended >= number, is_calm = is_over && !page->state.is_waiting;
    if (culprit->is_for_opening) {
        snprintf(text, room, "has not come to open another communicator");
        return;
    }
    if (progress.stage == AT_REST)
        snprintf(text, room, "does not shrink the failed communicator yet");
    else if (progress.stage != IN_USE)
        snprintf(text, room, "%s",
                 progress.stage == AGREES ? "agrees on which ranks are gone"
                                          : "shrinks the communicator");
    else if (culprit->stage != IN_USE)
        snprintf(text, room, "has not seen yet that the communicator has failed");
    else
        snprintf(text, room, "%s operation %" PRIu64,
                 is_calm   ? "has not begun"
                 : is_over ? "waits after"
                           : "is in",
                 number + is_calm);
}

void coll_culprit_text(const struct coll_culprit *culprit, char *text, size_t room)
{
    static const char *const ends[COLL_PROCESSES] = {[COLL_PROCESS_ALIVE] = "",
                                                     [COLL_PROCESS_STOPPED] = ", and is stopped",
                                                     [COLL_PROCESS_DEAD] = ", and is dead"};
    char where[80], other[40] = "";
    if (!culprit->seen) {
        snprintf(text, room, "rank %u is awaited, which is not on this host, or has ended",
                 culprit->rank);
        return;
    }
    say_where(culprit, where, sizeof(where));
    if (culprit->waits_in)
        snprintf(other, sizeof(other), ", waits in job %016" PRIx64, culprit->waits_in->page.job);
    snprintf(text, room, "rank %u (process %u) is awaited: it %s%s%s", culprit->rank,
             culprit->seen->page.pid, where, other, ends[culprit->seen->process]);
}
