/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of one queue pair complete in order, so of many unsignalled ones the next that is
 * signalled tells. A message that is longer than the device takes inline is read from the outbox,
 * and asks for a completion itself: its place is written anew two operations later.
 */
#include "collectives/comm/send.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm/peer.h"

enum {
    WORD = 8,
    SPARE = 8, /* of a queue: doorbells, sleeps, words */
    SIGNAL_EVERY = 16,
    WCS = 16,
    POLLED_MAX = 256, /* completions in one go */
};

static const uint64_t IS_BELL = 1ull << 63;

/* A message whose mark lies behind all else of it, and how it is told. */
struct coll_marked {
    uint32_t begin, mark; /* where in the slice */
    uint32_t word;        /* of those that are told */
    uint64_t value;
};

static uint64_t slice_offset(const struct sw_coll *coll, uint32_t rank)
{
    return (uint64_t)rank * coll->layout.slice_bytes;
}

static bool send_has_room(const struct coll_peer *peer, uint32_t requests)
{
    return peer->posted - peer->done + requests <= COLL_SENDS;
}

/* ---- requests ---- */

static struct ibv_sge outbox_range(const struct coll_peer *peer, uint32_t at, uint32_t bytes)
{
    return (struct ibv_sge){
        .addr = (uintptr_t)peer->outbox + at, .length = bytes, .lkey = peer->coll->outbox_mr->lkey};
}

/* Into the slice that the peer has for this rank. */
static struct ibv_send_wr make_write(const struct coll_peer *peer, struct ibv_sge *range)
{
    const struct sw_coll *coll = peer->coll;
    const uint64_t at = range->addr - (uintptr_t)peer->outbox;
    return (struct ibv_send_wr){
        .opcode = IBV_WR_RDMA_WRITE,
        .sg_list = range,
        .num_sge = 1,
        .send_flags = range->length <= coll->inline_bytes ? IBV_SEND_INLINE : 0,
        .wr.rdma = {.remote_addr = peer->card.mailbox + slice_offset(coll, coll->site.rank) + at,
                    .rkey = peer->card.key}};
}

static bool send_post_list(struct coll_peer *peer, struct ibv_send_wr *first,
                           struct ibv_send_wr *last, uint32_t count, bool is_signaled,
                           struct coll_sent sent)
{
    struct ibv_send_wr *bad;
    const struct coll_sent *newest =
        &peer->signals[(peer->signals_posted + COLL_SENDS - 1) % COLL_SENDS];
    assert(send_has_room(peer, count));
    peer->posted += count;
    first->wr_id = last->wr_id = peer->rank;
    if (is_signaled || peer->posted - newest->posted >= SIGNAL_EVERY) {
        last->send_flags |= IBV_SEND_SIGNALED;
        sent.posted = peer->posted;
        peer->signals[peer->signals_posted++ % COLL_SENDS] = sent;
    }
    if (!ibv_post_send(peer->connection.id->qp, first, &bad))
        return true;
    coll_peer_lose(peer); /* a queue pair in error takes none */
    return false;
}

static void post_bell(struct coll_peer *peer, uint64_t wanted)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    peer->rung = wanted;
    send_post_list(peer, &wr, &wr, 1, false, (struct coll_sent){.kind = COLL_SENT_MAIL});
}

/* The peer sleeps, and was not woken from this sleep yet. What it is woken for was told before. */
static void ring_peer(struct coll_peer *peer)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    const uint64_t wanted = coll_word_read(peer->inbox + COLL_AT_SLEEP);
    if (wanted != peer->rung && send_has_room(peer, 1))
        post_bell(peer, wanted);
}

/* Before the post: ring_peer() has the fence between this and the look at the peer's sleep. */
static void tell_word(struct coll_peer *peer, uint32_t word, uint64_t value)
{
    coll_word_write(peer->inbox + COLL_AT_TOLD + 8 * word, value);
}

/* ---- messages ---- */

/* One WRITE where that becomes visible from its first byte to its last, else the mark goes behind
 * all else. `busy`: until when it is read from the outbox. */
