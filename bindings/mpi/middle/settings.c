/* SPDX-License-Identifier: BSD-2-Clause */
#include "settings.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t calls_ours, calls_left[MPM_LEFT_REASONS];

bool mpm_is_on(void)
{
    const char *value = getenv("SIDEWIRE_COLLECTIVES");
    return value && (!strcmp(value, "auto") || !strcmp(value, "tell"));
}

static bool is_telling(void)
{
    const char *value = getenv("SIDEWIRE_COLLECTIVES");
    return value && !strcmp(value, "tell");
}

void mpm_say(const char *format, ...)
{
    char line[512];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    fprintf(stderr, "sidewire: %s\n", line); /* one write: lines of ranks stay whole */
}

void mpm_log(void *context, const char *line)
{
    (void)context;
    if (is_telling())
        mpm_say("%s", line);
}

void mpm_count_ours(void)
{
    atomic_fetch_add_explicit(&calls_ours, 1, memory_order_relaxed);
}

void mpm_count_left(enum mpm_left reason)
{
    atomic_fetch_add_explicit(&calls_left[reason], 1, memory_order_relaxed);
}

void mpm_tell_counts(int rank)
{
    static atomic_bool is_told;
    if (!is_telling() || atomic_exchange(&is_told, true))
        return;
    uint64_t ours = calls_ours, all = ours;
    for (int i = 0; i < MPM_LEFT_REASONS; i++)
        all += calls_left[i];
    mpm_say("rank %d: %llu of %llu collective calls by Sidewire; left to MPI: %llu for their type "
            "or operator, %llu of one rank or between groups, %llu where not all ranks could open, "
            "%llu without waiting before one that waits, %llu of a kind whose sizes one rank knows",
            rank, (unsigned long long)ours, (unsigned long long)all,
            (unsigned long long)calls_left[MPM_LEFT_TYPE],
            (unsigned long long)calls_left[MPM_LEFT_COMMUNICATOR],
            (unsigned long long)calls_left[MPM_LEFT_UNOPENED],
            (unsigned long long)calls_left[MPM_LEFT_EARLY],
            (unsigned long long)calls_left[MPM_LEFT_KIND]);
}
