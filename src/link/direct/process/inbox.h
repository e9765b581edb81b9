/* SPDX-License-Identifier: BSD-2-Clause */
/* What we let a client write: the memory of one inbox (block.h), and who uses it. */
#ifndef SW_LINK_DIRECT_PROCESS_INBOX_H
#define SW_LINK_DIRECT_PROCESS_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/direct/process/block.h"

struct sw_inside;

struct sw_inbox {
    uint64_t number; /* no other one of this process has or had it */
    uint32_t slot;
    uint32_t blocks; /* that its memory has */
    int datagrams;   /* index of its ring among those that are received from; -1: none was free */
    int fd;
    uint8_t *base;
    uint64_t client_nonce;  /* 0: nobody attached yet */
    int socket;             /* of the attached client, or -1 */
    atomic_bool dead;       /* its client is gone: no more writers */
    atomic_bool stopped;    /* when last waited for, its client was stopped inside an access */
    _Atomic uint32_t users; /* blocks in use, and who waits for its client */
    uint32_t
        turn; /* where the search for a free block goes on, so that one is not used again soon */
    uint64_t used[SW_INBOX_BLOCKS / 64];
    struct sw_inbox *next;
};

struct sw_inbox *sw_inbox_get(uint32_t slot); /* direct.lock held */
/* True if it may be freed; direct.lock held. The engine does it. */
bool sw_inbox_unused(const struct sw_inbox *inbox);
/* Takes the inbox that *at refers to out of the list if it is unused; direct.lock held. */
bool sw_inbox_unlink_unused(struct sw_inbox **at);
void sw_inbox_free(struct sw_inbox *inbox);
/* Whether the process of a slot is attached here, so that its datagrams come by the direct link. */
bool sw_inbox_has_client(uint32_t slot);
/* A zeroed block for a QP towards that slot. */
int sw_inbox_take(uint32_t slot, struct sw_inbox **inbox, uint32_t *index);
/* Waits as sw_inbox_wait(). Returns who is inside still. */
struct sw_inside sw_inbox_give(struct sw_inbox *inbox, uint32_t index);
/* Whether that client is still in the same access. */
bool sw_inbox_is_inside(const struct sw_inside *inside);
/* Waits until the client's access section in a block is over; false if it went on for too long. */
bool sw_inbox_wait(struct sw_inbox *inbox, uint32_t index);
void sw_inbox_wait_all(void);

#endif
