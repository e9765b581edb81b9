/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collectives/comm/agreement.h"
#include "collectives/comm/dump.h"
#include "collectives/comm/page.h"
#include "collectives/comm/peer.h"
#include "collectives/comm/request.h"
#include "collectives/comm/send.h"
#include "collectives/comm/transfer.h"
#include "collectives/comm/wait.h"
#include "common/time/clock.h"

enum {
    FLUSH_MS = 5000,       /* of a peer that is only short of processor time */
    FLUSH_ABSENT_MS = 500, /* of one that has not come: it may be stopped */
    FLUSH_ENDED_MS = 50,   /* of one that ends, too: it wants this rank's confirmations */
};

enum sw_coll_status coll_say(struct sw_coll_error *error, enum sw_coll_status status,
                             const char *format, ...)
{
    va_list args;
    if (!error)
        return status;
    error->status = status;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return status;
}

void coll_log(const struct sw_coll_options *options, const char *line)
{
    if (options->log)
        options->log(options->log_context, line);
    else
        fprintf(stderr, "sidewire-coll: %s\n", line);
}

void coll_fail(struct sw_coll *coll, enum sw_coll_status status, const char *format, ...)
{
    va_list args;
    if (coll->failure.is_set && !coll->failure.is_agreeing)
        return;
    if (!coll->failure.is_set)
        coll_page_freeze(coll);
    coll->failure.is_set = coll->failure.is_ending = true;
    coll->failure.is_agreeing = coll->failure.is_telling = false;
    if (coll->failure.is_done) /* callers were told why */
        return;
    coll->failure.error.status = status;
    va_start(args, format);
    vsnprintf(coll->failure.error.text, sizeof(coll->failure.error.text), format, args);
    va_end(args);
}

void coll_conclude(struct sw_coll *coll, uint32_t judge, enum sw_coll_status status,
                   const bool *is_late, const char *text)
{
    if (coll->failure.is_set || coll_failure_is_told(coll))
        return;
    coll_agree_judge(&coll->agree, judge, status, text);
    for (uint32_t rank = 0; is_late && rank < coll->site.size; rank++)
        if (is_late[rank] && coll_is_other(coll, rank))
            coll_set_add(&coll->failure.late, rank);
    coll_agreement_begin(coll, 0);
}

void coll_fail_here(struct sw_coll *coll, enum sw_coll_status status, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    coll_fail(coll, status, "rank %u: %s", coll->site.rank, text);
}

/* ---- what others say ---- */

/* What an ABORT may be; a peer that says something else is broken. */
static enum sw_coll_status abort_status(uint64_t said)
{
    return said > SW_COLL_AGAIN && said <= SW_COLL_REVOKED && said != SW_COLL_FORKED
               ? (enum sw_coll_status)said
               : SW_COLL_PROTOCOL;
}

void coll_failure_get_text(char *text, const uint8_t *said)
{
    memcpy(text, said, COLL_TEXT_BYTES);
    text[COLL_TEXT_BYTES - 1] = '\0';
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
}

/* A rank that the others leave out is told so by its own bit, and tells nobody. */
static void take_abort(struct sw_coll *coll, const struct coll_peer *peer, uint64_t said)
{
    char text[COLL_TEXT_BYTES];
    coll_failure_get_text(text, peer->inbox + COLL_AT_TEXT);
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        if (!(peer->inbox[COLL_AT_GONE + rank / 8] & 1u << rank % 8))
            continue;
        if (coll_is_other(coll, rank))
            coll->peers[rank].is_gone = true;
        else
            coll->failure.is_outcast = true;
    }
    coll_fail(coll, abort_status(said), "%s", text);
}

bool coll_failure_is_told_by(struct coll_peer *peer)
{
    const uint64_t said = coll_word_read(peer->inbox + COLL_AT_ABORT);
    if (said)
        take_abort(peer->coll, peer, said);
    return said;
}

bool coll_failure_is_told(struct sw_coll *coll)
{
    bool has_votes = false;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        if (!coll_is_other(coll, rank))
            continue;
        if (coll_failure_is_told_by(&coll->peers[rank]))
            return true;
        has_votes = has_votes || coll_word_read(coll->peers[rank].inbox + COLL_AT_VOTE);
    }
    if (has_votes)
        coll_agreement_begin(coll, 0);
    return has_votes;
}

/* A rank has closed, or the connection with it has ended, though the operation needs it. `number`:
 * the newest that it is needed for. The end of a connection may be known long after a close. */
static bool has_lost_any(const struct sw_coll *coll, uint64_t number)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        const struct coll_peer *peer = &coll->peers[rank];
        if (coll_is_other(coll, rank) &&
            (coll_peer_has_quit(peer, number) ||
             (peer->state == COLL_PEER_ENDED && !coll_peer_has_left(peer, number))))
            return true;
    }
    return false;
}

/* A rank that has closed has ended the operation, and so has all that was sent to it. Its device
 * may never confirm that. */
