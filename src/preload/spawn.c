/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that make a thread or a process, which inherits the mask of its maker: the one
 * that the program has set (base/sigbus.h). A child of fork() sees to that itself. */
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

#include "base/sigbus.h"
#include "preload/real.h"

SW_HOOK int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                           void *arg)
{
    sw_sigbus_close_thread();
    return SW_REAL(pthread_create)(thread, attr, start, arg);
}

SW_HOOK int thrd_create(thrd_t *thread, thrd_start_t start, void *arg)
{
    sw_sigbus_close_thread();
    return SW_REAL(thrd_create)(thread, start, arg);
}

SW_HOOK int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attr, char *const argv[], char *const env[])
{
    sw_sigbus_close_thread();
    return SW_REAL(posix_spawn)(pid, path, actions, attr, argv, env);
}

SW_HOOK int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attr, char *const argv[], char *const env[])
{
    sw_sigbus_close_thread();
    return SW_REAL(posix_spawnp)(pid, file, actions, attr, argv, env);
}

SW_HOOK int system(const char *command)
{
    sw_sigbus_close_thread();
    return SW_REAL(system)(command);
}

SW_HOOK FILE *popen(const char *command, const char *mode)
{
    sw_sigbus_close_thread();
    return SW_REAL(popen)(command, mode);
}
