/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/probe.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/minmax.h"

#define PAGE_BYTES 4096u /* the smallest there is: a larger page is asked about more than once */
#define KERNEL_SIGSET_BYTES 8u

/* rt_sigprocmask() reads the set before it looks at what to do with it, which is nothing here. It
 * is never refused: libc itself cannot do without. */
static bool page_reads(const char *page)
{
    const int saved_errno = errno;
    const long rc = syscall(SYS_rt_sigprocmask, ~0, page, NULL, KERNEL_SIGSET_BYTES);
    const bool reads = rc == 0 || errno != EFAULT;
    errno = saved_errno;
    return reads;
}

bool sw_probe_bytes(const void *bytes, size_t len)
{
    const uintptr_t start = (uintptr_t)bytes / PAGE_BYTES, end = (uintptr_t)bytes + len;
    if (end < (uintptr_t)bytes)
        return false;
    for (uintptr_t page = start; page * PAGE_BYTES < end; page++)
        if (!page || !page_reads((const char *)(page * PAGE_BYTES))) /* NULL's page is none */
            return false;
    return true;
}

bool sw_probe_string(const char *string, size_t max)
{
    while (max) {
        const size_t offset = (uintptr_t)string % PAGE_BYTES;
        const size_t left = PAGE_BYTES - offset;
        const size_t len = sw_min_u64(left, max);
        if (offset == (uintptr_t)string || !page_reads(string - offset)) /* NULL's page is none */
            return false;
        if (memchr(string, '\0', len))
            return true;
        string += len;
        max -= len;
    }
    return false;
}

/* True, too, where a sandbox refuses the call. */
static bool is_mapped(const void *bytes, size_t len)
{
    const uintptr_t first = (uintptr_t)bytes / PAGE_BYTES, end = (uintptr_t)bytes + len;
    unsigned char is_in_core;
    for (uintptr_t page = first; page * PAGE_BYTES < end; page++)
        if (mincore((void *)(page * PAGE_BYTES), PAGE_BYTES, &is_in_core) && errno == ENOMEM)
            return false;
    return true;
}

/* The kernel cannot read a page that is just being moved (device/adopt); a load waits there. */
bool sw_probe_load(void *to, const void *from, size_t len)
{
    const int saved_errno = errno;
    struct iovec local = {to, len};
    struct iovec remote = {(void *)from, len};
    const ssize_t done = len ? process_vm_readv(getpid(), &local, 1, &remote, 1, 0) : 0;
    const bool is_whole = done >= 0 && (size_t)done == len;
    const bool is_there = is_whole || is_mapped(from, len);
    errno = saved_errno;
    if (is_there && !is_whole)
        memcpy(to, from, len);
    return is_there;
}

int sw_probe_store(void *to, const void *from, size_t len)
{
    const int saved_errno = errno;
    struct iovec local = {(void *)from, len};
    struct iovec remote = {to, len};
    const ssize_t done = len ? process_vm_writev(getpid(), &local, 1, &remote, 1, 0) : 0;
    const int err = done < 0 ? errno : 0;
    errno = saved_errno;
    if (done >= 0)
        return (size_t)done == len ? 0 : -EFAULT;
    if (err == EFAULT)
        return -EFAULT;
    memcpy(to, from, len); /* a sandbox refuses the call: as a function of libc would do it */
    return 0;
}
