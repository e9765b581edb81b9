/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/command/pages.h"

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

#include "common/command/front.h"
#include "common/serve/control_folder.h"

/* ---- one page ---- */

/* Nobody has its lock. */
static bool is_page_stale(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return !fcntl(fd, F_GETLK, &lock) && lock.l_type == F_UNLCK;
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

static bool is_page_sane(const struct coll_page *page)
{
    return page->magic == COLL_PAGE_MAGIC && page->version == COLL_PAGE_VERSION &&
           page->size <= SW_COLL_RANKS_MAX && page->rank < page->size &&
           page->state.activity < COLL_ACTIVITIES && page->state.kind < SW_COLL_KINDS &&
           page->state.type < SW_COLL_TYPES;
}

/* A page that is not whole changes all the time, or its rank was killed while it wrote: then the
 * state is what there is of it. */
static bool read_page_of(int fd, struct coll_seen *seen)
{
    const bool is_dead = is_page_stale(fd);
    const struct coll_recorder *recorder =
        mmap(NULL, sizeof(*recorder), PROT_READ, MAP_SHARED, fd, 0);
    if (recorder == MAP_FAILED)
        return false;
    const bool is_whole = coll_page_read(&recorder->page, &seen->page) || is_dead;
    if (!is_whole || !is_page_sane(&seen->page)) {
        munmap((void *)(uintptr_t)recorder, sizeof(*recorder));
        return false;
    }
    seen->recorder = recorder;
    seen->process = is_dead                      ? COLL_PROCESS_DEAD
                    : is_stopped(seen->page.pid) ? COLL_PROCESS_STOPPED
                                                 : COLL_PROCESS_ALIVE;
    return true;
}

static bool is_page_file(int fd)
{
    struct stat file;
    return !fstat(fd, &file) && S_ISREG(file.st_mode) && file.st_uid == geteuid() &&
           file.st_size == sizeof(struct coll_recorder);
}

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
    if (is_page_file(fd) && read_page_of(fd, &seen))
        is_taken = add_page(pages, &seen);
    else if (!fstat(fd, &file) && S_ISREG(file.st_mode) && is_page_stale(fd))
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

static void forget_page(const struct coll_seen *seen)
{
    if (seen->recorder)
        munmap((void *)(uintptr_t)seen->recorder, sizeof(*seen->recorder));
}

/* Jobs of which nobody lives. */
static void drop_dead_jobs(struct co_pages *pages)
{
    size_t kept = 0, end;
    for (size_t begin = 0; begin < pages->count; begin = end) {
        bool lives = false;
        end = coll_culprit_job_end(pages->all, pages->count, begin);
        for (size_t i = begin; i < end; i++)
            lives = lives || pages->all[i].process != COLL_PROCESS_DEAD;
        for (size_t i = begin; i < end; i++) {
            if (lives) {
                pages->all[kept++] = pages->all[i];
                continue;
            }
            co_pages_remove(&pages->all[i]);
            forget_page(&pages->all[i]);
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
        forget_page(&pages->all[i]);
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
