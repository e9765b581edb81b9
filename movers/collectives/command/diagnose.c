/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire coll diagnose`: which rank differs, is awaited or is late, of dumps or of the ranks of
 * this host. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "collectives/command/command.h"
#include "collectives/command/dumps.h"
#include "collectives/command/pages.h"
#include "collectives/dump/diagnose.h"
#include "collectives/dump/write.h"
#include "common/command/json.h"
#include "common/command/option.h"
#include "common/time/clock.h"

enum { DUMPS_MAX = 1 << 16, DUMP_NAME = 4096 };

struct diagnosing {
    bool is_json, wants_dead;
    struct coll_dump **dumps;
    size_t count, room;
    size_t live;      /* dumps in front of those of dead jobs */
    size_t dead_jobs; /* of the pages; not of dumps that were named */
    bool has_words, has_failed;
};

static struct diagnosing diagnosing;

/* ---- dumps ---- */

static bool add_dump(struct diagnosing *to, struct coll_dump *dump)
{
    if (to->count == to->room) {
        const size_t room = to->room ? 2 * to->room : 16;
        struct coll_dump **dumps =
            room <= DUMPS_MAX ? realloc(to->dumps, room * sizeof(*dumps)) : NULL;
        if (!dumps) {
            coll_dump_free(dump);
            return false;
        }
        to->dumps = dumps;
        to->room = room;
    }
    to->dumps[to->count++] = dump;
    return true;
}

/* One that cannot be read is told, and the others count. */
static void take_file(struct diagnosing *to, const char *path)
{
    char error[200] = "";
    struct coll_dump *dump = co_dump_read(path, error, sizeof(error));
    if (dump && add_dump(to, dump))
        return;
    mover_fail("%s: %s", path, dump ? "there are too many dumps" : error);
    to->has_failed = true;
}

static void take_folder(struct diagnosing *to, const char *path)
{
    const size_t tail = strlen(COLL_DUMP_SUFFIX);
    char name[DUMP_NAME];
    DIR *folder = opendir(path);
    if (!folder) {
        mover_fail("%s: %s", path, strerror(errno));
        to->has_failed = true;
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const size_t length = strlen(entry->d_name);
        if (length <= tail || strcmp(entry->d_name + length - tail, COLL_DUMP_SUFFIX) != 0)
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        take_file(to, name);
    }
    closedir(folder);
}

static void take_dump_word(struct argp_state *state, void *arguments, char *text)
{
    struct diagnosing *to = arguments;
    struct stat file;
    (void)state;
    to->has_words = true;
    if (!stat(text, &file) && S_ISDIR(file.st_mode))
        take_folder(to, text);
    else
        take_file(to, text);
}

static int diagnose_page(struct diagnosing *to, const struct coll_seen *seen)
{
    const struct coll_dump_case how = {COLL_DUMP_READ, seen->process, mover_now_ns()};
    char error[200];
    json_t *json = coll_dump_make(seen->recorder, &how);
    struct coll_dump *dump = json ? coll_dump_of_json(json, error, sizeof(error)) : NULL;
    json_decref(json);
    return !dump || add_dump(to, dump) ? MOVER_DONE : mover_fail("out of memory");
}

/* The pages of jobs that live, or those of dead ones, of which no rank on this host is left. */
static int diagnose_jobs(struct diagnosing *to, const struct co_pages *pages, bool are_dead)
{
    int code = MOVER_DONE;
    for (size_t begin = 0, end; begin < pages->count; begin = end) {
        end = coll_culprit_job_end(pages->all, pages->count, begin);
        if (co_pages_are_dead(pages, begin, end) != are_dead)
            continue;
        to->dead_jobs += are_dead;
        for (size_t i = begin; !code && i < end && (!are_dead || to->wants_dead); i++)
            code = diagnose_page(to, &pages->all[i]);
    }
    return code;
}

static int take_pages(struct diagnosing *to)
{
    struct co_pages pages = {0};
    int code = co_pages_read(&pages, true);
    if (!code)
        code = diagnose_jobs(to, &pages, false);
    to->live = to->count;
    if (!code)
        code = diagnose_jobs(to, &pages, true);
    if (!code && !pages.count && !to->is_json)
        co_pages_tell_none("diagnose");
    co_pages_free(&pages);
    return code;
}

/* ---- what is found ---- */

static json_t *json_of_waiting(const struct coll_finding *finding)
{
    json_t *ranks = json_array();
    for (uint32_t rank = 0; rank < SW_COLL_RANKS_MAX; rank++)
        if (finding->waiting[rank / 8] & 1u << rank % 8)
            json_array_append_new(ranks, json_integer(rank));
    return ranks;
}

static json_t *json_of_finding(const struct coll_finding *finding)
{
    char job[24];
    snprintf(job, sizeof(job), "%016" PRIx64, finding->job);
    return json_pack(
        "{ss ss so ss? so so so ss}", "job", job, "verdict", coll_finding_word(finding->verdict),
        "rank", finding->rank == COLL_NO_RANK ? json_null() : json_integer(finding->rank),
        "collective", coll_dump_word(COLL_WORDS_KIND, finding->kind), "number",
        finding->number ? json_integer((json_int_t)finding->number) : json_null(), "waits_ms",
        finding->time_ns ? json_integer((json_int_t)(finding->time_ns / NS_PER_MS)) : json_null(),
        "waiting", json_of_waiting(finding), "text", finding->text);
}

static void print_dead_jobs(const struct diagnosing *from)
{
    if (from->dead_jobs && !from->wants_dead)
        printf("%zu job%s on this host %s dead: --all has %s, `sidewire coll status` removes %s\n",
               from->dead_jobs, from->dead_jobs > 1 ? "s" : "", from->dead_jobs > 1 ? "are" : "is",
               from->dead_jobs > 1 ? "them" : "it", from->dead_jobs > 1 ? "them" : "it");
}

static int print_findings(const struct coll_findings *findings, const struct diagnosing *from)
{
    const bool is_json = from->is_json;
    json_t *rows = json_array();
    for (size_t i = 0; i < findings->count; i++) {
        const struct coll_finding *finding = &findings->all[i];
        if (is_json)
            json_array_append_new(rows, json_of_finding(finding));
        else
            printf("job %016" PRIx64 ": %s\n", finding->job, finding->text);
    }
    if (is_json)
        return mover_print_json(
            json_pack("{so sI}", "rows", rows, "dead_jobs", (json_int_t)from->dead_jobs));
    json_decref(rows);
    print_dead_jobs(from);
    return mover_finish_output();
}

int co_diagnose(int argc, char **argv)
{
    static const struct mover_option options[] = {
        {"output-format", 'o', "FORMAT", 0, "normal or json", 1, mover_take_format,
         offsetof(struct diagnosing, is_json)},
        {"all", 0, NULL, 0, "Jobs of which no rank on this host is left, too", 1,
         MOVER_TO(struct diagnosing, wants_dead)},
        {0},
    };
    static const struct mover_usage usage = {
        .words = "[DUMP...]",
        .about = "Says which rank differs from the others, is awaited by them, or is late, in "
                 "which operation, and for how long. DUMP is a dump, or a folder of dumps; without "
                 "one it looks at the ranks of this host, and counts jobs that are dead.",
        .own = {.rows = options, .word = take_dump_word}};
    struct coll_findings findings = {0};
    mover_parse(&usage, argc, argv, &diagnosing);
    int code = diagnosing.has_words ? MOVER_DONE : take_pages(&diagnosing);
    const struct coll_dump **dumps = (const struct coll_dump **)diagnosing.dumps;
    /* Findings come by job, and jobs that live come first. */
    if (!code &&
        (!coll_diagnose(dumps, diagnosing.live, &findings) ||
         !coll_diagnose(dumps + diagnosing.live, diagnosing.count - diagnosing.live, &findings)))
        code = mover_fail("out of memory");
    if (!code)
        code = print_findings(&findings, &diagnosing);
    free(findings.all);
    for (size_t i = 0; i < diagnosing.count; i++)
        coll_dump_free(diagnosing.dumps[i]);
    free(diagnosing.dumps);
    return code ? code : diagnosing.has_failed ? MOVER_FAILED : MOVER_DONE;
}
