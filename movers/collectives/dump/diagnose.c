/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/dump/diagnose.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/ranks.h"
#include "collectives/dump/cycle.h"

enum {
    CALL_TEXT = 120,
    RANKS_TEXT = 120,
    RANKS_NAMED = 8,
    SPAN_TEXT = 24,
    WHERE_TEXT = 200,
    CYCLE_TEXT = 800
};

const char *coll_finding_word(enum coll_found verdict)
{
    static const char *const texts[COLL_FOUND_VERDICTS] = {
        [COLL_FOUND_DIFFERS] = "differs", [COLL_FOUND_AWAITED] = "awaited",
        [COLL_FOUND_CYCLE] = "cycle",     [COLL_FOUND_GONE] = "gone",
        [COLL_FOUND_FAILED] = "failed",   [COLL_FOUND_NO_DUMP] = "no dump",
        [COLL_FOUND_LATE] = "late",       [COLL_FOUND_WELL] = "well"};
    return verdict < COLL_FOUND_VERDICTS ? texts[verdict] : "?";
}

struct coll_finding *coll_finding_add(struct coll_findings *findings, const struct coll_job *job,
                                      enum coll_found verdict)
{
    if (findings->count == findings->room) {
        const size_t room = findings->room ? 2 * findings->room : 8;
        struct coll_finding *all = realloc(findings->all, room * sizeof(*all));
        if (!all)
            return NULL;
        findings->all = all;
        findings->room = room;
    }
    struct coll_finding *finding = &findings->all[findings->count++];
    *finding = (struct coll_finding){
        .verdict = verdict, .job = job->seen->page.job, .rank = COLL_NO_RANK, .kind = UINT32_MAX};
    return finding;
}

static void ranks_of_bits(const uint8_t *bits, uint32_t size, char *text, size_t room)
{
    bool is_named[SW_COLL_RANKS_MAX];
    for (uint32_t rank = 0; rank < size; rank++)
        is_named[rank] = bits[rank / 8] & 1u << rank % 8;
    coll_ranks_text(is_named, size, RANKS_NAMED, text, room);
}

static uint32_t count_bits(const uint8_t *bits, uint32_t size)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < size; rank++)
        count += bits[rank / 8] >> rank % 8 & 1u;
    return count;
}

/* ---- who is awaited ---- */

/* The moment that the dump tells of: it has failed then, or was written. */
static uint64_t moment_of(const struct coll_dump *dump)
{
    const uint64_t failed_ns = dump->seen.page.failure.failed_ns;
    return failed_ns > 1 ? failed_ns : dump->monotonic_ns;
}

static const struct coll_dumped *newest_of(const struct coll_dump *dump)
{
    return coll_dump_find(dump, dump->seen.page.state.number);
}

/* What it waits in: an operation, or a message. NULL: that is not recorded. */
static const struct coll_dumped *what_waits(const struct coll_dump *dump)
{
    const struct coll_page_state *state = &dump->seen.page.state;
    const bool is_recv = state->activity == COLL_IN_RECV;
    if (state->activity == COLL_IN_OPENING)
        return NULL;
    if (!is_recv && state->activity != COLL_IN_SEND)
        return newest_of(dump);
    for (uint32_t peer = 0; peer < dump->seen.page.size; peer++) {
        const struct coll_dumped *at =
            state->awaited[peer / 8] & 1u << peer % 8
                ? coll_dump_find_message(dump, is_recv ? COLL_RECORDED_RECV : COLL_RECORDED_SEND,
                                         peer, state->message)
                : NULL;
        if (at)
            return at;
    }
    return NULL;
}

/* The ranks that wait for it, or else all that wait, and the longest wait of theirs. */
static const struct coll_dump *find_longest(const struct coll_job *job, uint32_t awaited,
                                            struct coll_finding *finding)
{
    const struct coll_dump *longest = NULL;
    bool any = false;
    for (size_t i = 0; i < job->count; i++)
        any = any || coll_page_awaits(&job->seen[i].page, awaited);
    for (size_t i = 0; i < job->count; i++) {
        const struct coll_page *page = &job->seen[i].page;
        const uint64_t now_ns = moment_of(job->dumps[i]);
        if (page->rank == awaited || job->seen[i].process == COLL_PROCESS_DEAD ||
            !(any ? coll_page_awaits(page, awaited) : page->state.is_waiting))
            continue;
        const struct coll_dumped *at = what_waits(job->dumps[i]);
        const uint64_t since_ns = at && at->begun_ns ? at->begun_ns : page->state.since_ns;
        const uint64_t waits_ns = since_ns && since_ns < now_ns ? now_ns - since_ns : 0;
        finding->waiting[page->rank / 8] |= (uint8_t)(1u << page->rank % 8);
        if (longest && waits_ns <= finding->time_ns)
            continue;
        finding->time_ns = waits_ns;
        longest = job->dumps[i];
    }
    return longest;
}

