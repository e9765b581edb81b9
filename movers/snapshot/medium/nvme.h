/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nvme: as a medium. A writer holds the namespace by a reservation, write exclusive, and its last
 * block has the writer's claim. Each connection is another host to the controller, with an ID of
 * its own and the writer's key: it preempts the one before, and waits for what that had under way.
 * So what a lost connection left behind is done, or never will be, before it is sent again.
 *
 * A namespace without reservations has the claim alone. Its writer looks at it between its beats:
 * an older one that was stopped may write once more before it looks.
 */
#ifndef SW_SNAPSHOT_NVME_H
#define SW_SNAPSHOT_NVME_H

#include <sidewire/nvme.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rdma/fork_guard.h"
#include "snapshot/medium/claim.h"
#include "snapshot/medium/ios.h"
#include "snapshot/medium/place.h"

/* Own memory: the claim that is written, one that is read, the first two blocks of the volume, the
 * keys of a reservation, and the report of who has it. */
enum { SNAP_NVME_OWN_BLOCKS = 6, SNAP_NVME_REPORT_BYTES = 4096 };

enum snap_nvme_phase {
    SNAP_NVME_DOWN, /* until the next try */
    SNAP_NVME_CONNECTING,
    SNAP_NVME_REGISTERING,
    SNAP_NVME_REPORTING, /* who holds it */
    SNAP_NVME_RESERVING,
    SNAP_NVME_READING_CLAIM,
    SNAP_NVME_CLAIMING,
    SNAP_NVME_FLUSHING_CLAIM,
    SNAP_NVME_UP,
};

struct snap_nvme {
    struct snap_medium medium; /* must be first */
    struct mover_fork_guard guard;
    struct snap_place place; /* what the options point into */
    struct sw_nvme_options options;
    char hostid[37];
    uint32_t nsid, block_bytes, part_bytes, stall_ms;
    bool has_reservations, waits_for_nsid;

    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *own_mem;
    uint8_t *own;
    struct snap_memories memories;

    enum snap_nvme_phase phase;
    bool is_asking;  /* a command of the phase is under way */
    bool has_answer; /* and has ended */
    struct sw_nvme_result answer;
    bool takes;      /* the claim is to be written: this is an open */
    bool may_steal;  /* and whoever holds the namespace is preempted */
    bool was_free;   /* nobody held it, where this writer had */
    uint64_t orphan; /* key of a writer that died before its claim was there, and holds it; or 0 */
    uint64_t down_ns, retry_ns;

    struct snap_claim claim, found; /* the own; of the last writer */
    uint64_t claim_at, beat_ns;
    bool is_beating, is_looking;

    struct snap_line waiting, ended;
    struct snap_io *parting;   /* parts of it are still to be sent */
    uint32_t parts;            /* under way */
    uint64_t written, flushed; /* WRITEs that have ended; those that a FLUSH came behind */
    int fd_of_queue;           /* that is watched; -1: none */
    int timer_fd;
};

/* Starts a connection. 0, or a negative errno, and the medium has its sentence. */
int snap_nvme_connect(struct snap_nvme *n);
/* Goes on with it as far as it can; nothing waits. */
void snap_nvme_step(struct snap_nvme *n);
/* Ends the connection: what was under way ends by its callbacks. */
void snap_nvme_disconnect(struct snap_nvme *n);
/* The first connection, and what its namespace is. Blocks. 0, or a negative errno. */
int snap_nvme_look(struct snap_nvme *n, char *error, size_t error_bytes);
/* Becomes its writer, where it is writable. Blocks. */
int snap_nvme_take(struct snap_nvme *n, const struct snap_medium_options *options, char *error,
                   size_t error_bytes);
/* Gives claim and reservation back; waits a moment at most. */
void snap_nvme_let_go(struct snap_nvme *n);
/* A command that moves own memory, or none. */
struct sw_nvme_io snap_nvme_own_io(struct snap_nvme *n, uint32_t block, uint64_t offset,
                                   uint32_t bytes, sw_nvme_done *done);
/* The command that reports who holds the namespace; and, from its answer, the key of a writer of
 * snapshots that holds it, and whose claim is not the one that was found; 0: there is none. */
struct sw_nvme_io snap_nvme_report_io(struct snap_nvme *n, sw_nvme_done *done);
uint64_t snap_nvme_unclaimed(const struct snap_nvme *n);
int snap_nvme_errno(const struct sw_nvme_result *result);

#endif
