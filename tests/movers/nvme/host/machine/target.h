/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulated target: one controller at a time, cells in place of blocks, and a count in place of
 * reservations. It checks what a host owes a controller.
 */
#ifndef SW_TEST_NVME_TARGET_H
#define SW_TEST_NVME_TARGET_H

#include "fabric.h"

enum { TARGET_CELLS = 6, TARGET_CELL_BYTES = 64, TARGET_KEEP_ALIVE_MS = 1000 };

struct target {
    uint8_t cells[TARGET_CELLS][TARGET_CELL_BYTES];
    uint16_t cntlid; /* of the newest controller */
    bool is_there;   /* it is */
    bool is_enabled;
    uint64_t sign_ns; /* when it had a sign of life */
    /* What it is like. */
    bool has_capsules, traffic_counts, authenticates, lies; /* lies: cannot prove itself */
    bool wants_proof;                                       /* what the host knows of it */
    /* Told of each request that happens. */
    void (*happens)(const struct fabric_command *command);
};

extern struct target the_target;

/* A command has come by that link. */
void target_take(const struct fabric_link *link);
/* Does what the command says. `link`: NULL where its connection has ended. False: it waits on. */
bool target_execute(struct fabric_link *link, struct fabric_command *command);
/* Its controller is gone; cells stay. */
void target_restart(void);
/* Ends a controller that had no sign of life. */
void target_look(void);

#endif
