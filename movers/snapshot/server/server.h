/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Serves volumes of snapshots in memory, or in files below a folder: docs/snapshot-format.md, "The
 * server of a peer's memory". One thread, that of its loop, and one for each volume (volume.h).
 * Data never passes through it.
 */
#ifndef SW_SNAPSHOT_SERVER_H
#define SW_SNAPSHOT_SERVER_H

#include "common/serve/clients.h"
#include "snapshot/server/rules.h"
#include "snapshot/server/volume.h"
#include "snapshot/wire/message.h"

enum { SNAP_VOLUMES_MAX = 256 };

/* What the server has of a client. */
struct snap_guest {
    struct ibv_pd *pd; /* the grant's once there is one */
    struct in6_addr address, origin;
    bool is_here;               /* on the server's own host */
    struct snap_volume *volume; /* it has this one open; NULL: none */
    struct snap_grant *grant;
    uint64_t number;
};

struct snap_server_counts {
    uint64_t opens, take_overs, leaves, differences, flushes, removed, denied, malformed;
};

struct snap_server {
    /* The caller's. */
    uint64_t memory_bytes; /* of all volumes */
    const char *folder;    /* their files lie there; NULL: in memory */
    bool may_remove;
    struct snap_rules rules;
    /* Its own. */
    struct mover_clients clients;
    uint8_t instance[SNAP_WIRE_ID_BYTES];
    struct snap_volume *volumes[SNAP_VOLUMES_MAX]; /* NULL: a free place */
    struct snap_server_counts counts;
    uint64_t started_ns;
};

/* Serves by that loop from here on, with the volumes that are in the folder. 0, or a negative errno
 * and what is wrong; end it in any case. */
int snap_server_start(struct snap_server *server, struct mover_loop *loop, const char *address,
                      const char *port, char *error, size_t error_bytes);
void snap_server_end(struct snap_server *server);

/* ---- volumes.c ---- */

/* Frees the volumes that are GONE, and their places. One that was left empty ends in time. */
void snap_volumes_sweep(struct snap_server *server);
/* Volumes that were left empty end now. True: some volume is about to go, or may be. */
bool snap_volumes_make_room(struct snap_server *server);
struct snap_volume *snap_volumes_find(const struct snap_server *server, const char *name);
/* Begins to make one for this guest. NULL: there is no room, and why. */
struct snap_volume *snap_volumes_add(struct snap_server *server, const struct snap_guest *guest,
                                     const char *name, uint64_t bytes,
                                     char why[SNAP_WIRE_TEXT_BYTES]);
/* Opens the volumes that lie in the folder. 0, or a negative errno and what is wrong. */
int snap_volumes_load(struct snap_server *server, char *error, size_t error_bytes);
uint64_t snap_volumes_bytes(const struct snap_server *server);

/* ---- answer.c ---- */

/* Answers a message in place, as of struct mover_clients. */
bool snap_server_answer(void *server, uint8_t *message, uint32_t *bytes);
/* The connections that have it open end, but for that of the guest; NULL: all. */
void snap_server_end_users(struct snap_server *server, const struct snap_volume *volume,
                           const struct snap_guest *but);

/* A volume that nobody writes to goes, with its file; its readers are ended. WORKING: it is about
 * to go; NOT_FOUND: it is gone; BUSY, and why. */
enum snap_wire_status snap_server_remove(struct snap_server *server, const char *name,
                                         char why[SNAP_WIRE_TEXT_BYTES]);

/* ---- open.c ---- */

void snap_server_open(struct snap_server *server, struct snap_guest *guest,
                      const struct snap_wire_request *request, struct snap_wire_answer *answer);

/* ---- check.c ---- */

/* Sums the fresh blocks of the leaf there. OK, or DIFFERS and the first block of the volume that
 * does: where there is no leaf, that which should have it. Takes at most a millisecond or two. */
enum snap_wire_status snap_check_leaf(const struct snap_volume *volume, uint64_t offset,
                                      uint64_t *bad_block);

#endif
