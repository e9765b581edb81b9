/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/progress.h"

#include <stdio.h>

#include "common/time/clock.h"

enum { SHOWN_EACH_NS = 200 * 1000 * 1000 };

static void print_progress(const struct mover_progress *progress, uint64_t now_ns, const char *end)
{
    const double done = (double)progress->done_bytes, total = (double)progress->total_bytes;
    const double seconds = (double)(now_ns - progress->begun_ns) / 1e9;
    fprintf(stderr, "\r%5.1f%%  %.1f of %.1f MiB  %.0f MB/s %s",
            total > 0 ? 100.0 * done / total : 100.0, done / 1048576, total / 1048576,
            seconds > 0 ? done / 1e6 / seconds : 0, end);
}

void mover_progress_begin(struct mover_progress *progress, uint64_t total_bytes, bool is_shown)
{
    *progress = (struct mover_progress){
        .total_bytes = total_bytes, .begun_ns = mover_now_ns(), .is_shown = is_shown};
    progress->shown_ns = progress->begun_ns;
}

void mover_progress_at(struct mover_progress *progress, uint64_t done_bytes)
{
    progress->done_bytes = done_bytes;
    if (!progress->is_shown)
        return;
    const uint64_t now_ns = mover_now_ns();
    if (now_ns - progress->shown_ns < SHOWN_EACH_NS)
        return;
    progress->shown_ns = now_ns;
    print_progress(progress, now_ns, "");
}

void mover_progress_end(struct mover_progress *progress)
{
    if (progress->is_shown)
        print_progress(progress, mover_now_ns(), "\n");
}
