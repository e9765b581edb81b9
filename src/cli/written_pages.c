/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/written_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/refusal.h"
#include "cli/report.h"

/* <linux/userfaultfd.h> and <linux/fs.h> of Linux 6.7. */
#define WRITTEN_WP_ASYNC (1ull << 15)
#define WRITTEN_WP_UNPOPULATED (1ull << 13)
#define WRITTEN_SCAN_FLAGS 3ull /* protect what is found; only where protection is asynchronous */
#define WRITTEN_PAGE (1ull << 1)

struct written_scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

enum { PROBE_PAGES = 4, PROBE_BYTES = PROBE_PAGES * 4096, STEP_UFFD = 1, STEP_API, STEP_SCAN };

/* How many runs of pages were written since the last call; a negative errno. */
static long ask_written(int pagemap, void *pages)
{
    struct {
        uint64_t start, end, categories;
    } found[PROBE_PAGES];
    struct written_scan scan = {.size = sizeof(scan),
                                .flags = WRITTEN_SCAN_FLAGS,
                                .start = (uintptr_t)pages,
                                .end = (uintptr_t)pages + PROBE_BYTES,
                                .vec = (uintptr_t)found,
                                .vec_len = PROBE_PAGES,
                                .category_mask = WRITTEN_PAGE,
                                .return_mask = WRITTEN_PAGE};
    const long count = ioctl(pagemap, _IOWR('f', 16, struct written_scan), &scan);
    return count < 0 ? -errno : count;
}

/* Writes one page of four, and asks. */
static int try_scan(int uffd, int pagemap, uint8_t *pages)
{
    struct uffdio_register watch = {.range = {.start = (uintptr_t)pages, .len = PROBE_BYTES},
                                    .mode = UFFDIO_REGISTER_MODE_WP};
    if (ioctl(uffd, UFFDIO_REGISTER, &watch))
        return -errno;
    long count = ask_written(pagemap, pages);
    if (count < 0)
        return (int)count;
    *(volatile uint8_t *)(pages + 4096) = 1;
    count = ask_written(pagemap, pages);
    return count < 0 ? (int)count : count == 1 ? 0 : -EIO;
}

/* 0, or a negative errno and at which step. */
static int try_written_pages(int *step)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = WRITTEN_WP_ASYNC | WRITTEN_WP_UNPOPULATED};
    *step = STEP_UFFD;
    const int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (uffd < 0)
        return -errno;
    *step = STEP_API;
    int code = ioctl(uffd, UFFDIO_API, &api) ? -errno : 0;
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uint8_t *pages =
        mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == 0) {
        *step = STEP_SCAN;
        code = pagemap < 0 || pages == MAP_FAILED ? -EACCES : try_scan(uffd, pagemap, pages);
    }
    if (pages != MAP_FAILED)
        munmap(pages, PROBE_BYTES);
    if (pagemap >= 0)
        close(pagemap);
    close(uffd);
    return code;
}

void sw_written_pages_probe(struct sw_report *report)
{
    static const char *const calls[] = {"", "userfaultfd", "UFFD_FEATURE_WP_ASYNC", "PAGEMAP_SCAN"};
    int step;
    const int code = try_written_pages(&step);
    struct sw_finding *finding =
        sw_report_add(report, SW_GROUP_MACHINE, code ? SW_VERDICT_NO : SW_VERDICT_YES,
                      "snapshots, pages written");
    if (code) {
        sw_refusal_explain(finding, calls[step], -code, "version 6.7 or later");
        sw_finding_append(finding, "so snapshots sum the state twice");
    } else
        sw_finding_detail(finding,
                          "the kernel tells which pages of a state were written (PAGEMAP_SCAN)");
}
