/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/rdma.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sockets/real.h"

#define LIBRARY "librdmacm.so.1"

struct sw_rdma sw_rdma;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded, wants_copy;
static const char *refused; /* why it cannot be loaded: told once, remembered */
static char path[4096];     /* of the library, for copies */

static const struct {
    const char *name;
    void **target;
} entries[] = {
#define SW_ENTRY(name)                \
    {                                 \
#name, (void **)&sw_rdma.name \
    }
    SW_ENTRY(rsocket),      SW_ENTRY(rbind),       SW_ENTRY(rlisten),     SW_ENTRY(raccept),
    SW_ENTRY(rconnect),     SW_ENTRY(rshutdown),   SW_ENTRY(rclose),      SW_ENTRY(rrecv),
    SW_ENTRY(rsend),        SW_ENTRY(rsendmsg),    SW_ENTRY(rpoll),       SW_ENTRY(rgetpeername),
    SW_ENTRY(rgetsockname), SW_ENTRY(rsetsockopt), SW_ENTRY(rgetsockopt), SW_ENTRY(rfcntl),
#undef SW_ENTRY
};

/* The same library under another inode, which the loader takes for another one. */
static void *open_copy(void)
{
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int to = memfd_create("sidewire.librdmacm", MFD_CLOEXEC);
    struct stat info;
    void *handle = NULL;
    if (from >= 0 && to >= 0 && fstat(from, &info) == 0) {
        ssize_t left = info.st_size, done = 1;
        while (left > 0 && done > 0) {
            done = sendfile(to, from, NULL, (size_t)left);
            left -= done;
        }
        char name[64];
        snprintf(name, sizeof(name), "/proc/self/fd/%d", to);
        if (left == 0)
            handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    return handle;
}

static const char *rdma_load_library(void)
{
    void *handle = wants_copy && *path ? open_copy() : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return wants_copy ? "no second copy of " LIBRARY " could be loaded after fork()"
                          : LIBRARY " cannot be loaded (package librdmacm1)";
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
        *entries[i].target = dlsym(handle, entries[i].name);
        if (!*entries[i].target)
            return LIBRARY " has no rsockets";
    }
    Dl_info info;
    if (!*path && dladdr((void *)sw_rdma.rsocket, &info) && info.dli_fname)
        snprintf(path, sizeof(path), "%s", info.dli_fname);
    return NULL;
}

const char *sw_rdma_load(void)
{
    pthread_mutex_lock(&lock);
    if (!loaded) {
        refused = rdma_load_library();
        loaded = true;
    }
    const char *why = refused;
    pthread_mutex_unlock(&lock);
    return why;
}

static __thread int *first_pair __attribute__((tls_model("initial-exec")));

void sw_rdma_saw_pair(const int fds[2])
{
    if (__builtin_expect(first_pair != NULL, 0) && *first_pair < 0)
        *first_pair = fds[0];
}

int sw_rdma_listen(int rs, int backlog, int *queue)
{
    *queue = -1;
    first_pair = queue;
    int result = sw_rdma.rlisten(rs, backlog);
    first_pair = NULL;
    return result;
}

__thread bool sw_rdma_is_meeting __attribute__((tls_model("initial-exec")));

/* struct rs_svc_msg of librdmacm. */
struct service_message {
    uint32_t command, status;
    void *rs;
};
enum { SERVICE_NONE = 0, SERVICE_ADD_CONNECTION = 6 };

ssize_t sw_rdma_write(int fd, const void *bytes, size_t len)
{
    struct service_message message;
    if (len != sizeof(message))
        return SW_REAL(write)(fd, bytes, len);
    memcpy(&message, bytes, sizeof(message));
    if (message.command == SERVICE_ADD_CONNECTION)
        message.command = SERVICE_NONE;
    return SW_REAL(write)(fd, &message, sizeof(message));
}

int sw_rdma_connect(int rs, const struct sockaddr *address, socklen_t len)
{
    sigset_t old;
    sw_rdma_mask(&old);
    sw_rdma_is_meeting = true;
    int result = sw_rdma.rconnect(rs, address, len);
    sw_rdma_is_meeting = false;
    sw_rdma_unmask(&old);
    return result;
}

int sw_rdma_accept(int listener)
{
    sigset_t old;
    sw_rdma_mask(&old);
    sw_rdma_is_meeting = true;
    int rs = sw_rdma.raccept(listener, NULL, NULL);
    sw_rdma_is_meeting = false;
    sw_rdma_unmask(&old);
    return rs;
}

void sw_rdma_mask(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, old);
}

void sw_rdma_unmask(const sigset_t *old)
{
    int saved_errno = errno;
    pthread_sigmask(SIG_SETMASK, old, NULL);
    errno = saved_errno;
}

void sw_rdma_forked(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (loaded && !refused)
        wants_copy = true;
    loaded = false;
}
