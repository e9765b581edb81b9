/* SPDX-License-Identifier: BSD-2-Clause */
/* What this process has of the direct link. */
#ifndef SW_LINK_DIRECT_PROCESS_STATE_H
#define SW_LINK_DIRECT_PROCESS_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/lock.h"

struct sw_inbox;
struct sw_peer;

/* Which rungs SIDEWIRE_DIRECT leaves. */
struct sw_direct_modes {
    bool mapped, cma, ring;
};

struct sw_direct {
    pthread_mutex_t lock; /* peers, inboxes; leaf but for peer->lock and list_lock */
    /* The list of inboxes, for a thread that waits for all clients: it may be inside an allocator,
     * so nothing is allocated under it. An inbox leaves the list under both locks, without
     * users. */
    struct sw_lock list_lock;
    struct sw_direct_modes modes;
    bool off;
    bool has_packets; /* for those that refuse each other */
    struct sw_peer *peers;
    struct sw_inbox *inboxes;
    int listener;
    atomic_bool work;   /* peers or segments want the engine */
    atomic_uint turns;  /* of the engine */
    atomic_bool served; /* the engine has executed a peer's request since it last looked */
};
extern struct sw_direct sw_direct;
/* Reads SIDEWIRE_DIRECT; a word that it does not know is warned of. */
void sw_direct_read_modes(void);

#endif
