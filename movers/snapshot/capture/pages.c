/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/capture/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, FOUND_MAX = 256 };

/* <linux/userfaultfd.h> and <linux/fs.h> of 6.7; Debian 12 has those of 6.1. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define FEATURE_WP_UNPOPULATED (1ull << 13)
#define FEATURE_WP_ASYNC (1ull << 15)
#define SCAN_WP_MATCHING 1
#define SCAN_CHECK_WPASYNC 2
#define PAGE_WAS_WRITTEN (1ull << 1)

struct scan_region {
    uint64_t start, end, categories;
};

struct scan_request {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define SCAN_PAGEMAP _IOWR('f', 16, struct scan_request)

static long scan_pagemap(const struct snap_pages *pages, struct scan_request *request)
{
    long found;
    request->size = sizeof(*request);
    request->flags = SCAN_WP_MATCHING | SCAN_CHECK_WPASYNC;
    request->category_mask = request->return_mask = PAGE_WAS_WRITTEN;
    do
        found = ioctl(pages->pagemap, SCAN_PAGEMAP, request);
    while (found < 0 && errno == EINTR && request->vec_len == 0);
    return found;
}

int snap_pages_open(struct snap_pages *pages)
{
    *pages = SNAP_PAGES_NONE;
    const int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (uffd < 0)
        return -errno;
    struct uffdio_api api = {.api = UFFD_API,
                             .features = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED};
    int code = ioctl(uffd, UFFDIO_API, &api) ? -errno : 0;
    if (code == 0) {
        pages->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        code = pages->pagemap < 0 ? -errno : 0;
    }
    pages->uffd = uffd;
    if (code)
        snap_pages_close(pages);
    return code;
}

void snap_pages_close(struct snap_pages *pages)
{
    if (pages->uffd >= 0)
        close(pages->uffd);
    if (pages->pagemap >= 0)
        close(pages->pagemap);
    *pages = SNAP_PAGES_NONE;
}

struct snap_span snap_pages_span(const void *data, uint64_t bytes)
{
    const uintptr_t at = (uintptr_t)data;
    const struct snap_span span = {.first = (at + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1),
                                   .end = (at + bytes) & ~(uintptr_t)(PAGE_BYTES - 1)};
    return span.end > span.first ? span : (struct snap_span){0};
}

/* ---- what is plain ---- */

static int add_plain(struct snap_plain *plain, uint32_t *room, struct snap_span span)
{
    if (plain->count > 0 && plain->spans[plain->count - 1].end == span.first) {
        plain->spans[plain->count - 1].end = span.end;
        return 0;
    }
    if (plain->count == *room) {
        const uint32_t wanted = *room ? *room * 2 : 256;
        struct snap_span *spans = realloc(plain->spans, wanted * sizeof(*spans));
        if (!spans)
            return -ENOMEM;
        plain->spans = spans;
        *room = wanted;
    }
    plain->spans[plain->count++] = span;
    return 0;
}

int snap_plain_read(struct snap_plain *plain)
{
    char line[512];
    uint32_t room = 0;
    int code = 0;
    *plain = (struct snap_plain){0};
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return -errno;
    while (code == 0 && fgets(line, sizeof(line), maps)) {
        unsigned long first, end, inode;
        char rights[5];
        if (!strchr(line, '\n')) /* a long name; the file has an inode */
            for (int c = fgetc(maps); c != EOF && c != '\n';)
                c = fgetc(maps);
        if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &first, &end, rights, &inode) == 4 &&
            strcmp(rights, "rw-p") == 0 && inode == 0)
            code = add_plain(plain, &room, (struct snap_span){first, end});
    }
    fclose(maps);
    if (code)
        snap_plain_free(plain);
    return code;
}

bool snap_plain_has(const struct snap_plain *plain, struct snap_span span)
{
    uint32_t low = 0, high = plain->count; /* the first that ends behind its beginning */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (plain->spans[middle].end > span.first)
            high = middle;
        else
            low = middle + 1;
    }
    return low < plain->count && plain->spans[low].first <= span.first &&
           span.end <= plain->spans[low].end;
}

void snap_plain_free(struct snap_plain *plain)
{
    free(plain->spans);
    *plain = (struct snap_plain){0};
}

/* ---- what was written ---- */

int snap_pages_watch(const struct snap_pages *pages, struct snap_span span)
{
    struct uffdio_register wish = {.range = {.start = span.first, .len = span.end - span.first},
                                   .mode = UFFDIO_REGISTER_MODE_WP};
    return ioctl(pages->uffd, UFFDIO_REGISTER, &wish) ? -errno : 0;
}

int snap_pages_forget(const struct snap_pages *pages, struct snap_span span)
{
    struct scan_request request = {.start = span.first, .end = span.end};
    return scan_pagemap(pages, &request) < 0 ? -errno : 0;
}

int snap_pages_written(const struct snap_pages *pages, struct snap_span span,
                       void (*found)(void *context, struct snap_span written), void *context)
{
    struct scan_region regions[FOUND_MAX];
    for (uintptr_t at = span.first; at < span.end;) {
        struct scan_request request = {
            .start = at, .end = span.end, .vec = (uintptr_t)regions, .vec_len = FOUND_MAX};
        const long count = scan_pagemap(pages, &request);
        if (count < 0)
            return -errno;
        for (long i = 0; i < count; i++)
            found(context, (struct snap_span){regions[i].start, regions[i].end});
        if (request.walk_end <= at)
            return -EIO; /* it would go on for ever */
        at = request.walk_end;
    }
    return 0;
}
