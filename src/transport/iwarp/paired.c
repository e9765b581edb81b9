/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection between two queue pairs of RoCE devices, which promise more than iWARP's do: a SEND
 * or WRITE is complete when the peer has it, a SEND without a receive waits, and what came before a
 * fault is answered. Both sides count the messages of requests ("units", wire/iwarp/pairing.h), and
 * TCP keeps them in order, so one number says all of that.
 */
#include <assert.h>

#include "transport/iwarp/iwarp_impl.h"
#include "wire/iwarp/pairing.h"

#define RNR_FOREVER 7

static bool is_after(uint32_t one, uint32_t other)
{
    return (int32_t)(one - other) > 0;
}

/* ---- this side's requests ---- */

bool sw_iwarp_paired_is_taken(const struct sw_iwarp *w, const struct sw_request *request)
{
    return !is_after(request->seq, w->paired.acked);
}

/* The peer has taken so many units. False: more than there were. */
static bool take_acked(struct sw_iwarp *w, uint32_t count)
{
    struct sw_iwarp_paired *p = &w->paired;
    if (is_after(count, p->out))
        return false;
    if (is_after(count, p->acked))
        p->acked = count;
    sw_iwarp_advance(w);
    return true;
}

/* READs that the peer has dropped, too, are asked again. */
static void forget_reads(struct sw_iwarp *w, uint32_t from)
{
    while (w->read_count) {
        const uint32_t last = (w->read_head + w->read_count - 1) % SW_IWARP_DEPTH_MAX;
        if (is_after(from, w->reads[last].position))
            return;
        w->read_count--;
    }
}

static void count_try(struct sw_iwarp *w, uint32_t position)
{
    struct sw_iwarp_paired *p = &w->paired;
    p->rnr_tries = p->rnr_tries && p->rnr_position == position ? p->rnr_tries + 1 : 1;
    p->rnr_position = position;
    p->is_exhausted = w->config.rnr_retry != RNR_FOREVER && p->rnr_tries > w->config.rnr_retry;
}

void sw_iwarp_paired_rewind(struct sw_iwarp *w)
{
    struct sw_iwarp_paired *p = &w->paired;
    uint32_t position = w->done;
    assert(!w->is_begun);
    if (!p->rewinds)
        return;
    p->rewinds = false;
    while (position != w->sent && !is_after(sw_iwarp_request_at(w, position)->seq, p->refused))
        position++;
    if (position == w->sent) { /* it refuses what it was not asked */
        sw_iwarp_refuse(w, SW_TERMINATE_UNSPECIFIED);
        return;
    }
    forget_reads(w, position);
    for (uint32_t i = position; i != w->sent; i++)
        sw_iwarp_request_at(w, i)->count = 0;
    w->sent = position;
    w->sent_bytes = 0;
    p->is_announced = false;
    p->waits = true;
    count_try(w, position);
}

void sw_iwarp_resume(struct sw_iwarp *w)
{
    struct sw_iwarp_paired *p = &w->paired;
    if (!p->waits || p->is_exhausted)
        return;
    p->waits = false;
    p->is_resume_due = true;
}

/* ---- the peer's ---- */

/* What begins or ends a unit of the peer's requests; answers do not. */
bool sw_iwarp_paired_is_unit(const struct sw_ddp_segment *segment)
{
    const uint8_t kind = segment->opcode->number;
    return kind != SW_RDMAP_READ_RESPONSE && kind != SW_RDMAP_TERMINATE &&
           kind != SW_RDMAP_ATOMIC_RESPONSE &&
           !(segment->opcode->body_len == SW_RDMAP_IMMEDIATE_BYTES &&
             segment->payload[0] > SW_PAIRING_IMM_OF_SEND);
}

void sw_iwarp_paired_count(struct sw_iwarp *w)
{
    w->paired.in += w->paired.ends_unit;
    w->paired.ends_unit = false;
}

void sw_iwarp_paired_put_off(struct sw_iwarp *w)
{
    struct sw_iwarp_paired *p = &w->paired;
    p->drops = p->is_rnr_due = true;
    p->has_imm = false;
    p->stopped_at = p->in;
    sw_iwarp_paired_count(w);
}

