/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that differ between ranks: of each operation, and of both sides of each message. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/ranks.h"
#include "collectives/dump/diagnose.h"
#include "common/base/minmax.h"

enum { CALL_TEXT = 120, RANKS_TEXT = 120, RANKS_NAMED = 8 };

/* ---- in words ---- */

void coll_span_text(uint64_t span_ns, char *text, size_t room)
{
    const double seconds = (double)span_ns / 1e9;
    if (seconds >= 1)
        snprintf(text, room, "%.1f s", seconds);
    else if (span_ns >= 1000000)
        snprintf(text, room, "%" PRIu64 " ms", span_ns / 1000000);
    else
        snprintf(text, room, "%" PRIu64 " us", span_ns / 1000);
}

static const char *kind_word(const struct coll_dumped *operation)
{
    const char *word = coll_dump_word(COLL_WORDS_KIND, operation->kind);
    return word ? word : "?";
}

static bool is_sum(uint32_t kind)
{
    return kind == SW_COLL_ALL_REDUCE || kind == SW_COLL_REDUCE || kind == SW_COLL_REDUCE_SCATTER;
}

static bool has_one_root(uint32_t kind)
{
    return kind == SW_COLL_BROADCAST || kind == SW_COLL_REDUCE || kind == SW_COLL_GATHER ||
           kind == SW_COLL_SCATTER;
}

void coll_dumped_text(const struct coll_dumped *operation, char *text, size_t room)
{
    const char *type = coll_dump_word(COLL_WORDS_TYPE, operation->type);
    const char *op = coll_dump_word(COLL_WORDS_OP, operation->op);
    const bool sums = is_sum(operation->kind), is_barrier = operation->kind == SW_COLL_BARRIER;
    char data[60] = "", root[30] = "", leaves[30] = "";
    if (operation->has_counts)
        snprintf(data, sizeof(data), " of unequal blocks of %s", type ? type : "?");
    else if (!is_barrier && operation->kind <= COLL_RECORDED_RECV)
        snprintf(data, sizeof(data), " of %" PRIu64 " %s", operation->count, type ? type : "?");
    if (has_one_root(operation->kind))
        snprintf(root, sizeof(root), ", root %u", operation->peer);
    if (sums && operation->leaves > 1)
        snprintf(leaves, sizeof(leaves), ", %u leaves", operation->leaves);
    snprintf(text, room, "%s%s%s%s%s%s%s", kind_word(operation), sums ? " (" : "",
             sums && op ? op : "", sums ? ")" : "", data, root, leaves);
}

/* ---- one operation ---- */

static bool are_counts_alike(const struct coll_dumped *one, const struct coll_dumped *other,
                             uint32_t size)
{
    const bool is_known = one->counts && other->counts;
    return one->kind == SW_COLL_ALL_TO_ALL || !is_known ||
           !memcmp(one->counts, other->counts, size * sizeof(*one->counts));
}

static bool are_calls_alike(const struct coll_dumped *one, const struct coll_dumped *other,
                            uint32_t size)
{
    if (one->kind != other->kind || one->has_counts != other->has_counts)
        return false;
    if (one->kind == SW_COLL_BARRIER)
        return true;
    return one->type == other->type && (one->has_counts || one->count == other->count) &&
           (!is_sum(one->kind) || (one->op == other->op && one->leaves == other->leaves)) &&
           (!has_one_root(one->kind) || one->peer == other->peer) &&
           are_counts_alike(one, other, size);
}

static size_t count_alike(const struct coll_job *job, const struct coll_dumped *const *calls,
                          size_t of)
{
    size_t alike = 0;
    for (size_t i = 0; i < job->count; i++)
        alike += calls[i] && are_calls_alike(calls[of], calls[i], job->size);
    return alike;
}

/* The call that most ranks have made; of two alike the one of the lowest rank. Mostly all have made
 * that of the first one. `job->count`: none has made one. */
static size_t find_usual(const struct coll_job *job, const struct coll_dumped *const *calls)
{
    size_t found = job->count, most = 0, known = 0;
    for (size_t i = 0; i < job->count; i++)
        known += calls[i] != NULL;
    for (size_t i = 0; i < job->count && most < known; i++) {
        const size_t alike = calls[i] ? count_alike(job, calls, i) : 0;
        if (alike <= most)
            continue;
        most = alike;
        found = i;
    }
    return found;
}

static bool say_unlike_call(const struct coll_job *job, const struct coll_dumped *const *calls,
                            size_t usual, size_t unlike, struct coll_findings *findings)
{
    bool is_usual[SW_COLL_RANKS_MAX] = {false};
    char mine[CALL_TEXT], theirs[CALL_TEXT], ranks[RANKS_TEXT];
    struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_DIFFERS);
    if (!finding)
        return false;
    for (size_t i = 0; i < job->count; i++)
        if (calls[i] && are_calls_alike(calls[usual], calls[i], job->size))
            is_usual[job->seen[i].page.rank] = true;
    coll_dumped_text(calls[unlike], mine, sizeof(mine));
    coll_dumped_text(calls[usual], theirs, sizeof(theirs));
    coll_ranks_text(is_usual, job->size, RANKS_NAMED, ranks, sizeof(ranks));
    finding->rank = job->seen[unlike].page.rank;
    finding->kind = calls[unlike]->kind;
    finding->number = calls[unlike]->number;
    snprintf(finding->text, sizeof(finding->text),
             "operation %" PRIu64 ": rank %u called %s, and %s called %s%s", finding->number,
             finding->rank, mine, ranks, theirs,
             strcmp(mine, theirs) != 0 ? "" : ", with other counts of blocks");
    return true;
}

