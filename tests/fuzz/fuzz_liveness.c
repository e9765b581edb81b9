/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lifelines: what peers, and strangers, can say of who lives. The first byte chooses: a word over
 * TCP or a MAD is decoded, and what is taken makes the same again; or the machine gets the events
 * that the other bytes name, in any order. Then whoever is dead stays dead, only a refusal while it
 * is looked after kills, and what waits has an end.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "link/roce/liveness/liveness.h"
#include "wire/liveness.h"

enum { WORD, MAD, CALLER, CALLED, CHOICES };
enum { RESERVED_AT = 6, KNOWN_EVENTS = SW_LIVENESS_TIME + 1, PING = KNOWN_EVENTS, PONG, ACTIONS };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check_word(const uint8_t *data, size_t size)
{
    struct sw_liveness_word word;
    uint8_t in[SW_LIVENESS_WORD_BYTES] = {0}, out[SW_LIVENESS_WORD_BYTES];
    memcpy(in, data, size < sizeof(in) ? size : sizeof(in));
    if (!sw_liveness_word_decode(in, &word))
        return;
    demand(word.kind >= SW_LIVENESS_HELLO && word.kind <= SW_LIVENESS_GOODBYE);
    sw_liveness_word_encode(&word, out);
    in[RESERVED_AT] = in[RESERVED_AT + 1] = 0;
    demand(memcmp(in, out, sizeof(in)) == 0);
}

static void check_mad(const uint8_t *data, size_t size)
{
    struct sw_liveness_mad message, again;
    uint8_t in[SW_MAD_BYTES] = {0}, once[SW_MAD_BYTES], twice[SW_MAD_BYTES];
    memcpy(in, data, size < sizeof(in) ? size : sizeof(in));
    if (!sw_liveness_mad_decode(in, &message))
        return;
    demand(message.kind >= SW_LIVENESS_MAD_ASK && message.kind <= SW_LIVENESS_MAD_INVITE);
    sw_liveness_mad_encode(&message, once);
    demand(sw_liveness_mad_decode(once, &again));
    sw_liveness_mad_encode(&again, twice);
    demand(memcmp(once, twice, sizeof(once)) == 0);
    demand(again.nonce == message.nonce && again.port == message.port &&
           again.caller == message.caller && again.called == message.called);
}

static void check_state(const struct sw_liveness *l, uint64_t now_ns)
{
    demand(l->due_ns > now_ns);
    switch (l->state) {
    case SW_LIVENESS_ASKING:
    case SW_LIVENESS_CALLING:
    case SW_LIVENESS_CHECKING:
        demand(l->due_ns != SW_LIVENESS_NEVER);
        break;
    case SW_LIVENESS_IDLE:
    case SW_LIVENESS_UP:
    case SW_LIVENESS_DEAD:
        break;
    }
    demand(!l->is_reached || l->state == SW_LIVENESS_CALLING);
    const bool may_live =
        l->state == SW_LIVENESS_UP || l->state == SW_LIVENESS_CHECKING || l->is_reached;
    demand(may_live || !sw_liveness_is_excused(l, now_ns));
}

static void take(struct sw_liveness *l, enum sw_liveness_event event, uint64_t now_ns)
{
    const enum sw_liveness_state before = l->state;
    const enum sw_liveness_step step = sw_liveness_take(l, event, now_ns);
    const bool dies = before == SW_LIVENESS_CHECKING && event == SW_LIVENESS_REFUSED;
    demand((step == SW_LIVENESS_BURY) == dies);
    demand((l->state == SW_LIVENESS_DEAD) == (dies || before == SW_LIVENESS_DEAD));
    demand(before != SW_LIVENESS_DEAD || step == SW_LIVENESS_NOTHING);
    demand(step != SW_LIVENESS_ASK || l->calls);
    demand(step != SW_LIVENESS_INVITE || !l->calls);
    demand(step != SW_LIVENESS_CALL || l->calls || l->state == SW_LIVENESS_CHECKING);
}

/* Each byte is something that happens, and how long after the one before. */
static void check_machine(const uint8_t *data, size_t size, bool calls)
{
    struct sw_liveness l;
    uint64_t now_ns = SW_NS_PER_S;
    sw_liveness_init(&l, calls);
    for (size_t i = 0; i < size; i++) {
        const uint32_t action = data[i] % ACTIONS, waits = data[i] / ACTIONS;
        now_ns += waits * waits * waits * SW_NS_PER_MS;
        if (action == SW_LIVENESS_TIME && l.due_ns != SW_LIVENESS_NEVER && now_ns < l.due_ns)
            now_ns = l.due_ns;
        if (now_ns >= l.due_ns) /* it is never kept from that */
            take(&l, SW_LIVENESS_TIME, now_ns);
        if (action == PING)
            sw_liveness_ping(&l, now_ns);
        else if (action == PONG)
            sw_liveness_pong(&l, waits % 2 ? l.pinged_ns : now_ns, waits, now_ns);
        else if (action != SW_LIVENESS_TIME)
            take(&l, (enum sw_liveness_event)action, now_ns);
        check_state(&l, now_ns);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    switch (data[0] % CHOICES) {
    case WORD:
        check_word(data + 1, size - 1);
        break;
    case MAD:
        check_mad(data + 1, size - 1);
        break;
    default:
        check_machine(data + 1, size - 1, data[0] % CHOICES == CALLER);
    }
    return 0;
}