bool sw_iwarp_paired_take(struct sw_iwarp *w, const uint8_t *body)
{
    struct sw_iwarp_paired *p = &w->paired;
    struct sw_pairing_note note;
    sw_pairing_note_decode(body, &note);
    switch (note.kind) {
    case SW_PAIRING_IMM_OF_SEND:
        p->has_imm = true;
        p->imm_be = note.value;
        return true;
    case SW_PAIRING_TAKEN:
        return take_acked(w, note.value);
    case SW_PAIRING_RNR:
        p->rewinds = true;
        p->refused = note.value;
        p->rnr_timer = note.argument;
        return take_acked(w, note.value);
    case SW_PAIRING_RESUME:
        p->drops = p->has_imm = false;
        return true;
    case SW_PAIRING_BYE:
        p->has_left = true;
        return true;
    default:
        return false;
    }
}

/* ---- what is said ---- */

static void say_note(struct sw_iwarp *w, uint8_t kind, uint8_t argument, uint32_t value,
                     struct sw_iwarp_emission *out)
{
    const struct sw_pairing_note note = {.kind = kind, .argument = argument, .value = value};
    sw_pairing_note_encode(&note, sw_iwarp_body_at(out));
    sw_iwarp_write_single(w, SW_RDMAP_IMMEDIATE, SW_PAIRING_NOTE_BYTES, out);
}

void sw_iwarp_paired_announce(struct sw_iwarp *w, const struct sw_request *request,
                              struct sw_iwarp_emission *out)
{
    w->paired.is_announced = true;
    w->paired.out++;
    say_note(w, SW_PAIRING_IMM_OF_SEND, 0, request->imm_or_key, out);
}

/* Whether something leaves that a count can travel with, or it is to be told for itself. */
static bool is_count_due(const struct sw_iwarp *w)
{
    const struct sw_iwarp_paired *p = &w->paired;
    if (p->drops || (p->in == p->told && !p->is_greeting_due))
        return false;
    if (p->is_greeting_due)
        return true;
    return p->is_ack_due || w->is_due || w->answer_count ||
           (w->sent != w->tail && !sw_iwarp_paired_holds(w));
}

bool sw_iwarp_paired_say(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    struct sw_iwarp_paired *p = &w->paired;
    if (p->is_rnr_due) {
        p->is_rnr_due = p->is_greeting_due = false;
        p->told = p->in;
        say_note(w, SW_PAIRING_RNR, w->config.rnr_timer, p->stopped_at, out);
        return true;
    }
    if (is_count_due(w)) {
        p->told = p->in;
        p->is_ack_due = p->is_greeting_due = false;
        say_note(w, SW_PAIRING_TAKEN, 0, p->in, out);
        return true;
    }
    if (p->is_resume_due && !w->over) {
        p->is_resume_due = false;
        say_note(w, SW_PAIRING_RESUME, 0, 0, out);
        return true;
    }
    return false;
}

uint32_t sw_iwarp_untold(const struct sw_iwarp *w)
{
    return w->paired.drops ? 0 : w->paired.in - w->paired.told;
}

void sw_iwarp_tell(struct sw_iwarp *w)
{
    w->paired.is_ack_due = sw_iwarp_untold(w) != 0;
}

void sw_iwarp_greet(struct sw_iwarp *w)
{
    w->paired.is_greeting_due = true;
}

bool sw_iwarp_say_last(struct sw_iwarp *w, struct sw_iwarp_emission *out)
{
    struct sw_iwarp_paired *p = &w->paired;
    *out = (struct sw_iwarp_emission){.source = SW_PAYLOAD_NONE};
    if (w->is_due && !w->is_begun) { /* the Terminate has not left yet */
        sw_iwarp_emit_terminate(w, out);
        return true;
    }
    if (!w->config.is_paired || w->over || w->is_begun || p->has_left || p->has_said_bye)
        return false;
    if (sw_iwarp_untold(w)) {
        p->told = p->in;
        say_note(w, SW_PAIRING_TAKEN, 0, p->in, out);
        return true;
    }
    p->has_said_bye = true;
    say_note(w, SW_PAIRING_BYE, 0, 0, out);
    return true;
}

void sw_iwarp_pause(struct sw_iwarp *w, bool is_paused, uint32_t from)
{
    w->paired.is_paused = is_paused;
    w->paired.paused_from = from;
}

bool sw_iwarp_paired_holds(const struct sw_iwarp *w)
{
    const struct sw_iwarp_paired *p = &w->paired;
    return p->waits || (p->is_paused && !w->is_begun && !is_after(p->paused_from, w->sent));
}