static bool post_marked(struct coll_peer *peer, const struct coll_marked *what, uint64_t *busy)
{
    const uint32_t begin = what->begin, mark = what->mark;
    const bool is_whole = begin == mark || coll_word_read(peer->inbox + COLL_AT_WHOLE);
    const uint32_t first_bytes = (is_whole ? mark + WORD : mark) - begin;
    struct ibv_sge ranges[2] = {outbox_range(peer, begin, first_bytes),
                                outbox_range(peer, mark, WORD)};
    struct ibv_send_wr wrs[2] = {make_write(peer, &ranges[0]), make_write(peer, &ranges[1])};
    const uint32_t count = is_whole ? 1 : 2;
    const bool is_read_later = !(wrs[0].send_flags & IBV_SEND_INLINE);
    if (count == 2)
        wrs[0].next = &wrs[1];
    tell_word(peer, what->word, what->value);
    if (!send_post_list(peer, &wrs[0], &wrs[count - 1], count, is_read_later,
                        (struct coll_sent){.kind = COLL_SENT_MAIL}))
        return false;
    if (is_read_later)
        *busy = peer->posted;
    ring_peer(peer);
    return true;
}

/* It begins at a whole word, or the mark might be seen in part. */
static uint32_t begin_before(uint32_t record, uint32_t payload_bytes)
{
    return record - (payload_bytes + WORD - 1) / WORD * WORD;
}

static bool post_mail(struct coll_peer *peer, enum coll_slot slot, uint64_t number,
                      uint32_t payload_bytes)
{
    const uint32_t record = coll_record_at(&peer->coll->layout, number, slot);
    const struct coll_marked what = {.begin = begin_before(record, payload_bytes),
                                     .mark = record + (uint32_t)offsetof(struct coll_record, mark),
                                     .word = slot,
                                     .value = number};
    return post_marked(peer, &what, &peer->busy[number % 2][slot]);
}

bool coll_send_is_ready(const struct coll_peer *peer, uint64_t number)
{
    const uint64_t *busy = peer->busy[number % 2];
    return busy[COLL_OPEN] <= peer->done && busy[COLL_DONE] <= peer->done;
}

static bool post_move(struct coll_peer *peer, const struct coll_deferred *piece)
{
    struct ibv_sge range = {
        .addr = piece->local, .length = (uint32_t)piece->bytes, .lkey = piece->lkey};
    struct ibv_send_wr wr = {.opcode = piece->kind == COLL_DEFER_PULL ? IBV_WR_RDMA_READ
                                                                      : IBV_WR_RDMA_WRITE,
                             .sg_list = &range,
                             .num_sge = 1,
                             .wr.rdma = {.remote_addr = piece->remote, .rkey = piece->rkey}};
    return send_post_list(peer, &wr, &wr, 1, true,
                          (struct coll_sent){.kind = COLL_SENT_MOVE, .move = piece->move});
}

/* ---- what is kept ---- */

static struct coll_deferred *take_deferred_place(struct sw_coll *coll)
{
    struct coll_deferred *place = coll->free_deferred;
    if (place)
        coll->free_deferred = place->next;
    else
        place = malloc(sizeof(*place));
    return place;
}

static bool keep_for_later(struct coll_peer *peer, const struct coll_deferred *what)
{
    struct coll_deferred *place = take_deferred_place(peer->coll);
    if (!place)
        return false;
    *place = *what;
    place->next = NULL;
    *peer->last = place;
    peer->last = &place->next;
    peer->coll->deferred_count++;
    return true;
}

static void drop_first(struct coll_peer *peer)
{
    struct sw_coll *coll = peer->coll;
    struct coll_deferred *first = peer->first;
    peer->first = first->next;
    if (!peer->first)
        peer->last = &peer->first;
    first->next = coll->free_deferred;
    coll->free_deferred = first;
    coll->deferred_count--;
}

void coll_send_forget(struct coll_peer *peer)
{
    while (peer->first)
        drop_first(peer);
}

static bool may_post(struct coll_peer *peer)
{
    if (peer->state == COLL_PEER_UP && !send_has_room(peer, COLL_SENDS / 2))
        coll_send_poll(peer->coll);
    return peer->state == COLL_PEER_UP && send_has_room(peer, 2 + SPARE);
}

static bool post_piece(struct coll_peer *peer, const struct coll_deferred *what)
{
    return what->kind == COLL_DEFER_MAIL
               ? post_mail(peer, what->slot, what->number, what->payload_bytes)
               : post_move(peer, what);
}

