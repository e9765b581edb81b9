/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/commands/user.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEAR_BYTES 4096u /* of the stack above us */

/* librdmacm's buffers are on the stack of its functions, some frames above: those need no care. */
static bool is_near(uint64_t address, size_t len_bytes)
{
    uint64_t here = (uintptr_t)__builtin_frame_address(0);
    return address >= here && address - here < NEAR_BYTES &&
           len_bytes <= NEAR_BYTES - (address - here);
}

static void *user_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address; /* NOLINT: the interface has integers */
}

int sw_user_read(void *to, uint64_t from, size_t len_bytes)
{
    if (!is_near(from, len_bytes)) {
        struct iovec local = {to, len_bytes}, remote = {user_pointer(from), len_bytes};
        ssize_t done = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (done == (ssize_t)len_bytes)
            return 0;
        if (done >= 0 || errno == EFAULT)
            return -EFAULT;
        /* refused by a filter of system calls */
    }
    memcpy(to, user_pointer(from), len_bytes);
    return 0;
}

int sw_user_write(uint64_t to, const void *from, size_t len_bytes)
{
    if (!is_near(to, len_bytes)) {
        struct iovec local = {(void *)from, len_bytes}, remote = {user_pointer(to), len_bytes};
        ssize_t done = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
        if (done == (ssize_t)len_bytes)
            return 0;
        if (done >= 0 || errno == EFAULT)
            return -EFAULT;
    }
    memcpy(user_pointer(to), from, len_bytes);
    return 0;
}
