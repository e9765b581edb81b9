/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of unreliable connections (UC): nobody is told what is missing, and a message with a gap
 * is lost. */
#include "transport/responder_impl.h"

enum { LATE_MAX = 256 }; /* packets that are kept behind a gap */

/* Whether an unreliable peer that goes back in its PSNs was connected again, rather than that the
 * path delivers late or twice: it begins where it said it would, or after a silence, or goes on
 * from there. */
static bool has_begun_anew(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                           uint64_t now_ns)
{
    const uint64_t late_ns = 1000000, silence_ns = 100 * late_ns;
    enum { RUN = 8 };
    const uint64_t silent_ns = now_ns - r->heard_ns;
    const bool at_first = packet->bth.psn == (r->config.first_psn & SW_PSN_MASK);
    r->late_run = seq == r->late_next ? r->late_run + 1 : 1;
    r->late_next = seq + 1;
    return packet->opcode->position & SW_FIRST &&
           (silent_ns >= silence_ns || (at_first && silent_ns >= late_ns) || r->late_run > RUN);
}

/* A path of software may let packets of one flow pass each other by some microseconds, as a wire
 * never does. A packet that came early waits for that long, unless it is too much. */
static bool keep_unreliable(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                            uint64_t now_ns)
{
    const bool is_first = r->early.count == 0;
    if (sw_early_has(&r->early, r->expected, seq)) {
        r->counts.duplicates++;
        return true;
    }
    const bool is_kept = sw_early_keep(&r->early, r->expected, seq, packet);
    r->counts.early++;
    r->counts.kept += is_kept;
    if (is_first)
        r->gap_ns = now_ns;
    r->gives_up = !is_first && (!is_kept || r->early.count >= LATE_MAX);
    if (is_first || r->gives_up)
        r->gap_end = r->early.end;
    return is_kept || !is_first; /* one too many is as good as lost */
}

bool sw_unreliable_admit(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                         uint64_t now_ns, struct sw_demand *out)
{
    /* Late, or twice: it would be delivered out of order, and no older one is waited for. */
    if (sw_seq_is_before(seq, r->expected) && r->expected - seq <= SW_FLIGHT_PACKETS &&
        !has_begun_anew(r, packet, seq, now_ns)) {
        r->counts.duplicates++;
        return false;
    }
    if (sw_seq_is_before(r->expected, seq) && keep_unreliable(r, packet, seq, now_ns))
        return false;
    if (seq != r->expected)
        sw_early_clear(&r->early); /* of a life that is over */
    r->heard_ns = now_ns;
    r->late_run = 0;
    if (seq != r->expected || packet->opcode->position & SW_FIRST)
        r->under_way = false;
    r->expected = seq;
    sw_demand_describe(r, packet, seq, out);
    if (sw_demand_is_legal(r, out))
        return true;
    r->counts.malformed += out->first || r->under_way; /* else the rest of a lost message */
    r->under_way = false;
    r->expected = seq + 1;
    return false;
}

void sw_unreliable_conclude(struct sw_responder *r, const struct sw_demand *demand, bool lost)
{
    r->expected = demand->seq + 1;
    r->under_way = !lost && !demand->last;
}

void sw_responder_tick(struct sw_responder *r, uint64_t now_ns)
{
    if (r->config.service != SW_SERVICE_UC || now_ns < sw_responder_due_ns(r))
        return;
    r->gap_ns = now_ns;
    /* Packets that came behind a later gap wait for as long once more, at most. */
    r->gives_up = sw_seq_is_before(sw_early_first(&r->early, r->expected), r->gap_end);
    if (!r->gives_up)
        r->gap_end = r->early.end;
}

bool sw_unreliable_early(struct sw_responder *r, struct sw_packet *out)
{
    if (sw_early_take(&r->early, r->expected, out))
        return true;
    if (!r->gives_up)
        return false;
    const uint32_t next = r->early.count ? sw_early_first(&r->early, r->expected) : r->gap_end;
    r->gives_up = sw_seq_is_before(next, r->gap_end);
    if (!r->gives_up) {
        r->gap_end = r->early.end;
        return false;
    }
    r->expected = next;
    r->under_way = false;
    return sw_early_take(&r->early, next, out);
}
