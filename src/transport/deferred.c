/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/deferred.h"

#include <assert.h>

/* Whether a request is one packet, and like the one that left just now, in one burst. */
static bool continues_request(const struct sw_deferred *d, const struct sw_request *request,
                              uint64_t now_ns)
{
    return d->is_open && request->count == 1 && request->len_bytes == d->len_bytes &&
           d->burst_ns == now_ns && request->kind == d->kind && request->flags == d->flags;
}

/* Whether as many wait as there are long packets in a message. */
static bool is_full(const struct sw_deferred *d, uint32_t len_bytes)
{
    return d->count >= SW_DEFERRED_MAX || (d->count + 1) * len_bytes > SW_DEFERRED_SPAN_BYTES;
}

bool sw_deferred_goes_on(const struct sw_deferred *d, const struct sw_request *request,
                         uint64_t now_ns)
{
    return continues_request(d, request, now_ns) && !is_full(d, request->len_bytes);
}

bool sw_deferred_wants(const struct sw_deferred *d, const struct sw_request *request,
                       const struct sw_request *next, uint64_t now_ns)
{
    if (d->is_refused || request->count != 1 || request->len_bytes >= next->len_bytes ||
        !continues_request(d, next, now_ns))
        return false;
    if (sw_request_is_answered(request) || sw_request_is_answered(next) ||
        (request->flags | next->flags) & SW_REQUEST_FENCE)
        return false;
    return !is_full(d, next->len_bytes);
}

void sw_deferred_push(struct sw_deferred *d, uint32_t position)
{
    assert(d->count < SW_DEFERRED_MAX);
    d->positions[(d->first + d->count++) % SW_DEFERRED_MAX] = position;
}

uint32_t sw_deferred_pop(struct sw_deferred *d)
{
    assert(d->count);
    const uint32_t position = d->positions[d->first];
    d->first = (d->first + 1) % SW_DEFERRED_MAX;
    d->count--;
    d->is_open = false;
    return position;
}
