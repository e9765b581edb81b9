/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * msync(2) beside the threads that serve queue pairs: it takes as long as a disk does, and neither
 * a program's poll nor the engine may wait for that. Each job has a thread of its own, so that a
 * filesystem sees all that is to be synced and can do it at once.
 */
#ifndef SW_DEVICE_MEMORY_SYNC_JOB_H
#define SW_DEVICE_MEMORY_SYNC_JOB_H

#include <stdbool.h>
#include <stdint.h>

struct sw_sync_job;

/* Starts syncing a range, which is not empty, and calls `tell` from another thread when it is done.
 * NULL: too many are under way, of all or of this owner, or there is no memory or no thread; try
 * again. Owners are disks, told apart so that one that hangs leaves threads to the others. The
 * range may be unmapped meanwhile: that is an error of the job's. */
struct sw_sync_job *sw_sync_job_start(uint64_t owner, uint64_t va, uint64_t len_bytes,
                                      void (*tell)(void));
/* Whether it is over; then *rc is 0 or a negative errno: that of the first job that failed, if it
 * was one of the same file. */
bool sw_sync_job_ended(const struct sw_sync_job *job, int *rc);
/* Forgets a job, ended or not. Its thread is its owner's until it ends. */
void sw_sync_job_drop(struct sw_sync_job *job);

/* In a forked child, where none of the threads is. */
void sw_sync_job_fork_child(void);

#endif
