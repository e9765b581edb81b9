/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/sigbus.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

struct sw_sigbus_libc sw_sigbus_libc = {sigaction, pthread_sigmask};

_Thread_local bool sw_sigbus_is_open;
/* The program blocks it in this thread, which is open: only the kernel does not. */
static _Thread_local volatile bool is_hidden __attribute__((tls_model("initial-exec")));

static bool (*show_fault)(const siginfo_t *info);
static atomic_bool taken;
static atomic_int owner;        /* the process whose signals these are */
static atomic_int holder;       /* of the lock: a process; a fork may have copied it */
static struct sigaction wanted; /* with the lock: what the program is shown */

/* The same for the handler, which takes no lock. Written to the other one, then turned. */
static struct {
    atomic_uintptr_t handler;
    atomic_int flags;
} program[2];
static atomic_uint turn;
static atomic_uint spent; /* the turn whose SA_RESETHAND has come true */

/* Changed in what the kernel gets, and back in what the program is shown. */
#define OUR_FLAGS (SA_SIGINFO | SA_RESETHAND | SA_ONSTACK | SA_RESTART)

/* No signal may come meanwhile: its handler might want the lock. */
static void take_lock(sigset_t *before)
{
    const int self = getpid();
    sigset_t all;
    sigfillset(&all);
    sw_sigbus_libc.mask(SIG_SETMASK, &all, before);
    for (int held = 0; !atomic_compare_exchange_weak(&holder, &held, self);
         held = held == self ? 0 : held)
        sched_yield();
}

static void drop_lock(const sigset_t *before)
{
    atomic_store(&holder, 0);
    sw_sigbus_libc.mask(SIG_SETMASK, before, NULL);
}

static bool is_handler(uintptr_t handler)
{
    return handler != (uintptr_t)SIG_DFL && handler != (uintptr_t)SIG_IGN;
}

static struct sigaction shown_action(void)
{
    struct sigaction shown = wanted;
    if (atomic_load(&spent) == atomic_load(&turn))
        shown.sa_handler = SIG_DFL;
    return shown;
}

/* What the program has set, for a signal that is handed on. */
static uintptr_t claim_handler(int *flags)
{
    uint32_t at;
    uintptr_t handler;
    do {
        at = atomic_load(&turn);
        handler = atomic_load(&program[at % 2].handler);
        *flags = atomic_load(&program[at % 2].flags);
    } while (at != atomic_load(&turn));
    if (*flags & SA_RESETHAND && is_handler(handler) && atomic_exchange(&spent, at) == at)
        return (uintptr_t)SIG_DFL;
    return handler;
}

/* A fault happens again at once. */
static void end_process(int number, const siginfo_t *info)
{
    const struct sigaction end = {.sa_handler = SIG_DFL};
    sw_sigbus_libc.action(number, &end, NULL);
    if (info->si_code <= 0)
        raise(number);
}

/* The thread blocks it from here on, as the program wants, so the kernel finds who else takes it,
 * or keeps it. */
static void sigbus_give_back(siginfo_t *info, ucontext_t *context)
{
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    sw_sigbus_libc.mask(SIG_BLOCK, &bus, NULL);
    sigaddset(&context->uc_sigmask, SIGBUS);
    is_hidden = false;
    sw_sigbus_is_open = false;
    if (info->si_code == SI_TKILL)
        syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGBUS, info);
    else
        syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, info);
}

static void sigbus_hand_on(int number, siginfo_t *info, void *context)
{
    const bool is_fault = info->si_code > 0;
    int flags;
    const uintptr_t handler = claim_handler(&flags);
    if (is_fault && (is_hidden || !is_handler(handler)))
        end_process(number, info); /* whom it blocks or ignores, the kernel ends */
    else if (handler == (uintptr_t)SIG_DFL)
        end_process(number, info);
    else if (handler != (uintptr_t)SIG_IGN && flags & SA_SIGINFO)
        ((void (*)(int, siginfo_t *, void *))handler)(number, info, context);
    else if (handler != (uintptr_t)SIG_IGN)
        ((void (*)(int))handler)(number);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    if (info->si_code > 0 && show_fault(info))
        errno = error;
    else if (info->si_code <= 0 && is_hidden)
        sigbus_give_back(info, context), errno = error;
    else
        sigbus_hand_on(number, info, context);
}

/* With the lock. The kernel sees to all that it can: mask, stack, SA_NODEFER, SA_RESTART. */
static int install_handler(const struct sigaction *act)
{
    struct sigaction ours = *act, kept;
    ours.sa_flags = (act->sa_flags & ~SA_RESETHAND) | SA_SIGINFO;
    if (!is_handler((uintptr_t)act->sa_handler))
        ours.sa_flags |= SA_ONSTACK | SA_RESTART;
    ours.sa_sigaction = on_signal;
    if (sw_sigbus_libc.action(SIGBUS, &ours, NULL) || sw_sigbus_libc.action(SIGBUS, NULL, &kept))
        return -1;
    kept.sa_flags = (kept.sa_flags & ~OUR_FLAGS) | (act->sa_flags & OUR_FLAGS);
    kept.sa_handler = act->sa_handler;
    wanted = kept;
    const uint32_t next = atomic_load(&turn) + 1;
    atomic_store(&program[next % 2].handler, (uintptr_t)act->sa_handler);
    atomic_store(&program[next % 2].flags, act->sa_flags);
    atomic_store(&turn, next);
    return 0;
}

