/* SPDX-License-Identifier: BSD-2-Clause */
/* What makes a line: where the other process listens is asked and told by MADs. */
#include <sys/random.h>

#include "device/nic/nic.h"
#include "link/roce/liveness/lifeline_impl.h"
#include "link/roce/mad.h"
#include "link/roce/port/arrival.h"
#include "wire/liveness.h"

#define TELLS_MAX 16u
#define COPIES 4u /* of a question that was not answered, by as many source ports */

void sw_lifeline_mads_ask(struct sw_lifeline *line)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    if (getrandom(&line->nonce, sizeof(line->nonce), GRND_NONBLOCK) != sizeof(line->nonce))
        return;
    line->asks = true;
}

static void take_mad(const struct sw_lifeline_mad *mad, uint64_t now_ns)
{
    const struct sw_liveness_mad *message = &mad->message;
    struct sw_lifeline *line = sw_lifeline_find(&mad->own, &mad->peer, message->from);
    if (!line || message->to != sw_nic.slot)
        return;
    const bool waits = line->liveness.state == SW_LIVENESS_ASKING;
    switch (message->kind) {
    case SW_LIVENESS_MAD_ASK:
        if (line->liveness.calls)
            return;
        line->nonce = message->nonce;
        line->tells += line->tells < TELLS_MAX;
        return;
    case SW_LIVENESS_MAD_TELL:
        if (!waits || line->nonce != message->nonce)
            return;
        line->port = message->port;
        line->caller = message->caller;
        line->called = message->called;
        sw_lifeline_take(line, SW_LIVENESS_TOLD, now_ns);
        return;
    case SW_LIVENESS_MAD_INVITE:
        sw_lifeline_take(line, SW_LIVENESS_MET, now_ns);
        return;
    }
}

void sw_lifeline_mads_take(uint64_t now_ns)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    for (uint32_t i = 0; i < sw_lifelines.mad_count; i++)
        take_mad(&sw_lifelines.mads[i], now_ns);
    sw_lifelines.mad_count = 0;
}

/* A line with something to be said by packets, which others than the engine may not let go of.
 * `attempt` and those after it, `copies` in all: which source ports. */
static struct sw_lifeline *next_mad(struct sw_liveness_mad *out, uint32_t *attempt,
                                    uint32_t *copies)
{
    sw_lock_acquire(&sw_lifelines.lock);
    struct sw_lifeline *line = sw_lifelines.lines;
    while (line && !line->asks && !line->tells && !line->invites)
        line = line->next;
    if (line) {
        *out = (struct sw_liveness_mad){.kind = line->asks    ? SW_LIVENESS_MAD_ASK
                                                : line->tells ? SW_LIVENESS_MAD_TELL
                                                              : SW_LIVENESS_MAD_INVITE,
                                        .from = (uint16_t)sw_nic.slot,
                                        .to = (uint16_t)line->slot,
                                        .nonce = line->nonce};
        if (out->kind == SW_LIVENESS_MAD_TELL) {
            sw_lifeline_callers_describe(line, out);
            line->tells--;
        }
        *copies = line->mads_sent && out->kind != SW_LIVENESS_MAD_TELL ? COPIES : 1;
        *attempt = line->mads_sent;
        line->mads_sent += *copies;
        line->asks = line->asks && out->kind != SW_LIVENESS_MAD_ASK;
        line->invites = line->invites && out->kind != SW_LIVENESS_MAD_INVITE;
    }
    sw_lock_release(&sw_lifelines.lock);
    return line;
}

void sw_lifeline_mads_send(void)
{
    struct sw_liveness_mad message;
    uint8_t mad[SW_MAD_BYTES];
    uint32_t attempt, copies;
    for (struct sw_lifeline *line; (line = next_mad(&message, &attempt, &copies));) {
        sw_liveness_mad_encode(&message, mad);
        while (copies--)
            sw_roce_send_mad(line->source.s6_addr, line->dest.s6_addr, line->ifindex, attempt++,
                             mad);
    }
}

bool sw_lifeline_take_mad(const struct sw_arrival *arrival, const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_liveness_mad message;
    if (!sw_liveness_mad_decode(mad, &message))
        return false;
    sw_lock_acquire(&sw_lifelines.lock);
    if (sw_lifelines.mad_count < SW_LIFELINE_MADS)
        sw_lifelines.mads[sw_lifelines.mad_count++] =
            (struct sw_lifeline_mad){arrival->dest, arrival->source, message};
    sw_lock_release(&sw_lifelines.lock);
    sw_lifeline_want_engine();
    return true;
}
