/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that keeps versions in cells of a namespace by the host's machine, and counts by
 * reservations, which must happen once. Target, network, controller and the program itself fail, by
 * one seed. Beside it stands what was answered, and what has happened.
 */
#ifndef SW_TEST_NVME_HOST_MACHINE_WORLD_H
#define SW_TEST_NVME_HOST_MACHINE_WORLD_H

#include "fabric.h"

struct world_result {
    const char *failure; /* NULL: none */
    unsigned restarts, losses, programs, reconnects, ok, maybe, undone, failed, unproved;
};

void world_run(uint64_t seed, enum fault_on_purpose fault, struct world_result *out);

#endif
