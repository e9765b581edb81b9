/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the state were written, as the kernel tells: asynchronous write protection of
 * userfaultfd, and PAGEMAP_SCAN (Linux 6.7). The first store to a page takes a fault, which the
 * kernel ends by itself; system calls that write into the program's memory are seen, too.
 *
 * It sees nothing that goes around this process's page tables: a peer's stores into memory that is
 * shared, and a device's into pages that were pinned before. So memory that is shared is not
 * watched here: sums tell of it. Containers refuse userfaultfd, mostly.
 *
 * Pages on which a range begins or ends in the middle are not watched: they have other data, too.
 */
#ifndef SW_SNAPSHOT_PAGES_H
#define SW_SNAPSHOT_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct snap_pages {
    int uffd, pagemap; /* -1: the kernel tells nothing */
};

#define SNAP_PAGES_NONE ((struct snap_pages){.uffd = -1, .pagemap = -1})

/* 0, or a negative errno: this kernel, or this container, has none of it. */
int snap_pages_open(struct snap_pages *pages);
void snap_pages_close(struct snap_pages *pages);

/* The memory that is watched: whole pages of a range. */
struct snap_span {
    uintptr_t first, end;
};
struct snap_span snap_pages_span(const void *data, uint64_t bytes);

/* Where plain memory lies: private, and of no file. */
struct snap_plain {
    struct snap_span *spans; /* rising */
    uint32_t count;
};
int snap_plain_read(struct snap_plain *plain);
bool snap_plain_has(const struct snap_plain *plain, struct snap_span span);
void snap_plain_free(struct snap_plain *plain);

/* From now on; 0, or a negative errno: another userfaultfd has it. */
int snap_pages_watch(const struct snap_pages *pages, struct snap_span span);
/* Forgets what was written up to now. A negative errno: it is not watched any more. */
int snap_pages_forget(const struct snap_pages *pages, struct snap_span span);
/* Calls found() for each run of pages that was written since it was forgotten, and forgets it. */
int snap_pages_written(const struct snap_pages *pages, struct snap_span span,
                       void (*found)(void *context, struct snap_span written), void *context);

#endif