static const struct coll_dump *find_dump(const struct coll_job *job, uint32_t rank)
{
    for (size_t i = 0; i < job->count; i++)
        if (job->seen[i].page.rank == rank)
            return job->dumps[i];
    return NULL;
}

/* "its last one, operation 17 (barrier), ended 3 s before". A rank that dies as it begins one has
 * not recorded it yet. */
static void say_last(const struct coll_dump *dump, char *text, size_t room)
{
    char call[CALL_TEXT], span[SPAN_TEXT];
    const struct coll_dumped *newest = newest_of(dump);
    const struct coll_dumped *last =
        newest ? newest : coll_dump_find(dump, dump->seen.page.state.number - 1);
    const uint64_t now_ns = moment_of(dump);
    if (!last) {
        snprintf(text, room, "it has begun none yet");
        return;
    }
    coll_dumped_text(last, call, sizeof(call));
    coll_span_text(last->ended_ns && now_ns > last->ended_ns ? now_ns - last->ended_ns : 0, span,
                   sizeof(span));
    if (last->status == SW_COLL_OK)
        snprintf(text, room, "its last one, operation %" PRIu64 " (%s), ended %s before",
                 last->number, call, span);
    else
        snprintf(text, room, "its last one is operation %" PRIu64 " (%s)", last->number, call);
}

/* What the others wait in. A message that no receive is posted for is not recorded. */
static void say_wanted(const struct coll_dump *longest, struct coll_finding *finding, char *text,
                       size_t room)
{
    const struct coll_dumped *wanted = longest ? what_waits(longest) : NULL;
    text[0] = '\0';
    if (wanted) {
        finding->kind = wanted->kind;
        finding->number = wanted->number;
        coll_dumped_text(wanted, text, room);
    } else if (longest && longest->seen.page.state.activity == COLL_IN_RECV) {
        finding->kind = COLL_RECORDED_RECV;
        finding->number = longest->seen.page.state.message;
        snprintf(text, room, "recv from rank %u", finding->rank);
    }
}

/* What the awaited rank does. `wanted`: what the others wait in. */
static void say_place(const struct coll_culprit *culprit, const struct coll_dump *dump,
                      const struct coll_finding *wanted, char *text, size_t room)
{
    const struct coll_page *page = &dump->seen.page;
    const bool is_call = wanted->kind < SW_COLL_KINDS;
    char last[WHERE_TEXT], other[60] = "";
    say_last(dump, last, sizeof(last));
    if (culprit->waits_in)
        snprintf(other, sizeof(other), ", and waits in job %016" PRIx64 " meanwhile",
                 culprit->waits_in->page.job);
    if (is_call && page->state.number < wanted->number)
        snprintf(text, room, "has not begun it: %s%s", last, other);
    else if (is_call && page->state.number == wanted->number && page->ended < wanted->number)
        snprintf(text, room, "is in it, at step %u of %u%s", page->state.step, page->state.steps,
                 other);
    else
        snprintf(text, room, "%s: %s%s",
                 wanted->kind == COLL_RECORDED_RECV   ? "has not sent it"
                 : wanted->kind == COLL_RECORDED_SEND ? "has not received it"
                                                      : "has gone on",
                 last, other);
}

static const char *process_words(enum coll_dump_process process)
{
    return process == COLL_PROCESS_STOPPED ? "; its process is stopped"
           : process == COLL_PROCESS_DEAD  ? "; its process is dead"
                                           : "";
}

/* No operation of this job is what they wait in. */
static void say_opening_wait(const struct coll_culprit *culprit, const struct coll_dump *dump,
                             const char *ranks, const char *span, char *text, size_t room)
{
    char last[WHERE_TEXT] = "it has no dump";
    if (dump)
        say_last(dump, last, sizeof(last));
    snprintf(
        text, room,
        "rank %u is awaited by %s for %s, to open another communicator, and has not come: %s%s",
        culprit->rank, ranks, span, last, dump ? process_words(dump->seen.process) : "");
}

