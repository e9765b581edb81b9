/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/port.h"

#include <assert.h>
#include <string.h>

#include "collectives/comm/send.h"
#include "common/base/minmax.h"

static const uint64_t PIECE_MAX = 1 << 30; /* bytes: devices take up to 2 GiB in a request */

static struct coll_peer *port_peer(struct sw_coll *coll, uint32_t rank)
{
    assert(coll_is_other(coll, rank));
    return &coll->peers[rank];
}

static bool write_mail(void *context, uint32_t rank, enum coll_slot slot,
                       const struct coll_record *record, const void *payload)
{
    struct sw_coll *coll = context;
    struct coll_peer *peer = port_peer(coll, rank);
    const uint32_t payload_bytes = payload ? record->payload_bytes : 0;
    assert(payload_bytes <= coll->layout.eager_bytes && (slot == COLL_OPEN || !payload_bytes));
    uint8_t *place = peer->outbox + coll_record_at(&coll->layout, record->mark, slot);
    if (payload_bytes)
        memcpy(place - payload_bytes, payload, payload_bytes);
    memcpy(place, record, sizeof(*record));
    return coll_send_mail(peer, slot, record->mark, payload_bytes);
}

static bool look_for_mail(void *context, uint32_t rank, enum coll_slot slot, uint64_t number,
                          struct coll_mail *mail)
{
    struct sw_coll *coll = context;
    const struct coll_peer *peer = port_peer(coll, rank);
    if (!coll_mail_is_there(&coll->layout, peer->inbox, number, slot))
        return false;
    const uint8_t *record = peer->inbox + coll_record_at(&coll->layout, number, slot);
    *mail = (struct coll_mail){.record = (const void *)record, .payload_end = record};
    return true;
}

/* The machine moves what lies in the operation's buffers, or in scratch. */
static uint32_t find_lkey(const struct sw_coll *coll, uint64_t address, uint64_t bytes)
{
    const struct sw_coll_request *request = coll->current;
    const uint64_t scratch = (uintptr_t)coll->scratch;
    if (address >= scratch && address - scratch < coll->site.scratch_bytes)
        return coll->scratch_mr->lkey;
    if (coll_region_has(request->recv, address, bytes))
        return request->recv->mr->lkey;
    assert(coll_region_has(request->send, address, bytes));
    return request->send->mr->lkey;
}

static bool post_moves(struct sw_coll *coll, uint32_t rank, struct coll_deferred piece)
{
    struct coll_peer *peer = port_peer(coll, rank);
    const uint32_t move = (uint32_t)(coll->moves_posted % COLL_MOVES);
    uint64_t left = piece.bytes;
    assert(coll->moves_posted - coll->moves_settled < COLL_MOVES);
    coll->moves_posted++;
    coll->moves[move] = false;
    piece.lkey = find_lkey(coll, piece.local, left);
    do {
        piece.bytes = mover_min_u64(left, PIECE_MAX);
        left -= piece.bytes;
        piece.move = left ? COLL_NO_MOVE : move;
        if (!coll_send_move(peer, &piece))
            return false;
        piece.local += piece.bytes;
        piece.remote += piece.bytes;
    } while (left);
    return true;
}

static bool pull_piece(void *context, uint32_t rank, void *to, struct coll_memory from,
                       size_t bytes)
{
    return post_moves(context, rank,
                      (struct coll_deferred){.kind = COLL_DEFER_PULL,
                                             .local = (uintptr_t)to,
                                             .remote = from.address,
                                             .rkey = from.key,
                                             .bytes = bytes});
}

static bool push_piece(void *context, uint32_t rank, const void *from, struct coll_memory to,
                       size_t bytes)
{
    return post_moves(context, rank,
                      (struct coll_deferred){.kind = COLL_DEFER_PUSH,
                                             .local = (uintptr_t)from,
                                             .remote = to.address,
                                             .rkey = to.key,
                                             .bytes = bytes});
}

static uint64_t count_settled(void *context)
{
    struct sw_coll *coll = context;
    if (coll->moves_settled < coll->moves_posted)
        coll_send_poll(coll);
    return coll->moves_settled;
}

static struct coll_memory find_shown(void *context, uint32_t rank)
{
    struct sw_coll *coll = context;
    const struct coll_card *card = &port_peer(coll, rank)->card;
    return (struct coll_memory){card->mailbox + coll_shown_at(&coll->layout, coll->site.size),
                                card->key};
}

void coll_port_open(struct sw_coll *coll)
{
    coll->port = (struct coll_port){.context = coll,
                                    .posts_max = COLL_MOVES,
                                    .mail = write_mail,
                                    .look = look_for_mail,
                                    .pull = pull_piece,
                                    .push = push_piece,
                                    .settled = count_settled,
                                    .shown = find_shown};
}
