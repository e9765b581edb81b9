/* SPDX-License-Identifier: BSD-2-Clause */
/* Preloaded before the library under test: madvise() as a system call that no hook sees. */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int madvise(void *addr, size_t len, int advice)
{
    return (int)syscall(SYS_madvise, addr, len, advice);
}
