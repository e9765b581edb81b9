/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device with the target's own rules of reservations, which several hosts share. It is reached as
 * Linux reaches it: by commands of a namespace, or by the ioctls of block devices and commands of
 * SCSI.
 */
#ifndef SW_TESTS_RESERVING_DEVICE_H
#define SW_TESTS_RESERVING_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/target/model/reservation.h"

enum { RESERVING_NSID = 7, RESERVING_BLOCK_SHIFT = 12 };

struct reserving_device {
    struct nvt_reservation state;
    struct nvt_reservation_effect effect;
    struct nvt_host_id host; /* whose ioctls come */
    uint64_t blocks;
    uint32_t aborted; /* hosts whose commands a preemption has ended */
    bool takes_commands, lacks_reservations, lacks_memory, lacks_all_registrants;
    bool answers_as_scsi;  /* a conflict is a status of SCSI */
    bool lacks_reports;    /* who is registered is not told */
    bool names_one_holder; /* others that hold it with that one are answered by a conflict */
    bool ignores_preempt;
};

/* As ioctl(). */
int reserving_ioctl(struct reserving_device *device, unsigned long request, void *argument);

#endif
