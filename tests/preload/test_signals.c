/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program sees of SIGBUS, with ours taken and without. The hooks are linked in. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sigbus.h"
#include "signals_rig.h"

handler_fn bsd_signal(int number, handler_fn handler);
handler_fn sysv_signal(int number, handler_fn handler);

static const int all_flags[] = {0,          SA_RESTART, SA_NODEFER,   SA_RESETHAND,
                                SA_ONSTACK, SA_SIGINFO, SA_NOCLDSTOP, SA_NOCLDWAIT | 0x800};

static void show_actions(void)
{
    static const handler_fn handlers[] = {SIG_DFL, SIG_IGN, plain_handler};
    query_action();
    for (size_t i = 0; i < sizeof(all_flags) / sizeof(all_flags[0]); i++)
        for (size_t j = 0; j < 3; j++) {
            set_action(handlers[j], all_flags[i], i % 2 ? SIGUSR1 : NONE);
            query_action();
        }
    set_action(plain_handler, 0, SIGKILL);
    query_action();
    note("nothing: %d\n", sigaction(SIGBUS, NULL, NULL));
    struct sigaction both = {.sa_handler = SIG_IGN}, *same = &both;
    note("in place: %d, ", sigaction(SIGBUS, same, &both));
    note_action(&both);
    note("none: %d %d\n", sigaction(0, &both, NULL), errno);
    note("too many: %d %d\n", sigaction(65, &both, NULL), errno);
    query_action();
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void show_old_calls(void)
{
    note("signal: %s\n", name_of(signal(SIGBUS, plain_handler)));
    query_action();
    note("siginterrupt: %d\n", siginterrupt(SIGBUS, 1));
    query_action();
    note("signal: %s\n", name_of(signal(SIGBUS, leaving_handler)));
    query_action();
    note("siginterrupt: %d\n", siginterrupt(SIGBUS, 0));
    query_action();
    lose();
    note("bsd_signal: %s\n", name_of(bsd_signal(SIGBUS, plain_handler)));
    query_action();
    note("ssignal: %s\n", name_of(ssignal(SIGBUS, SIG_IGN)));
    note("sysv_signal: %s\n", name_of(sysv_signal(SIGBUS, plain_handler)));
    query_action();
    lose();
    note("error: %s", name_of(signal(SIGBUS, SIG_ERR)));
    note(" %d\n", errno);
    note("error: %s", name_of(sysv_signal(SIGBUS, SIG_ERR)));
    note(" %d\n", errno);
    note("sigignore: %d\n", sigignore(SIGBUS));
    query_action();
    note("sigset: %s\n", name_of(sigset(SIGBUS, plain_handler)));
    query_action();
    note("hold: %s\n", name_of(sigset(SIGBUS, SIG_HOLD)));
    note_mask("blocks");
    lose();
    note("hold: %s\n", name_of(sigset(SIGBUS, SIG_HOLD)));
    note("sigset: %s\n", name_of(sigset(SIGBUS, SIG_DFL)));
    note_mask("blocks");
    query_action();
    note("sighold: %d\n", sighold(SIGBUS));
    lose();
    note("sigsetmask: %x\n", (unsigned int)sigsetmask(1 << (SIGUSR1 - 1)));
    note("sigblock: %x\n", (unsigned int)sigblock(1 << (SIGBUS - 1)));
    note_mask("blocks");
    note("sigrelse: %d\n", sigrelse(SIGBUS));
    note_mask("blocks");
}
#pragma GCC diagnostic pop

static void receive_sent(void)
{
    static uint8_t stack[65536];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    const union sigval value = {.sival_int = 42};
    sigaltstack(&own, NULL);
    for (int flags = 0; flags < 8; flags++) {
        set_action((handler_fn)(uintptr_t)telling_handler,
                   SA_SIGINFO | (flags & 1 ? SA_ONSTACK : 0) | (flags & 2 ? SA_NODEFER : 0) |
                       (flags & 4 ? SA_RESTART : 0),
                   flags & 1 ? SIGUSR2 : NONE);
        raise(SIGBUS);
        kill(getpid(), SIGBUS);
        sigqueue(getpid(), SIGBUS, value);
        pthread_kill(pthread_self(), SIGBUS);
        lose();
    }
    set_action(plain_handler, 0, NONE);
    raise(SIGBUS);
    set_action(plain_handler, SA_RESETHAND, NONE);
    raise(SIGBUS);
    query_action();
    set_action(SIG_IGN, 0, NONE);
    raise(SIGBUS);
    set_action(raising_handler, SA_NODEFER, NONE);
    handled = 0;
    raise(SIGBUS);
    set_action(raising_handler, 0, NONE);
    handled = 0;
    raise(SIGBUS);
    set_action(plain_handler, SA_RESETHAND | SA_NODEFER, NONE);
    raise(SIGBUS);
    raise(SIGBUS);
    note("it lives\n");
}

static void fault_with_handler(void)
{
    uint8_t *own = map_lost(false);
    static volatile int round;
    const int again = sigsetjmp(way_out, 1);
    lose();
    if (!again || round < 3) {
        set_action(leaving_handler, round == 1 ? (int)SA_RESETHAND : 0, NONE);
        round++;
        own[round] = 1;
    }
    query_action();
    note_mask("blocks");
    set_action(SIG_IGN, 0, NONE);
    own[0] = 1;
    note("it lives\n");
}

static void block_bus(int how)
{
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    sigaddset(&set, SIGUSR2);
    note("change mask: %d", pthread_sigmask(how, &set, &old));
    note_set(", was", &old);
}

static void fault_while_blocked(void)
{
    set_action(plain_handler, 0, NONE);
    block_bus(SIG_BLOCK);
    lose();
    map_lost(false)[0] = 1;
    note("it lives\n");
}

static void note_pending(void)
{
    sigset_t set;
    sigpending(&set);
    note_set("pending", &set);
}

static void send_while_blocked(void)
{
    const union sigval value = {.sival_int = 43};
    set_action((handler_fn)(uintptr_t)telling_handler, SA_SIGINFO, NONE);
    for (int round = 0; round < 6; round++) {
        lose();
        block_bus(round % 2 ? SIG_SETMASK : SIG_BLOCK);
        note_mask("blocks");
        if (round < 2)
            raise(SIGBUS);
        else if (round < 4)
            sigqueue(getpid(), SIGBUS, value);
        else
            kill(getpid(), SIGBUS);
        note_pending();
        sw_sigbus_enter(); /* is refused now */
        note_pending();
        note_mask("blocks");
        block_bus(SIG_UNBLOCK);
        note_pending();
    }
    note("bad: %d\n", pthread_sigmask(77, &(sigset_t){0}, NULL));
    note("bad: %d", sigprocmask(77, &(sigset_t){0}, NULL));
    note(" %d\n", errno);
    note("none: %d\n", pthread_sigmask(77, NULL, NULL));
    note_mask("blocks");
}

static void wait_for_sent(void)
{
    sigset_t bus;
    siginfo_t info;
    struct signalfd_siginfo read_info;
    int number = 0;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    set_action(plain_handler, 0, NONE);
    lose();
    pthread_sigmask(SIG_BLOCK, &bus, NULL);
    lose();
    kill(getpid(), SIGBUS);
    note("sigwait: %d", sigwait(&bus, &number));
    note(", %d\n", number);
    lose();
    raise(SIGBUS);
    note("sigwaitinfo: %d", sigwaitinfo(&bus, &info));
    note(", code %d\n", info.si_code);
    lose();
    const int fd = signalfd(-1, &bus, SFD_CLOEXEC);
    kill(getpid(), SIGBUS);
    note("signalfd: %d", read(fd, &read_info, sizeof(read_info)) == sizeof(read_info));
    note(", %u, code %d\n", read_info.ssi_signo, read_info.ssi_code);
    lose();
    note_mask("blocks");
}

static void *wait_elsewhere(void *out)
{
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    note_mask("a thread blocks");
    sigwait(&bus, out);
    return NULL;
}

/* One thread waits, others that block it access peers' memory. */
static void wait_in_another_thread(void)
{
    pthread_t thread;
    int number = 0;
    sigset_t all;
    sigfillset(&all);
    lose();
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    lose();
    pthread_create(&thread, NULL, wait_elsewhere, &number);
    lose();
    kill(getpid(), SIGBUS);
    pthread_join(thread, NULL);
    note("it got %d\n", number);
    lose();
}

static void *lose_elsewhere(void *unused)
{
    (void)unused;
    note_mask("a thread blocks");
    lose();
    note_mask("a thread blocks");
    return NULL;
}

static void block_all_in_threads(void)
{
    sigset_t all, old;
    sigfillset(&all);
    lose();
    for (int round = 0; round < 4; round++) {
        pthread_t thread;
        pthread_sigmask(SIG_SETMASK, &all, &old);
        note_set("was", &old);
        if (round % 2)
            lose();
        pthread_create(&thread, NULL, lose_elsewhere, NULL);
        pthread_join(thread, NULL);
        if (round < 2)
            pthread_sigmask(SIG_SETMASK, &old, NULL);
        note_mask("blocks");
    }
}

/* A handler of another signal, as many are: all is blocked, and what was is set again. */
static void masking_handler(int number)
{
    sigset_t all, old;
    (void)number;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void mask_in_a_handler(void)
{
    struct sigaction act = {.sa_handler = masking_handler};
    sigfillset(&act.sa_mask);
    sigaction(SIGUSR1, &act, NULL);
    lose();
    raise(SIGUSR1);
    note_mask("blocks");
    lose();
    block_bus(SIG_BLOCK);
    raise(SIGUSR1);
    note_mask("blocks");
    lose();
}

extern char **environ;

/* What a program that is started sees. */
static void note_status(bool spawns)
{
    static char *arguments[] = {"grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status", NULL};
    char text[512] = "";
    int pipes[2], status;
    pid_t child;
    if (pipe(pipes))
        abort();
    if (spawns) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
        posix_spawnp(&child, "grep", &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    } else {
        child = fork();
        if (!child) {
            query_action();
            note_mask("child blocks");
            dup2(pipes[1], STDOUT_FILENO);
            execvp("grep", arguments);
            _exit(127);
        }
    }
    waitpid(child, &status, 0);
    if (read(pipes[0], text, sizeof(text) - 1) < 0)
        abort();
    note("status %d: %s\n", status, text);
    close(pipes[0]);
    close(pipes[1]);
}

static void start_programs(void)
{
    setenv("ASAN_OPTIONS", "", 1);
    lose();
    for (int round = 0; round < 4; round++) {
        set_action(round % 2 ? plain_handler : SIG_DFL, 0, NONE);
        block_bus(round / 2 ? SIG_BLOCK : SIG_UNBLOCK);
        lose();
        note_status(true);
        lose();
        note_status(false);
    }
    set_action(SIG_IGN, 0, NONE);
    note_status(false);
    query_action();
    note_mask("blocks");
    lose();
}

static void child_of_vfork(void)
{
    struct sigaction old;
    sigset_t none, before;
    sigemptyset(&none);
    set_action(plain_handler, 0, NONE);
    block_bus(SIG_BLOCK);
    lose();
    const pid_t child = vfork();
    if (!child) {
        const struct sigaction end = {.sa_handler = SIG_DFL};
        sigaction(SIGBUS, &end, &old);
        pthread_sigmask(SIG_SETMASK, &none, &before);
        raise(SIGBUS);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    note("child: %d, was ", status);
    note_action(&old);
    note_set("blocked", &before);
    query_action();
    note_mask("blocks");
    lose();
    block_bus(SIG_UNBLOCK);
    raise(SIGBUS);
}

static atomic_bool is_reading;
static int reader_pipe[2];

static void *interrupt_reader(void *tid)
{
    char path[64], text[256], state = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", *(int *)tid);
    for (int sent = 0; sent < 2;) {
        FILE *file = fopen(path, "re");
        if (!file || !fgets(text, sizeof(text), file))
            abort();
        fclose(file);
        state = strrchr(text, ')')[2];
        if (!atomic_load(&is_reading))
            return NULL;
        if (state != 'S')
            continue;
        if (sent++ == 0)
            kill(getpid(), SIGBUS);
        while (sent == 1 && !handled && atomic_load(&is_reading))
            sched_yield();
    }
    if (write(reader_pipe[1], "x", 1) != 1)
        abort();
    return NULL;
}

static void interrupt_reads(void)
{
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    lose();
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        int tid = gettid();
        char byte;
        handled = 0;
        set_action(plain_handler, round ? SA_RESTART : 0, NONE);
        if (pipe(reader_pipe))
            abort();
        atomic_store(&is_reading, true);
        pthread_sigmask(SIG_BLOCK, &bus, NULL); /* the thread, not this one */
        pthread_create(&thread, NULL, interrupt_reader, &tid);
        pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
        const ssize_t got = read(reader_pipe[0], &byte, 1);
        note("read: %zd %d\n", got, got < 0 ? errno : 0);
        atomic_store(&is_reading, false);
        pthread_join(thread, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        COMPARED("sigaction__shows_what_was_set", show_actions),
        COMPARED("signal__and_all_its_kinds", show_old_calls),
        COMPARED("sigaction__a_signal_that_is_sent", receive_sent),
        COMPARED("sigaction__a_fault_of_the_programs_own", fault_with_handler),
        COMPARED("sigaction__a_call_is_interrupted", interrupt_reads),
        COMPARED("pthread_sigmask__a_fault_of_the_programs_own", fault_while_blocked),
        COMPARED("pthread_sigmask__a_signal_that_is_sent", send_while_blocked),
        COMPARED("pthread_sigmask__in_threads", block_all_in_threads),
        COMPARED("pthread_sigmask__in_a_handler", mask_in_a_handler),
        COMPARED("sigwait__in_the_thread_itself", wait_for_sent),
        COMPARED("sigwait__in_another_thread", wait_in_another_thread),
        COMPARED("exec__what_a_program_sees", start_programs),
        COMPARED("vfork__changes_nothing_here", child_of_vfork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