static void let_leavers_go(struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        struct coll_peer *peer = &coll->peers[rank];
        if (!coll_is_other(coll, rank) || peer->signals_done == peer->signals_posted ||
            !coll_peer_has_left(peer, coll->number))
            continue;
        coll_peer_tear_down(peer);
        coll_send_settle(peer);
    }
}

/* It has closed or failed. So it wants no word any more, and may never confirm what it got. */
static bool has_said_its_last(const struct coll_peer *peer)
{
    return coll_word_read(peer->inbox + COLL_AT_LEFT) ||
           coll_word_read(peer->inbox + COLL_AT_ABORT);
}

bool coll_failure_is_near(const struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        const struct coll_peer *peer = &coll->peers[rank];
        if (coll_is_other(coll, rank) &&
            (peer->state == COLL_PEER_ENDED || has_said_its_last(peer) ||
             coll_word_read(peer->inbox + COLL_AT_VOTE)))
            return true;
    }
    return false;
}

/* A rank that has failed ends its connections when the others have its words. So those come before
 * the end of a connection. */
void coll_failure_look(struct sw_coll *coll)
{
    if (coll->failure.is_set || coll_failure_is_told(coll))
        return;
    let_leavers_go(coll);
    if (!has_lost_any(coll, coll->number) && !coll_transfers_have_lost_any(coll))
        return;
    if (!coll_failure_is_told(coll))
        coll_agreement_begin(coll, 0);
}

/* ---- the end ---- */

static bool has_unconfirmed(const struct sw_coll *coll, const bool *is_left_out, bool is_late)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        const struct coll_peer *peer = &coll->peers[rank];
        if (coll_is_other(coll, rank) && peer->state == COLL_PEER_UP && !is_left_out[rank] &&
            peer->signals_done != peer->signals_posted && !(is_late && has_said_its_last(peer)))
            return true;
    }
    return false;
}

static void flush_until(struct sw_coll *coll, const bool *is_left_out, bool is_late,
                        uint64_t until_ns)
{
    while (has_unconfirmed(coll, is_left_out, is_late) && mover_now_ns() < until_ns)
        if (!coll_send_poll(coll) && mover_queue_arm(&coll->queue))
            coll_take_events(coll, 1);
}

/* By operations, and by messages from rank to rank. */
static void find_awaited(const struct sw_coll *coll, bool *is_absent)
{
    bool is_awaited[SW_COLL_RANKS_MAX];
    if (coll->current)
        coll_machine_absent(&coll->machine, is_absent);
    coll_transfers_absent(coll, is_awaited);
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        is_absent[rank] |= is_awaited[rank];
}

void coll_failure_flush(struct sw_coll *coll)
{
    bool is_absent[SW_COLL_RANKS_MAX] = {false};
    const uint64_t now_ns = mover_now_ns();
    flush_until(coll, is_absent, false, now_ns + FLUSH_ENDED_MS * NS_PER_MS);
    flush_until(coll, is_absent, true, now_ns + FLUSH_ABSENT_MS * NS_PER_MS);
    if (coll->failure.is_set)
        find_awaited(coll, is_absent);
    flush_until(coll, is_absent, true, now_ns + FLUSH_MS * NS_PER_MS);
}

static void write_abort(struct coll_peer *peer, const struct sw_coll_error *why)
{
    const struct sw_coll *coll = peer->coll;
    memcpy(peer->outbox + COLL_AT_TEXT, why->text, COLL_TEXT_BYTES);
    memset(peer->outbox + COLL_AT_GONE, 0, COLL_GONE_BYTES);
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll->peers[rank].is_gone)
            peer->outbox[COLL_AT_GONE + rank / 8] |= (uint8_t)(1u << rank % 8);
    coll_send_forget(peer);
    coll_send_abort(peer, why->status);
}

void coll_failure_tell_late(struct coll_peer *peer, const struct sw_coll_error *why)
{
    peer->is_gone = true;
    write_abort(peer, why);
}

static void tell_all_of_abort(struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank))
            write_abort(&coll->peers[rank], &coll->failure.error);
    coll_failure_flush(coll);
}

void coll_failure_await(struct sw_coll *coll)
{
    const struct coll_failure *failure = &coll->failure;
    while (failure->is_set && (!failure->is_done || failure->is_agreeing)) {
        coll_failure_end(coll);
        if (!failure->is_done || failure->is_agreeing)
            coll_agreement_nap(coll);
    }
}

void coll_failure_end(struct sw_coll *coll)
{
    if (coll->failure.is_agreeing && coll_agreement_step(coll, true))
        coll_agreement_finish(coll);
    if (!coll->failure.is_ending)
        return;
    coll->failure.is_ending = false;
    coll->failure.is_done = coll->failure.is_over = true;
    if (!coll->failure.is_outcast)
        tell_all_of_abort(coll);
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank))
            coll_peer_tear_down(&coll->peers[rank]);
    coll_requests_fail(coll);
    coll_dump_failure(coll);
    coll_page_hide(coll); /* it does nothing any more */
}
