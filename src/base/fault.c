/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 1. A fault costs one page, for as long as its access takes. When the whole range was replaced for
 *    good, one WRITE into a hole of a full file system ended a region until its process did.
 * 2. The file's page is kept beside: mremap() of no bytes makes a second mapping of it, wherever
 *    the range came from, and a move puts it back. No descriptor has to be remembered.
 * 3. A page may be put back at any time. A thread that is still accessing it faults again, if it is
 *    missing.
 * 4. A copy by the kernel into memory can be made again, but not one into a socket. So there pages
 * are held: a thread that faults counts it first, and waits then; the holder holds first, and looks
 * then.
 */
#include "base/fault.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "base/sigbus.h"

#define RANGES_MAX 16384u
#define LOSSES_KEPT 512u                /* two accesses of 1 MiB, of which no page is there */
#define STALE_NS (20ull * SW_NS_PER_MS) /* nobody judges it, or is long in coming */

/* Read by the handler, without a lock: the length goes last in and first out. */
struct range {
    _Atomic uintptr_t base;
    _Atomic size_t len_bytes;
    atomic_bool is_lost; /* all of it and for good: a single page could not be replaced */
};

/* A page that was missing when a thread accessed it. */
struct loss {
    uintptr_t page;
    void *kept;                  /* the file's page; NULL: it is back in its place */
    const volatile void *thread; /* whose access it was */
    uint64_t lost, is_back;      /* events */
    uint64_t since_ns;
};

_Atomic uint64_t sw_fault_word;

static struct range ranges[RANGES_MAX];
static atomic_uint range_end; /* behind the last one ever used */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* With the lock of losses, which the handler takes: its holder never touches a guarded range. */
static atomic_int losses_holder; /* a process; a fork may have copied it */
static _Atomic uint64_t holders; /* threads, in the low half; their process, as above */
static struct loss losses[LOSSES_KEPT];
static uint64_t loss_count;        /* ever */
static uint64_t events;            /* ever: losses, and pages that were put back */
static uint64_t forgotten;         /* the last event of losses that are not kept any more */
static uint64_t replaced;          /* pages, and ranges, in whose place private memory is now */
static atomic_uint pages_replaced; /* of these, pages: they will be put back */
static atomic_size_t page_bytes = 4096; /* of this kernel, once a range is guarded */
static _Thread_local volatile uint64_t last_loss
    __attribute__((tls_model("initial-exec"))); /* event */

static void take_losses(void)
{
    const int self = getpid();
    for (int held = 0; !atomic_compare_exchange_weak(&losses_holder, &held, self);
         held = held == self ? 0 : held)
        sched_yield();
}

static void drop_losses(void)
{
    atomic_store(&losses_holder, 0);
}

static uint64_t count_event(void)
{
    atomic_store(&sw_fault_word, ++events * 2 + (replaced != 0));
    return events;
}

/* The event goes first: without it, none replaced means that none was since the mark. */
static void count_page_back(struct loss *loss)
{
    replaced--;
    loss->is_back = count_event();
    atomic_fetch_sub(&pages_replaced, 1);
}

static struct range *fault_find_range(uintptr_t at)
{
    const uint32_t end = atomic_load(&range_end);
    for (uint32_t i = 0; i < end; i++) {
        const size_t len_bytes = atomic_load(&ranges[i].len_bytes);
        const uintptr_t base = atomic_load(&ranges[i].base);
        if (len_bytes && at - base < len_bytes)
            return &ranges[i];
    }
    return NULL;
}