void coll_send_deferred(struct coll_peer *peer)
{
    while (peer->first && peer->state == COLL_PEER_UP && send_has_room(peer, 2 + SPARE)) {
        const struct coll_deferred first = *peer->first;
        drop_first(peer);
        if (!post_piece(peer, &first))
            return;
    }
}

static bool send_or_keep(struct coll_peer *peer, const struct coll_deferred *what)
{
    if (!peer->first && may_post(peer) && !peer->first)
        return post_piece(peer, what);
    if (peer->state == COLL_PEER_ENDED)
        return coll_peer_has_left(peer, peer->coll->number); /* then it wants no word any more */
    coll_peer_want(peer);
    return keep_for_later(peer, what);
}

bool coll_send_mail(struct coll_peer *peer, enum coll_slot slot, uint64_t number,
                    uint32_t payload_bytes)
{
    return send_or_keep(peer, &(struct coll_deferred){.kind = COLL_DEFER_MAIL,
                                                      .slot = slot,
                                                      .number = number,
                                                      .payload_bytes = payload_bytes});
}

bool coll_send_move(struct coll_peer *peer, const struct coll_deferred *piece)
{
    return send_or_keep(peer, piece);
}

/* ---- messages from rank to rank ---- */

/* Where what was there before may be written anew, and the queue has room. */
static enum coll_posting may_post_now(struct coll_peer *peer, uint64_t busy)
{
    if (peer->state == COLL_PEER_UP && busy > peer->done)
        coll_send_poll(peer->coll);
    if (may_post(peer) && busy <= peer->done)
        return COLL_POSTED;
    if (peer->state == COLL_PEER_ENDED)
        return COLL_LOST;
    coll_peer_want(peer);
    return COLL_LATER;
}

enum coll_posting coll_send_note(struct coll_peer *peer, const struct coll_note *note,
                                 const void *payload)
{
    const bool is_room = note->form == COLL_ROOM;
    const uint32_t at = coll_note_at(&peer->coll->layout, is_room, note->mark);
    const struct coll_marked what = {.begin = begin_before(at, payload ? note->payload_bytes : 0),
                                     .mark = at + (uint32_t)offsetof(struct coll_note, mark),
                                     .word = is_room ? COLL_TOLD_ROOM : COLL_TOLD_NOTE,
                                     .value = note->mark};
    uint64_t *busy = &peer->notes_busy[is_room][note->mark % COLL_RING];
    const enum coll_posting posting = may_post_now(peer, *busy);
    if (posting != COLL_POSTED)
        return posting;
    coll_put_note(peer->outbox + at, note, payload);
    return post_marked(peer, &what, busy) ? COLL_POSTED : COLL_LOST;
}

enum coll_posting coll_send_counter(struct coll_peer *peer, enum coll_word word, uint64_t value)
{
    const uint32_t at = COLL_AT_WORDS + WORD * (uint32_t)word;
    const struct coll_marked what = {at, at, COLL_TOLD_WORD + (uint32_t)word, value};
    const enum coll_posting posting = may_post_now(peer, peer->words_busy[word]);
    if (posting != COLL_POSTED)
        return posting;
    coll_word_write(peer->outbox + at, value);
    return post_marked(peer, &what, &peer->words_busy[word]) ? COLL_POSTED : COLL_LOST;
}

enum coll_posting coll_send_push(struct coll_peer *peer, const struct coll_deferred *piece,
                                 uint64_t *ticket)
{
    const enum coll_posting posting = may_post_now(peer, 0);
    if (posting != COLL_POSTED)
        return posting;
    if (!post_move(peer, piece))
        return COLL_LOST;
    *ticket = peer->posted;
    return COLL_POSTED;
}

/* ---- words ---- */

void coll_send_word(struct coll_peer *peer, uint32_t at, uint64_t value)
{
    if (peer->state != COLL_PEER_UP || !send_has_room(peer, 1))
        return;
    struct ibv_sge range = outbox_range(peer, at, 8);
    struct ibv_send_wr wr = make_write(peer, &range);
    coll_word_write(peer->outbox + at, value);
    if (send_post_list(peer, &wr, &wr, 1, true, (struct coll_sent){.kind = COLL_SENT_MAIL}))
        ring_peer(peer);
}

