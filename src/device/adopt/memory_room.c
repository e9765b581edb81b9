/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/memory_room.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/minmax.h"

#ifdef SW_TEST_HOOKS
const char *sw_memory_room_root = "";
#else
static const char sw_memory_room_root[] = "";
#endif

#define DIR_MAX 1024 /* longer names of cgroups are not looked at */

/* One way to a memory controller: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
 */
struct hierarchy {
    const char *mount;
    const char *limits[2];
    const char *usage;
    const char *cache[2]; /* in memory.stat: what is taken away before anybody is killed */
};
static const struct hierarchy version_2 = {
    "/sys/fs/cgroup",
    {"memory.max", "memory.high"},
    "memory.current",
    {"\ninactive_file ", "\nactive_file "},
};
static const struct hierarchy version_1 = {
    "/sys/fs/cgroup/memory",
    {"memory.limit_in_bytes", NULL},
    "memory.usage_in_bytes",
    {"\ntotal_inactive_file ", "\ntotal_active_file "},
};

/* The file as a string; false if it cannot be read. */
static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, text, size - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    return len > 0;
}

/* A number of bytes in a file of a cgroup's; "max" and what is not there is UINT64_MAX. */
static uint64_t memory_room_read_number(const char *dir, const char *name)
{
    char path[DIR_MAX], text[64], *end;
    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
        !read_text(path, text, sizeof(text)))
        return UINT64_MAX;
    unsigned long long number = strtoull(text, &end, 10);
    return end == text ? UINT64_MAX : number;
}

static uint64_t read_cache(const struct hierarchy *h, const char *dir)
{
    static char text[8192];
    char path[DIR_MAX];
    uint64_t bytes = 0;
    if (snprintf(path, sizeof(path), "%s/memory.stat", dir) >= (int)sizeof(path) ||
        !read_text(path, text, sizeof(text)))
        return 0;
    for (int i = 0; i < 2; i++) {
        const char *found = strstr(text, h->cache[i]);
        bytes += found ? strtoull(found + strlen(h->cache[i]), NULL, 10) : 0;
    }
    return bytes;
}

static uint64_t room_in_cgroup(const struct hierarchy *h, const char *dir)
{
    uint64_t limit = UINT64_MAX;
    for (int i = 0; i < 2 && h->limits[i]; i++) {
        uint64_t number = memory_room_read_number(dir, h->limits[i]);
        limit = sw_min_u64(number, limit);
    }
    uint64_t usage = limit == UINT64_MAX ? UINT64_MAX : memory_room_read_number(dir, h->usage);
    if (usage == UINT64_MAX)
        return UINT64_MAX;
    uint64_t cache = read_cache(h, dir);
    usage -= sw_min_u64(cache, usage);
    return limit > usage ? limit - usage : 0;
}

/* The cgroup and all its ancestors that can be seen. In a container the path may be the host's, and
 * what is mounted the container's own: that is the last one then. */
static uint64_t room_in_hierarchy(const struct hierarchy *h, const char *cgroup)
{
    char dir[DIR_MAX];
    int mount = snprintf(dir, sizeof(dir), "%s%s", sw_memory_room_root, h->mount);
    int len = snprintf(dir + mount, sizeof(dir) - (size_t)mount, "%s", cgroup);
    if (mount + len >= (int)sizeof(dir))
        return UINT64_MAX;
    uint64_t room = UINT64_MAX;
    for (;;) {
        uint64_t here = room_in_cgroup(h, dir);
        room = sw_min_u64(here, room);
        char *slash = strrchr(dir + mount, '/');
        if (!slash)
            return room;
        *slash = '\0';
    }
}

/* "0::/path" is of version 2, "4:memory:/path" of version 1: cgroups(7). */
static uint64_t room_in_cgroups(void)
{
    static char text[4096];
    char path[DIR_MAX];
    uint64_t room = UINT64_MAX;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", sw_memory_room_root);
    if (!read_text(path, text, sizeof(text)))
        return UINT64_MAX;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *kinds = strchr(line, ':'), *cgroup = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!cgroup)
            continue;
        *cgroup++ = '\0';
        const struct hierarchy *h = !kinds[1]                     ? &version_2
                                    : strstr(kinds + 1, "memory") ? &version_1
                                                                  : NULL;
        uint64_t here = h ? room_in_hierarchy(h, cgroup) : UINT64_MAX;
        room = sw_min_u64(here, room);
    }
    return room;
}

uint64_t sw_memory_room(void)
{
    char path[DIR_MAX], text[512];
    snprintf(path, sizeof(path), "%s/proc/meminfo", sw_memory_room_root);
    if (!read_text(path, text, sizeof(text)))
        return SW_MEMORY_ROOM_UNKNOWN;
    const char *found = strstr(text, "MemAvailable:");
    uint64_t available = found ? strtoull(found + 13, NULL, 10) * 1024 : UINT64_MAX - 1;
    uint64_t room = room_in_cgroups();
    return sw_min_u64(room, available);
}
