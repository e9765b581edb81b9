/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread is found by its robust list head, which the C library keeps in the thread control block
 * (get_robust_list(2)). In a thread's stack mapping the control block and the static thread-local
 * storage lie at the top, so all of the mapping up to there is the stack. The main thread's control
 * block lies alone, and its stack is the mapping that the kernel calls [stack].
 */
#include "device/adopt/thread_memory.h"

#include <ctype.h>
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/dents.h"
#include "base/minmax.h"
#include "device/adopt/keep.h"

/* Around the stack pointer, for stacks that are no thread's (coroutines): what page moving itself
 * may need, and what its caller has in use. */
#define STACK_BELOW_BYTES (UINT64_C(256) << 10)
#define STACK_ABOVE_BYTES (UINT64_C(64) << 10)

/* Farther from the thread pointer, a module's storage was allocated apart. */
#define STATIC_TLS_MAX (UINT64_C(1) << 20)

/* What comes before the list head in struct pthread, at most. Behind it nothing is counted but what
 * is known to be there: a buffer may begin where a stack ends. */
#define BEFORE_HEAD_BYTES 1024

#ifdef __x86_64__
#define TLS_IS_BELOW true /* variant II of "ELF Handling For Thread-Local Storage" */
#else
#define TLS_IS_BELOW false
#endif

/* Where the kernel writes restartable sequences' state, from the thread pointer; glibc 2.35. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
#define RSEQ_BYTES 32

/* How far the thread control block and the static thread-local storage reach from the robust list
 * head, the same for all threads. */
static struct {
    pthread_once_t once;
    uint64_t below;
    uint64_t above;
} block = {.once = PTHREAD_ONCE_INIT};

static void block_add(uint64_t head, uint64_t from, uint64_t to)
{
    if (from < head && head - from < STATIC_TLS_MAX && head - from > block.below)
        block.below = head - from;
    if (to > head && to - head < STATIC_TLS_MAX && to - head > block.above)
        block.above = to - head;
}

static int block_add_module(struct dl_phdr_info *info, size_t size, void *arg)
{
    const uint64_t *head = arg;
    uint64_t tls = (uint64_t)(uintptr_t)info->dlpi_tls_data;
    if (size < sizeof(*info) || !tls || (TLS_IS_BELOW && tls > *head))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            block_add(*head, tls, tls + info->dlpi_phdr[i].p_memsz);
    }
    return 0;
}

/* Measured on the calling thread. */
static void block_measure(void)
{
    void *own = NULL;
    size_t len;
    syscall(SYS_get_robust_list, 0, &own, &len);
    uint64_t head = (uint64_t)(uintptr_t)own;
    uint64_t pointer = (uint64_t)(uintptr_t)__builtin_thread_pointer();
    block_add(head, head - BEFORE_HEAD_BYTES, head + sizeof(struct robust_list_head));
    block_add(head, pointer, pointer + sizeof(void *));
    if (&__rseq_offset) {
        uint64_t rseq = pointer + (uint64_t)__rseq_offset;
        block_add(head, rseq, rseq + RSEQ_BYTES);
    }
    dl_iterate_phdr(block_add_module, &head);
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
    from = sw_max_u64(from, search->start);
    to = sw_min_u64(to, search->end);
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
    search_add(search, main_thread ? at - block.below : search->vma->start, at + block.above);
}

static bool search_threads(struct search *search)
{
    struct sw_dents tasks;
    int fd = sw_keep_open(SW_KEEP_TASKS);
    if (fd < 0)
        return false;
    sw_dents_use(&tasks, fd);
    const char *name;
    while ((name = sw_dents_next(&tasks))) {
        if (isdigit((unsigned char)name[0]))
            search_thread(search, (pid_t)atoi(name));
    }
    sw_keep_close(fd);
    return true;
}

void sw_thread_memory_prepare(void)
{
    pthread_once(&block.once, block_measure);
}

bool sw_thread_memory_next(const struct sw_vma *vma, uint64_t start, uint64_t end, uint64_t *from,
                           uint64_t *to)
{
    pthread_once(&block.once, block_measure);
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
