/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring of requests, and time. What goes out is in emit.c, what comes in in answer.c. */
#include "transport/requester.h"

#include <assert.h>

#include "base/minmax.h"
#include "transport/requester_impl.h"

/* Go-back-N sends all again: it waits longer before it takes silence for loss, as long as hardware
 * with the usual `timeout` of 14, so that a guest that is emulated has its time. */
enum { PLAIN_FLOOR_FACTOR = 64 };
#define FLOOR_NS 1000000ull

void sw_requester_set_floor(struct sw_requester *r, uint32_t factor)
{
    uint64_t floor_ns = r->config.timer_floor_ns ? r->config.timer_floor_ns : FLOOR_NS;
    if (r->retry.floor_ns == 0 || floor_ns * factor < r->retry.floor_ns)
        r->retry.floor_ns = floor_ns * factor;
}

void sw_requester_init(struct sw_requester *r, const struct sw_requester_config *config,
                       struct sw_request *ring, uint32_t entries)
{
    uint32_t mtu = config->mtu_bytes;
    assert(mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0);
    assert(entries && (entries & (entries - 1)) == 0);
    assert(config->max_rd_atomic <= SW_READ_TRACK_MAX);
    uint32_t psn = config->first_psn & SW_PSN_MASK;
    r->config = *config;
    r->ring = ring;
    r->mask = entries - 1;
    r->done = r->sent = r->tail = 0;
    r->tail_seq = r->settled = psn;
    r->unasked = 0;
    r->mtu_shift = (uint8_t)__builtin_ctz(mtu);
    r->paused = r->dead = r->peer_selective = r->suspects = r->reorders = false;
    r->patience = 0;
    r->refused = SW_FAILURE_NONE;
    r->refused_syndrome = 0;
    r->refused_seq = psn;
    r->rnr_until_ns = 0;
    r->overdue_ns = r->paced_ns = SW_RETRY_NEVER;
    r->reads = (struct sw_read_track){0};
    r->counts = (struct sw_requester_counts){0};
    sw_retry_init(&r->retry, config->timeout, config->retry_cnt, config->rnr_retry);
    sw_retry_at_least(&r->retry, config->patience_min_ns);
    sw_requester_set_floor(r, PLAIN_FLOOR_FACTOR);
    /* When the timer runs out a packet goes: what only we keep back is no silence of the peer. */
    const struct sw_congestion_config congestion = {.packet_bytes = mtu,
                                                    .window_max = SW_FLIGHT_PACKETS,
                                                    .rate_max = config->rate_max,
                                                    .slack_ns = config->slack_ns,
                                                    .gap_max_ns = r->retry.timeout_ns};
    sw_congestion_init(&r->congestion, &congestion);
    sw_flight_init(&r->flight, psn);
}

static uint32_t requester_count_of(const struct sw_requester *r, const struct sw_request *request)
{
    switch ((enum sw_request_kind)request->kind) {
    case SW_REQUEST_SEND:
    case SW_REQUEST_WRITE:
    case SW_REQUEST_READ:
        if (request->len_bytes)
            return ((request->len_bytes - 1) >> r->mtu_shift) + 1;
        return 1;
    case SW_REQUEST_CMP_SWAP:
    case SW_REQUEST_FETCH_ADD:
    case SW_REQUEST_ATOMIC_WRITE:
    case SW_REQUEST_FLUSH:
        return 1;
    case SW_REQUEST_LOCAL:
        break;
    }
    return 0;
}

struct sw_request *sw_requester_room(struct sw_requester *r)
{
    return r->tail - r->done > r->mask ? NULL : sw_requester_at(r, r->tail);
}

void sw_requester_post_room(struct sw_requester *r)
{
    struct sw_request *slot = sw_requester_room(r);
    assert(slot);
    assert(r->config.service != SW_SERVICE_UC || !sw_request_is_answered(slot));
    slot->seq = r->tail_seq;
    slot->count = requester_count_of(r, slot);
    slot->is_split = false;
    r->tail_seq += slot->count;
    r->tail++;
}

bool sw_requester_post(struct sw_requester *r, const struct sw_request *request)
{
    struct sw_request *room = sw_requester_room(r);
    if (!room)
        return false;
    *room = *request;
    sw_requester_post_room(r);
    return true;
}

uint32_t sw_requester_find(const struct sw_requester *r, uint32_t seq)
{
    uint32_t low = r->done, high = r->sent == r->tail ? r->sent - 1 : r->sent;
    if (seq - sw_requester_at(r, low)->seq < sw_requester_at(r, low)->count)
        return low;
    while (low != high) { /* the last one that begins at or before it */
        uint32_t middle = low + (high - low + 1) / 2;
        if (sw_seq_is_before(seq, sw_requester_at(r, middle)->seq))
            high = middle - 1;
        else
            low = middle;
    }
    return low;
}

bool sw_requester_is_local(const struct sw_requester *r)
{
    return !r->dead && !r->paused && r->done == r->sent && r->sent != r->tail &&
           sw_requester_at(r, r->sent)->kind == SW_REQUEST_LOCAL;
}

void sw_requester_local_done(struct sw_requester *r)
{
    assert(sw_requester_is_local(r));
    r->done = ++r->sent;
}

