/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a host may hold of the pool of a thread. Its share follows what is free: a controller holds
 * at most three times that, all controllers at one address together seven times. So one host alone
 * may have three quarters of the pool, and the next host finds memory, however long the first one
 * takes. (Dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.)
 * One that holds nothing may have a piece in any case.
 *
 * Requests that find no memory wait in their controller's order. Addresses take turns, and so do
 * the controllers at each: first comes whose last turn was the longest ago. A turn may find memory
 * in pieces that are too small, or its address with too much. So whoever holds nothing and waits
 * has a chunk of the pool gather for it, or has the other controllers at its address wait. Nobody
 * else is held up by that.
 */
#ifndef SW_MOVERS_NVME_SHARE_H
#define SW_MOVERS_NVME_SHARE_H

#include "common/base/list.h"
#include "common/pool/pool.h"

enum { NVT_ADDRESS_MAX = 64 }; /* of a host, as text */

struct nvt_share {
    struct list_node node;     /* of the thread's */
    struct list_node turn;     /* of addresses that wait for memory; or of the address's */
    struct nvt_share *address; /* what its address has together; NULL: this is that of an address */
    struct nvt_share *first;   /* of an address: whom all others there wait for; NULL: nobody */
    struct nvt_shares *shares;
    uint64_t ctrl_serial; /* whose it is; 0: an address */
    char name[NVT_ADDRESS_MAX];
    uint64_t held_bytes;
    uint64_t copied_bytes; /* of an address */
    uint32_t receives;     /* of an address: shared ones that its commands lie in */
    uint32_t users;        /* queues, pieces of memory, commands, shares of its controllers */
    bool is_in_turn;
    struct list starved; /* requests that wait; of an address: controllers that have some */
};

/* What a thread's hosts have. */
struct nvt_shares {
    struct list all;
    struct list turns; /* addresses that wait for memory */
    struct mover_pool *pool;
    struct nvt_share *kept_for; /* a chunk of the pool gathers for it; NULL: for nobody */
    uint64_t kept_ns;           /* since when */
};

void nvt_shares_init(struct nvt_shares *shares, struct mover_pool *pool);

/* A queue of that controller more. NULL: there is no memory. */
struct nvt_share *nvt_share_join(struct nvt_shares *shares, uint64_t ctrl_serial,
                                 const char *address);
/* It is freed with its last user. */
void nvt_share_release(struct nvt_share *share);

/* NULL: there is none for this host now. `mine_bytes` of what it holds are for the same request. */
uint8_t *nvt_share_take(struct nvt_share *share, uint32_t len_bytes, uint64_t mine_bytes);
void nvt_share_give(struct nvt_share *share, uint8_t *piece);

/* Copies of what it has sent, beside the pool: `left_bytes` are left for all hosts. False: not for
 * this one, since its address has its part of them. */
bool nvt_share_copy(struct nvt_share *share, uint32_t len_bytes, uint64_t left_bytes);
void nvt_share_drop_copy(struct nvt_share *share, uint32_t len_bytes);

/* A command of it lies in a shared receive. */
void nvt_share_keep_receive(struct nvt_share *share);
void nvt_share_give_receive(struct nvt_share *share);

/* A request of it waits; or one waits no longer. */
void nvt_share_wait(struct nvt_share *share, struct list_node *request);
void nvt_share_stop_waiting(struct nvt_share *share, struct list_node *request);
/* Shares that wait, in the order of their turns. NULL: there are no more. */
struct nvt_share *nvt_shares_first(const struct nvt_shares *shares);
struct nvt_share *nvt_shares_next(const struct nvt_share *share);
/* It has had its turn: those of all other addresses come before its next one, and those of the
 * other controllers at its own. */
void nvt_share_end_turn(struct nvt_share *share);
/* Its turn has come, and there was no such piece for it. True: others may find memory by that. */
bool nvt_share_miss_turn(struct nvt_share *share, uint32_t len_bytes, uint64_t now_ns);
/* Another one waits for memory. */
bool nvt_share_is_in_the_way(const struct nvt_shares *shares, const struct nvt_share *share);

#endif