void coll_send_abort(struct coll_peer *peer, enum sw_coll_status status)
{
    if (peer->state != COLL_PEER_UP || !send_has_room(peer, 3))
        return;
    struct ibv_sge range = outbox_range(peer, COLL_AT_TEXT, COLL_TEXT_BYTES + COLL_GONE_BYTES);
    struct ibv_send_wr wr = make_write(peer, &range);
    tell_word(peer, COLL_TOLD_ABORT, (uint64_t)status);
    if (send_post_list(peer, &wr, &wr, 1, true, (struct coll_sent){.kind = COLL_SENT_MAIL}))
        coll_send_word(peer, COLL_AT_ABORT, (uint64_t)status);
}

/* Also a peer is woken that sleeps until another one rings. */
bool coll_send_vote(struct coll_peer *peer, uint64_t number)
{
    if (peer->state != COLL_PEER_UP || !send_has_room(peer, 3))
        return false;
    struct ibv_sge ranges[2] = {outbox_range(peer, coll_vote_at(number), COLL_VOTE_BYTES),
                                outbox_range(peer, COLL_AT_VOTE, 8)};
    struct ibv_send_wr wrs[2] = {make_write(peer, &ranges[0]), make_write(peer, &ranges[1])};
    wrs[0].next = &wrs[1];
    coll_word_write(peer->outbox + COLL_AT_VOTE, number);
    tell_word(peer, COLL_TOLD_VOTE, number);
    if (!send_post_list(peer, &wrs[0], &wrs[1], 2, true,
                        (struct coll_sent){.kind = COLL_SENT_MAIL}))
        return false;
    peer->votes_busy = peer->posted;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    post_bell(peer, coll_word_read(peer->inbox + COLL_AT_SLEEP));
    return true;
}

bool coll_send_has_moves(const struct coll_peer *peer)
{
    if (peer->state != COLL_PEER_UP)
        return false;
    for (uint64_t i = peer->signals_done; i != peer->signals_posted; i++)
        if (peer->signals[i % COLL_SENDS].kind == COLL_SENT_MOVE)
            return true;
    return false;
}

/* ---- sleep ---- */

static void ask_what_is_told(struct coll_peer *peer)
{
    struct ibv_sge range = outbox_range(peer, COLL_AT_TOLD, 8 * COLL_TOLD_WORDS);
    struct ibv_send_wr wr = make_write(peer, &range);
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = 0;
    peer->stage = COLL_ASKING;
    send_post_list(peer, &wr, &wr, 1, true, (struct coll_sent){.kind = COLL_SENT_ASK});
}

bool coll_send_look(struct coll_peer *peer, uint64_t from, uint32_t bytes, uint64_t *ticket)
{
    const struct sw_coll *coll = peer->coll;
    const uint8_t *to = coll->outbox + slice_offset(coll, coll->site.rank);
    struct ibv_sge range = {.addr = (uintptr_t)to, .length = bytes, .lkey = coll->outbox_mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ,
                             .sg_list = &range,
                             .num_sge = 1,
                             .wr.rdma = {.remote_addr = from, .rkey = peer->card.key}};
    if (peer->state != COLL_PEER_UP || !send_has_room(peer, 1) ||
        !send_post_list(peer, &wr, &wr, 1, true, (struct coll_sent){.kind = COLL_SENT_LOOK}))
        return false;
    *ticket = peer->posted;
    return true;
}

void coll_send_tell(struct coll_peer *peer)
{
    struct ibv_sge range = outbox_range(peer, COLL_AT_SLEEP, 8);
    struct ibv_send_wr wr = make_write(peer, &range);
    if (!send_has_room(peer, 2))
        return;
    if (peer->bells != peer->wanted) { /* a doorbell that was not rung yet still holds */
        ask_what_is_told(peer);
        return;
    }
    peer->stage = COLL_TELLING;
    coll_word_write(peer->outbox + COLL_AT_SLEEP, ++peer->wanted);
    send_post_list(peer, &wr, &wr, 1, true, (struct coll_sent){.kind = COLL_SENT_TELL});
}

