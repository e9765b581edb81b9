/* SPDX-License-Identifier: BSD-2-Clause */
/* One end of the control protocol, played by the test against the engine of this very process. */
#ifndef SW_TEST_ATTACH_RIG_H
#define SW_TEST_ATTACH_RIG_H

#include <stdint.h>
#include <sys/types.h>

#include "../../link_rig.h"
#include "link/direct/process/control.h"

enum { FDS = 4, CALL_MS = 1000 };

_Static_assert(sizeof(struct sw_message) == 40, "the size is part of the protocol");

/* The slot of the process that is played; nobody else has it meanwhile. */
extern uint32_t played_slot;

struct owner {
    struct rig rig;
    int listener;
    int before; /* how many descriptors there were; -1: they are not counted */
    struct sw_peer *peer;
};

int count_fds(void);
void wait_fds(int count);
void send_message(int fd, const void *bytes, size_t len, const int *fds, int count);
ssize_t receive_message(int fd, struct sw_message *out, int fds[FDS]);
void hangs_up(int fd);
void close_all(const int fds[FDS]);

/* The listener of the slot that is played. */
int claim_slot(void);

/* To the engine, proved. */
int dial(void);

/* Waits until the engine is up and has let go of all who called before: descriptors can be counted.
 */
void settle(void);

/* The test is the owner of what the engine wants. */
int owner_up(void **state);
int owner_down(void **state);

/* The engine calls; returns its connection. -1: others alone have called. */
int answer_call(struct owner *owner);

#endif