void sw_requester_abandon(struct sw_requester *r)
{
    assert(r->config.service == SW_SERVICE_UC);
    r->done = r->sent = r->tail;
    r->tail_seq = r->flight.next; /* the peer finds a gap, and takes the next message */
}

void sw_requester_pause(struct sw_requester *r, bool paused)
{
    r->paused = paused;
}

bool sw_requester_is_drained(const struct sw_requester *r)
{
    bool begun = r->sent != r->tail && sw_requester_at(r, r->sent)->seq != r->flight.next;
    return r->done == r->sent && !begun;
}

void sw_requester_cnp(struct sw_requester *r, uint64_t now_ns)
{
    if (r->config.service != SW_SERVICE_UC && r->flight.una == r->flight.next)
        return; /* about nothing that is on its way */
    sw_congestion_on_cnp(&r->congestion, now_ns);
}

void sw_requester_fail(struct sw_requester *r, enum sw_failure failure, uint8_t syndrome,
                       struct sw_progress *out)
{
    r->dead = true;
    out->failure = failure;
    out->syndrome = syndrome;
}

void sw_requester_find_lost(struct sw_requester *r, uint64_t now_ns)
{
    /* Until the path has been seen to reorder, three later arrivals are proof (RFC 8985 6.2). */
    enum { PROOF = 3 };
    struct sw_flight *f = &r->flight;
    uint32_t patience = sw_flight_tick(r->retry.min_ns / 4) + 1;
    if (!r->reorders && f->acked_count >= PROOF)
        patience = 0;
    else if (patience < r->patience)
        patience = r->patience;
    bool waits;
    uint32_t overdue;
    uint32_t found = sw_flight_find_lost(f, patience, now_ns, &waits, &overdue);
    r->overdue_ns =
        waits ? now_ns + sw_flight_ticks_ns(overdue - sw_flight_tick(now_ns)) : SW_RETRY_NEVER;
    if (found)
        sw_congestion_on_loss(&r->congestion, found, now_ns);
}

/* Sends again the oldest that is known to be missing, or else what is at the end of all that is
 * out: its answer tells what is missing before. For a READ it sends all that is missing, since a
 * part of one that was never executed would count as one more.
 */
static void probe_peer(struct sw_requester *r)
{
    struct sw_flight *f = &r->flight;
    uint32_t seq = f->seen == f->una && f->lost_count == 0 ? f->next - 1 : f->una;
    while (seq != f->una && sw_flight_bit(f->acked, seq))
        seq--;
    r->retry.probed = true;
    r->counts.probes++;
    if (!sw_request_is_answered(sw_requester_at(r, sw_requester_find(r, seq)))) {
        sw_flight_doubt(f, seq);
        return;
    }
    struct sw_read_span span = sw_read_track_span(&r->reads, seq);
    for (uint32_t at = sw_seq_max(span.first, f->una); at != span.end; at++)
        sw_flight_lose(f, at);
}

/* Packets that the peer had kept may be gone by now (as RFC 2018 has it of SACK); answers are
 * not. */
static void forget_kept(struct sw_requester *r)
{
    struct sw_flight *f = &r->flight;
    uint32_t position = r->done;
    for (uint32_t seq = f->una; f->acked_count && seq != f->next; position++) {
        const struct sw_request *request = sw_requester_at(r, position);
        uint32_t end = sw_seq_min(request->seq + request->count, f->next);
        for (; seq != end; seq++)
            if (!sw_request_is_answered(request) && !sw_seq_is_before(seq, r->settled))
                sw_flight_unack(f, seq);
    }
}

static void expire_timer(struct sw_requester *r, uint64_t now_ns, struct sw_progress *out)
{
    if (!sw_retry_expire(&r->retry, now_ns)) {
        sw_requester_fail(r, SW_FAILURE_RETRY, 0, out);
        return;
    }
    r->counts.timeouts++;
    forget_kept(r);
    sw_flight_doubt(&r->flight, r->flight.una); /* all may have arrived, and the answer not */
    sw_flight_lose_all(&r->flight, r->flight.una);
    sw_congestion_on_timeout(&r->congestion, now_ns);
    r->suspects = true;
    r->overdue_ns = SW_RETRY_NEVER;
}

/* A window that is out may be probed only where go-back-N would not be the answer. */
static uint64_t probe_due_ns(const struct sw_requester *r)
{
    return r->peer_selective ? sw_retry_probe_due_ns(&r->retry) : SW_RETRY_NEVER;
}

void sw_requester_tick(struct sw_requester *r, uint64_t now_ns, struct sw_progress *out)
{
    *out = (struct sw_progress){.done = r->done};
    if (r->dead || now_ns < r->rnr_until_ns)
        return;
    r->rnr_until_ns = 0;
    if (now_ns >= r->overdue_ns)
        sw_requester_find_lost(r, now_ns);
    if (now_ns >= sw_retry_due_ns(&r->retry))
        expire_timer(r, now_ns, out);
    else if (now_ns >= probe_due_ns(r))
        probe_peer(r);
}

uint64_t sw_requester_due_ns(const struct sw_requester *r)
{
    if (r->dead)
        return SW_RETRY_NEVER;
    if (r->rnr_until_ns)
        return r->rnr_until_ns;
    uint64_t due = sw_min_u64(r->overdue_ns, sw_retry_due_ns(&r->retry));
    return sw_min_u64(sw_min_u64(due, probe_due_ns(r)), r->paced_ns);
}
