/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Anonymous shared memory that can be handed to another process as a descriptor: a memfd, or where
 * the kernel or a filter refuses one, an unnamed file in /dev/shm or /tmp. Nothing here ever has a
 * name that could outlive the process.
 */
#ifndef SW_BASE_SHM_H
#define SW_BASE_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Creates `len_bytes` of zeroed sparse memory; returns a close-on-exec descriptor or a negative
 * errno. -EFBIG: RLIMIT_FSIZE, and no signal. `name` shows up in /proc/PID/maps. */
int sw_shm_create(const char *name, size_t len_bytes);

/* The same of *len_bytes, or of as much as a hard RLIMIT_FSIZE allows, in whole pages, unless that
 * is less than len_min; *len_bytes says how much. */
int sw_shm_create_most(const char *name, uint64_t len_min, uint64_t *len_bytes);

/* Moves a mapping over what is at `to`; of no old bytes: makes a second one of what is shared. By
 * the kernel's call itself: UCX, and so MPI, put a mremap() in the place of libc's that knows
 * nothing of `to`, and the mapping would go to address 0. */
bool sw_remap(void *from, size_t old_bytes, size_t new_bytes, void *to);

/* Maps a range that is hardly used, in one step over what is at `at` unless that is NULL: neither
 * reserved nor, under mlockall(MCL_FUTURE), populated and locked. flags: MAP_SHARED or MAP_PRIVATE,
 * and so on. NULL on failure, errno says why. */
void *sw_map_sparse(void *at, size_t len_bytes, int prot, int flags, int fd, uint64_t offset);

/* Maps it shared; returns NULL on failure (errno says why). Pages are not reserved in advance. */
void *sw_shm_map(int fd, size_t len_bytes, bool writable);

/* Whether [offset, offset + len_bytes) of such a file surely has no page. False as well where the
 * kernel cannot tell: before 6.5. lseek(SEEK_DATA) is no answer: it takes a page that the kernel is
 * replacing by another (compaction, MADV_COLLAPSE before 6.3) for a hole. */
bool sw_shm_is_hole(int fd, uint64_t offset, uint64_t len_bytes);

/* Forbids any further writable mapping or write() (our own mappings keep working), so that the
 * descriptor may be given to peers who must only read. Returns 0 or a negative errno (not possible:
 * the fallback file). */
int sw_shm_seal_readonly(int fd);

#endif
