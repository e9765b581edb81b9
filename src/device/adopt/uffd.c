/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00) /* on /dev/userfaultfd, Linux 6.1 */
#endif
#ifndef UFFD_FEATURE_MINOR_SHMEM
#define UFFD_FEATURE_MINOR_SHMEM (1 << 10)
#define UFFDIO_REGISTER_MODE_MINOR (1 << 2)
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

static int uffd_open_device(void)
{
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device < 0)
        return -1;
    int fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
    close(device);
    return fd;
}

/* A full one where this process may have it. A descriptor, or a negative errno. */
static int open_any(struct sw_uffd *uffd)
{
    uffd->user_mode_only = false;
    uffd->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (uffd->fd < 0 && errno == EPERM)
        uffd->fd = uffd_open_device();
    if (uffd->fd < 0) {
        uffd->user_mode_only = true;
        uffd->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    }
    return uffd->fd < 0 ? -errno : uffd->fd;
}

/* Asks for features; the ones asked for must be there. */
static int ask_features(struct sw_uffd *uffd, uint64_t features)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    if (ioctl(uffd->fd, UFFDIO_API, &api)) {
        int err = errno;
        close(uffd->fd);
        return -err;
    }
    uffd->can_protect = api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    uffd->can_protect_shared = api.features & UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
    if (!uffd->can_protect) {
        close(uffd->fd);
        return -EOPNOTSUPP;
    }
    return 0;
}

int sw_uffd_open(struct sw_uffd *uffd)
{
    uffd->tells = false;
    int rc = open_any(uffd);
    return rc < 0 ? rc : ask_features(uffd, 0);
}

int sw_uffd_open_telling(struct sw_uffd *uffd)
{
    const uint64_t features = UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_MISSING_SHMEM |
                              UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
    uffd->tells = true;
    int rc = open_any(uffd);
    if (rc < 0)
        return rc;
    if (fcntl(uffd->fd, F_SETFL, O_NONBLOCK)) {
        rc = -errno;
        close(uffd->fd);
        return rc;
    }
    return ask_features(uffd, features);
}

bool sw_uffd_has_told(const struct sw_uffd *uffd)
{
    struct pollfd poll = {.fd = uffd->fd, .events = POLLIN};
    const struct timespec now = {0};
    return syscall(SYS_ppoll, &poll, 1, &now, NULL, 0) == 1 && poll.revents & POLLIN;
}

bool sw_uffd_release_one(const struct sw_uffd *uffd)
{
    struct uffd_msg message;
    return syscall(SYS_read, uffd->fd, &message, sizeof(message)) > 0;
}

void sw_uffd_close(struct sw_uffd *uffd)
{
    close(uffd->fd);
    uffd->fd = -1;
}

int sw_uffd_arm(const struct sw_uffd *uffd, uint64_t va, uint64_t len_bytes, unsigned int modes)
{
    struct uffdio_register arg = {
        .range = {.start = va, .len = len_bytes},
        .mode = (modes & SW_UFFD_MISSING ? UFFDIO_REGISTER_MODE_MISSING : 0) |
                (modes & SW_UFFD_PRESENT ? UFFDIO_REGISTER_MODE_MINOR : 0) |
                (modes & SW_UFFD_WRITES ? UFFDIO_REGISTER_MODE_WP : 0),
    };
    return ioctl(uffd->fd, UFFDIO_REGISTER, &arg) ? -errno : 0;
}

void sw_uffd_disarm(const struct sw_uffd *uffd, uint64_t va, uint64_t len_bytes)
{
    struct uffdio_range range = {.start = va, .len = len_bytes};
    struct uffdio_writeprotect off = {.range = range, .mode = 0};
    ioctl(uffd->fd, UFFDIO_WRITEPROTECT, &off); /* before 6.0 the marks outlive the registration */
    ioctl(uffd->fd, UFFDIO_UNREGISTER, &range);
    sw_uffd_wake(uffd, va, len_bytes);
}

int sw_uffd_protect(const struct sw_uffd *uffd, uint64_t va, uint64_t len_bytes)
{
    struct uffdio_writeprotect arg = {
        .range = {.start = va, .len = len_bytes},
        .mode = UFFDIO_WRITEPROTECT_MODE_WP,
    };
    while (ioctl(uffd->fd, UFFDIO_WRITEPROTECT, &arg)) {
        if (errno != EAGAIN || uffd->tells) /* the mappings are being changed by someone */
            return -errno;
    }
    return 0;
}

void sw_uffd_wake(const struct sw_uffd *uffd, uint64_t va, uint64_t len_bytes)
{
    struct uffdio_range range = {.start = va, .len = len_bytes};
    ioctl(uffd->fd, UFFDIO_WAKE, &range);
}
