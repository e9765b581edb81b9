/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm/agreement.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/page.h"
#include "collectives/comm/peer.h"
#include "collectives/comm/recorder.h"
#include "collectives/comm/request.h"
#include "collectives/comm/send.h"
#include "common/time/clock.h"

static const uint64_t PIECE_MAX = 1 << 30; /* bytes: devices take up to 2 GiB in a request */

static const struct sw_coll_request *request_of_transfer(const struct coll_transfer *transfer)
{
    return LIST_MEMBER(transfer, const struct sw_coll_request, transfer);
}

/* ---- the port: this rank itself is reached by its own memory ---- */

static enum coll_posting put_note(void *context, uint32_t rank, const struct coll_note *note,
                                  const void *payload)
{
    struct sw_coll *coll = context;
    struct coll_peer *peer = &coll->peers[rank];
    if (rank != coll->site.rank)
        return coll_send_note(peer, note, payload);
    const uint32_t at = coll_note_at(&coll->layout, note->form == COLL_ROOM, note->mark);
    coll_put_note(peer->inbox + at, note, payload);
    return COLL_POSTED;
}

static enum coll_posting put_word(void *context, uint32_t rank, enum coll_word word, uint64_t value)
{
    struct sw_coll *coll = context;
    struct coll_peer *peer = &coll->peers[rank];
    if (rank != coll->site.rank)
        return coll_send_counter(peer, word, value);
    coll_word_write(peer->inbox + COLL_AT_WORDS + 8 * (uint32_t)word, value);
    return COLL_POSTED;
}

static enum coll_posting push_part(void *context, const struct coll_transfer *transfer,
                                   struct coll_memory to, uint64_t bytes, uint64_t *ticket)
{
    struct sw_coll *coll = context;
    const uint8_t *from = (const uint8_t *)transfer->data + transfer->pushed;
    if (transfer->peer == coll->site.rank) {
        memmove((void *)(uintptr_t)to.address, from, bytes);
        return COLL_POSTED;
    }
    const struct coll_deferred piece = {.kind = COLL_DEFER_PUSH,
                                        .move = COLL_NO_MOVE,
                                        .local = (uintptr_t)from,
                                        .lkey = request_of_transfer(transfer)->send->mr->lkey,
                                        .remote = to.address,
                                        .rkey = to.key,
                                        .bytes = bytes};
    return coll_send_push(&coll->peers[transfer->peer], &piece, ticket);
}

static bool push_has_settled(void *context, uint32_t rank, uint64_t ticket)
{
    struct sw_coll *coll = context;
    const struct coll_peer *peer = &coll->peers[rank];
    if (rank == coll->site.rank)
        return true;
    if (peer->done < ticket && peer->state == COLL_PEER_UP)
        coll_send_poll(coll);
    return peer->done >= ticket;
}

static const struct coll_note *look_for_note(void *context, uint32_t rank, bool is_room,
                                             uint64_t number)
{
    const struct sw_coll *coll = context;
    const uint8_t *inbox = coll->peers[rank].inbox;
    return coll_note_mark(&coll->layout, inbox, is_room, number) == number
               ? (const void *)(inbox + coll_note_at(&coll->layout, is_room, number))
               : NULL;
}

static uint64_t look_for_word(void *context, uint32_t rank, enum coll_word word)
{
    const struct sw_coll *coll = context;
    return coll_word_read(coll->peers[rank].inbox + COLL_AT_WORDS + 8 * (uint32_t)word);
}

bool coll_transfers_open(struct sw_coll *coll)
{
    struct coll_pair *pairs = calloc(coll->site.size, sizeof(*pairs));
    coll->pairs_port = (struct coll_pairs_port){.context = coll,
                                                .note = put_note,
                                                .word = put_word,
                                                .push = push_part,
                                                .has_settled = push_has_settled,
                                                .look = look_for_note,
                                                .look_word = look_for_word};
    if (pairs)
        coll_pairs_init(&coll->pairs, coll->site.rank, coll->site.size, coll->layout.short_bytes,
                        PIECE_MAX, &coll->pairs_port, pairs);
    return pairs;
}

void coll_transfers_close(struct sw_coll *coll)
{
    free(coll->pairs.pairs);
}

/* ---- all of them ---- */

static void fail_pairs(struct sw_coll *coll, enum sw_coll_status status)
{
    if (status == SW_COLL_MISMATCH)
        coll_conclude(coll, COLL_JUDGE_RANK + coll->site.rank, status, NULL,
                      coll->pairs.error.text);
    else
        coll_fail(coll, status, "%s", coll->pairs.error.text);
}

