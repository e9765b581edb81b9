/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire coll status`: the pages of all ranks of this user on this host. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/command/command.h"
#include "collectives/command/pages.h"
#include "collectives/dump/cycle.h"
#include "collectives/dump/write.h"
#include "common/base/minmax.h"
#include "common/command/option.h"
#include "common/command/table.h"
#include "common/time/clock.h"

enum { NAMED_MAX = 8, RANKS_TEXT = 160, AWAITED_TEXT = 800 };

struct status {
    uint32_t last; /* operations of each rank */
    bool is_json;
};

static const struct mover_option options[] = {
    {"output-format", 'o', "FORMAT", 0, "normal or json", 1, mover_take_format,
     offsetof(struct status, is_json)},
    {"last", 0, "N", 0, "Show the last N operations of each rank, too (0)", 1,
     MOVER_TO(struct status, last)},
    {0},
};

/* ---- what is printed ---- */

static const struct mover_column columns[] = {{"JOB", "job", .width = 16},
                                              {"RANK", "rank", .width = 4},
                                              {"PID", "pid", .width = 7},
                                              {"NUMBER", "number", .width = 8},
                                              {"WHAT", "collective", .width = 14},
                                              {"COUNT", "elements", .width = 11},
                                              {"TYPE", "type", .width = 4},
                                              {"STEP", "step", .width = 4},
                                              {"SINCE(ms)", "waits_ms", .width = 9},
                                              {"WAITS FOR", NULL, .gap = 1},
                                              {0}};

static const struct mover_column last_columns[] = {{"JOB", "job", .width = 16},
                                                   {"RANK", "rank", .width = 4},
                                                   {"NUMBER", "number", .width = 8},
                                                   {"WHAT", "collective", .width = 14},
                                                   {"COUNT", "elements", .width = 11},
                                                   {"TYPE", "type", .width = 4},
                                                   {"ALGORITHM", "algorithm", .width = 9},
                                                   {"AGO(ms)", "ago_ms", .width = 9},
                                                   {"TOOK(us)", "took_us", .width = 9},
                                                   {"STATUS", "status", .gap = 1},
                                                   {0}};

/* Which kind, and "-" where it has ended: then the program computes. */
static const char *name_activity(const struct coll_page *page)
{
    static const char *const names[COLL_ACTIVITIES] = {
        [COLL_IN_SEND] = "send",     [COLL_IN_RECV] = "recv",      [COLL_IN_AGREEMENT] = "agree",
        [COLL_IN_SHRINK] = "shrink", [COLL_HAS_FAILED] = "failed", [COLL_IN_OPENING] = "open"};
    if (names[page->state.activity])
        return names[page->state.activity];
    return page->ended >= page->state.number
               ? NULL
               : sw_coll_kind_name((enum sw_coll_kind)page->state.kind);
}

static json_t *json_of_job(uint64_t job)
{
    char name[24];
    snprintf(name, sizeof(name), "%016" PRIx64, job);
    return job ? json_string(name) : json_null();
}

static json_t *json_of_awaited(const struct coll_page *page, char *text, size_t room)
{
    json_t *ranks = json_array();
    size_t used = 0;
    uint32_t count = 0;
    snprintf(text, room, "-");
    for (uint32_t rank = 0; rank < page->size; rank++) {
        if (!coll_page_awaits(page, rank))
            continue;
        json_array_append_new(ranks, json_integer(rank));
        if (count++ < NAMED_MAX)
            used += (size_t)snprintf(text + used, room - used, "%s%u", count > 1 ? ", " : "", rank);
    }
    if (count > NAMED_MAX)
        snprintf(text + used, room - used, " and %u more", count - NAMED_MAX);
    return ranks;
}

/* Null where it is not over. */
static json_t *json_of_span(uint64_t from_ns, uint64_t to_ns, uint64_t unit_ns)
{
    return from_ns && to_ns >= from_ns ? json_integer((json_int_t)((to_ns - from_ns) / unit_ns))
                                       : json_null();
}

/* The newest one comes last. */
static json_t *json_of_last(const struct coll_seen *seen, uint32_t last, uint64_t now_ns)
{
    const uint64_t newest = __atomic_load_n(&seen->recorder->recorded, __ATOMIC_ACQUIRE);
    struct coll_recorded record;
    json_t *list = json_array();
    const uint64_t first =
        mover_max_u64(coll_recorder_first(seen->recorder), newest > last ? newest - last + 1 : 1);
    for (uint64_t serial = first; serial <= newest; serial++) {
        if (!coll_recorder_read(seen->recorder, serial, &record))
            continue;
        json_t *json = coll_dump_operation(seen->recorder, &record, seen->page.size);
        json_t *times =
            json_pack("{so so}", "ago_ms", json_of_span(record.posted_ns, now_ns, NS_PER_MS),
                      "took_us", json_of_span(record.posted_ns, record.ended_ns, NS_PER_US));
        json_object_update(json, times);
        json_decref(times);
        json_array_append_new(list, json);
    }
    return list;
}

static void print_page(struct mover_table *table, const struct coll_seen *seen,
                       const struct status *status, uint64_t now_ns)
{
    char text[RANKS_TEXT];
    const struct coll_page *page = &seen->page;
    const char *what = name_activity(page);
    const bool is_message =
        page->state.activity == COLL_IN_SEND || page->state.activity == COLL_IN_RECV;
    const bool is_operation = page->state.activity == COLL_IN_OPERATION;
    const bool has_data = what && (is_message || is_operation);
    const bool has_since = what && page->state.since_ns && now_ns > page->state.since_ns;
    json_t *awaited = json_of_awaited(page, text, sizeof(text));
    if (seen->process != COLL_PROCESS_ALIVE) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, " (%s)",
                 coll_dump_word(COLL_WORDS_PROCESS, seen->process));
    }
    json_t *row = json_pack(
        "{so so sI sI sI sI ss sI ss? so so so so so}", "job", json_of_job(page->job), "parent",
        json_of_job(page->parent), "rank", (json_int_t)page->rank, "ranks", (json_int_t)page->size,
        "place", (json_int_t)page->place, "pid", (json_int_t)page->pid, "process",
        coll_dump_word(COLL_WORDS_PROCESS, seen->process), "number",
        (json_int_t)(is_message ? page->state.message : page->state.number), "collective", what,
        "elements", has_data ? json_integer((json_int_t)page->state.count) : json_null(), "type",
        has_data ? json_string(sw_coll_type_name((enum sw_coll_type)page->state.type))
                 : json_null(),
        "step",
        what && is_operation && page->state.steps ? json_integer(page->state.step) : json_null(),
        "waits_ms",
        has_since ? json_integer((json_int_t)((now_ns - page->state.since_ns) / NS_PER_MS))
                  : json_null(),
        "waits_for", awaited);
    if (status->last) {
        json_t *last = json_pack("{so}", "operations", json_of_last(seen, status->last, now_ns));
        json_object_update(row, last);
        json_decref(last);
    }
    mover_table_add(table, text, row);
}

/* Below all ranks, where it is a text. */
static void print_last(const struct json_t *rows)
{
    size_t i, j;
    json_t *row, *operation;
    printf("\n");
    struct mover_table table;
    mover_table_open(&table, last_columns, false);
    json_array_foreach(rows, i, row)
    {
        json_array_foreach(json_object_get(row, "operations"), j, operation)
        {
            json_t *copy = json_copy(operation);
            json_object_set(copy, "job", json_object_get(row, "job"));
            json_object_set(copy, "rank", json_object_get(row, "rank"));
            mover_table_add(&table, NULL, copy);
        }
    }
    json_decref(table.rows);
}

/* NULL: ranks of it do not wait for each other. */
static json_t *json_of_cycle(const struct coll_seen *job, size_t count, char *text, size_t room)
{
    struct coll_cycle cycle;
    coll_cycle_find(job, count, &cycle);
    if (!cycle.count)
        return NULL;
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < cycle.count; i++)
        json_array_append_new(ranks, json_integer(cycle.ranks[i]));
    coll_cycle_text(job, count, &cycle, text, room);
    return json_pack("{so sn sn so ss}", "job", json_of_job(job->page.job), "rank", "waits_in",
                     "cycle", ranks, "text", text);
}

/* NULL: nobody is awaited in it. */
static json_t *json_of_culprit(const struct co_pages *pages, size_t begin, size_t end, char *text,
                               size_t room)
{
    const struct coll_seen *job = &pages->all[begin];
    json_t *cycle = json_of_cycle(job, end - begin, text, room);
    if (cycle)
        return cycle;
    const struct coll_culprit culprit =
        coll_culprit_find(job, end - begin, pages->all, pages->count);
    if (culprit.rank == job->page.size)
        return NULL;
    coll_culprit_text(&culprit, text, room);
    return json_pack("{so sI so so ss}", "job", json_of_job(job->page.job), "rank",
                     (json_int_t)culprit.rank, "waits_in",
                     json_of_job(culprit.waits_in ? culprit.waits_in->page.job : 0), "cycle",
                     json_array(), "text", text);
}

static int print_all(const struct co_pages *pages, const struct status *status)
{
    struct mover_table table;
    json_t *all_awaited = json_array(), *awaited;
    const uint64_t now_ns = mover_now_ns();
    size_t begin = 0, end;
    mover_table_open(&table, columns, status->is_json);
    for (size_t i = 0; i < pages->count; i++)
        print_page(&table, &pages->all[i], status, now_ns);
    for (; begin < pages->count; begin = end) {
        char text[AWAITED_TEXT];
        end = coll_culprit_job_end(pages->all, pages->count, begin);
        awaited = json_of_culprit(pages, begin, end, text, sizeof(text));
        if (!awaited)
            continue;
        json_array_append_new(all_awaited, awaited);
        if (!status->is_json)
            printf("job %016" PRIx64 ": %s\n", pages->all[begin].page.job, text);
    }
    if (status->last && !status->is_json)
        print_last(table.rows);
    return mover_table_close(&table,
                             json_pack("{so so}", "rows", table.rows, "awaited", all_awaited));
}

int co_status(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Shows what each rank on this host does, whom it waits for and since when, and "
                 "who is awaited by the others.",
        .own = {.rows = options}};
    static struct status status;
    struct co_pages pages = {0};
    mover_parse(&usage, argc, argv, &status);
    int code = co_pages_read(&pages, false);
    if (!code && !pages.count && !status.is_json)
        co_pages_tell_none("status");
    if (!code)
        code = print_all(&pages, &status);
    co_pages_free(&pages);
    return code;
}
