/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum { PAGE_BYTES = 4096 }; /* at least: a larger one is touched several times */

/* An access, and where it goes on when there is no page. */
struct access {
    sigjmp_buf way_out;
    uint8_t *mapped;
    void *to;
    const void *from;
    size_t len_bytes;
};

static _Thread_local struct access *volatile under_way;
static struct sigaction before; /* ours: what it does not know goes there */
static int open_error;

static void hand_signal_on(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        return before.sa_sigaction(number, info, context);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        return before.sa_handler(number);
    if (before.sa_handler == SIG_IGN && info->si_code <= 0)
        return;
    signal(number, SIG_DFL); /* a fault happens again at once, and ends the process */
    if (info->si_code <= 0)
        raise(number);
}

/* Where memory itself has failed, the kernel names the page, of whatever size, and not the byte. */
static bool is_of_access(const struct access *access, const siginfo_t *info)
{
    const bool names_page = info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO;
    const uintptr_t page = names_page ? (uintptr_t)1 << info->si_addr_lsb : PAGE_BYTES;
    const uintptr_t first = (uintptr_t)access->mapped & ~(page - 1);
    return (uintptr_t)info->si_addr - first < (uintptr_t)access->mapped + access->len_bytes - first;
}

static void take_fault(int number, siginfo_t *info, void *context)
{
    struct access *access = under_way;
    if (!access || info->si_code <= 0 || !is_of_access(access, info))
        return hand_signal_on(number, info, context);
    under_way = NULL;
    pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)context)->uc_sigmask, NULL);
    siglongjmp(access->way_out, 1); /* which has no mask: to save one would be a call each time */
}

static void guard_install(void)
{
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    ours.sa_sigaction = take_fault;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &before) || sigaction(SIGBUS, &ours, NULL))
        open_error = -errno;
}

int nvt_guard_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, guard_install);
    return open_error;
}

static bool run_guarded(struct access *access, void (*act)(const struct access *access))
{
    if (sigsetjmp(access->way_out, 0))
        return false;
    under_way = access;
    atomic_signal_fence(memory_order_seq_cst);
    act(access);
    atomic_signal_fence(memory_order_seq_cst);
    under_way = NULL;
    return true;
}

static void guard_copy_bytes(const struct access *access)
{
    memcpy(access->to, access->from, access->len_bytes);
}

static void guard_zero_bytes(const struct access *access)
{
    memset(access->to, 0, access->len_bytes);
}

static void touch_to_read(const struct access *access)
{
    const volatile uint8_t *bytes = access->mapped;
    for (size_t i = 0; i < access->len_bytes; i += PAGE_BYTES)
        (void)bytes[i];
    (void)bytes[access->len_bytes - 1];
}

/* Others may write there at the same time. */
static void rewrite_byte(uint8_t *at)
{
    uint8_t found = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (
        !__atomic_compare_exchange_n(at, &found, found, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void touch_to_write(const struct access *access)
{
    for (size_t i = 0; i < access->len_bytes; i += PAGE_BYTES)
        rewrite_byte(access->mapped + i);
    rewrite_byte(access->mapped + access->len_bytes - 1);
}

bool nvt_guard_read(void *to, const void *mapped, size_t len_bytes)
{
    struct access access = {
        .mapped = (uint8_t *)mapped, .to = to, .from = mapped, .len_bytes = len_bytes};
    return run_guarded(&access, guard_copy_bytes);
}

bool nvt_guard_write(void *mapped, const void *from, size_t len_bytes)
{
    struct access access = {.mapped = mapped, .to = mapped, .from = from, .len_bytes = len_bytes};
    return run_guarded(&access, guard_copy_bytes);
}

bool nvt_guard_zero(void *mapped, size_t len_bytes)
{
    struct access access = {.mapped = mapped, .to = mapped, .len_bytes = len_bytes};
    return run_guarded(&access, guard_zero_bytes);
}

bool nvt_guard_touch(void *mapped, size_t len_bytes, bool writes)
{
    struct access access = {.mapped = mapped, .len_bytes = len_bytes};
    return !len_bytes || run_guarded(&access, writes ? touch_to_write : touch_to_read);
}
