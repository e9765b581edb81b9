/* SPDX-License-Identifier: BSD-2-Clause */
/* A preloaded library: the disk has failed a write, as each open file is told once, when the file
 * that FAILING_DISK names is there. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int sync_file_range(int fd, off64_t offset, off64_t bytes,
                                                           unsigned flags)
{
    static bool is_told;
    int (*real)(int, off64_t, off64_t, unsigned) = NULL;
    const char *mark = getenv("FAILING_DISK");
    *(void **)&real = dlsym(RTLD_NEXT, "sync_file_range");
    if (mark && !access(mark, F_OK) && !is_told) {
        is_told = true;
        errno = EIO;
        return -1;
    }
    return real ? real(fd, offset, bytes, flags) : 0;
}