void coll_transfers_go(struct sw_coll *coll)
{
    struct list_node *at;
    if (coll->failure.is_set || list_is_empty(&coll->pairs.busy))
        return;
    const enum sw_coll_status status = coll_pairs_go(&coll->pairs);
    while ((at = list_first(&coll->pairs.over))) {
        struct sw_coll_request *request = LIST_MEMBER(at, struct sw_coll_request, transfer.node);
        list_remove(at);
        coll_request_end(request, SW_COLL_OK);
        coll->completions++; /* or it might be slept before the caller sees it */
    }
    if (status && status != SW_COLL_RANK_GONE)
        fail_pairs(coll, status);
    else if (status && !coll_failure_is_told(coll))
        coll_agreement_begin(coll, 0);
}

uint32_t coll_transfers_absent(const struct sw_coll *coll, bool *is_absent)
{
    uint32_t count = 0;
    struct list_node *at = list_first(&coll->pairs.busy);
    memset(is_absent, 0, coll->site.size * sizeof(*is_absent));
    for (; at; at = list_after(&coll->pairs.busy, at)) {
        const struct coll_pair *pair = LIST_MEMBER(at, struct coll_pair, node);
        if (pair->rank == coll->site.rank || !coll_pair_waits(pair))
            continue;
        is_absent[pair->rank] = true;
        count++;
    }
    return count;
}

/* What such a rank has sent before is there, and is looked at once more. */
bool coll_transfers_have_lost_any(struct sw_coll *coll)
{
    bool is_absent[SW_COLL_RANKS_MAX];
    if (list_is_empty(&coll->pairs.busy) || !coll_transfers_absent(coll, is_absent))
        return false;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        if (!is_absent[rank] || !coll_peer_has_closed(&coll->peers[rank]))
            continue;
        coll_transfers_go(coll);
        if (coll_pair_waits(&coll->pairs.pairs[rank]))
            return true;
    }
    return false;
}

/* ---- messages that no receive is for ---- */

/* What it has sent before it closed is there, and is looked at once more. */
static enum sw_coll_status probe_rank(struct sw_coll *coll, uint32_t rank,
                                      struct sw_coll_message *message)
{
    enum sw_coll_status status = coll_pairs_probe(&coll->pairs, rank, message);
    if (status == SW_COLL_AGAIN && rank != coll->site.rank &&
        coll_peer_has_closed(&coll->peers[rank])) {
        status = coll_pairs_probe(&coll->pairs, rank, message);
        if (status == SW_COLL_AGAIN)
            return SW_COLL_RANK_GONE;
    }
    return status;
}

bool coll_transfers_have_news(struct sw_coll *coll)
{
    struct sw_coll_message message;
    for (uint32_t rank = 0; coll->listened_count && rank < coll->site.size; rank++)
        if (coll->peers[rank].is_listened && probe_rank(coll, rank, &message) != SW_COLL_AGAIN)
            return true;
    return false;
}

/* ---- what programs call ---- */

static bool register_message(struct sw_coll_request *request)
{
    struct sw_coll *coll = request->coll;
    struct coll_transfer *transfer = &request->transfer;
    struct coll_region **place = transfer->is_send ? &request->send : &request->recv;
    transfer->memory = (struct coll_memory){(uintptr_t)transfer->data, 0};
    if (transfer->peer == coll->site.rank || !coll_transfer_is_long(&coll->pairs, transfer))
        return true;
    *place = coll_region_get(&coll->regions, transfer->data, transfer->bytes, !transfer->is_send);
    if (!*place)
        return false;
    transfer->memory.key = (*place)->mr->rkey;
    return true;
}

static enum sw_coll_status post_transfer(struct sw_coll *coll, struct coll_transfer transfer,
                                         uint64_t deadline_ns, struct sw_coll_error *error,
                                         struct sw_coll_request **out)
{
    enum sw_coll_status status = coll_request_may_post(coll, error);
    if (!status)
        status = coll_pairs_check(&coll->pairs, &transfer, error);
    if (status)
        return status;
    struct sw_coll_request *request = coll_request_take(coll, deadline_ns);
    if (!request)
        return coll_say(error, SW_COLL_NO_MEMORY, "out of memory");
    request->is_transfer = true;
    request->transfer = transfer;
    list_append(&coll->transfers, &request->node);
    *out = request;
    if (transfer.peer != coll->site.rank)
        coll_peer_want(&coll->peers[transfer.peer]); /* the other side may not be the one to dial */
    if (register_message(request)) {
        coll_pairs_post(&coll->pairs, &request->transfer);
        if (!coll->group_depth) {
            coll_transfers_go(coll);
            coll_request_show(coll, request);
        } else {
            coll_recorder_wait(coll, request, 0);
        }
    } else {
        coll_fail_here(coll, SW_COLL_NO_MEMORY, "its buffers cannot be registered: %s",
                       strerror(errno));
    }
    return SW_COLL_OK;
}

