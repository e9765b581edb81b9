/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/command/picture.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/command/front.h"

#define SCRIPT "plots/coll_perf.py"

/* It lies beside this program. */
static bool find_script(char *path, size_t room)
{
    const ssize_t bytes = readlink("/proc/self/exe", path, room);
    if (bytes < 0 || (size_t)bytes == room)
        return false;
    path[bytes] = 0;
    char *name = strrchr(path, '/') + 1;
    const size_t left = room - (size_t)(name - path);
    return (size_t)snprintf(name, left, SCRIPT) < left && !access(path, R_OK);
}

/* A file without a name: a script that has ended early breaks no pipe. */
static int open_input(const json_t *all)
{
    const int fd = memfd_create("coll-perf", MFD_CLOEXEC);
    if (fd >= 0 && (json_dumpfd(all, fd, JSON_COMPACT) || lseek(fd, 0, SEEK_SET))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The interpreter's exit status; -1, with errno: it cannot be started. */
static int run_script(const char *script, const char *path, int input)
{
    char *words[] = {"python3", (char *)(uintptr_t)script, (char *)(uintptr_t)path, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    errno = posix_spawn_file_actions_init(&actions);
    if (errno)
        return -1;
    errno = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    if (!errno)
        errno = posix_spawnp(&pid, words[0], &actions, NULL, words, environ);
    const int failed = errno;
    posix_spawn_file_actions_destroy(&actions);
    errno = failed;
    if (failed)
        return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : MOVER_FAILED;
}

int co_picture_draw(const char *path, const json_t *all)
{
    char script[PATH_MAX];
    if (!find_script(script, sizeof(script)))
        return mover_fail("--plot: %s is not beside this program: install it anew", SCRIPT);
    const int input = open_input(all);
    if (input < 0)
        return mover_fail("--plot: no memory for what is drawn: %s", strerror(errno));
    const int code = run_script(script, path, input);
    const int failed = errno;
    close(input);
    if (code < 0)
        return mover_fail("--plot: python3 cannot be started: %s", strerror(failed));
    return code ? mover_fail("--plot: %s was not drawn", path) : MOVER_DONE;
}
