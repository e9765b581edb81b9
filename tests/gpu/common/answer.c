/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/common/answer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/common/driver.h"

static char line[4096]; /* PIPE_BUF: a longer one could be torn by another process's */
static size_t used;

/* Leaves the line as it was where there is no room for all of it. */
static void add_text(const char *format, ...)
{
    const size_t room = sizeof(line) - 4; /* for the end */
    va_list arguments;
    va_start(arguments, format);
    const int len = vsnprintf(line + used, room - used, format, arguments);
    va_end(arguments);
    if (len >= 0 && used + (size_t)len < room)
        used += (size_t)len;
    line[used] = '\0';
}

static void quote_text(const char *value, char *out, size_t len)
{
    size_t at = 0;
    for (; *value && at + 8 < len; value++) {
        const unsigned char byte = (unsigned char)*value;
        if (byte == '"' || byte == '\\')
            out[at++] = '\\';
        if (byte >= 0x20 && byte < 0x7f)
            out[at++] = (char)byte;
        else
            at += (size_t)snprintf(out + at, len - at, "\\u%04x", byte);
    }
    out[at] = '\0';
}

void answer_begin(const char *what)
{
    used = 0;
    add_text("{\"what\": \"%s\"", what);
}

void answer_number(const char *key, uint64_t value)
{
    add_text(", \"%s\": %" PRIu64, key, value);
}

void answer_signed(const char *key, int64_t value)
{
    add_text(", \"%s\": %" PRId64, key, value);
}

void answer_real(const char *key, double value)
{
    if (isfinite(value))
        add_text(", \"%s\": %.6g", key, value);
    else
        add_text(", \"%s\": null", key);
}

void answer_text(const char *key, const char *value)
{
    char quoted[2048];
    quote_text(value, quoted, sizeof(quoted));
    add_text(", \"%s\": \"%s\"", key, quoted);
}

void answer_code(const char *key, int code)
{
    answer_signed(key, code);
    add_text(", \"%s_name\": \"%s\"", key, gpu_error_name(code));
}

void answer_errno(const char *key, int code)
{
    answer_signed(key, code);
    add_text(", \"%s_name\": \"%s\"", key, code ? strerrorname_np(abs(code)) : "OK");
}

void answer_end(void)
{
    line[used++] = '}';
    line[used++] = '\n';
    for (size_t done = 0; done < used;) {
        const ssize_t len = write(STDOUT_FILENO, line + done, used - done);
        if (len < 0 && errno != EINTR)
            _exit(ANSWER_FAILED); /* nobody listens any more */
        done += len > 0 ? (size_t)len : 0;
    }
    used = 0;
}

void answer_skip(const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    answer_begin("skip");
    answer_text("reason", reason);
    answer_end();
    exit(ANSWER_SKIPPED);
}