enum sw_coll_status sw_coll_send_tag_post(struct sw_coll *coll, uint32_t peer, uint64_t tag,
                                          const void *data, uint64_t count, enum sw_coll_type type,
                                          uint64_t deadline_ns, struct sw_coll_error *error,
                                          struct sw_coll_request **request)
{
    const struct coll_transfer transfer = {.is_send = true,
                                           .peer = peer,
                                           .data = (void *)(uintptr_t)data,
                                           .count = count,
                                           .tag = tag,
                                           .type = type};
    return post_transfer(coll, transfer, deadline_ns, error, request);
}

enum sw_coll_status sw_coll_send_post(struct sw_coll *coll, uint32_t peer, const void *data,
                                      uint64_t count, enum sw_coll_type type, uint64_t deadline_ns,
                                      struct sw_coll_error *error, struct sw_coll_request **request)
{
    return sw_coll_send_tag_post(coll, peer, 0, data, count, type, deadline_ns, error, request);
}

enum sw_coll_status sw_coll_recv_post(struct sw_coll *coll, uint32_t peer, void *data,
                                      uint64_t count, enum sw_coll_type type, uint64_t deadline_ns,
                                      struct sw_coll_error *error, struct sw_coll_request **request)
{
    const struct coll_transfer transfer = {
        .peer = peer, .data = data, .count = count, .type = type};
    return post_transfer(coll, transfer, deadline_ns, error, request);
}

enum sw_coll_status sw_coll_probe(struct sw_coll *coll, uint32_t peer,
                                  struct sw_coll_message *message, struct sw_coll_error *error)
{
    enum sw_coll_status status = coll_request_may_post(coll, error);
    if (status)
        return status;
    if (peer >= coll->site.size)
        return coll_say(error, SW_COLL_INVALID, "probe of rank %u of %u: there is none", peer,
                        coll->site.size);
    status = probe_rank(coll, peer, message);
    if (status == SW_COLL_RANK_GONE)
        return coll_say(error, status, "rank %u has closed or died, and sends no more", peer);
    if (status > SW_COLL_AGAIN) {
        fail_pairs(coll, status);
        return coll_say(error, status, "%s", coll->pairs.error.text);
    }
    return status;
}

void sw_coll_await(struct sw_coll *coll, uint32_t peer, const struct sw_coll_message *message)
{
    if (mover_is_forked(&coll->guard) || !coll_is_other(coll, peer))
        return;
    struct coll_peer *from = &coll->peers[peer];
    coll->awaited_count += (uint32_t)(message != NULL) - (uint32_t)from->is_awaited;
    from->is_awaited = message;
    from->awaited_ns = 0;
    if (message)
        from->awaited = *message;
    else if (!coll->awaited_count && list_is_empty(&coll->transfers))
        coll_page_rest(coll);
    else
        coll_page_refresh(coll, mover_now_ns(), true);
}

void sw_coll_await_ranks(struct sw_coll *coll, const bool *is_awaited, uint64_t since_ns)
{
    if (mover_is_forked(&coll->guard))
        return;
    coll->absent_count = 0;
    coll->absent_since_ns = since_ns;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        coll->peers[rank].is_absent = is_awaited && is_awaited[rank] && coll_is_other(coll, rank);
        coll->absent_count += coll->peers[rank].is_absent;
    }
    coll_page_refresh(coll, mover_now_ns(), true);
}

void sw_coll_listen(struct sw_coll *coll, uint32_t peer, bool is_listening)
{
    if (mover_is_forked(&coll->guard) || peer >= coll->site.size ||
        coll->peers[peer].is_listened == is_listening)
        return;
    coll->peers[peer].is_listened = is_listening;
    coll->listened_count = is_listening ? coll->listened_count + 1 : coll->listened_count - 1;
    if (is_listening && peer != coll->site.rank)
        coll_peer_want(&coll->peers[peer]);
}