/* Which rank sends another number than its peer awaits, in an all-to-all with counts. */
static bool find_unlike_pair(const struct coll_job *job, const struct coll_dumped *const *calls,
                             struct coll_findings *findings, bool *is_found)
{
    for (size_t i = 0; i < job->count; i++)
        for (size_t j = 0; j < job->count; j++) {
            const uint32_t from = job->seen[i].page.rank, to = job->seen[j].page.rank;
            if (!calls[i] || !calls[j] || !calls[i]->counts || !calls[j]->recv_counts ||
                calls[i]->counts[to] == calls[j]->recv_counts[from])
                continue;
            struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_DIFFERS);
            if (!finding)
                return false;
            *is_found = true;
            finding->rank = from;
            finding->kind = calls[i]->kind;
            finding->number = calls[i]->number;
            snprintf(finding->text, sizeof(finding->text),
                     "operation %" PRIu64 ": rank %u called %s with %" PRIu64
                     " for rank %u, which awaits %" PRIu64,
                     finding->number, from, kind_word(calls[i]), calls[i]->counts[to], to,
                     calls[j]->recv_counts[from]);
            return true;
        }
    return true;
}

/* `calls` has room for one of each rank. */
static bool differ_in(const struct coll_job *job, uint64_t number, const struct coll_dumped **calls,
                      struct coll_findings *findings, bool *is_found)
{
    for (size_t i = 0; i < job->count; i++)
        calls[i] = coll_dump_find(job->dumps[i], number);
    const size_t usual = find_usual(job, calls);
    if (usual == job->count)
        return true;
    for (size_t i = 0; i < job->count; i++) {
        if (!calls[i] || are_calls_alike(calls[usual], calls[i], job->size))
            continue;
        *is_found = true;
        return say_unlike_call(job, calls, usual, i, findings);
    }
    return calls[usual]->kind != SW_COLL_ALL_TO_ALL ||
           find_unlike_pair(job, calls, findings, is_found);
}

/* ---- messages ---- */

static const struct coll_dump *dump_of_rank(const struct coll_job *job, uint32_t rank)
{
    for (size_t i = 0; i < job->count; i++)
        if (job->seen[i].page.rank == rank)
            return job->dumps[i];
    return NULL;
}

/* Each that this rank has sent, as its receiver has it. */
static bool differ_in_messages(const struct coll_job *job, const struct coll_dump *sender,
                               struct coll_findings *findings, bool *is_found)
{
    char sent[CALL_TEXT], awaited[CALL_TEXT];
    for (size_t i = 0; i < sender->count; i++) {
        const struct coll_dumped *send = &sender->operations[i];
        const uint32_t from = sender->seen.page.rank, to = send->peer;
        const struct coll_dump *receiver =
            send->kind == COLL_RECORDED_SEND ? dump_of_rank(job, to) : NULL;
        const struct coll_dumped *recv =
            receiver ? coll_dump_find_message(receiver, COLL_RECORDED_RECV, from, send->number)
                     : NULL;
        if (!recv || (recv->count == send->count && recv->type == send->type))
            continue;
        struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_DIFFERS);
        if (!finding)
            return false;
        *is_found = true;
        coll_dumped_text(send, sent, sizeof(sent));
        coll_dumped_text(recv, awaited, sizeof(awaited));
        finding->rank = from;
        finding->kind = send->kind;
        finding->number = send->number;
        snprintf(finding->text, sizeof(finding->text),
                 "message %" PRIu64 " from rank %u to rank %u: one calls %s, the other %s",
                 send->number, from, to, sent, awaited);
        return true;
    }
    return true;
}

bool coll_find_differences(const struct coll_job *job, struct coll_findings *findings)
{
    uint64_t first = UINT64_MAX, last = 0;
    const struct coll_dumped **calls = calloc(job->count, sizeof(struct coll_dumped *));
    bool is_found = false, is_well = calls;
    for (size_t i = 0; i < job->count; i++)
        for (size_t j = 0; j < job->dumps[i]->count; j++) {
            const struct coll_dumped *at = &job->dumps[i]->operations[j];
            if (at->kind >= SW_COLL_KINDS)
                continue;
            first = mover_min_u64(first, at->number);
            last = mover_max_u64(last, at->number);
        }
    /* Numbers of a stranger may lie far apart. */
    if (last - first > 2 * COLL_RECORDS)
        first = last - 2 * COLL_RECORDS;
    for (uint64_t number = first; is_well && !is_found && number <= last && last; number++)
        is_well = differ_in(job, number, calls, findings, &is_found);
    free(calls);
    is_found = false;
    for (size_t i = 0; is_well && !is_found && i < job->count; i++)
        is_well = differ_in_messages(job, job->dumps[i], findings, &is_found);
    return is_well;
}
