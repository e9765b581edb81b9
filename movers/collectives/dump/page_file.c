/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/dump/page_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool coll_page_file_is_stale(int fd)
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

static bool is_page_file(int fd)
{
    struct stat file;
    return !fstat(fd, &file) && S_ISREG(file.st_mode) && file.st_uid == geteuid() &&
           file.st_size == sizeof(struct coll_recorder);
}

/* A page that is not whole changes all the time, or its rank was killed while it wrote: then the
 * state is what there is of it. */
bool coll_page_file_read(int fd, struct coll_seen *seen)
{
    if (!is_page_file(fd))
        return false;
    const bool is_dead = coll_page_file_is_stale(fd);
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

void coll_page_file_forget(const struct coll_seen *seen)
{
    if (seen->recorder)
        munmap((void *)(uintptr_t)seen->recorder, sizeof(*seen->recorder));
}