/* In a child of fork(), with the one thread that it has. */
static void sigbus_give_all_back(void)
{
    if (!atomic_load(&taken))
        return;
    const struct sigaction shown = shown_action();
    atomic_store(&holder, 0);
    atomic_store(&taken, false);
    sw_sigbus_close_thread();
    sw_sigbus_is_open = false;
    sw_sigbus_libc.action(SIGBUS, &shown, NULL);
}

static void follow_forks(void)
{
    pthread_atfork(NULL, NULL, sigbus_give_all_back);
}

void sw_sigbus_take(bool (*is_ours)(const siginfo_t *info))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (atomic_load(&taken))
        return;
    pthread_once(&once, follow_forks);
    sigset_t before;
    take_lock(&before);
    struct sigaction found;
    if (!atomic_load(&taken) && !sw_sigbus_libc.action(SIGBUS, NULL, &found)) {
        show_fault = is_ours;
        atomic_store(&owner, getpid());
        /* Known before ours may need it; where the process had none yet, its libc adds flags. */
        if (!install_handler(&found)) {
            wanted = found;
            atomic_store(&taken, true);
        }
    }
    drop_lock(&before);
}

static bool is_child_of_vfork(void)
{
    return atomic_load(&taken) && getpid() != atomic_load(&owner);
}

int sw_sigbus_action(const struct sigaction *act, struct sigaction *old)
{
    struct sigaction now, wish;
    sigset_t before;
    if (act)
        wish = *act; /* it may be anywhere: a fault must not come with the lock */
    if (is_child_of_vfork()) {
        int rc = sw_sigbus_libc.action(SIGBUS, act, &now);
        if (!rc && old)
            *old = now.sa_sigaction == on_signal ? shown_action() : now;
        return rc;
    }
    take_lock(&before);
    int rc = 0;
    if (atomic_load(&taken)) {
        now = shown_action();
        if (act)
            rc = install_handler(&wish);
    } else {
        rc = sw_sigbus_libc.action(SIGBUS, act ? &wish : NULL, &now);
    }
    drop_lock(&before);
    if (!rc && old)
        *old = now;
    return rc;
}

static bool has_bus(const sigset_t *set)
{
    return sigismember(set, SIGBUS) == 1;
}

int sw_sigbus_mask(int how, const sigset_t *set, sigset_t *old)
{
    if (__builtin_expect(!sw_sigbus_is_open, 1))
        return sw_sigbus_libc.mask(how, set, old);
    sigset_t now, wish;
    const bool was_hidden = is_hidden;
    sw_sigbus_libc.mask(SIG_BLOCK, NULL, &now);
    if (set) {
        wish = *set;
        const bool names_bus = has_bus(set), is_own = !is_child_of_vfork();
        /* A signal that a handler's mask blocks now is unblocked when it returns. */
        const bool hides = is_own && names_bus && how != SIG_UNBLOCK && !has_bus(&now);
        if (hides)
            sigdelset(&wish, SIGBUS);
        const int rc = sw_sigbus_libc.mask(how, &wish, NULL);
        if (rc)
            return rc;
        if (hides)
            is_hidden = true;
        else if (is_own && names_bus == (how == SIG_UNBLOCK) && how != SIG_BLOCK)
            is_hidden = false;
    }
    if (old) {
        *old = now;
        if (was_hidden)
            sigaddset(old, SIGBUS);
    }
    return 0;
}

void sw_sigbus_open_thread(void)
{
    sigset_t now, pending, bus;
    if (!atomic_load_explicit(&taken, memory_order_relaxed))
        return;
    sw_sigbus_libc.mask(SIG_BLOCK, NULL, &now);
    if (has_bus(&now)) {
        if (sigpending(&pending) || has_bus(&pending))
            return; /* one that was sent: the program shall find it where it is */
        sigemptyset(&bus);
        sigaddset(&bus, SIGBUS);
        is_hidden = true; /* before one can come */
        sw_sigbus_is_open = true;
        sw_sigbus_libc.mask(SIG_UNBLOCK, &bus, NULL);
    } else {
        sw_sigbus_is_open = true;
    }
}

void sw_sigbus_close_thread(void)
{
    sigset_t bus;
    if (!sw_sigbus_is_open || !is_hidden || is_child_of_vfork())
        return;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    sw_sigbus_libc.mask(SIG_BLOCK, &bus, NULL);
    is_hidden = false;
    sw_sigbus_is_open = false;
}
