/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/command/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/dump/page_file.h"
#include "common/command/front.h"
#include "common/serve/control_folder.h"

/* ---- all of them ---- */

static bool add_page(struct co_pages *pages, const struct coll_seen *seen)
{
    if (pages->count == pages->room) {
        const size_t room = pages->room ? 2 * pages->room : 16;
        struct coll_seen *all = realloc(pages->all, room * sizeof(*all));
        if (!all)
            return false;
        pages->all = all;
        pages->room = room;
    }
    pages->all[pages->count++] = *seen;
    return true;
}

/* What nobody has locked, and is not the page of a rank, is removed. */
static bool take_page(struct co_pages *pages, int folder, const char *name)
{
    struct coll_seen seen = {.process = COLL_PROCESS_ALIVE};
    struct stat file;
    bool is_taken = true;
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return true;
    if (coll_page_file_read(fd, &seen))
        is_taken = add_page(pages, &seen);
    else if (!fstat(fd, &file) && S_ISREG(file.st_mode) && coll_page_file_is_stale(fd))
        unlinkat(folder, name, 0);
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
    const struct coll_page *a = &((const struct coll_seen *)one)->page;
    const struct coll_page *b = &((const struct coll_seen *)other)->page;
    if (a->job != b->job)
        return a->job < b->job ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

bool co_pages_are_dead(const struct co_pages *pages, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (pages->all[i].process != COLL_PROCESS_DEAD)
            return false;
    return true;
}

static void drop_dead_jobs(struct co_pages *pages)
{
    size_t kept = 0, end;
    for (size_t begin = 0; begin < pages->count; begin = end) {
        end = coll_culprit_job_end(pages->all, pages->count, begin);
        const bool are_dead = co_pages_are_dead(pages, begin, end);
        for (size_t i = begin; i < end; i++) {
            if (!are_dead) {
                pages->all[kept++] = pages->all[i];
                continue;
            }
            co_pages_remove(&pages->all[i]);
            coll_page_file_forget(&pages->all[i]);
        }
    }
    pages->count = kept;
}

int co_pages_read(struct co_pages *pages, bool keeps_dead)
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
    if (!keeps_dead)
        drop_dead_jobs(pages);
    return MOVER_DONE;
}

void co_pages_free(struct co_pages *pages)
{
    for (size_t i = 0; i < pages->count; i++)
        coll_page_file_forget(&pages->all[i]);
    free(pages->all);
}

void co_pages_remove(const struct coll_seen *seen)
{
    char folder[MOVER_CONTROL_FOLDER_MAX], path[MOVER_CONTROL_FOLDER_MAX + 64], error[300];
    if (!mover_control_folder("coll", folder, error, sizeof(error)))
        return;
    snprintf(path, sizeof(path), "%s/%016" PRIx64 "-%u" COLL_PAGE_SUFFIX, folder, seen->page.job,
             seen->page.rank);
    unlink(path);
}

void co_pages_tell_none(const char *command)
{
    char folder[MOVER_CONTROL_FOLDER_MAX], error[300];
    if (mover_control_folder("coll", folder, error, sizeof(error)))
        fprintf(stderr, "sidewire coll %s: no rank has a page in %s\n", command, folder);
}
