/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/share.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How much more than what is free. */
enum { TIMES_OF_CTRL = 3, TIMES_OF_ADDRESS = 7, TIMES_OF_COPIES = 3 };

/* A chunk may gather for a host for so long. One that takes nothing may hold a piece of it. */
#define KEPT_NS 1000000000ull

void nvt_shares_init(struct nvt_shares *shares, struct mover_pool *pool)
{
    list_init(&shares->all);
    list_init(&shares->turns);
    shares->pool = pool;
    shares->kept_for = NULL;
}

static struct nvt_share *find_share(const struct nvt_shares *shares, uint64_t ctrl_serial,
                                    const char *address)
{
    for (struct list_node *node = list_first(&shares->all); node;
         node = list_after(&shares->all, node)) {
        struct nvt_share *share = LIST_MEMBER(node, struct nvt_share, node);
        if (share->ctrl_serial == ctrl_serial && (ctrl_serial || !strcmp(share->name, address)))
            return share;
    }
    return NULL;
}

static struct nvt_share *create_share(struct nvt_shares *shares, uint64_t ctrl_serial,
                                      const char *address)
{
    struct nvt_share *share = calloc(1, sizeof(*share));
    if (!share)
        return NULL;
    share->shares = shares;
    share->ctrl_serial = ctrl_serial;
    snprintf(share->name, sizeof(share->name), "%s", address);
    list_init(&share->starved);
    list_append(&shares->all, &share->node);
    return share;
}

static struct nvt_share *join_share(struct nvt_shares *shares, uint64_t ctrl_serial,
                                    const char *address)
{
    struct nvt_share *share = find_share(shares, ctrl_serial, address);
    if (!share)
        share = create_share(shares, ctrl_serial, address);
    if (share)
        share->users++;
    return share;
}

struct nvt_share *nvt_share_join(struct nvt_shares *shares, uint64_t ctrl_serial,
                                 const char *address)
{
    struct nvt_share *share = join_share(shares, ctrl_serial, address);
    if (!share || share->address)
        return share;
    share->address = join_share(shares, 0, address);
    if (share->address)
        return share;
    nvt_share_release(share);
    return NULL;
}

void nvt_share_release(struct nvt_share *share)
{
    assert(share->users);
    if (--share->users)
        return;
    struct nvt_share *address = share->address;
    list_remove(&share->node);
    free(share);
    if (address)
        nvt_share_release(address);
}

/* ---- memory ---- */

static bool may_hold(const struct nvt_share *share, uint64_t mine_bytes, uint64_t more_bytes,
                     uint64_t times)
{
    const uint64_t free_bytes = share->shares->pool->free_bytes;
    const uint64_t left_bytes = free_bytes > more_bytes ? free_bytes - more_bytes : 0;
    return share->held_bytes == mine_bytes || share->held_bytes + more_bytes <= times * left_bytes;
}

/* Nothing is kept for it any more, and nobody waits for it. */
static void forget_claims(struct nvt_share *share)
{
    struct nvt_shares *shares = share->shares;
    if (share->address->first == share)
        share->address->first = NULL;
    if (shares->kept_for != share)
        return;
    shares->kept_for = NULL;
    mover_pool_keep_no_more(shares->pool);
}

static uint8_t *share_take_piece(const struct nvt_share *share, uint32_t len_bytes)
{
    struct nvt_shares *shares = share->shares;
    uint8_t *piece = mover_pool_take(shares->pool, len_bytes);
    if (!piece && shares->kept_for == share)
        piece = mover_pool_take_kept(shares->pool, len_bytes);
    return piece;
}

uint8_t *nvt_share_take(struct nvt_share *share, uint32_t len_bytes, uint64_t mine_bytes)
{
    const uint64_t bytes = mover_pool_piece_bytes(len_bytes);
    assert(share->address && mine_bytes <= share->held_bytes);
    if (share->address->first && share->address->first != share)
        return NULL;
    if (!may_hold(share, mine_bytes, bytes, TIMES_OF_CTRL) ||
        !may_hold(share->address, mine_bytes, bytes, TIMES_OF_ADDRESS))
        return NULL;
    uint8_t *piece = share_take_piece(share, len_bytes);
    if (!piece)
        return NULL;
    forget_claims(share);
    share->held_bytes += bytes;
    share->address->held_bytes += bytes;
    share->users++;
    return piece;
}

