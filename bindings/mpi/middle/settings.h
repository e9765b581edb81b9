/* SPDX-License-Identifier: BSD-2-Clause */
/* What SIDEWIRE_COLLECTIVES says, and the counters that it wants told. */
#ifndef SW_BINDINGS_MPI_SETTINGS_H
#define SW_BINDINGS_MPI_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the program was started by `sidewire run --collectives`. */
bool mpm_is_on(void);
/* A line to standard error. */
void mpm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line of the library's log: only where counters are told, too. */
void mpm_log(void *context, const char *line);

/* Why a collective call was left to MPI. */
enum mpm_left {
    MPM_LEFT_KIND,         /* sizes that the root alone knows */
    MPM_LEFT_TYPE,         /* no counterpart of its type or operator, or an argument is wrong */
    MPM_LEFT_COMMUNICATOR, /* of one rank, or between groups */
    MPM_LEFT_UNOPENED,     /* one that not all ranks could open */
    MPM_LEFT_EARLY,        /* non-blocking, before a blocking one has opened the communicator */
    MPM_LEFT_REASONS
};

void mpm_count_ours(void);
void mpm_count_left(enum mpm_left reason);
/* Once, at the end: "rank 0: 12 of 13 collective calls by Sidewire, ...", if it is wanted. */
void mpm_tell_counts(int rank);

#endif
