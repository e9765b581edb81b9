/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire coll dump`: writes what the ranks of this host have recorded, also of those that are
 * stopped, compute, or were killed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/command/command.h"
#include "collectives/command/pages.h"
#include "collectives/dump/write.h"
#include "common/command/option.h"
#include "common/command/table.h"
#include "common/serve/json_text.h"
#include "common/time/clock.h"

enum { DUMP_PATH = 1024 };

struct dumping {
    const char *folder;
    bool is_json;
};

static const struct mover_option options[] = {
    {"output-format", 'o', "FORMAT", 0, "normal or json", 1, mover_take_format,
     offsetof(struct dumping, is_json)},
    {0},
};

static const struct mover_column columns[] = {
    {"JOB", "job", .width = 16},        {"RANK", "rank", .width = 4}, {"PID", "pid", .width = 7},
    {"PROCESS", "process", .width = 7}, {"FILE", "file", .gap = 1},   {0}};

/* A dead rank's page is in its dump now. */
static int dump_page(const struct coll_seen *seen, const char *folder, struct mover_table *table)
{
    const struct coll_dump_case how = {COLL_DUMP_READ, seen->process, mover_now_ns()};
    char path[DUMP_PATH], job[24];
    const int code = coll_dump_save(coll_dump_make(seen->recorder, &how), &seen->page, folder, path,
                                    sizeof(path));
    if (code)
        return mover_fail("%s: %s", path, strerror(-code));
    if (seen->process == COLL_PROCESS_DEAD)
        co_pages_remove(seen);
    snprintf(job, sizeof(job), "%016" PRIx64, seen->page.job);
    mover_table_add(table, NULL,
                    json_pack("{ss sI sI ss so}", "job", job, "rank", (json_int_t)seen->page.rank,
                              "pid", (json_int_t)seen->page.pid, "process",
                              coll_dump_word(COLL_WORDS_PROCESS, seen->process), "file",
                              mover_json_text(path)));
    return MOVER_DONE;
}

int co_dump(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "FOLDER",
        .about = "Writes the last operations of each rank on this host into a folder: also of "
                 "ranks that compute, are stopped, or were killed.",
        .own = {.rows = options,
                .only_word = "FOLDER",
                .only_word_at = offsetof(struct dumping, folder)}};
    static struct dumping dumping;
    struct co_pages pages = {0};
    struct mover_table table;
    mover_parse(&usage, argc, argv, &dumping);
    int code = co_pages_read(&pages, true);
    if (code)
        return code;
    if (!pages.count && !dumping.is_json)
        co_pages_tell_none("dump");
    mover_table_open(&table, columns, dumping.is_json);
    for (size_t i = 0; !code && i < pages.count; i++)
        code = dump_page(&pages.all[i], dumping.folder, &table);
    const int printed = mover_table_close(&table, json_pack("{so}", "rows", table.rows));
    co_pages_free(&pages);
    return code ? code : printed;
}
