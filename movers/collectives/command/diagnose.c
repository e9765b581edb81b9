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
    bool is_json;
    struct coll_dump **dumps;
    size_t count, room;
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

static int take_pages(struct diagnosing *to)
{
    struct co_pages pages = {0};
    char error[200];
    int code = co_pages_read(&pages, true);
    for (size_t i = 0; !code && i < pages.count; i++) {
        const struct coll_dump_case how = {COLL_DUMP_READ, pages.all[i].process, mover_now_ns()};
        json_t *json = coll_dump_make(pages.all[i].recorder, &how);
        struct coll_dump *dump = json ? coll_dump_of_json(json, error, sizeof(error)) : NULL;
        json_decref(json);
        if (dump && !add_dump(to, dump))
            code = mover_fail("out of memory");
    }
    if (!code && !to->count && !to->is_json)
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

static int print_findings(const struct coll_findings *findings, bool is_json)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < findings->count; i++) {
        const struct coll_finding *finding = &findings->all[i];
        if (is_json)
            json_array_append_new(rows, json_of_finding(finding));
        else
            printf("job %016" PRIx64 ": %s\n", finding->job, finding->text);
    }
    if (is_json)
        return mover_print_json(json_pack("{so}", "rows", rows));
    json_decref(rows);
    return mover_finish_output();
}

int co_diagnose(int argc, char **argv)
{
    static const struct mover_option options[] = {
        {"output-format", 'o', "FORMAT", 0, "normal or json", 1, mover_take_format,
         offsetof(struct diagnosing, is_json)},
        {0},
    };
    static const struct mover_usage usage = {
        .words = "[DUMP...]",
        .about = "Says which rank differs from the others, is awaited by them, or is late, in "
                 "which operation, and for how long. DUMP is a dump, or a folder of dumps; without "
                 "one it looks at the ranks of this host.",
        .own = {.rows = options, .word = take_dump_word}};
    struct coll_findings findings = {0};
    mover_parse(&usage, argc, argv, &diagnosing);
    int code = diagnosing.has_words ? MOVER_DONE : take_pages(&diagnosing);
    if (!code &&
        !coll_diagnose((const struct coll_dump **)diagnosing.dumps, diagnosing.count, &findings))
        code = mover_fail("out of memory");
    if (!code)
        code = print_findings(&findings, diagnosing.is_json);
    free(findings.all);
    for (size_t i = 0; i < diagnosing.count; i++)
        coll_dump_free(diagnosing.dumps[i]);
    free(diagnosing.dumps);
    return code ? code : diagnosing.has_failed ? MOVER_FAILED : MOVER_DONE;
}
