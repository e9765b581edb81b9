/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/background.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/command/front.h"
#include "common/serve/notify.h"

static int ready_fd = -1; /* of the pipe to the process that was started */
static bool is_behind;    /* this is the process in the background */

/* A pipe that ends without a byte: the server has ended before it was ready. */
static void background_await(int fd, pid_t child)
{
    char byte;
    int status;
    ssize_t got;
    do
        got = read(fd, &byte, 1);
    while (got < 0 && errno == EINTR);
    if (got == 1)
        _exit(MOVER_DONE);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : MOVER_FAILED);
}

int mover_background_begin(bool is_wanted)
{
    int ends[2];
    if (!is_wanted)
        return MOVER_DONE;
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC))
        return mover_fail("pipe: %s", strerror(errno));
    const pid_t child = fork();
    if (child < 0)
        return mover_fail("fork: %s", strerror(errno));
    close(ends[!child ? 0 : 1]);
    if (child)
        background_await(ends[0], child);
    ready_fd = ends[1];
    is_behind = true;
    return MOVER_DONE;
}

const char *mover_background_end(void)
{
    static char text[32] = "Ctrl-C";
    if (is_behind)
        snprintf(text, sizeof(text), "kill %d", getpid());
    return text;
}

/* A reader of the command's output, by a pipe or a terminal, is not kept by the server. */
static void let_go_of(int fd, int nowhere)
{
    struct stat about;
    if (fstat(fd, &about) || !S_ISREG(about.st_mode))
        dup2(nowhere, fd);
}

void mover_background_ready(void)
{
    fflush(NULL);
    mover_notify_ready();
    if (ready_fd < 0)
        return;
    setsid();
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; nowhere >= 0 && fd <= STDERR_FILENO; fd++)
        let_go_of(fd, nowhere);
    if (nowhere > STDERR_FILENO)
        close(nowhere);
    const ssize_t told = write(ready_fd, "", 1);
    (void)told; /* the command may have been killed meanwhile */
    close(ready_fd);
    ready_fd = -1;
}
