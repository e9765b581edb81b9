/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading small files through one libc call or another, and walking streams of names. */
#ifndef TESTS_PRELOAD_READ_H
#define TESTS_PRELOAD_READ_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The contents behind fd, which is closed; "error N" (errno) if there is none. Static buffer. */
static inline const char *contents_of_fd(int fd)
{
    static char text[4096];
    if (fd < 0) {
        snprintf(text, sizeof(text), "error %d", errno);
        return text;
    }
    ssize_t got = read(fd, text, sizeof(text) - 1);
    text[got > 0 ? got : 0] = '\0';
    close(fd);
    return text;
}

static inline const char *contents_of_stream(FILE *stream)
{
    static char text[4096];
    if (!stream) {
        snprintf(text, sizeof(text), "error %d", errno);
        return text;
    }
    text[fread(text, 1, sizeof(text) - 1, stream)] = '\0';
    fclose(stream);
    return text;
}

/* All names but "." and "..", each followed by a blank; the stream is closed. */
static inline const char *names_of(DIR *stream)
{
    static char text[8192];
    text[0] = '\0';
    if (!stream) {
        snprintf(text, sizeof(text), "error %d", errno);
        return text;
    }
    const struct dirent *entry;
    while ((entry = readdir(stream))) {
        size_t used = strlen(text);
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            snprintf(text + used, sizeof(text) - used, "%s ", entry->d_name);
    }
    closedir(stream);
    return text;
}

#endif
