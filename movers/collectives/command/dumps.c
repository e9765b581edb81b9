/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/command/dumps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *read_dump_file(int fd, size_t *bytes, char *error, size_t room)
{
    struct stat file;
    char *text = NULL;
    *bytes = 0;
    if (fstat(fd, &file) || !S_ISREG(file.st_mode))
        snprintf(error, room, "it is no file");
    else if (file.st_size > COLL_DUMP_BYTES_MAX)
        snprintf(error, room, "it has more than %u MiB", COLL_DUMP_BYTES_MAX >> 20);
    else if (!(text = malloc((size_t)file.st_size + 1)))
        snprintf(error, room, "out of memory");
    else
        for (ssize_t got; *bytes < (size_t)file.st_size; *bytes += (size_t)got)
            if ((got = read(fd, text + *bytes, (size_t)file.st_size - *bytes)) <= 0)
                break;
    return text;
}

struct coll_dump *co_dump_read(const char *path, char *error, size_t room)
{
    size_t bytes = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = fd < 0 ? NULL : read_dump_file(fd, &bytes, error, room);
    if (fd < 0)
        snprintf(error, room, "%s", strerror(errno));
    else
        close(fd);
    struct coll_dump *dump = text ? coll_dump_of_text(text, bytes, error, room) : NULL;
    free(text);
    return dump;
}