void nvt_share_give(struct nvt_share *share, uint8_t *piece)
{
    struct mover_pool *pool = share->shares->pool;
    const uint64_t before_bytes = pool->free_bytes;
    mover_pool_give(pool, piece);
    assert(pool->free_bytes - before_bytes <= share->held_bytes);
    share->held_bytes -= pool->free_bytes - before_bytes;
    share->address->held_bytes -= pool->free_bytes - before_bytes;
    nvt_share_release(share);
}

bool nvt_share_copy(struct nvt_share *share, uint32_t len_bytes, uint64_t left_bytes)
{
    struct nvt_share *address = share->address;
    if (len_bytes > left_bytes ||
        address->copied_bytes + len_bytes > TIMES_OF_COPIES * (left_bytes - len_bytes))
        return false;
    address->copied_bytes += len_bytes;
    share->users++;
    return true;
}

void nvt_share_drop_copy(struct nvt_share *share, uint32_t len_bytes)
{
    assert(share->address->copied_bytes >= len_bytes);
    share->address->copied_bytes -= len_bytes;
    nvt_share_release(share);
}

void nvt_share_keep_receive(struct nvt_share *share)
{
    share->address->receives++;
    share->users++;
}

void nvt_share_give_receive(struct nvt_share *share)
{
    assert(share->address->receives);
    share->address->receives--;
    nvt_share_release(share);
}

/* ---- turns ---- */

static struct nvt_share *share_at(struct list_node *node)
{
    return node ? LIST_MEMBER(node, struct nvt_share, turn) : NULL;
}

static void enter_turns(struct list *turns, struct nvt_share *share)
{
    if (!share->is_in_turn)
        list_append(turns, &share->turn);
    share->is_in_turn = true;
}

static void leave_turns(struct nvt_share *share)
{
    list_remove(&share->turn);
    share->is_in_turn = false;
}

static void end_turn_of(struct list *turns, struct nvt_share *share)
{
    if (!share->is_in_turn)
        return;
    list_remove(&share->turn);
    list_append(turns, &share->turn);
}

void nvt_share_wait(struct nvt_share *share, struct list_node *request)
{
    list_append(&share->starved, request);
    enter_turns(&share->address->starved, share);
    enter_turns(&share->shares->turns, share->address);
}

void nvt_share_stop_waiting(struct nvt_share *share, struct list_node *request)
{
    assert(share->is_in_turn);
    list_remove(request);
    if (!list_is_empty(&share->starved))
        return;
    leave_turns(share);
    if (list_is_empty(&share->address->starved))
        leave_turns(share->address);
    forget_claims(share);
}

struct nvt_share *nvt_shares_first(const struct nvt_shares *shares)
{
    const struct nvt_share *address = share_at(list_first(&shares->turns));
    return address ? share_at(list_first(&address->starved)) : NULL;
}

struct nvt_share *nvt_shares_next(const struct nvt_share *share)
{
    struct nvt_share *next = share_at(list_after(&share->address->starved, &share->turn));
    if (next)
        return next;
    const struct nvt_share *address =
        share_at(list_after(&share->shares->turns, &share->address->turn));
    return address ? share_at(list_first(&address->starved)) : NULL;
}

void nvt_share_end_turn(struct nvt_share *share)
{
    end_turn_of(&share->address->starved, share);
    end_turn_of(&share->shares->turns, share->address);
}

/* One that holds something goes on by that. */
bool nvt_share_miss_turn(struct nvt_share *share, uint32_t len_bytes, uint64_t now_ns)
{
    struct nvt_shares *shares = share->shares;
    if (shares->kept_for == share && now_ns > shares->kept_ns + KEPT_NS) {
        forget_claims(share); /* the next one may find more, or this one in another chunk */
        nvt_share_end_turn(share);
        return true;
    }
    if (share->held_bytes || (share->address->first && share->address->first != share))
        return false;
    if (!may_hold(share->address, 0, mover_pool_piece_bytes(len_bytes), TIMES_OF_ADDRESS)) {
        share->address->first = share;
    } else if (!shares->kept_for) {
        mover_pool_keep(shares->pool);
        shares->kept_for = share;
        shares->kept_ns = now_ns;
    }
    return false;
}

bool nvt_share_is_in_the_way(const struct nvt_shares *shares, const struct nvt_share *share)
{
    const struct nvt_share *first = nvt_shares_first(shares);
    return share->held_bytes && first && (first != share || nvt_shares_next(first));
}
