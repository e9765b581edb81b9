/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/iwarp/start.h"

#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "wire/iwarp/terminate.h"

static void end_start(struct sw_iwarp_start *s, enum sw_iwarp_start_state state)
{
    s->state = state;
    s->due_ns = UINT64_MAX;
}

static void iwarp_fail_start(struct sw_iwarp_start *s, enum sw_iwarp_start_failure failure)
{
    s->failure = failure;
    end_start(s, SW_IWARP_FAILED);
}

static void refuse_reply(struct sw_iwarp_start *s, enum sw_terminate_cause cause)
{
    s->cause = (uint16_t)cause;
    end_start(s, SW_IWARP_REFUSED);
}

static void begin_start(struct sw_iwarp_start *s, const struct sw_iwarp_start_config *config)
{
    assert(config->revision == 1 || config->revision == 2);
    assert(config->ird <= SW_MPA_DEPTH_MAX && config->ord <= SW_MPA_DEPTH_MAX);
    assert(config->private_len <=
           SW_MPA_PRIVATE_MAX - (config->revision == 2 ? SW_MPA_NEGOTIATION_BYTES : 0));
    memset(s, 0, sizeof(*s));
    s->config = *config;
}

void sw_iwarp_start_connect(struct sw_iwarp_start *s, const struct sw_iwarp_start_config *config,
                            uint64_t now_ns)
{
    begin_start(s, config);
    const bool is_enhanced = config->revision == 2;
    const struct sw_mpa_frame request = {
        .flags =
            (uint8_t)((config->wants_crc ? SW_MPA_CRC : 0) | (is_enhanced ? SW_MPA_ENHANCED : 0) |
                      (config->wants_large ? SW_MPA_LARGE : 0)),
        .revision = config->revision,
        .peer_to_peer = config->is_peer_to_peer,
        .rtr = config->is_peer_to_peer ? config->rtr : 0,
        .ird = config->ird,
        .ord = config->ord,
        .private_len = config->private_len,
        .private_data = config->private_data,
    };
    s->out_len = (uint16_t)sw_mpa_encode(&request, s->out);
    s->state = SW_IWARP_ASKED;
    s->due_ns = now_ns + SW_IWARP_REPLY_NS;
}

void sw_iwarp_start_listen(struct sw_iwarp_start *s, const struct sw_iwarp_start_config *config,
                           uint64_t now_ns)
{
    begin_start(s, config);
    s->state = SW_IWARP_AWAITED;
    s->due_ns = now_ns + SW_IWARP_REQUEST_NS;
}

static bool is_large(const struct sw_iwarp_start *s, const struct sw_mpa_frame *peer)
{
    return s->config.wants_large && (peer->flags & SW_MPA_LARGE);
}

/* ---- the initiator reads the reply ---- */

static void agree_enhanced(struct sw_iwarp_start *s)
{
    const struct sw_mpa_frame *reply = &s->peer;
    if (reply->ord != SW_MPA_DEPTH_OPEN && reply->ord > s->config.ird) {
        refuse_reply(s, SW_TERMINATE_IRD); /* it would make more READs than are taken here */
        return;
    }
    if (reply->ird != SW_MPA_DEPTH_OPEN)
        s->terms.ord = sw_min_u16(s->terms.ord, reply->ird);
    if (s->terms.ord < s->config.ord_least) {
        refuse_reply(s, SW_TERMINATE_IRD);
        return;
    }
    if (reply->peer_to_peer) {
        const uint8_t common = reply->rtr & s->config.rtr;
        s->terms.rtr = common & -common; /* it says one; the first, if it says more */
        if (!s->terms.rtr) {
            refuse_reply(s, SW_TERMINATE_RTR);
            return;
        }
    }
    end_start(s, SW_IWARP_OPEN);
}

static void read_reply(struct sw_iwarp_start *s)
{
    const struct sw_mpa_frame *reply = &s->peer;
    s->terms = (struct sw_iwarp_terms){.crc = s->config.wants_crc || (reply->flags & SW_MPA_CRC),
                                       .large = is_large(s, reply),
                                       .ird = s->config.ird,
                                       .ord = s->config.ord};
    if (reply->flags & SW_MPA_REJECT)
        end_start(s, SW_IWARP_REJECTED);
    else if (reply->flags & SW_MPA_MARKERS)
        iwarp_fail_start(s, SW_IWARP_FAILURE_MARKERS);
    else if (reply->revision > s->config.revision)
        iwarp_fail_start(s, SW_IWARP_FAILURE_MALFORMED); /* it answers what was not asked */
    else if (s->config.revision == 2 && !sw_mpa_is_enhanced(reply))
        end_start(s, SW_IWARP_OLDER);
    else if (sw_mpa_is_enhanced(reply))
        agree_enhanced(s);
    else
        end_start(s, SW_IWARP_OPEN);
}

/* ---- the responder reads the request ---- */

static void start_read_request(struct sw_iwarp_start *s)
{
    if (s->peer.flags & SW_MPA_MARKERS) {
        sw_iwarp_start_reject(s, NULL, 0);
        iwarp_fail_start(s, SW_IWARP_FAILURE_MARKERS);
        return;
    }
    end_start(s, SW_IWARP_REQUESTED);
}

static struct sw_mpa_frame reply_to(const struct sw_iwarp_start *s)
{
    const struct sw_mpa_frame *request = &s->peer;
    const bool is_enhanced = sw_mpa_is_enhanced(request) && s->config.revision == 2;
    return (struct sw_mpa_frame){
        .is_reply = true,
        .flags = is_enhanced ? SW_MPA_ENHANCED : 0,
        .revision = is_enhanced ? 2 : 1,
        .peer_to_peer = is_enhanced && request->peer_to_peer,
    };
}

