/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process is found by its PID, and known by its kernel's boot ID and its own start time, which
 * no other process of that boot has with the same PID. It is opened (pidfd_open) before these are
 * compared, so the signal reaches that process or none. A former owner of another boot is dead
 * where the medium is this host's alone. One in another PID namespace is not seen here: it keeps
 * its lock, and the lock is what decides.
 */
#include "nvme/target/backend/fence_process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/serve/log.h"
#include "common/serve/process_mark.h"
#include "common/serve/served.h"
#include "common/time/clock.h"

enum { PAUSE_US = 2000 };

const char *nvt_fence_network_name(const char *path)
{
    static const struct {
        uint32_t magic;
        const char *name;
    } networks[] = {
        {NFS_SUPER_MAGIC, "NFS"}, {SMB_SUPER_MAGIC, "SMB"}, {0xff534d42, "CIFS"},
        {0xfe534d42, "SMB"},      {0x65735546, "FUSE"},     {V9FS_MAGIC, "9p"},
        {0x00c36400, "CephFS"},   {AFS_SUPER_MAGIC, "AFS"}, {CODA_SUPER_MAGIC, "Coda"},
        {0x7461636f, "OCFS2"},    {0x01161970, "GFS2"},     {0x0bd00bd0, "Lustre"},
        {0x47504653, "GPFS"},     {0x19830326, "BeeGFS"},   {0x786f4256, "VirtualBox"},
        {0xbacbacbc, "VMware's"}, {0xaad7aaea, "PanFS"},    {AFS_FS_MAGIC, "AFS"},
    };
    struct statfs fs;
    if (statfs(path, &fs))
        return NULL;
    for (size_t i = 0; i < sizeof(networks) / sizeof(*networks); i++)
        if ((uint32_t)fs.f_type == networks[i].magic)
            return networks[i].name;
    return NULL;
}

/* ---- the process ---- */

static bool is_this_boot(const uint8_t boot_id[MOVER_BOOT_ID_BYTES])
{
    uint8_t mine[MOVER_BOOT_ID_BYTES];
    return mover_boot_id(mine) && !memcmp(mine, boot_id, sizeof(mine));
}

/* It has ended already, and its parent has not asked for its status yet. */
static bool former_has_ended(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLIN};
    return poll(&end, 1, 0) > 0;
}

/* Operators find out why a target that had served until then is gone. */
static int kill_former(int fd, const struct nvt_former *former)
{
    if (mover_process_start(former->pid) != former->start_ticks || former_has_ended(fd))
        return 0;
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0))
        return errno == ESRCH ? 0 : -errno;
    mover_log(MOVER_LOG_WARNING,
              "member %.31s (PID %d) is killed: the group has not heard of it in time, and gives "
              "another one what it had",
              former->name, former->pid);
    return 0;
}

int nvt_fence_kill(const struct nvt_former *former, char *error, size_t error_bytes)
{
    if (former->pid <= 0 || former->pid == getpid() || !is_this_boot(former->boot_id))
        return 0;
    const int fd = (int)syscall(SYS_pidfd_open, former->pid, 0);
    if (fd < 0 && errno == ESRCH)
        return 0;
    const int rc = fd < 0 ? -errno : kill_former(fd, former);
    if (fd >= 0)
        close(fd);
    if (rc)
        snprintf(error, error_bytes,
                 "member %.31s (PID %d) had it, and cannot be killed: %s; its targets have to run "
                 "as one user",
                 former->name, former->pid, strerror(-rc));
    return rc;
}

/* ---- the file ---- */

static bool is_let_go(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB))
        return false;
    flock(fd, LOCK_UN);
    return !mover_served_has_io(fd);
}

int nvt_fence_await_file(const char *path, uint32_t wait_ms, char *error, size_t error_bytes)
{
    static const struct mover_serving alone = {0};
    const uint64_t end_ns = mover_now_ns() + wait_ms * NS_PER_MS;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        const int rc = -errno;
        snprintf(error, error_bytes, "%.150s: %s", path, strerror(-rc));
        return rc;
    }
    bool is_free = is_let_go(fd);
    while (!is_free && mover_now_ns() < end_ns) {
        usleep(PAUSE_US);
        is_free = is_let_go(fd);
    }
    if (!is_free && !mover_served_lock(fd, path, &alone, error, error_bytes))
        snprintf(error, error_bytes,
                 "%.150s: writes of a process that has ended are still under way: its disk hangs",
                 path);
    close(fd);
    return is_free ? 0 : -ETIMEDOUT;
}
