/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reservation that a device itself keeps (device_pr.h), as the fence of a group: of all hosts
 * of the device, those whose keys are registered may write. It has nothing to do with reservations
 * that hosts of the target make; those are the group's, and in its log.
 *
 * Where one member is active, the type is Write Exclusive - Registrants Only: the owner's host is
 * the only registrant, so it writes by all of its paths, and other members may look at the device.
 *
 * - Each take has a key of its own: the group, the member's slot, the epoch. The new owner
 *   registers, then ends the registrations of its formers by preempt-and-abort, which waits for
 *   what the device has under way of theirs, and then holds the reservation.
 * - An owner that gives the device up does not release it: without a reservation the device would
 *   take what a former still holds. It changes its key to the idle one of the group, which the next
 *   owner preempts, too.
 *
 * Where all members are active, it is Exclusive Access - All Registrants: each member's host is one
 * of them, holds the reservation with the others, and may not even read once it is out.
 *
 * - A member registers when it opens the device, by a key of its own process: the group, the slot,
 *   and the incarnation. It never does so again: one that has been preempted stays out, and ends.
 * - A member that takes a host ends the registrations of the host's formers, by preempt-and-abort
 *   of their keys: never of key 0, which would be all. Then it looks whether its own is still
 *   there: a member that is out has fenced nobody.
 * - One that leaves changes its key to the idle one, since a reservation goes with its last
 *   registrant. The next member that joins ends the idle registrations of other hosts.
 *
 * A device knows hosts, not processes. What another process of this host still has under way is
 * waited for by its lock, before this host is registered (fence_process.h).
 */
#ifndef SW_MOVERS_NVME_DEVICE_KEY_H
#define SW_MOVERS_NVME_DEVICE_KEY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/target/backend/backend.h"

/* The key of an owner; of a member where all are active; of nobody: the idle one. */
uint64_t nvt_device_key(const uint8_t identity[16], uint8_t slot, uint64_t epoch);
uint64_t nvt_device_member_key(const uint8_t identity[16], uint8_t slot, uint64_t incarnation);
uint64_t nvt_device_idle_key(const uint8_t identity[16]);

/* Whether the device has reservations, of all registrants if `is_for_all`, that outlast a loss of
 * power. Changes nothing. Returns 0, or a negative errno and why not. */
int nvt_device_may_reserve(int fd, const char *path, bool is_for_all, char *error,
                           size_t error_bytes);
struct nvt_device {
    const char *path;
    int fd;
    uint64_t key, idle_key;
    const uint64_t *others; /* keys of other members that are there */
    size_t other_count;
};

/* The former keys and the idle one are registered no more, and the device takes writes of this host
 * alone, by `key`. Returns 0, or a negative errno and what is in the way: then `key` is not
 * registered. */
int nvt_device_reserve(const struct nvt_device *device, const uint64_t *formers, size_t count,
                       char *error, size_t error_bytes);
/* Where all members are active: this host may write beside the other members', and nobody else.
 * Returns 0, or a negative errno and what is in the way. */
int nvt_device_join(const struct nvt_device *device, char *error, size_t error_bytes);
/* The same: the former keys are registered no more, and `key` is. Returns 0, -EBADE: this member is
 * shut out itself, or another negative errno; and why. */
int nvt_device_fence(const struct nvt_device *device, const uint64_t *formers, size_t count,
                     char *error, size_t error_bytes);
/* Gives the device up, and leaves it reserved. One that has been preempted has nothing to give. */
void nvt_device_leave(const struct nvt_device *device);

/* look() of the kind `block`. */
int nvt_block_look(const struct nvt_backend_setup *setup, struct nvt_backend_look *out, char *error,
                   size_t error_bytes);

/* What a backend remembers of it. */
struct nvt_device_hold {
    struct nvt_device device; /* without a key: it is in no group, and reserves nothing */
    _Atomic int lost;
};

/* A backend is opened by that setup, has its claim, and `fd` is its descriptor. Where all members
 * are active, the device is joined. Returns 0, or a negative errno and why not. */
int nvt_device_hold_begin(struct nvt_device_hold *hold, const struct nvt_backend_setup *setup,
                          int fd, struct nvt_backend *backend, char *error, size_t error_bytes);
/* Before the descriptor is closed. */
void nvt_device_hold_end(const struct nvt_device_hold *hold);
/* The device has answered by Reservation Conflict: the status for the host, which then tries
 * another path; 0: this backend reserves nothing. */
uint16_t nvt_device_note_conflict(struct nvt_device_hold *hold);
/* The status that ends all I/O once the device is another one's; 0: it is not. */
uint16_t nvt_device_lost_status(const struct nvt_device_hold *hold);

#endif
