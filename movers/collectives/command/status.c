/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire coll status`: the pages of all ranks of this user on this host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/command/command.h"
#include "collectives/core/page.h"
#include "common/command/option.h"
#include "common/command/table.h"
#include "common/serve/control_folder.h"
#include "common/time/clock.h"

enum { NAMED_MAX = 8, RANKS_TEXT = 160 };

struct status {
    bool is_json;
};

struct pages {
    struct coll_page *all; /* by job, then by rank */
    size_t count, room;
};

static const struct mover_option options[] = {
    {"output-format", 'o', "FORMAT", 0, "normal or json", 1, mover_take_format,
     offsetof(struct status, is_json)},
    {0},
};

/* ---- the pages ---- */

/* Nobody has its lock. */
static bool is_page_stale(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat file;
    return !fstat(fd, &file) && S_ISREG(file.st_mode) && !fcntl(fd, F_GETLK, &lock) &&
           lock.l_type == F_UNLCK;
}

static bool is_page_sane(const struct coll_page *page)
{
    return page->magic == COLL_PAGE_MAGIC && page->version == COLL_PAGE_VERSION &&
           page->size <= SW_COLL_RANKS_MAX && page->rank < page->size &&
           page->state.activity < COLL_ACTIVITIES && page->state.kind < SW_COLL_KINDS &&
           page->state.type < SW_COLL_TYPES;
}

static bool read_page_of(int fd, struct coll_page *page)
{
    struct stat file;
    if (fstat(fd, &file) || !S_ISREG(file.st_mode) || file.st_uid != geteuid() ||
        file.st_size != sizeof(*page))
        return false;
    const struct coll_page *mapped = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return false;
    const bool is_whole = coll_page_read(mapped, page) && is_page_sane(page);
    munmap((void *)(uintptr_t)mapped, sizeof(*page));
    return is_whole;
}

static bool add_page(struct pages *pages, const struct coll_page *page)
{
    if (pages->count == pages->room) {
        const size_t room = pages->room ? 2 * pages->room : 16;
        struct coll_page *all = realloc(pages->all, room * sizeof(*all));
        if (!all)
            return false;
        pages->all = all;
        pages->room = room;
    }
    pages->all[pages->count++] = *page;
    return true;
}

/* A file of a process that was killed is removed. */
static bool take_page(struct pages *pages, int folder, const char *name)
{
    struct coll_page page;
    bool is_taken = true;
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return true;
    if (is_page_stale(fd))
        unlinkat(folder, name, 0);
    else if (read_page_of(fd, &page))
        is_taken = add_page(pages, &page);
    close(fd);
    return is_taken;
}

static bool is_page_name(const char *name)
{
    const size_t length = strlen(name), suffix = strlen(COLL_PAGE_SUFFIX);
    return length > suffix && !strcmp(name + length - suffix, COLL_PAGE_SUFFIX);
}

static int compare_pages(const void *one, const void *other)
{
    const struct coll_page *a = one, *b = other;
    if (a->job != b->job)
        return a->job < b->job ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int read_all_pages(struct pages *pages)
{
    char folder[MOVER_CONTROL_FOLDER_MAX], error[300];
    if (!mover_control_folder("coll", folder, error, sizeof(error)))
        return mover_fail("%s", error);
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return MOVER_DONE;
    if (!dir)
        return mover_fail("%s: %s", folder, strerror(errno));
    if (!mover_control_folder_is_ours(folder, error, sizeof(error))) {
        closedir(dir);
        return mover_fail("%s", error);
    }
    bool is_taken = true;
    for (const struct dirent *entry; is_taken && (entry = readdir(dir));)
        if (is_page_name(entry->d_name))
            is_taken = take_page(pages, dirfd(dir), entry->d_name);
    closedir(dir);
    if (!is_taken)
        return mover_fail("out of memory");
    if (pages->count)
        qsort(pages->all, pages->count, sizeof(*pages->all), compare_pages);
    return MOVER_DONE;
}

/* ---- who is awaited ---- */

/* How far it has come. An operation that has ended is behind all steps of it, and the end of the
 * communicator behind all operations. */
struct progress {
    enum { IN_USE, AGREES, AT_REST, SHRINKS } stage;
    uint64_t number;
    uint32_t step;
    bool is_waiting;
};

static struct progress progress_of(const struct coll_page *page)
{
    const bool is_over = page->ended >= page->state.number;
    const enum coll_activity activity = page->state.activity;
    return (struct progress){.stage = activity == COLL_IN_SHRINK      ? SHRINKS
                                      : activity == COLL_HAS_FAILED   ? AT_REST
                                      : activity == COLL_IN_AGREEMENT ? AGREES
                                                                      : IN_USE,
                             .number = page->state.number + is_over,
                             .step = is_over ? 0 : page->state.step,
                             .is_waiting = page->state.is_waiting};
}

static bool status_is_behind(struct progress one, struct progress other)
{
    if (one.stage != other.stage)
        return one.stage < other.stage;
    if (one.number != other.number)
        return one.number < other.number;
    if (one.step != other.step)
        return one.step < other.step;
    return one.is_waiting < other.is_waiting;
}

static const struct coll_page *page_of_rank(const struct coll_page *job, size_t count,
                                            uint32_t rank)
{
    for (size_t i = 0; i < count; i++)
        if (job[i].rank == rank)
            return &job[i];
    return NULL;
}

/* Once a rank agrees or shrinks, it does not matter whom those wait for that know nothing of it. */
static unsigned find_last_stage(const struct coll_page *job, size_t count)
{
    unsigned last = IN_USE;
    for (size_t i = 0; i < count; i++) {
        const struct progress progress = progress_of(&job[i]);
        if (progress.is_waiting && progress.stage > last)
            last = progress.stage;
    }
    return last;
}

static bool status_is_awaited(const struct coll_page *job, size_t count, unsigned stage,
                              uint32_t rank)
{
    for (size_t i = 0; i < count; i++)
        if (progress_of(&job[i]).stage == stage && coll_page_awaits(&job[i], rank))
            return true;
    return false;
}

/* The one that has come least far, of those that are awaited: the others wait for it, or for one
 * that does. `size`: nobody is awaited. A rank without a page counts where none with one is behind
 * the one that waits for it. */
static uint32_t find_culprit(const struct coll_page *job, size_t count)
{
    const uint32_t size = job->size;
    const unsigned stage = find_last_stage(job, count);
    uint32_t found = size, unseen = size;
    for (uint32_t rank = 0; rank < size; rank++) {
        if (!status_is_awaited(job, count, stage, rank))
            continue;
        const struct coll_page *page = page_of_rank(job, count, rank);
        if (!page && unseen == size)
            unseen = rank;
        else if (page &&
                 (found == size || status_is_behind(progress_of(page),
                                                    progress_of(page_of_rank(job, count, found)))))
            found = rank;
    }
    if (unseen == size || found == size)
        return unseen == size ? found : unseen;
    const struct progress progress = progress_of(page_of_rank(job, count, found));
    return progress.is_waiting && progress.stage == stage ? unseen : found;
}

/* By SIGSTOP, or by a debugger. */
static bool is_stopped(uint32_t pid)
{
    char path[32], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    const bool is_read = file && fgets(text, sizeof(text), file);
    if (file)
        fclose(file);
    const char *name_end = is_read ? strrchr(text, ')') : NULL;
    return name_end && (name_end[2] == 'T' || name_end[2] == 't');
}

/* What that rank does instead of what the others want of it. `stage`: where these are. */
static void say_where(const struct coll_page *page, unsigned stage, char *text, size_t room)
{
    const uint64_t number = page->state.number;
    const struct progress progress = progress_of(page);
    const bool is_over = page->ended >= number, is_calm = is_over && !page->state.is_waiting;
    if (progress.stage == AT_REST)
        snprintf(text, room, "does not shrink the failed communicator yet");
    else if (progress.stage != IN_USE)
        snprintf(text, room, "%s",
                 progress.stage == AGREES ? "agrees on which ranks are gone"
                                          : "shrinks the communicator");
    else if (stage != IN_USE)
        snprintf(text, room, "has not seen yet that the communicator has failed");
    else
        snprintf(text, room, "%s operation %" PRIu64,
                 is_calm   ? "has not begun"
                 : is_over ? "waits after"
                           : "is in",
                 number + is_calm);
}

static void say_culprit(const struct coll_page *job, size_t count, uint32_t rank,
                        const struct coll_page *elsewhere, char *text, size_t room)
{
    const struct coll_page *page = page_of_rank(job, count, rank);
    char where[80], other[40] = "";
    if (!page) {
        snprintf(text, room, "rank %u is awaited, which is not on this host, or has ended", rank);
        return;
    }
    say_where(page, find_last_stage(job, count), where, sizeof(where));
    if (elsewhere)
        snprintf(other, sizeof(other), ", waits in job %016" PRIx64, elsewhere->job);
    snprintf(text, room, "rank %u (process %u) is awaited: it %s%s%s", rank, page->pid, where,
             other, is_stopped(page->pid) ? ", and is stopped" : "");
}

/* In another communicator of that process: NULL, in none. */
static const struct coll_page *find_elsewhere(const struct pages *pages,
                                              const struct coll_page *page)
{
    for (size_t i = 0; page && i < pages->count; i++)
        if (pages->all[i].pid == page->pid && pages->all[i].job != page->job &&
            pages->all[i].state.is_waiting)
            return &pages->all[i];
    return NULL;
}

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

/* Which kind, and "-" where it has ended: then the program computes. */
static const char *name_activity(const struct coll_page *page)
{
    static const char *const names[COLL_ACTIVITIES] = {[COLL_IN_SEND] = "send",
                                                       [COLL_IN_RECV] = "recv",
                                                       [COLL_IN_AGREEMENT] = "agree",
                                                       [COLL_IN_SHRINK] = "shrink",
                                                       [COLL_HAS_FAILED] = "failed"};
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

static void print_page(struct mover_table *table, const struct coll_page *page, uint64_t now_ns)
{
    char text[RANKS_TEXT];
    const char *what = name_activity(page);
    const bool is_message =
        page->state.activity == COLL_IN_SEND || page->state.activity == COLL_IN_RECV;
    const bool is_operation = page->state.activity == COLL_IN_OPERATION;
    const bool has_data = what && (is_message || is_operation);
    const bool has_since = what && page->state.since_ns && now_ns > page->state.since_ns;
    json_t *awaited = json_of_awaited(page, text, sizeof(text));
    json_t *row = json_pack(
        "{so so sI sI sI sI ss? so so so so so}", "job", json_of_job(page->job), "parent",
        json_of_job(page->parent), "rank", (json_int_t)page->rank, "ranks", (json_int_t)page->size,
        "pid", (json_int_t)page->pid, "number",
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
    mover_table_add(table, text, row);
}

/* NULL: nobody is awaited in it. */
static json_t *json_of_culprit(const struct pages *pages, const struct coll_page *job, size_t count,
                               char *text, size_t room)
{
    const uint32_t culprit = find_culprit(job, count);
    if (culprit == job->size)
        return NULL;
    const struct coll_page *elsewhere = find_elsewhere(pages, page_of_rank(job, count, culprit));
    say_culprit(job, count, culprit, elsewhere, text, room);
    return json_pack("{so sI so ss}", "job", json_of_job(job->job), "rank", (json_int_t)culprit,
                     "waits_in", json_of_job(elsewhere ? elsewhere->job : 0), "text", text);
}

static int print_all(const struct pages *pages, bool is_json)
{
    struct mover_table table;
    json_t *all_awaited = json_array(), *awaited;
    const uint64_t now_ns = mover_now_ns();
    size_t begin = 0, end;
    mover_table_open(&table, columns, is_json);
    for (size_t i = 0; i < pages->count; i++)
        print_page(&table, &pages->all[i], now_ns);
    for (; begin < pages->count; begin = end) {
        const struct coll_page *job = &pages->all[begin];
        char text[RANKS_TEXT];
        for (end = begin + 1; end < pages->count && pages->all[end].job == job->job; end++)
            continue;
        awaited = json_of_culprit(pages, job, end - begin, text, sizeof(text));
        if (!awaited)
            continue;
        json_array_append_new(all_awaited, awaited);
        if (!is_json)
            printf("job %016" PRIx64 ": %s\n", job->job, text);
    }
    return mover_table_close(&table,
                             json_pack("{so so}", "rows", table.rows, "awaited", all_awaited));
}

/* Two sessions of a user may have two folders. */
static void tell_nobody(void)
{
    char folder[MOVER_CONTROL_FOLDER_MAX], error[300];
    if (mover_control_folder("coll", folder, error, sizeof(error)))
        fprintf(stderr, "sidewire coll status: no rank has a page in %s\n", folder);
}

int co_status(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Shows what each rank on this host does, whom it waits for and since when, and "
                 "who is awaited by the others.",
        .own = {.rows = options}};
    static struct status status;
    struct pages pages = {0};
    mover_parse(&usage, argc, argv, &status);
    int code = read_all_pages(&pages);
    if (!code && !pages.count && !status.is_json)
        tell_nobody();
    if (!code)
        code = print_all(&pages, status.is_json);
    free(pages.all);
    return code;
}