/* All of them wait since the last one does. False: out of memory. */
static bool diagnose_cycle(const struct coll_job *job, struct coll_findings *findings, bool *is_one)
{
    struct coll_cycle cycle;
    char span[SPAN_TEXT], words[CYCLE_TEXT];
    coll_cycle_find(job->seen, job->count, &cycle);
    *is_one = cycle.count;
    if (!*is_one)
        return true;
    struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_CYCLE);
    if (!finding)
        return false;
    finding->time_ns = UINT64_MAX;
    for (uint32_t i = 0; i < cycle.count; i++) {
        const uint32_t rank = cycle.ranks[i];
        const struct coll_dump *dump = find_dump(job, rank);
        const uint64_t now_ns = moment_of(dump), since_ns = dump->seen.page.state.since_ns;
        const uint64_t waits_ns = since_ns && since_ns < now_ns ? now_ns - since_ns : 0;
        finding->waiting[rank / 8] |= (uint8_t)(1u << rank % 8);
        finding->time_ns = waits_ns < finding->time_ns ? waits_ns : finding->time_ns;
    }
    coll_span_text(finding->time_ns, span, sizeof(span));
    coll_cycle_text(job->seen, job->count, &cycle, words, sizeof(words));
    snprintf(finding->text, sizeof(finding->text), "%s; for %s", words, span);
    return true;
}

static bool diagnose_awaited(const struct coll_job *job, const struct coll_seen *all,
                             size_t all_count, struct coll_findings *findings)
{
    bool is_cycle;
    if (!diagnose_cycle(job, findings, &is_cycle))
        return false;
    if (is_cycle)
        return true;
    const struct coll_culprit culprit = coll_culprit_find(job->seen, job->count, all, all_count);
    char call[CALL_TEXT], ranks[RANKS_TEXT], span[SPAN_TEXT], place[2 * WHERE_TEXT];
    if (culprit.rank >= job->size)
        return true;
    struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_AWAITED);
    if (!finding)
        return false;
    const struct coll_dump *longest = find_longest(job, culprit.rank, finding);
    const struct coll_dump *dump = find_dump(job, culprit.rank);
    finding->rank = culprit.rank;
    say_wanted(longest, finding, call, sizeof(call));
    if (!longest && dump) {
        say_last(dump, place, sizeof(place));
        snprintf(finding->text, sizeof(finding->text), "rank %u is stopped; %s", culprit.rank,
                 place);
        return true;
    }
    ranks_of_bits(finding->waiting, job->size, ranks, sizeof(ranks));
    coll_span_text(finding->time_ns, span, sizeof(span));
    if (culprit.is_for_opening) {
        say_opening_wait(&culprit, dump, ranks, span, finding->text, sizeof(finding->text));
        return true;
    }
    if (dump)
        say_place(&culprit, dump, finding, place, sizeof(place));
    else
        snprintf(place, sizeof(place), "has no dump: it was killed, or its host was not asked");
    snprintf(
        finding->text, sizeof(finding->text),
        "rank %u is awaited by %s for %s, in %s %" PRIu64 " (%s); rank %u %s%s", culprit.rank,
        ranks, span, finding->kind >= SW_COLL_KINDS && finding->number ? "message" : "operation",
        finding->number, call, culprit.rank, place, dump ? process_words(dump->seen.process) : "");
    return true;
}

/* ---- who is gone, and other ends ---- */

static bool diagnose_gone(const struct coll_job *job, struct coll_findings *findings)
{
    uint8_t gone[SW_COLL_RANKS_MAX / 8] = {0};
    char last[WHERE_TEXT];
    /* At a deadline ranks are left out that were late: they have neither died nor closed. */
    for (size_t i = 0; i < job->count; i++)
        for (size_t j = 0; j < sizeof(gone); j++)
            if (job->seen[i].page.failure.status != SW_COLL_TIMEOUT)
                gone[j] |= job->seen[i].page.failure.gone[j];
    for (size_t i = 0; i < job->count; i++)
        if (job->seen[i].process == COLL_PROCESS_DEAD)
            gone[job->seen[i].page.rank / 8] |= (uint8_t)(1u << job->seen[i].page.rank % 8);
    for (uint32_t rank = 0; rank < job->size; rank++) {
        if (!(gone[rank / 8] & 1u << rank % 8))
            continue;
        struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_GONE);
        const struct coll_dump *dump = find_dump(job, rank);
        if (!finding)
            return false;
        finding->rank = rank;
        snprintf(last, sizeof(last), "it has no dump");
        if (dump) {
            finding->number = dump->seen.page.state.number;
            finding->kind = finding->number ? dump->seen.page.state.kind : UINT32_MAX;
            say_last(dump, last, sizeof(last));
        }
        snprintf(finding->text, sizeof(finding->text),
                 "rank %u died, or closed before the others; %s", rank, last);
    }
    return true;
}