/* Prefer WRITE (asks for nothing), then READ (is answered), then SEND (could be taken for a
 * message). */
static uint8_t choose_rtr(uint8_t common)
{
    static const uint8_t order[] = {SW_MPA_RTR_WRITE, SW_MPA_RTR_READ, SW_MPA_RTR_SEND};
    for (size_t i = 0; i < sizeof(order); i++)
        if (common & order[i])
            return order[i];
    return 0;
}

/* As many READs as the peer may make where that is possible, and no more than it takes. */
static void choose_depths(struct sw_iwarp_start *s, struct sw_mpa_frame *reply)
{
    const struct sw_mpa_frame *request = &s->peer;
    reply->ird = reply->ord = SW_MPA_DEPTH_OPEN;
    if (request->ord != SW_MPA_DEPTH_OPEN)
        s->terms.ird = reply->ird = sw_min_u16(s->config.ird, request->ord);
    if (request->ird != SW_MPA_DEPTH_OPEN)
        s->terms.ord = reply->ord = sw_min_u16(s->config.ord, request->ird);
}

void sw_iwarp_start_accept(struct sw_iwarp_start *s, const struct sw_iwarp_start_config *config,
                           uint64_t now_ns)
{
    assert(s->state == SW_IWARP_REQUESTED);
    s->config = *config;
    struct sw_mpa_frame reply = reply_to(s);
    s->terms = (struct sw_iwarp_terms){.crc = config->wants_crc || (s->peer.flags & SW_MPA_CRC),
                                       .large = is_large(s, &s->peer),
                                       .ird = config->ird,
                                       .ord = config->ord};
    if (s->terms.crc)
        reply.flags |= SW_MPA_CRC;
    if (s->terms.large)
        reply.flags |= SW_MPA_LARGE;
    if (sw_mpa_is_enhanced(&reply)) {
        choose_depths(s, &reply);
        if (reply.peer_to_peer)
            s->terms.rtr = reply.rtr = choose_rtr(s->peer.rtr & config->rtr);
    }
    reply.private_len = config->private_len;
    reply.private_data = config->private_data;
    s->out_len = (uint16_t)sw_mpa_encode(&reply, s->out);
    s->state = SW_IWARP_ACCEPTED;
    /* Between peers the first message follows at once. Otherwise it comes when its program has
     * something to say. */
    s->due_ns = reply.peer_to_peer ? now_ns + SW_IWARP_REPLY_NS : UINT64_MAX;
}

void sw_iwarp_start_reject(struct sw_iwarp_start *s, const uint8_t *private_data,
                           uint16_t private_len)
{
    assert(s->state == SW_IWARP_REQUESTED || s->state == SW_IWARP_AWAITED);
    struct sw_mpa_frame reply = reply_to(s);
    reply.flags |= SW_MPA_REJECT;
    reply.flags |= s->peer.flags & SW_MPA_CRC;
    reply.private_len = private_len;
    reply.private_data = private_data;
    s->out_len = (uint16_t)sw_mpa_encode(&reply, s->out);
    end_start(s, SW_IWARP_REJECTED);
}

void sw_iwarp_start_first_came(struct sw_iwarp_start *s)
{
    assert(s->state == SW_IWARP_ACCEPTED);
    end_start(s, SW_IWARP_OPEN);
}

/* ---- bytes and time ---- */

/* How many of the bytes complete what is to be known next: the header, then the private data. */
static size_t wanted_of(const struct sw_iwarp_start *s)
{
    if (s->in_len < SW_MPA_HEADER_BYTES)
        return (size_t)SW_MPA_HEADER_BYTES - s->in_len;
    const size_t len = (size_t)s->in[SW_MPA_HEADER_BYTES - 2] << 8 | s->in[SW_MPA_HEADER_BYTES - 1];
    return SW_MPA_HEADER_BYTES + len - s->in_len;
}

size_t sw_iwarp_start_take(struct sw_iwarp_start *s, const uint8_t *bytes, size_t len)
{
    const bool asked = s->state == SW_IWARP_ASKED;
    enum sw_mpa_fault fault = SW_MPA_FAULT_SHORT;
    size_t used = 0;
    /* A connection that has not been accepted yet takes nothing. */
    if (s->state == SW_IWARP_REQUESTED && len) {
        iwarp_fail_start(s, SW_IWARP_FAILURE_MALFORMED);
        return 0;
    }
    if (!asked && s->state != SW_IWARP_AWAITED)
        return 0;
    for (int part = 0; part < 2 && fault == SW_MPA_FAULT_SHORT && used < len; part++) {
        const size_t wanted = wanted_of(s), left = len - used;
        const size_t count = sw_min_size(wanted, left);
        memcpy(s->in + s->in_len, bytes + used, count);
        s->in_len = (uint16_t)(s->in_len + count);
        used += count;
        fault = sw_mpa_check(s->in, s->in_len, asked);
    }
    if (fault == SW_MPA_FAULT_SHORT)
        return used;
    if (fault != SW_MPA_FAULT_NONE || (!asked && used < len)) {
        iwarp_fail_start(s, SW_IWARP_FAILURE_MALFORMED); /* also: bytes behind a request */
        return used;
    }
    sw_mpa_decode(s->in, &s->peer);
    if (asked)
        read_reply(s);
    else
        start_read_request(s);
    return used;
}

void sw_iwarp_start_closed(struct sw_iwarp_start *s)
{
    if (s->state <= SW_IWARP_ACCEPTED)
        iwarp_fail_start(s, SW_IWARP_FAILURE_CLOSED);
}

void sw_iwarp_start_tick(struct sw_iwarp_start *s, uint64_t now_ns)
{
    if (now_ns >= s->due_ns)
        iwarp_fail_start(s, SW_IWARP_FAILURE_TIMEOUT);
}
