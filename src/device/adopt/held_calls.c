/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/held_calls.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/dents.h"
#include "device/adopt/keep.h"

#define TEXT_MAX 256
#define NAME_MAX_BYTES 32 /* "TID/syscall" */

bool sw_held_call_parse(const char *text, struct sw_held_call *out)
{
    uint64_t words[4]; /* the number of the call, then its arguments */
    for (int i = 0; i < 4; i++) {
        char *end;
        words[i] = strtoull(text, &end, 0);
        if (end == text || *end != ' ')
            return false;
        text = end + 1;
    }
    if (words[0] != SYS_madvise)
        return false;
    *out = (struct sw_held_call){words[1], words[2], (int)words[3]};
    return true;
}

/* One file of a thread. False: the thread has ended, or this is not told. */
static bool read_task(int tasks, const char *tid, const char *file, char *text)
{
    char name[NAME_MAX_BYTES];
    const int len = snprintf(name, sizeof(name), "%s/%s", tid, file);
    const int fd = len < (int)sizeof(name) ? openat(tasks, name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    const long got = syscall(SYS_read, fd, text, TEXT_MAX - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/*
 * wchan tells what a thread waits for only if the thread is off its processor's queue. From Linux
 * 6.12 on, one that has had more than its share stays there for a while after it has gone to sleep,
 * longer the busier the machine. A reader of `syscall` waits until the thread is off the queue, so
 * `syscall` is read first. A thread may also wait in such a call for a lock, and go on any time. So
 * what a held one wants is read when wchan has shown that it is held.
 */
static bool read_held(int tasks, const char *tid, struct sw_held_call *call)
{
    char text[TEXT_MAX];
    return read_task(tasks, tid, "syscall", text) && sw_held_call_parse(text, call) &&
           read_task(tasks, tid, "wchan", text) && strstr(text, "userfaultfd") &&
           read_task(tasks, tid, "syscall", text) && sw_held_call_parse(text, call);
}

int sw_held_calls_each(void (*fn)(const struct sw_held_call *call))
{
    struct sw_dents dents;
    const int tasks = sw_keep_open(SW_KEEP_TASKS);
    int count = 0;
    if (tasks < 0)
        return 0;
    sw_dents_use(&dents, tasks);
    const char *tid;
    while ((tid = sw_dents_next(&dents))) {
        struct sw_held_call call;
        if (isdigit((unsigned char)tid[0]) && read_held(tasks, tid, &call)) {
            fn(&call);
            count++;
        }
    }
    sw_keep_close(tasks);
    return count;
}
