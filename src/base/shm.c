/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

#if defined(__SANITIZE_THREAD__)
#define UNSEEN __attribute__((no_sanitize("thread")))
#else
#define UNSEEN
#endif

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef SYS_cachestat
#define SYS_cachestat 451
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

struct growth {
    int fd;
    off_t len;
    bool done;
};

/* A process of its own for the limit, otherwise our own: memory and descriptors are shared. */
UNSEEN static int grow_file(void *arg)
{
    struct growth *growth = arg;
    struct rlimit limit;
    if (!syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit)) {
        const struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
        limit.rlim_cur = limit.rlim_max;
        if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &unlimited, NULL)) /* for root */
            syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, NULL);
        growth->done = !syscall(SYS_ftruncate, growth->fd, growth->len);
    }
    syscall(SYS_exit, 0);
    return 0;
}

/* A soft limit may be raised up to the hard one, but not so that the program sees it: by a child
 * that has this memory and these descriptors and a limit of its own. Signals are blocked, SIGXFSZ
 * too, and it ends without one. */
static bool grow_aside(int fd, size_t len_bytes)
{
    static char stack[16384] __attribute__((aligned(16)));
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct growth growth = {fd, (off_t)len_bytes, false};
    sigset_t all, saved;
    sigfillset(&all);
    pthread_mutex_lock(&lock);
    pthread_sigmask(SIG_BLOCK, &all, &saved);
    int child =
        clone(grow_file, stack + sizeof(stack), CLONE_VM | CLONE_FILES | CLONE_VFORK, &growth);
    while (child > 0 && waitpid(child, NULL, __WCLONE) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    pthread_mutex_unlock(&lock);
    return growth.done;
}

static int set_size(int fd, size_t len_bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || len_bytes <= limit.rlim_cur)
        return ftruncate(fd, (off_t)len_bytes) ? -errno : 0;
    return grow_aside(fd, len_bytes) ? 0 : -EFBIG;
}

static int refuse_size(uint64_t len_bytes)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_FSIZE, &limit);
    sw_error("RLIMIT_FSIZE (ulimit -f) is %llu bytes, shared memory needs %llu",
             (unsigned long long)limit.rlim_cur, (unsigned long long)len_bytes);
    return -EFBIG;
}

static int create_memfd(const char *name, size_t len_bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); /* kernels before 6.3 */
    if (fd < 0)
        fd = open_unnamed();
    if (fd < 0)
        return -errno;
    /* Processes that have it mapped must not lose the memory: nobody makes it shorter, we neither.
     * A file that is no memfd cannot be sealed. */
    int rc = fchmod(fd, 0600) ? -errno : set_size(fd, len_bytes);
    if (!rc && len_bytes && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) && errno != EINVAL &&
        errno != EPERM)
        rc = -errno;
    if (!rc)
        return fd;
    close(fd);
    return rc;
}

int sw_shm_create(const char *name, size_t len_bytes)
{
    const int fd = create_memfd(name, len_bytes);
    return fd == -EFBIG ? refuse_size(len_bytes) : fd;
}

int sw_shm_create_most(const char *name, uint64_t len_min, uint64_t *len_bytes)
{
    const uint64_t page_bytes = (uint64_t)getpagesize();
    struct rlimit limit;
    int fd = create_memfd(name, *len_bytes);
    if (fd != -EFBIG)
        return fd;
    const uint64_t most =
        getrlimit(RLIMIT_FSIZE, &limit) ? 0 : limit.rlim_max / page_bytes * page_bytes;
    if (most >= len_min && most < *len_bytes)
        fd = create_memfd(name, most);
    if (fd == -EFBIG)
        return refuse_size(len_min);
    if (fd >= 0)
        *len_bytes = most;
    return fd;
}

bool sw_remap(void *from, size_t old_bytes, size_t new_bytes, void *to)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    return syscall(SYS_mremap, from, old_bytes, new_bytes, flags, to) == (long)to;
}

void *sw_map_sparse(void *at, size_t len_bytes, int prot, int flags, int fd, uint64_t offset)
{
    void *base = mmap(NULL, len_bytes, PROT_NONE, flags | MAP_NORESERVE, fd, (off_t)offset);
    if (base == MAP_FAILED) {
        const int err = errno;
        if (err == EAGAIN)
            sw_warn("mlockall(MCL_FUTURE) and RLIMIT_MEMLOCK (ulimit -l) do not allow a mapping of "
                    "%zu bytes",
                    len_bytes);
        errno = err;
        return NULL;
    }
    munlock(base, len_bytes); /* nothing has been populated: it may not be read yet */
    if (!mprotect(base, len_bytes, prot) && (!at || sw_remap(base, len_bytes, len_bytes, at)))
        return at ? at : base;
    const int err = errno;
    munmap(base, len_bytes);
    errno = err;
    return NULL;
}

void *sw_shm_map(int fd, size_t len_bytes, bool writable)
{
    int prot = PROT_READ | (writable ? PROT_WRITE : 0);
    return sw_map_sparse(NULL, len_bytes, prot, MAP_SHARED, fd, 0);
}

/* The types of cachestat(2), for older headers. */
struct cached_range {
    uint64_t offset;
    uint64_t len_bytes;
};
struct cached_pages {
    uint64_t present;
    uint64_t dirty;
    uint64_t written;
    uint64_t evicted; /* swapped out */
    uint64_t evicted_recently;
};

/* cachestat() counts what the file has at each place, whatever the state of the page is. */
bool sw_shm_is_hole(int fd, uint64_t offset, uint64_t len_bytes)
{
    struct cached_range range = {offset, len_bytes};
    struct cached_pages pages;
    if (!len_bytes) /* to the end, for the kernel */
        return true;
    return !syscall(SYS_cachestat, fd, &range, &pages, 0) && !pages.present && !pages.evicted;
}

int sw_shm_seal_readonly(int fd)
{
    int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    return fcntl(fd, F_ADD_SEALS, seals) ? -errno : 0;
}
