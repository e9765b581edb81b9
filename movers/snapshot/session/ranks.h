/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the ranks of a program tell each other of a snapshot: by a communicator of collectives that
 * a thread of its own uses, since votes wait for the slowest rank and sinks should not.
 *
 * A snapshot has two votes. With BEGIN all say which step they begin. A rank that is at an earlier
 * step than another has lost that snapshot; those at the latest step ask again, until all are
 * there. With END each says whether it has prepared the snapshot.
 */
#ifndef SW_SNAPSHOT_RANKS_H
#define SW_SNAPSHOT_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/snapshot.h"

enum snap_phase { SNAP_PHASE_OPEN = 1, SNAP_PHASE_BEGIN, SNAP_PHASE_END };

struct snap_vote {
    uint64_t step;
    uint8_t nonce[16]; /* of OPEN: rank 0's counts */
    uint32_t phase, status;
    char why[160];
};

struct snap_answer {
    /* OK: all agree. SKIPPED: another rank is at a later step. OTHER_RANK and the text: a rank has
     * voted against it, died, or did not come. */
    struct sw_snap_error error;
    struct snap_vote mine;
    uint8_t nonce[16];
};

struct snap_ranks;

/* Waits for all ranks, and their votes whether they could open their sinks. `wake_fd` is an eventfd
 * that an answer makes readable. `nonce` is then rank 0's. */
enum sw_snap_status snap_ranks_open(const struct sw_snap_options *options, int wake_fd,
                                    const struct sw_snap_error *mine, uint8_t nonce[16],
                                    struct sw_snap_error *error, struct snap_ranks **ranks);
void snap_ranks_close(struct snap_ranks *ranks);
/* In a child of fork(): frees what is the child's. */
void snap_ranks_forget(struct snap_ranks *ranks);
/* Posts a vote; none is under way. */
void snap_ranks_ask(struct snap_ranks *ranks, const struct snap_vote *vote);
bool snap_ranks_asking(struct snap_ranks *ranks);
/* True, once: the vote has been answered. */
bool snap_ranks_answer(struct snap_ranks *ranks, struct snap_answer *answer);

#endif
