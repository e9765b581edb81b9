/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Persistent reservations of a device (NVMe Base 2.0 s8.19, SPC-4 s5.13), as its host sends them.
 * Namespaces of NVMe devices take commands (/dev/ng0n1, /dev/nvme0n1). Other block devices take
 * ioctls of Linux, which SCSI and device mapper carry out (linux/pr.h); what is registered there is
 * read by a command of SCSI (SG_IO).
 *
 * Types have NVMe's numbers, which Linux has as well (enum pr_type).
 */
#ifndef SW_MOVERS_NVME_DEVICE_PR_H
#define SW_MOVERS_NVME_DEVICE_PR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NVT_PR_KEYS_MAX = 200 };

/* What is registered: a host that has several controllers or paths has its key several times. */
struct nvt_pr_report {
    uint8_t type; /* of the reservation; 0: nobody holds one */
    size_t count;
    uint64_t keys[NVT_PR_KEYS_MAX];
};

/* Each returns 0 or a negative errno. -EBADE is a conflict. */

/* In place of `old`; of 0: of no key, or of whatever key this host has. */
int nvt_pr_register(int fd, uint64_t old, uint64_t key);
void nvt_pr_unregister(int fd, uint64_t key);
int nvt_pr_acquire(int fd, uint8_t type, uint64_t key);
/* Ends the registrations of a key, and what their hosts have under way. A conflict says that nobody
 * has that key, or that this host does not have its own. */
int nvt_pr_preempt(int fd, uint8_t type, uint64_t key, uint64_t former);
int nvt_pr_report(int fd, struct nvt_pr_report *out);
bool nvt_pr_has_key(const struct nvt_pr_report *report, uint64_t key);

/* Whether it has reservations of that type, and they outlast a loss of power. Changes nothing. */
int nvt_pr_look(int fd, uint8_t type, bool *has, bool *persists);

#endif
