/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/text/printable.h"

enum { LOG_TEXT_BYTES = 4096, LOG_TIME_BYTES = 40 };

static struct {
    const char *name;
    enum mover_log_level level;
    bool is_timed;
} log_of_program = {"sidewire", MOVER_LOG_WARNING, false};

static const struct {
    const char *word;
    int priority; /* of syslog */
} levels[] = {
    [MOVER_LOG_ERROR] = {"error", 3},
    [MOVER_LOG_WARNING] = {"warning", 4},
    [MOVER_LOG_INFO] = {"info", 6},
};

void mover_log_name(const char *name)
{
    log_of_program.name = name;
}

void mover_log_open(enum mover_log_level level, bool is_timed)
{
    log_of_program.level = level;
    log_of_program.is_timed = is_timed;
}

/* Standard error leads to the journal: systemd says so by the numbers of the socket, which a
 * program that was started with its output elsewhere inherits, too. */
static bool goes_to_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uint64_t device, inode;
    struct stat about;
    return stream && sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) == 2 &&
           !fstat(STDERR_FILENO, &about) && about.st_dev == device && about.st_ino == inode;
}

static FILE *before_others; /* NULL: nobody else's lines are changed */

/* Gets whole lines: the stream holds them back until they are. */
static ssize_t write_others(void *cookie, const char *bytes, size_t length)
{
    (void)cookie;
    for (size_t at = 0; at < length;) {
        const char *end = memchr(bytes + at, '\n', length - at);
        const size_t line = end ? (size_t)(end - bytes) - at : length - at;
        fprintf(before_others, "<%d>%.*s\n", levels[MOVER_LOG_ERROR].priority, (int)line,
                bytes + at);
        at += line + 1;
    }
    return (ssize_t)length;
}

void mover_log_others_begin(void)
{
    static const cookie_io_functions_t functions = {.write = write_others};
    FILE *stream = goes_to_journal() ? fopencookie(NULL, "w", functions) : NULL;
    if (!stream)
        return;
    setvbuf(stream, NULL, _IOLBF, LOG_TEXT_BYTES);
    before_others = stderr;
    stderr = stream;
}

void mover_log_others_end(void)
{
    if (!before_others)
        return;
    fclose(stderr);
    stderr = before_others;
    before_others = NULL;
}

static void write_time(char text[LOG_TIME_BYTES])
{
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    const size_t used = strftime(text, LOG_TIME_BYTES, "%FT%T", &parts);
    snprintf(text + used, LOG_TIME_BYTES - used, ".%03dZ ", (int)(now.tv_nsec / 1000000));
}

static void log_write_line(enum mover_log_level level, char *text)
{
    char line[LOG_TEXT_BYTES + 256], time[LOG_TIME_BYTES] = "";
    mover_make_printable(text);
    if (goes_to_journal()) {
        snprintf(line, sizeof(line), "<%d>%s\n", levels[level].priority, text);
    } else {
        if (log_of_program.is_timed)
            write_time(time);
        snprintf(line, sizeof(line), "%s%s%s%.128s: %s\n", time,
                 log_of_program.is_timed ? levels[level].word : "",
                 log_of_program.is_timed ? " " : "", log_of_program.name, text);
    }
    fputs(line, stderr); /* without a buffer: one write */
}

void mover_log(enum mover_log_level level, const char *format, ...)
{
    char text[LOG_TEXT_BYTES];
    va_list args;
    if (level > log_of_program.level)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    log_write_line(level, text);
}

void mover_log_told(struct mover_told *told, enum mover_log_level level, const char *format, ...)
{
    char text[LOG_TEXT_BYTES];
    uint64_t others;
    va_list args;
    if (level > log_of_program.level || !mover_told_begin(told))
        return;
    va_start(args, format);
    const int len = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    others = mover_told_end(told);
    if (others && len >= 0 && len < LOG_TEXT_BYTES)
        snprintf(text + len, sizeof(text) - len,
                 " (and %" PRIu64 " others since the last such line)", others);
    log_write_line(level, text);
}
