/* SPDX-License-Identifier: BSD-2-Clause */
/* How far long work is: a line that is written over itself, on standard error. */
#ifndef SW_MOVERS_PROGRESS_H
#define SW_MOVERS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct mover_progress {
    uint64_t total_bytes, done_bytes, begun_ns, shown_ns;
    bool is_shown;
};

/* `is_shown`: as a rule, isatty(STDERR_FILENO). */
void mover_progress_begin(struct mover_progress *progress, uint64_t total_bytes, bool is_shown);
/* `done_bytes` of them are done. May be called as often as one likes: it prints five times a
 * second. */
void mover_progress_at(struct mover_progress *progress, uint64_t done_bytes);
/* Prints it for the last time. */
void mover_progress_end(struct mover_progress *progress);

#endif