static bool put_nothing_at(uintptr_t at, size_t len_bytes)
{
    return mmap((void *)at, len_bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* Once the event is counted: a holder of pages from now on is told of it. */
static void await_holders(void)
{
    const uint64_t self = (uint64_t)getpid() << 32;
    uint64_t held = atomic_load(&holders);
    for (; held >> 32 == self >> 32 && (uint32_t)held; held = atomic_load(&holders))
        sched_yield();
}

bool sw_fault_hold(uint64_t mark)
{
    const uint64_t self = (uint64_t)getpid() << 32;
    uint64_t held = atomic_load(&holders);
    while (!atomic_compare_exchange_weak(&holders, &held,
                                         held >> 32 == self >> 32 ? held + 1 : self + 1))
        ;
    if (atomic_load(&sw_fault_word) == mark)
        return true;
    sw_fault_let_go();
    return false;
}

void sw_fault_let_go(void)
{
    atomic_fetch_sub(&holders, 1);
}

/* False: the kernel has no room for it now; it is tried again. */
static bool put_back(struct loss *loss)
{
    if (syscall(SYS_mremap, loss->kept, page_bytes, page_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                loss->page) != (long)loss->page)
        return false;
    loss->kept = NULL;
    count_page_back(loss);
    return true;
}

static struct loss *loss_replacing(uintptr_t page)
{
    const uint64_t count = sw_min_u64(loss_count, LOSSES_KEPT);
    for (uint64_t i = 0; i < count; i++)
        if (losses[i].kept && losses[i].page == page)
            return &losses[i];
    return NULL;
}

/* In the place of the oldest one. NULL: that cannot be put back. */
static struct loss *add_loss(uintptr_t page)
{
    struct loss *loss = &losses[loss_count % LOSSES_KEPT];
    if (loss->kept && !put_back(loss))
        return NULL;
    if (loss->is_back > forgotten)
        forgotten = loss->is_back;
    loss_count++;
    *loss = (struct loss){.page = page, .thread = &last_loss, .since_ns = sw_clock_ns()};
    return loss;
}

/* Events are counted before memory changes, so that nobody meets it without being told. */
static bool replace_page(uintptr_t page)
{
    const bool is_replaced = loss_replacing(page) != NULL; /* by another thread just now */
    void *kept = NULL;
    if (!is_replaced) {
        kept = (void *)syscall(SYS_mremap, page, 0, page_bytes, MREMAP_MAYMOVE);
        if (kept == MAP_FAILED)
            return false;
    }
    struct loss *loss = add_loss(page);
    if (!loss) {
        if (kept)
            munmap(kept, page_bytes);
        return false;
    }
    loss->kept = kept;
    replaced += kept != NULL;
    atomic_fetch_add(&pages_replaced, kept != NULL);
    last_loss = loss->lost = loss->is_back = count_event();
    await_holders();
    return !kept || put_nothing_at(page, page_bytes) || (put_back(loss), false);
}

/* Huge pages, or no room for more mappings. */
static bool replace_range(struct range *range)
{
    if (!atomic_exchange(&range->is_lost, true)) {
        replaced++;
        count_event();
    }
    await_holders();
    return put_nothing_at(atomic_load(&range->base), atomic_load(&range->len_bytes));
}

static bool mend_fault(const siginfo_t *info)
{
    const uintptr_t at = (uintptr_t)info->si_addr;
    struct range *range = fault_find_range(at);
    if (!range)
        return false;
    take_losses();
    const bool is_mended = replace_page(at & ~(uintptr_t)(page_bytes - 1)) || replace_range(range);
    drop_losses();
    return is_mended;
}

bool sw_fault_guard(void *base, size_t len_bytes)
{
    atomic_store(&page_bytes, (size_t)getpagesize());
    sw_sigbus_take(mend_fault);
    pthread_mutex_lock(&lock);
    uint32_t i = 0;
    while (i < RANGES_MAX && atomic_load(&ranges[i].len_bytes))
        i++;
    if (i < RANGES_MAX) {
        atomic_store(&ranges[i].base, (uintptr_t)base);
        atomic_store(&ranges[i].is_lost, false);
        atomic_store(&ranges[i].len_bytes, len_bytes);
        if (i >= atomic_load(&range_end))
            atomic_store(&range_end, i + 1);
    }
    pthread_mutex_unlock(&lock);
    return i < RANGES_MAX;
}

static void drop_losses_of(const struct range *range)
{
    const uintptr_t base = atomic_load(&range->base);
    const size_t len_bytes = atomic_load(&range->len_bytes);
    take_losses();
    for (uint64_t i = 0; i < sw_min_u64(loss_count, LOSSES_KEPT); i++)
        if (losses[i].kept && losses[i].page - base < len_bytes) {
            munmap(losses[i].kept, page_bytes);
            losses[i].kept = NULL;
            count_page_back(&losses[i]);
        }
    if (atomic_load(&range->is_lost)) {
        replaced--;
        count_event();
    }
    drop_losses();
}

void sw_fault_unguard(const void *base)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < atomic_load(&range_end); i++)
        if (atomic_load(&ranges[i].len_bytes) && atomic_load(&ranges[i].base) == (uintptr_t)base) {
            drop_losses_of(&ranges[i]);
            atomic_store(&ranges[i].len_bytes, 0);
        }
    pthread_mutex_unlock(&lock);
}

bool sw_fault_probe(const void *at, size_t len_bytes)
{
    if (!len_bytes || !fault_find_range((uintptr_t)at))
        return true;
    sw_sigbus_enter();
    const volatile uint8_t *bytes = at;
    for (int i = 0; i < SW_FAULT_TRIES; i++) {
        const uint64_t mark = sw_fault_mark();
        for (size_t j = 0; j < len_bytes; j += page_bytes)
            (void)bytes[j];
        (void)bytes[len_bytes - 1];
        const enum sw_fault fault = sw_fault_judge(mark, at, len_bytes);
        if (fault != SW_FAULT_AGAIN)
            return fault == SW_FAULT_NONE;
    }
    return false;
}

/* What one loss means to an access since `seen`. */
static enum sw_fault loss_means(const struct loss *loss, uint64_t seen)
{
    if (!loss->kept && loss->is_back <= seen)
        return SW_FAULT_NONE;
    return loss->thread == &last_loss && loss->lost > seen ? SW_FAULT_LOST : SW_FAULT_AGAIN;
}

/* Whether nothing has happened since, and no page is to be put back: the word is odd by a range
 * that is lost for good, which is no matter of those who access others. */
static bool fault_is_settled(uint64_t mark)
{
    return !atomic_load(&pages_replaced) && atomic_load(&sw_fault_word) == mark;
}

enum sw_fault sw_fault_find(uint64_t mark, const void *at, size_t len_bytes)
{
    const uint64_t seen = mark / 2;
    const uintptr_t start = (uintptr_t)at, end = start + len_bytes;
    const struct range *range = fault_find_range(start);
    enum sw_fault verdict = range && atomic_load(&range->is_lost) ? SW_FAULT_LOST : SW_FAULT_NONE;
    if (fault_is_settled(mark))
        return verdict;
    take_losses();
    if (range && forgotten > seen && verdict == SW_FAULT_NONE)
        verdict = last_loss > seen ? SW_FAULT_LOST : SW_FAULT_AGAIN;
    const uint64_t count = sw_min_u64(loss_count, LOSSES_KEPT), now_ns = sw_clock_ns();
    for (uint64_t i = 0; i < count; i++) {
        struct loss *loss = &losses[i];
        const bool is_here = loss->page < end && loss->page + page_bytes > start;
        const enum sw_fault fault = is_here ? loss_means(loss, seen) : SW_FAULT_NONE;
        if (fault > verdict)
            verdict = fault;
        if (loss->kept &&
            (is_here || loss->thread == &last_loss || now_ns - loss->since_ns > STALE_NS))
            put_back(loss);
    }
    drop_losses();
    return verdict;
}
