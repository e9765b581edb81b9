/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reservation that a device itself keeps (NVMe Base 2.0 s8.19, SPC-4 s5.13), as the fence of a
 * group: of all hosts of the device, the one whose key is registered may write. It has nothing to
 * do with reservations that hosts of the target make; those are the group's, and in its log.
 *
 * The type is Write Exclusive - Registrants Only: the owner's host is the only registrant, so it
 * writes by all of its paths, and other members may look at the device.
 *
 * - Each take has a key of its own: the group, the member's slot, the epoch. The new owner
 *   registers, then ends the registrations of its formers by preempt-and-abort, which waits for
 *   what the device has under way of theirs, and then holds the reservation.
 * - An owner that gives the device up does not release it: without a reservation the device would
 *   take what a former still holds. It changes its key to the idle one of the group, which the next
 *   owner preempts, too.
 *
 * A device knows hosts, not processes. What another process of this host still has under way is
 * waited for by its lock, before this host is registered (fence_process.h).
 */
#ifndef SW_MOVERS_NVME_DEVICE_KEY_H
#define SW_MOVERS_NVME_DEVICE_KEY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/target/backend/backend.h"

/* The key of an owner; of nobody: the idle one. */
uint64_t nvt_device_key(const uint8_t identity[16], uint8_t slot, uint64_t epoch);
uint64_t nvt_device_idle_key(const uint8_t identity[16]);

/* Whether the device has reservations that outlast a loss of power. Changes nothing. Returns 0, or
 * a negative errno and why not. */
int nvt_device_may_reserve(int fd, const char *path, char *error, size_t error_bytes);
struct nvt_device {
    const char *path;
    int fd;
    uint64_t key, idle_key;
};

/* The former keys and the idle one are registered no more, and the device takes writes of this host
 * alone, by `key`. Returns 0, or a negative errno and what is in the way: then `key` is not
 * registered. */
int nvt_device_reserve(const struct nvt_device *device, const uint64_t *formers, size_t count,
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

/* A backend is opened by that setup, and `fd` is its descriptor. */
void nvt_device_hold_begin(struct nvt_device_hold *hold, const struct nvt_backend_setup *setup,
                           int fd, struct nvt_backend *backend);
/* Before the descriptor is closed. */
void nvt_device_hold_end(const struct nvt_device_hold *hold);
/* The device has answered by Reservation Conflict: the status for the host, which then tries
 * another path; 0: this backend reserves nothing. */
uint16_t nvt_device_note_conflict(struct nvt_device_hold *hold);
/* The status that ends all I/O once the device is another one's; 0: it is not. */
uint16_t nvt_device_lost_status(const struct nvt_device_hold *hold);

#endif
