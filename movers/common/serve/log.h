/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a server says while it serves: lines on standard error, each with a level. Under systemd the
 * journal gets the level, and has the time itself (sd-daemon(3)). With --log each line has time and
 * level; without it lines are "sidewire pmem serve: TEXT", from MOVER_LOG_WARNING on:
 *
 *     2026-03-01T12:00:00.123Z info sidewire pmem serve: 192.0.2.7 connects (backup)
 *
 * Threads may write at once: each line is one write.
 */
#ifndef SW_MOVERS_LOG_H
#define SW_MOVERS_LOG_H

#include <stdbool.h>

#include "common/serve/told.h"

enum mover_log_level {
    MOVER_LOG_ERROR,   /* something is lost, or is not served any more */
    MOVER_LOG_WARNING, /* something was refused or ended; the server goes on as before */
    MOVER_LOG_INFO,    /* somebody connects or leaves */
};

/* What lines begin with, "sidewire pmem serve": it stays the caller's, and may change. */
void mover_log_name(const char *name);
/* From here on lines up to that level are written, with the time if so wanted. Before threads
 * start. */
void mover_log_open(enum mover_log_level level, bool is_timed);

/* Until the end, what others write to stderr reaches the journal with the level of an error, line
 * by line: argp and getopt say so what is wrong with a command line. Elsewhere nothing changes. */
void mover_log_others_begin(void);
void mover_log_others_end(void);

/* A line. What strangers sent may be in it: control characters become '?'. */
void mover_log(enum mover_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for what strangers can cause as often as they like: a line in a second, which tells how
 * many there were besides. */
void mover_log_told(struct mover_told *told, enum mover_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
