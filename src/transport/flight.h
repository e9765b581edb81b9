/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is on its way: the state of each PSN from the oldest that is not settled to the newest sent.
 * A READ's response packets count like packets. Its owner is a requester.
 *
 *   una <= seq < next; each is out, acked (settled out of order), or lost (to be sent again)
 *
 * Loss is found as by RACK (RFC 8985): a packet is lost when one sent sufficiently later has
 * arrived. So packets sent again are judged like others, and reordering is tolerated.
 */
#ifndef SW_TRANSPORT_FLIGHT_H
#define SW_TRANSPORT_FLIGHT_H

#include "transport/emission.h"
#include "transport/seq.h"

enum { SW_FLIGHT_WORDS = SW_FLIGHT_PACKETS / 64 };

struct sw_flight {
    uint32_t una, next;
    uint32_t seen; /* all that is known to have arrived lies before it */
    uint32_t acked_count, lost_count, again_count;
    uint32_t lost_from;              /* nothing before it is lost */
    uint32_t newest;                 /* when the latest-sent of what arrived was sent, in ticks */
    uint32_t newest_rtt;             /* how long it took */
    uint64_t acked[SW_FLIGHT_WORDS]; /* by the lower bits of the PSN */
    uint64_t lost[SW_FLIGHT_WORDS];  /* to be sent again */
    uint64_t again[SW_FLIGHT_WORDS]; /* has been sent more than once */
    uint32_t sent_at[SW_FLIGHT_PACKETS]; /* in ticks, when it was sent last */
};

/* Times within a flight are in ticks of 64 ns; they compare for 137 s. */
#define SW_FLIGHT_TICK_NS 64u
static inline uint32_t sw_flight_tick(uint64_t now_ns)
{
    return (uint32_t)(now_ns >> 6);
}

static inline uint64_t sw_flight_ticks_ns(uint32_t ticks)
{
    return (uint64_t)ticks << 6;
}

static inline bool sw_flight_bit(const uint64_t *bits, uint32_t seq)
{
    return bits[seq % SW_FLIGHT_PACKETS / 64] >> seq % 64 & 1;
}

/* Packets that may be on the wire or in a queue of it. */
static inline uint32_t sw_flight_out(const struct sw_flight *f)
{
    return f->next - f->una - f->acked_count - f->lost_count;
}

static inline uint32_t sw_flight_room(const struct sw_flight *f)
{
    return SW_FLIGHT_PACKETS - (f->next - f->una);
}

static inline bool sw_flight_has(const struct sw_flight *f, uint32_t seq)
{
    return seq - f->una < f->next - f->una;
}

void sw_flight_init(struct sw_flight *f, uint32_t seq);

/* [next, next+count) goes out; there must be room. */
static inline void sw_flight_send(struct sw_flight *f, uint32_t count, uint64_t now_ns)
{
    if (f->una == f->next)
        f->newest = sw_flight_tick(now_ns) - 1; /* what it was may be too long ago to compare */
    for (uint32_t i = 0; i < count; i++)
        f->sent_at[(f->next + i) % SW_FLIGHT_PACKETS] = sw_flight_tick(now_ns);
    f->next += count;
}

/* The next packet gets its PSN, but leaves behind all that goes out now; and: now it leaves. */
static inline void sw_flight_defer(struct sw_flight *f, uint64_t now_ns)
{
    f->sent_at[f->next++ % SW_FLIGHT_PACKETS] = sw_flight_tick(now_ns) + 1;
}

static inline void sw_flight_send_deferred(struct sw_flight *f, uint32_t seq, uint64_t now_ns)
{
    f->sent_at[seq % SW_FLIGHT_PACKETS] = sw_flight_tick(now_ns) + 1;
}

/* Whether something that left no earlier than the oldest has arrived before it. */
static inline bool sw_flight_is_overtaken(const struct sw_flight *f)
{
    return f->acked_count && (sw_flight_bit(f->again, f->una) ||
                              !sw_seq_is_before(f->newest, f->sent_at[f->una % SW_FLIGHT_PACKETS]));
}

/* [first, first+count) goes out again. */
void sw_flight_resend(struct sw_flight *f, uint32_t first, uint32_t count, uint64_t now_ns);

/* It has arrived (what was sent, or the answer that was asked for). false: that was known. */
bool sw_flight_ack(struct sw_flight *f, uint32_t seq, uint64_t now_ns);

/* It had arrived, but is not there any more. */
void sw_flight_unack(struct sw_flight *f, uint32_t seq);

/* Everything before `to` is settled. */
void sw_flight_advance(struct sw_flight *f, uint32_t to);

/* The latest of what is settled by a cumulative answer arrived now. */
void sw_flight_note_arrival(struct sw_flight *f, uint32_t seq, uint64_t now_ns);

void sw_flight_lose(struct sw_flight *f, uint32_t seq);

/* It is to be sent again although it has arrived: for the answer. */
void sw_flight_doubt(struct sw_flight *f, uint32_t seq);

/* All that is out from `from` on counts as lost (go-back-N). */
void sw_flight_lose_all(struct sw_flight *f, uint32_t from);

/* The oldest that is to be sent again; lost_count must not be 0. */
uint32_t sw_flight_first_lost(struct sw_flight *f);

/*
 * Finds what is lost, by what arrived that was sent later: at once with `patience` 0, otherwise
 * when it is overdue by that many ticks. Returns how many; *overdue is the tick when the next one
 * will be, valid if *waits.
 */
uint32_t sw_flight_find_lost(struct sw_flight *f, uint32_t patience, uint64_t now_ns, bool *waits,
                             uint32_t *overdue);

#endif
