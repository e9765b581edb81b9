/* SPDX-License-Identifier: BSD-2-Clause */
/* What peer asks its server, and what it makes of the answers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "snapshot/medium/peer.h"

enum { AGAIN_US = 200, AGAIN_MS_MAX = 20, BUSY_AGAIN_MS = 50 };

/* ---- questions ---- */

static void send_question(struct snap_peer *peer, struct snap_wire_request *request)
{
    request->tag = ++peer->tag;
    snap_peer_send(peer, snap_wire_put_request(peer->scratch->question, request));
}

/* All CHECKs that are first go in one message. */
static void ask_checks(struct snap_peer *peer)
{
    struct snap_wire_request request = {.type = SNAP_WIRE_CHECK};
    for (const struct snap_io *io = peer->asks.first;
         io && io->kind == SNAP_IO_CHECK && request.leaves_count < SNAP_WIRE_LEAVES_MAX;
         io = io->next)
        request.leaves[request.leaves_count++] = io->offset;
    send_question(peer, &request);
}

static void ask_flush(struct snap_peer *peer)
{
    struct snap_wire_request request = {.type = SNAP_WIRE_FLUSH, .ticket = peer->ticket};
    send_question(peer, &request);
}

void snap_peer_ask(struct snap_peer *peer)
{
    if (peer->is_asked || mover_now_ns() < peer->again_ns)
        return;
    if (peer->stage == SNAP_PEER_OPENING)
        send_question(peer, &peer->open);
    else if (peer->stage == SNAP_PEER_OPEN && peer->asks.first &&
             peer->asks.first->kind == SNAP_IO_CHECK)
        ask_checks(peer);
    else if (peer->stage == SNAP_PEER_OPEN && peer->asks.first)
        ask_flush(peer);
}

void snap_peer_ask_close(struct snap_peer *peer)
{
    struct snap_wire_request request = {.type = SNAP_WIRE_CLOSE};
    send_question(peer, &request);
}

/* It takes a while: less often each time. */
static void peer_ask_again(struct snap_peer *peer)
{
    peer->again_wait_ns =
        mover_min_u64(peer->again_wait_ns * 2 + AGAIN_US * NS_PER_US, AGAIN_MS_MAX * NS_PER_MS);
    peer->again_ns = mover_now_ns() + peer->again_wait_ns;
}

/* ---- answers ---- */

static const char *text_of(const struct snap_wire_answer *answer)
{
    return *answer->text ? answer->text : snap_wire_status_text(answer->status);
}

static void fail_lost(struct snap_peer *peer)
{
    snap_peer_fail(peer, -ECONNRESET,
                   "the server at %s was started anew, and does not know \"%s\" "
                   "any more as it was",
                   peer->where, peer->name);
}

static int code_of(enum snap_wire_status status)
{
    switch (status) {
    case SNAP_WIRE_NOT_FOUND:
        return -ENOENT;
    case SNAP_WIRE_BUSY:
        return -EBUSY;
    case SNAP_WIRE_NO_ROOM:
        return -ENOSPC;
    case SNAP_WIRE_DENIED:
        return -EACCES;
    case SNAP_WIRE_FENCED:
        return -ESTALE;
    case SNAP_WIRE_OTHER_VERSION:
        return -EPROTONOSUPPORT;
    case SNAP_WIRE_FAILED:
        return -EIO;
    case SNAP_WIRE_OK:
    case SNAP_WIRE_WORKING:
    case SNAP_WIRE_MALFORMED:
    case SNAP_WIRE_DIFFERS:
    case SNAP_WIRE_STATUSES:
        break;
    }
    return -EPROTO;
}

static void fail_by(struct snap_peer *peer, const struct snap_wire_answer *answer)
{
    if (answer->status == SNAP_WIRE_FENCED)
        snap_peer_fail(peer, -ESTALE, "another writer has taken over \"%s\" at %s", peer->name,
                       peer->where);
    else
        snap_peer_fail(peer, code_of(answer->status), "\"%s\" at %s: %s", peer->name, peer->where,
                       text_of(answer));
}

/* The writer before may have died just now, and the server has not seen it yet. */
static bool is_worth_a_moment(struct snap_peer *peer, const struct snap_wire_answer *answer)
{
    const uint64_t now_ns = mover_now_ns();
    if (answer->status != SNAP_WIRE_BUSY || now_ns >= peer->busy_until_ns)
        return false;
    peer->again_ns = now_ns + BUSY_AGAIN_MS * NS_PER_MS;
    return true;
}

