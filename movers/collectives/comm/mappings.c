/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/mappings.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* PROCMAP_QUERY (Documentation/filesystems/proc.rst), for older headers. */
struct query_arg {
    uint64_t size, query_flags, query_addr;
    uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
    uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};

static_assert(sizeof(struct query_arg) == 104, "as the kernel's");

#define QUERY_MAPS _IOWR('f', 17, struct query_arg)
enum { QUERY_SHARED = 0x08 };

void coll_maps_open(struct coll_maps *maps)
{
    *maps = (struct coll_maps){.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    maps->has_query = maps->fd >= 0;
}

void coll_maps_close(struct coll_maps *maps)
{
    if (maps->fd >= 0)
        close(maps->fd);
    maps->fd = -1;
}

/* Parts that follow each other in one file are one, however the kernel splits them. */
static bool note_mapping(struct coll_mappings *mappings, const struct coll_mapping *part)
{
    struct coll_mapping *last = mappings->count ? &mappings->at[mappings->count - 1] : NULL;
    if (last && last->end == part->begin && last->inode == part->inode &&
        last->major == part->major && last->minor == part->minor &&
        last->offset + (last->end - last->begin) == part->offset) {
        last->end = part->end;
        return true;
    }
    if (mappings->count == COLL_MAPPINGS_MAX)
        return false;
    mappings->at[mappings->count++] = *part;
    return true;
}

static struct coll_mapping cut_mapping(struct coll_mapping part, uint64_t begin, uint64_t end)
{
    if (part.begin < begin) {
        part.offset += begin - part.begin;
        part.begin = begin;
    }
    if (part.end > end)
        part.end = end;
    return part;
}

/* 1, 0: it is no shared mapping of a file, or a negative errno. */
static int query_mapping(const struct coll_maps *maps, uint64_t at, struct coll_mapping *part)
{
    struct query_arg arg = {.size = sizeof(arg), .query_addr = at};
    if (ioctl(maps->fd, QUERY_MAPS, &arg))
        return errno == ENOENT ? 0 : -errno;
    *part = (struct coll_mapping){.begin = arg.vma_start,
                                  .end = arg.vma_end,
                                  .offset = arg.vma_offset,
                                  .inode = arg.inode,
                                  .major = arg.dev_major,
                                  .minor = arg.dev_minor};
    return arg.vma_flags & QUERY_SHARED && arg.inode;
}

static int look_by_query(struct coll_maps *maps, uint64_t begin, uint64_t end,
                         struct coll_mappings *mappings)
{
    for (uint64_t at = begin; at < end;) {
        struct coll_mapping part;
        const int code = query_mapping(maps, at, &part);
        if (code <= 0)
            return code;
        part = cut_mapping(part, begin, end);
        if (!note_mapping(mappings, &part))
            return 0;
        at = part.end;
    }
    return 1;
}

static bool look_by_text(const struct coll_maps *maps, uint64_t begin, uint64_t end,
                         struct coll_mappings *mappings)
{
    uint64_t at = begin;
    char line[1024], flags[5];
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    FILE *file = maps->fd >= 0 && fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!file && fd >= 0)
        close(fd);
    while (file && at < end && fgets(line, sizeof(line), file)) {
        struct coll_mapping part;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &part.begin,
                   &part.end, flags, &part.offset, &part.major, &part.minor, &part.inode) != 7 ||
            part.end <= at)
            continue;
        if (part.begin > at || flags[3] != 's' || !part.inode)
            break;
        part = cut_mapping(part, at, end);
        if (!note_mapping(mappings, &part))
            break;
        at = part.end;
    }
    if (file)
        fclose(file);
    return at >= end;
}

bool coll_maps_look(struct coll_maps *maps, uint64_t begin, uint64_t end,
                    struct coll_mappings *mappings)
{
    mappings->count = 0;
    if (maps->has_query) {
        const int code = look_by_query(maps, begin, end, mappings);
        if (code >= 0)
            return code > 0;
        maps->has_query = false;
        mappings->count = 0;
    }
    return look_by_text(maps, begin, end, mappings);
}

bool coll_mappings_are_same(const struct coll_mappings *a, const struct coll_mappings *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct coll_mapping *one = &a->at[i], *two = &b->at[i];
        if (one->begin != two->begin || one->end != two->end || one->offset != two->offset ||
            one->inode != two->inode || one->major != two->major || one->minor != two->minor)
            return false;
    }
    return true;
}
