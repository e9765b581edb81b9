/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int open_unnamed(void)
{
    static const char *const dirs[] = {"/dev/shm", "/tmp", "/var/tmp"};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        int fd = open(dirs[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

int sw_shm_create(const char *name, size_t len_bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); /* kernels before 6.3 */
    if (fd < 0)
        fd = open_unnamed();
    if (fd < 0)
        return -errno;
    /* Who has it mapped must not lose the memory: nobody makes it shorter, we neither. A file that
     * is no memfd cannot be sealed. */
    if (fchmod(fd, 0600) || ftruncate(fd, (off_t)len_bytes) ||
        (len_bytes && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) && errno != EINVAL && errno != EPERM)) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

void *sw_shm_map(int fd, size_t len_bytes, bool writable)
{
    int prot = PROT_READ | (writable ? PROT_WRITE : 0);
    void *base = mmap(NULL, len_bytes, prot, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

int sw_shm_seal_readonly(int fd)
{
    int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    return fcntl(fd, F_ADD_SEALS, seals) ? -errno : 0;
}
