/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock on what is served, so that two servers never give out one file without being told to.
 *
 * It is the kernel's flock(): of the whole file, by reading descriptors too, on files, tmpfs, block
 * devices, DAX devices and BARs. /proc/locks says who holds it, of other users too. It goes when
 * the last copy of the descriptor does, so with the process, also by SIGKILL. Programs that are
 * executed do not get it (O_CLOEXEC). A child by fork() alone keeps it as long as it lives: the
 * refusal then says that its process has ended.
 *
 * What it does not see:
 * - on an NFS, servers are known within the host alone where it is mounted with `local_lock`;
 * - two device nodes of one character device are two files. Block devices are claimed besides
 *   (O_EXCL), which holds for all nodes, partitions, mounts, RAIDs;
 * - programs that lock otherwise, or not at all.
 *
 * Not F_OFD_SETLK: writing descriptors alone can lock for themselves, and nobody tells the PID.
 * Not F_SETLK: it is lost as soon as the process closes any descriptor of the file.
 */
#ifndef SW_MOVERS_SERVED_H
#define SW_MOVERS_SERVED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mover_serving {
    bool is_shared; /* beside others that share it, too; else alone */
    /* Beside others that only read alone: nobody who shares it to write. */
    bool is_unwritten;
    /* The option that shares it, "--shared", for the text of a refusal. NULL: it cannot be. */
    const char *share_option;
};

/* open() of what is to be served, locked; of a block device claimed, too. The lock lasts until the
 * descriptor is closed. Returns it, or a negative errno (-EBUSY: served already, or in use) and
 * what is wrong: the path, who has it, what helps. Waits 2 s at most, and only for a process that
 * is ending or for udev; 0.3 s for one that is not found. */
int mover_served_open(const char *path, int flags, const struct mover_serving *how, char *error,
                      size_t error_bytes);
/* The claim alone, beside a lock that was shared when its file was opened. `*fd` has it until that
 * is closed; -1: no block device, which cannot be claimed. Returns 0 or a negative errno. */
int mover_served_claim(const char *path, int flags, const struct mover_serving *how, int *fd,
                       char *error, size_t error_bytes);
/* The lock alone, of a file that is open. `path` is for the error. */
int mover_served_lock(int fd, const char *path, const struct mover_serving *how, char *error,
                      size_t error_bytes);

/*
 * The descriptor by which a server reads and writes is another one than that of the lock. io_uring
 * may write by it after the process has ended, when the lock has gone already. So it gets a mark of
 * its own (F_OFD_SETLK), which lasts as long as the kernel uses the descriptor. Returns 0 or a
 * negative errno: the file system has no such marks.
 */
int mover_served_mark_io(int fd);
/* Others than `fd` have such a mark. */
bool mover_served_has_io(int fd);
/* The same where several processes write to one file: each has its own mark, by a random number. */
int mover_served_mark_process(int fd, uint64_t process);
bool mover_served_has_process(int fd, uint64_t process);

#endif
