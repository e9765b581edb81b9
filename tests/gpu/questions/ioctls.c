/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ioctls of the driver library by file, number and size, and of those that allocate or control
 * an object of the resource manager its class or command: a small program, `alloc` (the role), is
 * traced by ptrace(). Source of the layouts: NVIDIA's open kernel modules, NVOS21 and NVOS54.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/driver.h"
#include "gpu/common/samples.h"

enum {
    KINDS_MAX = 1024,
    ESCAPE_CONTROL = 0x2a,
    ESCAPE_ALLOC = 0x2b,
    CLASS_AT = 12,
    COMMAND_AT = 8
};

struct kind {
    char file[48];
    unsigned request, object; /* object: a class or a command, or 0 */
    long failed, count;
};

static struct kind kinds[KINDS_MAX];
static size_t kinds_count;
static uint64_t stops;

static int run_traced(void)
{
    gpu_pointer pointer = 0;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
        return ANSWER_FAILED;
    raise(SIGSTOP);
    gpu_open();
    gpu_must(gpu.alloc(&pointer, 2 << 20), "cuMemAlloc");
    gpu_must(gpu.set(pointer, 0, 1), "cuMemsetD32");
    gpu_must(gpu.context_wait(), "cuCtxSynchronize");
    gpu_must(gpu.free(pointer), "cuMemFree");
    gpu.primary_release(gpu.device);
    return 0;
}

/* The class of what is allocated, the command of a control; else 0. */
static unsigned object_of(pid_t pid, unsigned request, uint64_t argument)
{
    unsigned words[8] = {0};
    const unsigned number = request & 0xff;
    struct iovec here = {words, sizeof(words)}, there = {(void *)argument, sizeof(words)};
    if ((request >> 8 & 0xff) != 'F' || (number != ESCAPE_CONTROL && number != ESCAPE_ALLOC))
        return 0;
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) < CLASS_AT + 4)
        return 0;
    return words[(number == ESCAPE_ALLOC ? CLASS_AT : COMMAND_AT) / 4];
}

static void note_ioctl(pid_t pid, const struct user_regs_struct *at)
{
    char path[64];
    struct kind kind = {.request = (unsigned)at->rsi, .count = 1};
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)at->rdi);
    if (readlink(path, kind.file, sizeof(kind.file) - 1) < 0)
        snprintf(kind.file, sizeof(kind.file), "?");
    kind.object = object_of(pid, kind.request, at->rdx);
    kind.failed = (long)at->rax < 0;
    for (size_t i = 0; i < kinds_count; i++) {
        struct kind *known = &kinds[i];
        if (known->request == kind.request && known->object == kind.object &&
            !strcmp(known->file, kind.file)) {
            known->count++;
            known->failed += kind.failed;
            return;
        }
    }
    if (kinds_count < KINDS_MAX)
        kinds[kinds_count++] = kind;
}

/* At the end of a call, when the kernel has written its answer. Threads that stop in turn each have
 * a bit of whether they are within one. */
static void note_stop(pid_t pid)
{
    struct user_regs_struct at;
    struct __ptrace_syscall_info info;
    stops++;
    if (ptrace((enum __ptrace_request)PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_EXIT)
        return;
    if (!ptrace(PTRACE_GETREGS, pid, NULL, &at) && at.orig_rax == SYS_ioctl)
        note_ioctl(pid, &at);
}

/* Until all of them have ended. */
static int follow_all(pid_t first)
{
    int status = 0, result = -1;
    for (;;) {
        const pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0)
            return result;
        if (!WIFSTOPPED(status)) {
            result = pid == first ? status : result;
            continue;
        }
        const int number = WSTOPSIG(status);
        if (number == (SIGTRAP | 0x80))
            note_stop(pid);
        const bool is_ours = number == SIGSTOP || number == SIGTRAP || number == (SIGTRAP | 0x80);
        ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)(is_ours ? 0 : number));
    }
}

static void answer_kinds(void)
{
    for (size_t i = 0; i < kinds_count; i++) {
        const struct kind *kind = &kinds[i];
        answer_begin("ioctl");
        answer_text("file", kind->file);
        answer_number("request", kind->request);
        answer_number("type", kind->request >> 8 & 0xff);
        answer_number("number", kind->request & 0xff);
        answer_number("bytes", kind->request >> 16 & 0x3fff);
        answer_number("object", kind->object);
        answer_number("count", (uint64_t)kind->count);
        answer_number("failed", (uint64_t)kind->failed);
        answer_end();
    }
}

int main(int argc, char **argv)
{
    int status = 0;
    (void)argv;
    if (argc > 1)
        return run_traced();
    const pid_t pid = fork();
    if (!pid) {
        execl("/proc/self/exe", program_invocation_name, "alloc", NULL);
        _exit(ANSWER_FAILED);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
        answer_skip("the program cannot be traced: %s", strerror(errno));
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options) ||
        ptrace(PTRACE_SYSCALL, pid, NULL, NULL))
        answer_skip("ptrace: %s", strerror(errno));
    status = follow_all(pid);
    answer_kinds();
    answer_begin("traced");
    answer_number("stops", stops);
    answer_number("kinds", kinds_count);
    answer_signed("status", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    answer_end();
    return WIFEXITED(status) ? WEXITSTATUS(status) : ANSWER_FAILED;
}