static void peer_take_volume(struct snap_peer *peer, const struct snap_wire_answer *answer)
{
    struct snap_medium *medium = &peer->medium;
    memcpy(peer->instance, answer->instance, SNAP_WIRE_ID_BYTES);
    memcpy(peer->identity, answer->identity, SNAP_WIRE_ID_BYTES);
    medium->bytes = answer->bytes;
    medium->epoch = medium->is_writable ? answer->epoch : 0;
    medium->is_new = medium->is_writable && answer->flags & SNAP_WIRE_IS_BLANK;
    medium->is_volatile = answer->flags & SNAP_WIRE_IS_VOLATILE;
    if (medium->is_volatile)
        snprintf(medium->note, sizeof(medium->note),
                 "it lies in memory of %s, and is gone with that server", peer->where);
    peer->open.wishes = medium->is_writable ? SNAP_WIRE_WRITE | SNAP_WIRE_RESUME : 0;
    peer->was_open = true;
}

static void peer_opened(struct snap_peer *peer, const struct snap_wire_answer *answer)
{
    const bool is_same_server =
        !peer->was_open || !memcmp(peer->instance, answer->instance, SNAP_WIRE_ID_BYTES);
    const bool is_gone = peer->was_open && answer->status == SNAP_WIRE_NOT_FOUND;
    if (answer->status == SNAP_WIRE_WORKING) {
        peer_ask_again(peer);
        peer->begun_ns = mover_now_ns();
        return;
    }
    if (!is_same_server || is_gone) {
        fail_lost(peer);
        return;
    }
    if (answer->status) {
        if (!is_worth_a_moment(peer, answer))
            fail_by(peer, answer);
        return;
    }
    if (!peer->was_open)
        peer_take_volume(peer, answer);
    else if (memcmp(peer->identity, answer->identity, SNAP_WIRE_ID_BYTES) != 0 ||
             answer->bytes != peer->medium.bytes)
        return fail_lost(peer);
    peer->address = answer->address;
    peer->key = answer->key;
    peer->stage = SNAP_PEER_OPEN;
    peer->retry_wait_ns = 0;
    peer->again_ns = peer->again_wait_ns = 0;
}

static void leaves_checked(struct snap_peer *peer, const struct snap_wire_answer *answer)
{
    for (uint32_t i = 0; i < answer->leaves_done; i++) {
        if (!peer->asks.first || peer->asks.first->kind != SNAP_IO_CHECK)
            return snap_peer_fail(peer, -EPROTO, "%s has checked more than was asked", peer->where);
        snap_ended_add(&peer->ended, snap_line_take(&peer->asks), 0);
    }
    if (answer->status == SNAP_WIRE_DIFFERS && peer->asks.first &&
        peer->asks.first->kind == SNAP_IO_CHECK) {
        peer->asks.first->bad_block = answer->bad_block;
        snap_ended_add(&peer->ended, snap_line_take(&peer->asks), -EBADMSG);
    } else if (answer->status == SNAP_WIRE_OK && !answer->leaves_done) {
        snap_peer_fail(peer, -EPROTO, "%s checks nothing", peer->where);
    } else if (answer->status == SNAP_WIRE_DENIED) {
        snap_peer_drop(peer, "another connection has the volume"); /* and asks which one */
    } else if (answer->status) {
        fail_by(peer, answer);
    }
}

static void peer_flushed(struct snap_peer *peer, const struct snap_wire_answer *answer)
{
    if (answer->status == SNAP_WIRE_WORKING) {
        peer->ticket = answer->ticket;
        peer_ask_again(peer);
        return;
    }
    peer->ticket = 0;
    peer->again_ns = peer->again_wait_ns = 0;
    if (answer->status == SNAP_WIRE_DENIED)
        snap_peer_drop(peer, "another connection has the volume");
    else if (answer->status)
        fail_by(peer, answer);
    else if (peer->asks.first)
        snap_ended_add(&peer->ended, snap_line_take(&peer->asks), 0);
}

void snap_peer_answered(struct snap_peer *peer, size_t bytes)
{
    static __thread struct snap_wire_answer answer; /* too large for the stack */
    peer->is_asked = false;
    if (!snap_wire_get_answer(peer->scratch->answer, bytes, &answer) || answer.tag != peer->tag)
        return snap_peer_fail(peer, -EPROTO, "%s is no server of this protocol", peer->where);
    if (answer.status == SNAP_WIRE_OTHER_VERSION || answer.status == SNAP_WIRE_MALFORMED)
        return fail_by(peer, &answer);
    if (answer.type == SNAP_WIRE_OPEN && peer->stage == SNAP_PEER_OPENING)
        peer_opened(peer, &answer);
    else if (answer.type == SNAP_WIRE_CHECK)
        leaves_checked(peer, &answer);
    else if (answer.type == SNAP_WIRE_FLUSH)
        peer_flushed(peer, &answer);
}
