/* SPDX-License-Identifier: BSD-2-Clause */
#include "signals_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/sigbus.h"

enum { BYTES = 65536, LOG_BYTES = 16384 };

static char *notes; /* of the child */
static bool is_guarded;

void note(const char *format, ...)
{
    const size_t used = strlen(notes);
    va_list values;
    va_start(values, format);
    vsnprintf(notes + used, LOG_BYTES - used, format, values);
    va_end(values);
}

uint8_t *map_lost(bool guard)
{
    const int fd = memfd_create("lost", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, BYTES))
        abort();
    uint8_t *base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED || (guard && !sw_fault_guard(base, BYTES)) || ftruncate(fd, 0))
        abort();
    return base;
}

/* A peer takes its memory away while we access it. */
void lose(void)
{
    if (!is_guarded)
        return;
    uint8_t *base = map_lost(true);
    sw_sigbus_enter();
    const uint64_t mark = sw_fault_mark();
    memset(base, 1, BYTES);
    if (sw_fault_judge(mark, base, BYTES) != SW_FAULT_LOST)
        abort();
    sw_fault_unguard(base);
    munmap(base, BYTES);
}

void note_set(const char *name, const sigset_t *set)
{
    note("%s", name);
    for (int number = 1; number < 32; number++)
        if (sigismember(set, number) == 1)
            note(" %d", number);
    note("\n");
}

void note_mask(const char *name)
{
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    note_set(name, &set);
}

volatile int handled;
sigjmp_buf way_out;

void plain_handler(int number)
{
    note("plain handler of %d\n", number);
    note_mask("  blocks");
    handled++;
}

void raising_handler(int number)
{
    note("handler of %d, %d\n", number, ++handled);
    if (handled < 3)
        raise(SIGBUS);
    note("it returns\n");
}

void telling_handler(int number, siginfo_t *info, void *context)
{
    int here;
    stack_t stack;
    sigaltstack(NULL, &stack);
    const uintptr_t at = (uintptr_t)&here - (uintptr_t)stack.ss_sp;
    note("handler of %d, code %d, value %d, %s, %s a context\n", number, info->si_code,
         info->si_code == SI_QUEUE ? info->si_value.sival_int : 0,
         stack.ss_flags & SS_ONSTACK && at < stack.ss_size ? "on its stack" : "on this stack",
         context ? "has" : "lacks");
    note_mask("  blocks");
    handled++;
}

void leaving_handler(int number)
{
    (void)number;
    siglongjmp(way_out, 1);
}

const char *name_of(handler_fn handler)
{
    return handler == SIG_DFL                                  ? "default"
           : handler == SIG_IGN                                ? "ignore"
           : handler == SIG_ERR                                ? "error"
           : handler == SIG_HOLD                               ? "hold"
           : handler == plain_handler                          ? "plain"
           : handler == leaving_handler                        ? "leaving"
           : handler == raising_handler                        ? "raising"
           : handler == (handler_fn)(uintptr_t)telling_handler ? "telling"
                                                               : "another";
}

void note_action(const struct sigaction *action)
{
    note("%s, flags %#x%s", name_of(action->sa_handler), action->sa_flags,
         action->sa_restorer ? ", restorer" : "");
    note_set(", mask", &action->sa_mask);
}

void set_action(handler_fn handler, int flags, int masked)
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;
    sigemptyset(&act.sa_mask);
    if (masked != NONE)
        sigaddset(&act.sa_mask, masked);
    memset(&old, 0x5a, sizeof(old));
    note("set %s %#x: %d, was ", name_of(handler), flags, sigaction(SIGBUS, &act, &old));
    note_action(&old);
    lose();
}

void query_action(void)
{
    struct sigaction old;
    memset(&old, 0x5a, sizeof(old));
    note("query: %d, is ", sigaction(SIGBUS, NULL, &old));
    note_action(&old);
}

static int run_child(void (*body)(void), bool guard, char *out)
{
    const pid_t child = fork();
    if (!child) {
        signal(SIGBUS, SIG_DFL); /* not a sanitizer's */
        notes = out;
        is_guarded = guard;
        if (guard)
            map_lost(true);
        body();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return status;
}

void compare(void **state)
{
    void (*body)(void) = *(void (**)(void)) * state;
    char *out =
        mmap(NULL, 2 * LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(out, MAP_FAILED);
    const int plain = run_child(body, false, out);
    const int taken = run_child(body, true, out + LOG_BYTES);
    if (strcmp(out, out + LOG_BYTES) != 0)
        printf("without:\n%s\nwith:\n%s\n", out, out + LOG_BYTES);
    assert_string_equal(out, out + LOG_BYTES);
    assert_int_equal(plain, taken);
    munmap(out, 2 * LOG_BYTES);
}
