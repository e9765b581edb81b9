/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The dlopen hook: a program that loads libibverbs by hand gets this library, whose symbols a
 * handle of the stock one would not show.
 *
 * libc's dlopen looks at its return address to find the caller's RUNPATH and namespace, so the hook
 * must not be in between: the stub asks for the file name to use and jumps.
 */

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "base/probe.h"
#include "preload/real.h"

/* Where the stub jumps to: the address is stable once sw_dlopen_file has returned. */
__attribute__((visibility("hidden"))) void *sw_dlopen_real;
const char *sw_dlopen_file(const char *file);

/* The name that the loader knows this library by: it then finds the loaded object without looking
 * at the file system. */
static const char *dlopen_own_name(void)
{
    Dl_info info;
    return dladdr((const void *)&sw_dlopen_real, &info) ? info.dli_fname : NULL;
}

static bool is_verbs_library(const char *file)
{
    static const char stem[] = "libibverbs.so";
    if (!sw_probe_string(file, PATH_MAX))
        return false;
    const char *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file;
    if (strncmp(name, stem, sizeof(stem) - 1))
        return false;
    name += sizeof(stem) - 1;
    return !*name || (name[0] == '.' && name[1] == '1' && (!name[2] || name[2] == '.'));
}

__attribute__((used)) const char *sw_dlopen_file(const char *file)
{
    __atomic_store_n(&sw_dlopen_real, (void *)SW_REAL(dlopen), __ATOMIC_RELAXED);
    const char *ours = is_verbs_library(file) ? dlopen_own_name() : NULL;
    return ours ? ours : file;
}

#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        ".globl dlopen\n"
        ".type dlopen, @function\n"
        "dlopen:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rsi\n" /* flags; the stack is now aligned for a call */
        ".cfi_adjust_cfa_offset 8\n"
        "call sw_dlopen_file\n"
        "popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "movq %rax, %rdi\n"
        "jmpq *sw_dlopen_real(%rip)\n"
        ".cfi_endproc\n"
        ".size dlopen, .-dlopen\n"
        ".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
        ".globl dlopen\n"
        ".type dlopen, %function\n"
        "dlopen:\n"
        ".cfi_startproc\n"
        "hint #25\n" /* paciasp, also a landing pad */
        "stp x1, x30, [sp, #-16]!\n"
        ".cfi_adjust_cfa_offset 16\n"
        "bl sw_dlopen_file\n"
        "ldp x1, x30, [sp], #16\n"
        ".cfi_adjust_cfa_offset -16\n"
        "hint #29\n" /* autiasp */
        "adrp x16, sw_dlopen_real\n"
        "ldr x16, [x16, #:lo12:sw_dlopen_real]\n"
        "br x16\n"
        ".cfi_endproc\n"
        ".size dlopen, .-dlopen\n"
        ".popsection\n");
#else
#error "the dlopen hook needs a jump for this machine"
#endif
