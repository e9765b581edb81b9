/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * userfaultfd(2) as a brake: threads of this process that store to (or touch missing pages of) an
 * armed range wait until it is woken. Nobody reads fault messages; a waiter that is woken just
 * tries again.
 *
 * A telling one also holds up each caller of madvise(2), whoever that is, who is about to discard
 * pages of an armed range, until it is released.
 */
#ifndef SW_DEVICE_ADOPT_UFFD_H
#define SW_DEVICE_ADOPT_UFFD_H

#include <stdbool.h>
#include <stdint.h>

struct sw_uffd {
    int fd;
    /* Unprivileged: only accesses made in user mode wait. System calls that access the range fail
     * with EFAULT. */
    bool user_mode_only;
    bool can_protect;        /* private anonymous memory (Linux 5.7) */
    bool can_protect_shared; /* shared memory files (Linux 5.19) */
    bool tells;
};

enum sw_uffd_mode {
    SW_UFFD_MISSING = 1, /* accesses to pages that do not exist wait */
    SW_UFFD_WRITES = 2,  /* stores to pages that sw_uffd_protect() protected wait */
    SW_UFFD_PRESENT = 4, /* accesses to pages of a file that no page table shows wait */
};

/* Opens the strongest kind this process may. 0 or a negative errno: -ENOSYS and -EPERM when it is
 * refused, -EOPNOTSUPP without write protection. */
int sw_uffd_open(struct sw_uffd *uffd);
/* -EINVAL: this kernel has none that tells. */
int sw_uffd_open_telling(struct sw_uffd *uffd);
void sw_uffd_close(struct sw_uffd *uffd);

/* Whether somebody waits: discarding, or while a range is stopped for an access to it. */
bool sw_uffd_has_told(const struct sw_uffd *uffd);
/* Lets one who is about to discard do so: the last who came. He looks anew at what is mapped there.
 * False: nobody waits. */
bool sw_uffd_release_one(const struct sw_uffd *uffd);

/* 0 or a negative errno (-EBUSY: somebody else's userfaultfd has the range). modes: SW_UFFD_*
 * or-ed. */
int sw_uffd_arm(const struct sw_uffd *uffd, uint64_t va, uint64_t len_bytes, unsigned int modes);
/* Forgets the range, where it still is what was armed, and wakes its waiters. */
void sw_uffd_disarm(const struct sw_uffd *uffd, uint64_t va, uint64_t len_bytes);
/* Write-protects the pages of an armed range. When it returns, no store is on its way any more. A
 * telling one answers -EAGAIN while somebody is about to discard. */
int sw_uffd_protect(const struct sw_uffd *uffd, uint64_t va, uint64_t len_bytes);
/* Lets those who wait for the range try again. Right also when it has been mapped anew. */
void sw_uffd_wake(const struct sw_uffd *uffd, uint64_t va, uint64_t len_bytes);

#endif
