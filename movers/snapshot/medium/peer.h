/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer:ADDR[:PORT]/NAME, the memory of a server (docs/snapshot-format.md, "The server of a peer's
 * memory"). One connection has the data, by RDMA WRITE and READ, and the questions, a message and
 * its answer at a time. So a question comes behind all that was written before.
 *
 * A connection that is lost is made again, and what had no answer is begun again: the server ends
 * the old one first. Each file has a part: peer_link.c the connection, peer_ask.c the questions,
 * peer.c the ios.
 */
#ifndef SW_SNAPSHOT_PEER_H
#define SW_SNAPSHOT_PEER_H

#include "common/rdma/connection.h"
#include "common/rdma/fork_guard.h"
#include "snapshot/core/medium.h"
#include "snapshot/medium/ios.h"
#include "snapshot/medium/place.h"
#include "snapshot/wire/message.h"

enum { SNAP_PEER_SLOTS = 64, SNAP_PEER_WINDOW_BYTES = 64 << 20 };

enum snap_peer_stage {
    SNAP_PEER_AWAY, /* there is no connection, until retry_ns */
    SNAP_PEER_CONNECTING,
    SNAP_PEER_OPENING, /* the volume is being asked for */
    SNAP_PEER_OPEN,
};

struct snap_peer_scratch {
    uint8_t question[SNAP_WIRE_MESSAGE_MAX], answer[SNAP_WIRE_MESSAGE_MAX];
};

struct snap_peer {
    struct snap_medium medium; /* must be first */
    struct mover_fork_guard guard;
    char name[SNAP_WIRE_NAME_BYTES], where[96];
    struct sockaddr_storage to, from;
    bool has_from;
    uint64_t connect_ns, stall_ns; /* how long each may take */
    int timer_fd;

    /* The connection. */
    struct mover_connection connection;
    enum snap_peer_stage stage;
    uint64_t begun_ns; /* CONNECTING and OPENING: since when */
    uint64_t retry_ns, retry_wait_ns;
    struct ibv_context *verbs; /* the device, as long as the medium */
    struct ibv_pd *pd;
    struct ibv_mr *scratch_mr;
    struct snap_peer_scratch *scratch;
    struct snap_memories memories; /* a registration is an ibv_mr */
    char last_failure[200];        /* of the newest attempt */

    /* The volume, once it was open. */
    bool was_open;
    struct snap_wire_request open; /* what is asked of each connection */
    uint8_t instance[SNAP_WIRE_ID_BYTES], identity[SNAP_WIRE_ID_BYTES];
    uint64_t address;
    uint32_t key;
    uint64_t busy_until_ns; /* so long it asks again for a volume that another one has */

    /* The question that is asked. */
    bool is_asked; /* it is on its way */
    uint32_t tag;
    uint64_t again_ns, again_wait_ns; /* when it is asked again; 0: now */
    uint64_t ticket;                  /* of a FLUSH */

    struct snap_line waiting; /* WRITEs and READs that the device has no room for */
    struct snap_line asks;    /* CHECKs and FLUSHs, the first ones are asked */
    struct snap_line ended;
    struct snap_io *slots[SNAP_PEER_SLOTS]; /* with the device */
    uint32_t slots_busy;
    uint64_t bytes_busy;
    uint64_t
        progress_ns; /* when something was confirmed, or the first of what is under way began */
};

/* ---- peer_link.c ---- */

void snap_peer_connect(struct snap_peer *peer);
/* Ends the connection: all that was under way waits again. It is made anew in a moment. */
void snap_peer_drop(struct snap_peer *peer, const char *why);
/* What rdma_cm says, and what the device has completed. */
void snap_peer_take_events(struct snap_peer *peer);
/* Registers it, where the device is known. */
bool snap_peer_register(struct snap_peer *peer, struct snap_memory *memory);
/* Sends the question of so many bytes, and waits for its answer. */
void snap_peer_send(struct snap_peer *peer, size_t bytes);
/* Gives the device what it has room for. */
void snap_peer_push(struct snap_peer *peer);
void snap_peer_link_free(struct snap_peer *peer);

/* ---- peer_ask.c ---- */

/* Asks what is to be asked next, if the time has come. */
void snap_peer_ask(struct snap_peer *peer);
void snap_peer_answered(struct snap_peer *peer, size_t bytes);
/* A writer tells that it is done, so that the next one need not take over. */
void snap_peer_ask_close(struct snap_peer *peer);

/* ---- peer.c ---- */

/* Ends the medium and all of its ios. */
void snap_peer_fail(struct snap_peer *peer, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
