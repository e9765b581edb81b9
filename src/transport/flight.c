/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/flight.h"

#include <string.h>

#include "base/minmax.h"

static inline uint64_t *flight_word_of(uint64_t *bits, uint32_t seq)
{
    return &bits[seq % SW_FLIGHT_PACKETS / 64];
}

static inline uint64_t mask_of(uint32_t seq)
{
    return 1ull << seq % 64;
}

/* Clears a bit that may be set; returns 1 if it was. */
static inline uint32_t take_bit(uint64_t *bits, uint32_t seq)
{
    uint64_t *word = flight_word_of(bits, seq);
    uint32_t was = *word >> seq % 64 & 1;
    *word &= ~mask_of(seq);
    return was;
}

void sw_flight_init(struct sw_flight *f, uint32_t seq)
{
    memset(f, 0, sizeof(*f));
    f->una = f->next = f->seen = f->lost_from = seq;
}

void sw_flight_resend(struct sw_flight *f, uint32_t first, uint32_t count, uint64_t now_ns)
{
    for (uint32_t seq = first; seq != first + count; seq++) {
        if (sw_flight_bit(f->acked, seq))
            continue; /* within a READ that is asked for again to its end */
        f->lost_count -= take_bit(f->lost, seq);
        f->again_count += !sw_flight_bit(f->again, seq);
        *flight_word_of(f->again, seq) |= mask_of(seq);
        f->sent_at[seq % SW_FLIGHT_PACKETS] = sw_flight_tick(now_ns);
    }
}

void sw_flight_note_arrival(struct sw_flight *f, uint32_t seq, uint64_t now_ns)
{
    uint32_t sent = f->sent_at[seq % SW_FLIGHT_PACKETS];
    if (!sw_seq_is_before(sent, f->newest)) {
        f->newest = sent;
        f->newest_rtt = sw_flight_tick(now_ns) - sent;
    }
}

bool sw_flight_ack(struct sw_flight *f, uint32_t seq, uint64_t now_ns)
{
    if (sw_flight_bit(f->acked, seq))
        return false;
    *flight_word_of(f->acked, seq) |= mask_of(seq);
    f->acked_count++;
    f->lost_count -= take_bit(f->lost, seq);
    f->seen = sw_seq_max(f->seen, seq + 1);
    sw_flight_note_arrival(f, seq, now_ns);
    return true;
}

void sw_flight_unack(struct sw_flight *f, uint32_t seq)
{
    f->acked_count -= take_bit(f->acked, seq);
}

void sw_flight_advance(struct sw_flight *f, uint32_t to)
{
    if (f->acked_count | f->lost_count | f->again_count)
        for (uint32_t seq = f->una; seq != to; seq++) {
            f->acked_count -= take_bit(f->acked, seq);
            f->lost_count -= take_bit(f->lost, seq);
            f->again_count -= take_bit(f->again, seq);
        }
    f->una = to;
    f->seen = sw_seq_max(f->seen, to);
}

void sw_flight_lose(struct sw_flight *f, uint32_t seq)
{
    if (sw_flight_bit(f->lost, seq) || sw_flight_bit(f->acked, seq))
        return;
    f->lost_from = f->lost_count ? sw_seq_min(f->lost_from, seq) : seq;
    *flight_word_of(f->lost, seq) |= mask_of(seq);
    f->lost_count++;
}

void sw_flight_doubt(struct sw_flight *f, uint32_t seq)
{
    sw_flight_unack(f, seq);
    sw_flight_lose(f, seq);
}

void sw_flight_lose_all(struct sw_flight *f, uint32_t from)
{
    /* A peer may refuse what it had said to have. */
    for (uint32_t seq = sw_seq_max(from, f->una); seq != f->next; seq++)
        sw_flight_lose(f, seq);
}

uint32_t sw_flight_first_lost(struct sw_flight *f)
{
    uint32_t seq = sw_seq_max(f->lost_from, f->una);
    for (;;) {
        uint64_t rest = *flight_word_of(f->lost, seq) >> seq % 64;
        if (rest) {
            seq += (uint32_t)__builtin_ctzll(rest);
            break;
        }
        seq += 64 - seq % 64;
    }
    f->lost_from = seq;
    return seq;
}

uint32_t sw_flight_find_lost(struct sw_flight *f, uint32_t patience, uint64_t now_ns, bool *waits,
                             uint32_t *overdue)
{
    uint32_t now = sw_flight_tick(now_ns), found = 0;
    *waits = false;
    for (uint32_t seq = f->una; sw_seq_is_before(seq, f->seen); seq++) {
        uint64_t settled =
            (*flight_word_of(f->acked, seq) | *flight_word_of(f->lost, seq)) >> seq % 64;
        if (settled & 1) { /* on to the next that is open, within this word */
            uint32_t skip = ~settled ? (uint32_t)__builtin_ctzll(~settled) : 64;
            uint32_t left = 64 - seq % 64;
            seq += sw_min_u32(skip, left) - 1;
            continue;
        }
        uint32_t sent = f->sent_at[seq % SW_FLIGHT_PACKETS];
        if (!sw_seq_is_before(sent, f->newest) && sent != f->newest)
            continue; /* it went out after all that is known to have arrived */
        if (sent == f->newest && sw_flight_bit(f->again, seq))
            continue;
        uint32_t due = patience ? sent + f->newest_rtt + patience : now;
        if (!sw_seq_is_before(now, due)) {
            sw_flight_lose(f, seq);
            found++;
        } else if (!*waits || sw_seq_is_before(due, *overdue)) {
            *waits = true;
            *overdue = due;
        }
    }
    return found;
}
