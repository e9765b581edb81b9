/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread is found by its robust list head, which the C library keeps in the thread control block
 * (get_robust_list(2)). In a thread's stack mapping the control block and the static thread-local
 * storage lie at the top, so all of the mapping up to there is the stack. The main thread's control
 * block lies alone, and its stack is the mapping that the kernel calls [stack].
 */
#include "device/thread_memory.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Around the stack pointer, for stacks that are no thread's (coroutines): what page moving itself
 * may need, and what its caller has in use. */
#define STACK_BELOW_BYTES (UINT64_C(256) << 10)
#define STACK_ABOVE_BYTES (UINT64_C(64) << 10)

#define TLS_SLACK_BYTES UINT64_C(8192) /* struct pthread, the surplus for late libraries */

static uint64_t tls_bytes; /* the most that lies on one side of a thread control block */
static pthread_once_t tls_once = PTHREAD_ONCE_INIT;

static int tls_add(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            tls_bytes += info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
    }
    return 0;
}

static void tls_measure(void)
{
    tls_bytes = TLS_SLACK_BYTES;
    dl_iterate_phdr(tls_add, NULL);
}

struct search {
    const struct sw_vma *vma;
    uint64_t start;
    uint64_t end;
    uint64_t from; /* the lowest found: UINT64_MAX when none */
    uint64_t to;
};

static void search_add(struct search *search, uint64_t from, uint64_t to)
{
    uint64_t page = (uint64_t)getpagesize();
    from = from / page * page;
    to = (to + page - 1) / page * page;
    from = from > search->start ? from : search->start;
    to = to < search->end ? to : search->end;
    if (from < to && from < search->from) {
        search->from = from;
        search->to = to;
    }
}

static void search_thread(struct search *search, pid_t tid)
{
    void *head = NULL;
    size_t len;
    if (syscall(SYS_get_robust_list, tid, &head, &len) || !head)
        return; /* gone, or not of the C library */
    uint64_t at = (uint64_t)(uintptr_t)head;
    if (at < search->vma->start || at >= search->vma->end)
        return;
    bool main_thread = tid == getpid();
    search_add(search, main_thread ? at - tls_bytes : search->vma->start, at + tls_bytes);
}

static bool search_threads(struct search *search)
{
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        return false;
    struct dirent *entry;
    while ((entry = readdir(tasks))) {
        if (isdigit((unsigned char)entry->d_name[0]))
            search_thread(search, (pid_t)atoi(entry->d_name));
    }
    closedir(tasks);
    return true;
}

bool sw_thread_memory_next(const struct sw_vma *vma, uint64_t start, uint64_t end, uint64_t *from,
                           uint64_t *to)
{
    pthread_once(&tls_once, tls_measure);
    struct search search = {.vma = vma, .start = start, .end = end, .from = UINT64_MAX};

    uint64_t stack = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    search_add(&search, stack - STACK_BELOW_BYTES, stack + STACK_ABOVE_BYTES);
    uint64_t own_tls = (uint64_t)(uintptr_t)&errno;
    search_add(&search, own_tls, own_tls + sizeof(errno));
    if (!search_threads(&search))
        search_add(&search, start, end);

    *from = search.from;
    *to = search.to;
    return search.from != UINT64_MAX;
}
