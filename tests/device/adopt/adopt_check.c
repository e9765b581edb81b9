/* SPDX-License-Identifier: BSD-2-Clause */
#include "adopt_check.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/adopt/adopt_monitor.h"
#include "device/adopt/vma.h"

#define USER_NOBODY 65534

enum sw_handed_out adopt_handed = SW_HANDED_OUT_WRITE;

__attribute__((constructor)) static void choose_files(void)
{
    if (getenv("ADOPT_OWN_FILES"))
        adopt_handed = SW_HANDED_OUT_NOT;
}

int run_in_child(int (*fn)(void *arg), void *arg)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(fn(arg));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 127;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void become_nobody(void)
{
    if (getuid() != 0)
        return;
    /* setuid() makes /proc/self unreadable to what is not root any more; exec would undo that. */
    if (setgid(USER_NOBODY) || setuid(USER_NOBODY) || prctl(PR_SET_DUMPABLE, 1))
        _exit(126);
}

uint8_t *buffer_new(size_t len)
{
    void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        abort();
    return base;
}

static uint64_t word_value(size_t index, uint64_t seed)
{
    return (index + 1) * 0x9e3779b97f4a7c15ull ^ seed;
}

void words_fill(uint8_t *base, size_t len, uint64_t seed)
{
    uint64_t *words = (uint64_t *)base;
    for (size_t i = 0; i < len / sizeof(*words); i++)
        words[i] = word_value(i, seed);
}

size_t words_differ(const uint8_t *base, size_t len, uint64_t seed)
{
    const uint64_t *words = (const uint64_t *)base;
    for (size_t i = 0; i < len / sizeof(*words); i++) {
        if (words[i] != word_value(i, seed))
            return i;
    }
    return SIZE_MAX;
}

int open_descriptors(void)
{
    int count = 0;
    DIR *fds = opendir("/proc/self/fd");
    while (fds && readdir(fds))
        count++;
    if (fds)
        closedir(fds);
    return count - sw_adopt_monitor_count();
}

int mappings_within(const void *base, size_t len, bool *all_private)
{
    struct sw_vma_reader reader;
    struct sw_vma vma;
    uint64_t at = (uint64_t)(uintptr_t)base, end = at + len;
    int count = 0;
    *all_private = true;
    if (sw_vma_open(&reader, false))
        abort();
    while (at < end && sw_vma_next(&reader, at, &vma) == 1 && vma.start < end) {
        *all_private = *all_private && vma.kind == SW_VMA_ANON;
        count++;
        at = vma.end;
    }
    sw_vma_close(&reader);
    return count;
}

uint64_t file_bytes(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}
