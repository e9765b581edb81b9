/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which rank came last to operations that went well, and by how much. Clocks of hosts differ. No
 * rank ends an operation before all have begun it, so each one says by how much they may: where
 * real time contradicts that, it is moved.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/dump/diagnose.h"

enum { CALL_TEXT = 120, SPAN_TEXT = 24 };

/* Below that nobody is called late: the rank that comes last knows its time to 4 ms. */
static const int64_t LATE_NS = 10000000;
/* The end of a short operation is not known closer than this. */
static const int64_t CLOCK_NS = 10000000;

struct lateness {
    uint64_t times; /* that it came last */
    uint64_t all_ns;
    int64_t most_ns;
    uint64_t most_number;
};

/* What to add to times of that rank to have those of the first one. */
static int64_t find_offset(const struct coll_dump *first, const struct coll_dump *dump)
{
    int64_t least = INT64_MIN, most = INT64_MAX, offset = 0;
    if (dump->seen.page.about.host == first->seen.page.about.host)
        return 0;
    offset = ((int64_t)dump->realtime_ns - (int64_t)dump->monotonic_ns) -
             ((int64_t)first->realtime_ns - (int64_t)first->monotonic_ns);
    for (size_t i = 0; i < dump->count; i++) {
        const struct coll_dumped *there = &dump->operations[i];
        const struct coll_dumped *here =
            there->kind < SW_COLL_KINDS ? coll_dump_find(first, there->number) : NULL;
        if (!here || !here->ended_ns || !there->ended_ns || here->status || there->status)
            continue;
        const int64_t at_most = (int64_t)here->ended_ns - (int64_t)there->begun_ns;
        const int64_t at_least = (int64_t)here->begun_ns - (int64_t)there->ended_ns;
        most = at_most < most ? at_most : most;
        least = at_least > least ? at_least : least;
    }
    if (least > most) /* they drift, or somebody has set one */
        return offset;
    if (least != INT64_MIN && offset < least - CLOCK_NS)
        offset = least;
    else if (most != INT64_MAX && offset > most + CLOCK_NS)
        offset = most;
    return offset;
}

/* How much later the last one has begun it than the one before it. False: not all are known, and
 * well. */
static bool find_last(const struct coll_job *job, const int64_t *offsets, uint64_t number,
                      size_t *last, int64_t *late_ns)
{
    int64_t newest = INT64_MIN, second = INT64_MIN;
    if (job->count < 2)
        return false;
    for (size_t i = 0; i < job->count; i++) {
        const struct coll_dumped *at = coll_dump_find(job->dumps[i], number);
        if (!at || !at->begun_ns || at->status != SW_COLL_OK)
            return false;
        const int64_t begun = (int64_t)at->begun_ns + offsets[i];
        if (begun > newest) {
            second = newest;
            newest = begun;
            *last = i;
        } else if (begun > second) {
            second = begun;
        }
    }
    *late_ns = newest - second;
    return true;
}

static void count_lateness(const struct coll_job *job, const int64_t *offsets,
                           struct lateness *late, uint64_t *known)
{
    const struct coll_dump *first = job->dumps[0];
    *known = 0;
    for (size_t i = 0; i < first->count; i++) {
        size_t last = 0;
        int64_t late_ns = 0;
        const struct coll_dumped *at = &first->operations[i];
        if (at->kind >= SW_COLL_KINDS || !find_last(job, offsets, at->number, &last, &late_ns))
            continue;
        ++*known;
        late[last].times++;
        late[last].all_ns += (uint64_t)late_ns;
        if (late_ns <= late[last].most_ns)
            continue;
        late[last].most_ns = late_ns;
        late[last].most_number = at->number;
    }
}

static bool say_late(const struct coll_job *job, size_t last, const struct lateness *late,
                     uint64_t known, struct coll_findings *findings)
{
    char call[CALL_TEXT], most[SPAN_TEXT], all[SPAN_TEXT];
    struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_LATE);
    if (!finding)
        return false;
    const struct coll_dumped *at = coll_dump_find(job->dumps[last], late->most_number);
    coll_dumped_text(at, call, sizeof(call));
    coll_span_text((uint64_t)late->most_ns, most, sizeof(most));
    coll_span_text(late->all_ns, all, sizeof(all));
    finding->rank = job->seen[last].page.rank;
    finding->kind = at->kind;
    finding->number = late->most_number;
    finding->time_ns = (uint64_t)late->most_ns;
    snprintf(finding->text, sizeof(finding->text),
             "rank %u came last to %" PRIu64 " of %" PRIu64
             " operations, by %s in all; most to operation %" PRIu64 " (%s): %s after the others",
             finding->rank, late->times, known, all, finding->number, call, most);
    return true;
}

bool coll_find_late(const struct coll_job *job, struct coll_findings *findings)
{
    struct lateness *late = calloc(job->count, sizeof(*late));
    int64_t *offsets = calloc(job->count, sizeof(*offsets));
    uint64_t known;
    size_t found = 0;
    bool is_well = late && offsets;
    if (is_well) {
        for (size_t i = 0; i < job->count; i++)
            offsets[i] = find_offset(job->dumps[0], job->dumps[i]);
        count_lateness(job, offsets, late, &known);
        for (size_t i = 0; i < job->count; i++)
            if (late[i].all_ns > late[found].all_ns)
                found = i;
        if (late[found].most_ns >= LATE_NS)
            is_well = say_late(job, found, &late[found], known, findings);
    }
    free(late);
    free(offsets);
    return is_well;
}