/* All ranks have the same words, mostly. */
static bool diagnose_failure(const struct coll_job *job, struct coll_findings *findings)
{
    const char *said = NULL;
    for (size_t i = 0; i < job->count; i++) {
        const struct coll_page_failure *failure = &job->seen[i].page.failure;
        if (!failure->failed_ns || (said && !strcmp(said, failure->text)))
            continue;
        if (said)
            return true;
        said = failure->text;
        struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_FAILED);
        if (!finding)
            return false;
        snprintf(finding->text, sizeof(finding->text), "it has failed: %s", failure->text);
    }
    return true;
}

static bool diagnose_missing(const struct coll_job *job, struct coll_findings *findings)
{
    uint8_t missing[SW_COLL_RANKS_MAX / 8] = {0};
    char ranks[RANKS_TEXT];
    for (uint32_t rank = 0; rank < job->size; rank++)
        if (!find_dump(job, rank))
            missing[rank / 8] |= (uint8_t)(1u << rank % 8);
    const uint32_t count = count_bits(missing, job->size);
    if (!count)
        return true;
    struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_NO_DUMP);
    if (!finding)
        return false;
    for (uint32_t rank = 0; count == 1 && rank < job->size; rank++)
        if (missing[rank / 8])
            finding->rank = rank / 8 * 8 + (uint32_t)__builtin_ctz(missing[rank / 8]);
    ranks_of_bits(missing, job->size, ranks, sizeof(ranks));
    snprintf(finding->text, sizeof(finding->text), "of %u ranks there is no dump of %s", job->size,
             ranks);
    return true;
}

/* ---- all of it ---- */

static bool diagnose_job(const struct coll_job *job, const struct coll_seen *all, size_t all_count,
                         struct coll_findings *findings)
{
    const size_t before = findings->count;
    if (!diagnose_missing(job, findings) || !coll_find_differences(job, findings) ||
        !diagnose_gone(job, findings) || !diagnose_awaited(job, all, all_count, findings) ||
        !diagnose_failure(job, findings) || !coll_find_late(job, findings))
        return false;
    if (findings->count > before)
        return true;
    struct coll_finding *finding = coll_finding_add(findings, job, COLL_FOUND_WELL);
    if (finding)
        snprintf(finding->text, sizeof(finding->text),
                 "no rank waits in an operation, and none came 10 ms later than the others");
    return finding;
}

/* By communicator, then by rank; the newer one of a rank comes first. */
static int compare_dumps(const void *one, const void *other)
{
    const struct coll_dump *a = *(const struct coll_dump *const *)one;
    const struct coll_dump *b = *(const struct coll_dump *const *)other;
    const struct coll_page *mine = &a->seen.page, *theirs = &b->seen.page;
    if (mine->job != theirs->job)
        return mine->job < theirs->job ? -1 : 1;
    if (mine->size != theirs->size)
        return mine->size < theirs->size ? -1 : 1;
    if (mine->rank != theirs->rank)
        return mine->rank < theirs->rank ? -1 : 1;
    return a->realtime_ns > b->realtime_ns ? -1 : a->realtime_ns < b->realtime_ns;
}

static bool is_same_rank(const struct coll_dump *one, const struct coll_dump *other)
{
    return one->seen.page.job == other->seen.page.job &&
           one->seen.page.size == other->seen.page.size &&
           one->seen.page.rank == other->seen.page.rank;
}

static size_t drop_older(const struct coll_dump **dumps, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!kept || !is_same_rank(dumps[kept - 1], dumps[i]))
            dumps[kept++] = dumps[i];
    return kept;
}

bool coll_diagnose(const struct coll_dump **dumps, size_t count, struct coll_findings *findings)
{
    qsort(dumps, count, sizeof(*dumps), compare_dumps);
    count = drop_older(dumps, count);
    struct coll_seen *seen = calloc(count + 1, sizeof(*seen));
    bool is_well = seen;
    for (size_t i = 0; is_well && i < count; i++)
        seen[i] = dumps[i]->seen;
    for (size_t begin = 0, end; is_well && begin < count; begin = end) {
        for (end = begin + 1; end < count; end++)
            if (seen[end].page.job != seen[begin].page.job ||
                seen[end].page.size != seen[begin].page.size)
                break;
        const struct coll_job job = {.dumps = dumps + begin,
                                     .seen = seen + begin,
                                     .count = end - begin,
                                     .size = seen[begin].page.size};
        is_well = diagnose_job(&job, seen, count, findings);
    }
    free(seen);
    return is_well;
}
