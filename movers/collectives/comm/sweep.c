/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "collectives/comm/page.h"
#include "collectives/dump/page_file.h"
#include "common/base/minmax.h"
#include "common/time/clock.h"

enum {
    EACH_S = 60,  /* between two sweeps of a process */
    YOUNG_S = 60, /* a file that is younger may have no lock yet, or be this process's own */
    OLD_S = 3600, /* since its rank did something */
    NAME_BYTES = 40,
};

struct dead_page {
    uint64_t touched_s; /* CLOCK_REALTIME */
    char name[NAME_BYTES];
};

struct dead_pages {
    struct dead_page *all;
    size_t count, room;
};

static uint64_t real_seconds(void)
{
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    return (uint64_t)real.tv_sec;
}

/* Not one of this process, which would lose its lock when its file is closed here. */
static bool is_anothers_page(const char *name)
{
    uint64_t job = 0;
    uint32_t rank = 0;
    char rest[12] = "";
    return strlen(name) < NAME_BYTES &&
           sscanf(name, "%16" SCNx64 "-%" SCNu32 "%11s", &job, &rank, rest) == 3 &&
           (!strcmp(rest, COLL_PAGE_SUFFIX) || !strcmp(rest, COLL_PAGE_SUFFIX ".new")) &&
           !coll_page_is_own(job, rank);
}

static bool is_old_enough(int folder, const char *name, uint64_t now_s, uint64_t *made_s)
{
    struct stat file;
    if (fstatat(folder, name, &file, AT_SYMLINK_NOFOLLOW) || !S_ISREG(file.st_mode))
        return false;
    *made_s = (uint64_t)file.st_mtim.tv_sec;
    return *made_s + YOUNG_S < now_s;
}

/* When its rank did something last; 0: the file is no page that anybody could read. */
static uint64_t last_touched(int fd, uint64_t made_s, uint64_t now_s)
{
    struct coll_seen seen = {.process = COLL_PROCESS_ALIVE};
    if (!coll_page_file_read(fd, &seen))
        return 0;
    const struct coll_page *page = &seen.page;
    const uint64_t since_s = (page->about.realtime_ns + page->state.since_ns) / NS_PER_S;
    coll_page_file_forget(&seen);
    return since_s <= now_s ? mover_max_u64(made_s, since_s) : made_s;
}

static void keep_for_now(struct dead_pages *pages, const char *name, uint64_t touched_s)
{
    if (pages->count == pages->room) {
        const size_t room = pages->room ? 2 * pages->room : 64;
        struct dead_page *all = realloc(pages->all, room * sizeof(*all));
        if (!all)
            return;
        pages->all = all;
        pages->room = room;
    }
    struct dead_page *page = &pages->all[pages->count++];
    page->touched_s = touched_s;
    snprintf(page->name, sizeof(page->name), "%s", name);
}

static void sweep_file(struct dead_pages *pages, int folder, const char *name, uint64_t now_s)
{
    uint64_t made_s = 0;
    if (!is_anothers_page(name) || !is_old_enough(folder, name, now_s, &made_s))
        return;
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (coll_page_file_is_stale(fd)) {
        const uint64_t touched_s = last_touched(fd, made_s, now_s);
        if (touched_s + OLD_S < now_s)
            unlinkat(folder, name, 0);
        else
            keep_for_now(pages, name, touched_s);
    }
    close(fd);
}

static int compare_newest_first(const void *one, const void *other)
{
    const uint64_t a = ((const struct dead_page *)one)->touched_s;
    const uint64_t b = ((const struct dead_page *)other)->touched_s;
    return a > b ? -1 : a < b;
}

void coll_sweep_pages(const char *folder)
{
    static uint64_t next_ns;
    const uint64_t now_ns = mover_now_ns(), now_s = real_seconds();
    if (now_ns < __atomic_load_n(&next_ns, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&next_ns, now_ns + EACH_S * NS_PER_S, __ATOMIC_RELAXED);
    struct dead_pages pages = {.count = 0};
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        sweep_file(&pages, dirfd(dir), entry->d_name, now_s);
    if (pages.count > COLL_DEAD_KEPT)
        qsort(pages.all, pages.count, sizeof(*pages.all), compare_newest_first);
    for (size_t i = COLL_DEAD_KEPT; i < pages.count; i++)
        unlinkat(dirfd(dir), pages.all[i].name, 0);
    if (dir)
        closedir(dir);
    free(pages.all);
}