bool coll_send_has_arrived(const struct coll_peer *peer)
{
    const struct coll_layout *layout = &peer->coll->layout;
    const uint8_t *told = peer->outbox + COLL_AT_TOLD;
    for (uint32_t slot = 0; slot < COLL_SLOTS; slot++) {
        const uint64_t number = coll_word_read(told + 8 * slot);
        if (number && !coll_mail_is_there(layout, peer->inbox, number, (enum coll_slot)slot))
            return false;
    }
    for (uint32_t is_room = 0; is_room <= 1; is_room++) {
        const uint64_t number =
            coll_word_read(told + 8 * (is_room ? COLL_TOLD_ROOM : COLL_TOLD_NOTE));
        if (coll_note_mark(layout, peer->inbox, is_room, number) < number)
            return false;
    }
    for (uint32_t word = 0; word < COLL_WORDS; word++)
        if (coll_word_read(peer->inbox + COLL_AT_WORDS + 8 * word) <
            coll_word_read(told + 8 * (COLL_TOLD_WORD + word)))
            return false;
    return (!coll_word_read(told + 8 * COLL_TOLD_ABORT) ||
            coll_word_read(peer->inbox + COLL_AT_ABORT)) &&
           coll_word_read(told + 8 * COLL_TOLD_VOTE) <= coll_word_read(peer->inbox + COLL_AT_VOTE);
}

/* ---- completions ---- */

bool coll_send_expect_bell(struct coll_peer *peer)
{
    struct ibv_recv_wr wr = {.wr_id = IS_BELL | peer->rank}, *bad;
    return !ibv_post_recv(peer->connection.id->qp, &wr, &bad);
}

static void note_bell(struct coll_peer *peer)
{
    if (peer->bells != peer->wanted) /* else nobody has asked for it */
        peer->bells++;
    peer->stage = COLL_AWAKE;
    peer->coll->bells++;
    if (coll_send_expect_bell(peer))
        coll_peer_note_bell(peer);
    else
        coll_peer_lose(peer);
}

static void note_move(struct sw_coll *coll, uint32_t move)
{
    if (move >= COLL_MOVES)
        return;
    coll->moves[move] = true;
    while (coll->moves_settled < coll->moves_posted &&
           coll->moves[coll->moves_settled % COLL_MOVES])
        coll->moves_settled++;
}

static void send_note_sent(struct coll_peer *peer)
{
    if (peer->signals_done == peer->signals_posted)
        return;
    const struct coll_sent sent = peer->signals[peer->signals_done++ % COLL_SENDS];
    peer->done = sent.posted;
    if (sent.kind == COLL_SENT_MOVE)
        note_move(peer->coll, sent.move);
    else if (sent.kind == COLL_SENT_TELL && peer->stage == COLL_TELLING)
        ask_what_is_told(peer);
    else if (sent.kind == COLL_SENT_ASK && peer->stage == COLL_ASKING)
        peer->stage = coll_send_has_arrived(peer) ? COLL_SURE : COLL_UNDER_WAY;
}

bool coll_send_is_awaited(const struct coll_peer *peer)
{
    for (uint64_t at = peer->signals_done; at != peer->signals_posted; at++)
        if (peer->signals[at % COLL_SENDS].kind <= COLL_SENT_MOVE)
            return true;
    return peer->first;
}

void coll_send_settle(struct coll_peer *peer)
{
    while (peer->signals_done != peer->signals_posted) {
        const struct coll_sent sent = peer->signals[peer->signals_done++ % COLL_SENDS];
        peer->done = sent.posted;
        if (sent.kind == COLL_SENT_MOVE)
            note_move(peer->coll, sent.move);
        peer->coll->completions++; /* or it might be slept before operations go on */
    }
}

static void note_completion(struct sw_coll *coll, const struct ibv_wc *wc)
{
    const uint32_t rank = (uint32_t)wc->wr_id;
    assert(coll_is_other(coll, rank));
    struct coll_peer *peer = &coll->peers[rank];
    if (peer->state != COLL_PEER_UP && peer->state != COLL_PEER_ASKED)
        return;
    if (wc->status)
        coll_peer_lose(peer);
    else if (wc->wr_id & IS_BELL)
        note_bell(peer);
    else
        send_note_sent(peer);
    if (peer->first)
        coll_send_deferred(peer);
}

bool coll_send_poll(struct sw_coll *coll)
{
    struct ibv_wc wcs[WCS];
    int polled = 0, count;
    do {
        count = mover_queue_poll(&coll->queue, WCS, wcs);
        for (int i = 0; i < count; i++)
            note_completion(coll, &wcs[i]);
        polled += count > 0 ? count : 0;
        coll->completions += count > 0 ? (uint64_t)count : 0;
    } while (count == WCS && polled < POLLED_MAX);
    return polled;
}
