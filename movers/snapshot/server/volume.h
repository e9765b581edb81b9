/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A volume that is served, and its thread. The thread does what takes long: it gets the memory,
 * registers it, takes rights back, and writes a file to its disk. The server's loop asks for that
 * and looks later whether it is done: it never waits.
 *
 * A grant is the right of one connection to reach the volume. It is a registration in a protection
 * domain that this connection alone has, so its key is of no use to others. A writer is fenced once
 * its grant is gone: its queue pair was destroyed before, and the thread has deregistered.
 */
#ifndef SW_SNAPSHOT_VOLUME_H
#define SW_SNAPSHOT_VOLUME_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/serve/disk.h"
#include "snapshot/wire/message.h"

enum snap_volume_state {
    SNAP_VOLUME_MAKING, /* its memory is being got */
    SNAP_VOLUME_READY,
    SNAP_VOLUME_FAILED, /* it has none, or its disk has failed; `why` says so */
    SNAP_VOLUME_ENDING,
    SNAP_VOLUME_GONE, /* the thread has ended, and may be joined */
};

enum snap_grant_state { SNAP_GRANT_ASKED, SNAP_GRANT_GIVEN, SNAP_GRANT_REFUSED };

struct snap_grant {
    struct list_node node;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    bool may_write;
    enum snap_grant_state state;
    bool is_over; /* the connection is: the thread frees it, and the domain */
    /* A writer of this host, without a farewell: if it is stopped amid a store, it stores the rest
     * when it goes on, since a software device has such a peer store by itself. */
    bool may_store_late;
};

struct snap_volume {
    /* The loop's. */
    char name[SNAP_WIRE_NAME_BYTES], writer[SNAP_WIRE_WRITER_BYTES];
    uint8_t identity[SNAP_WIRE_ID_BYTES]; /* drawn when the server got to know it */
    uint8_t session[SNAP_WIRE_ID_BYTES];  /* of the newest writer, who draws it */
    uint64_t epoch;
    uint64_t client;        /* the number of the writer's connection; 0: there is none */
    struct in6_addr origin; /* whoever made it; of files that were there, nobody */
    uint32_t users;         /* connections that have it open */
    bool was_written;       /* it has had a superblock */
    uint64_t empty_ns;      /* since when it has been left empty; 0: it is not, or nobody knows */
    bool is_told;           /* why it has failed */
    /* As it was made. */
    char *path; /* of its file; NULL: memory */
    bool is_new;
    pthread_t thread;
    /* Under the lock, but for the memory itself once it is ready. */
    pthread_mutex_t lock;
    pthread_cond_t change;
    enum snap_volume_state state;
    bool is_to_unlink, is_to_end;
    bool is_at_rest; /* the thread waits: nobody moves the memory while the lock is held */
    uint64_t bytes;
    uint8_t *base;
    int fd; /* -1: memory */
    bool is_volatile;
    struct mover_disk disk;
    char why[SNAP_WIRE_TEXT_BYTES];
    int error; /* a negative errno: why it has failed */
    struct list grants;
    /* A store of a writer that is fenced may still come. Nobody gets a right until the memory is
     * replaced, which is once nobody has one. */
    bool is_doubtful;
    uint64_t flushes_asked, flushes_done;
};

/* Begins to make it: MAKING. `path` NULL: in memory; else its file, which is made if `is_new`. NULL
 * and errno: there is no memory, or no thread. */
struct snap_volume *snap_volume_make(const char *name, uint64_t bytes, const char *path,
                                     bool is_new);
/* What is so now, as of one moment. */
struct snap_volume_look {
    enum snap_volume_state state;
    bool is_doubtful, has_grants;
    uint64_t flushes_done;
};
struct snap_volume_look snap_volume_look(struct snap_volume *volume);

/* Asks for a right. The domain is the grant's from here on. NULL: there is no memory. */
struct snap_grant *snap_volume_ask(struct snap_volume *volume, struct ibv_pd *pd, bool may_write);
enum snap_grant_state snap_grant_state_of(struct snap_volume *volume,
                                          const struct snap_grant *grant);
/* The queue pairs of its domain are destroyed. It is the thread's from here on. */
void snap_grant_end(struct snap_volume *volume, struct snap_grant *grant, bool may_store_late);
/* The pages of a file cannot be replaced: a store that may still come is in the way for good. */
void snap_volume_doubt(struct snap_volume *volume);
/* Returns the ticket: that many flushes are done once all of before is on disk. */
uint64_t snap_volume_flush(struct snap_volume *volume);
/* Nobody has written a superblock yet. For whoever has a right to it: the memory stays then. */
bool snap_volume_is_blank(const struct snap_volume *volume);
/* The same of a volume that is READY, for whoever has none. BUSY: its thread is at work, and may
 * just replace the memory. */
enum snap_volume_content { SNAP_VOLUME_BLANK, SNAP_VOLUME_WRITTEN, SNAP_VOLUME_BUSY };
enum snap_volume_content snap_volume_content_of(struct snap_volume *volume);

/* It has no users. The thread ends, and then it is GONE; the file stays unless it is to go. */
void snap_volume_end(struct snap_volume *volume, bool is_to_unlink);
/* Waits for the thread, and frees it. */
void snap_volume_free(struct snap_volume *volume);

#endif
