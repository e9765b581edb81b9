/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int threshold = -1;

enum sw_log_level sw_log_threshold(void)
{
    int level = atomic_load_explicit(&threshold, memory_order_relaxed);
    if (level >= 0)
        return (enum sw_log_level)level;

    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *wanted = getenv("SIDEWIRE_LOG");
    level = SW_LOG_WARN;
    for (int i = 0; wanted && i < 4; i++)
        if (!strcmp(wanted, names[i]))
            level = i;
    atomic_store_explicit(&threshold, level, memory_order_relaxed);
    return (enum sw_log_level)level;
}

void sw_log(enum sw_log_level level, const char *fmt, ...)
{
    if (level > sw_log_threshold())
        return;
    int saved_errno = errno;
    char line[1024];
    int used = snprintf(line, sizeof(line), "sidewire[%d]: ", (int)getpid());
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, fmt, args);
    va_end(args);
    size_t len = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (len > sizeof(line) - 2)
        len = sizeof(line) - 2;
    line[len++] = '\n';
    /* One write, so that lines of several processes do not mix. A closed stderr is no error. */
    ssize_t ignored = write(STDERR_FILENO, line, len);
    (void)ignored;
    errno = saved_errno;
}
