/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/iwarp/iwarp.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "transport/iwarp/iwarp_impl.h"

void sw_iwarp_init(struct sw_iwarp *w, const struct sw_iwarp_config *config,
                   struct sw_request *ring, uint32_t entries)
{
    assert(entries && (entries & (entries - 1)) == 0);
    assert(config->ird <= SW_IWARP_DEPTH_MAX && config->ord <= SW_IWARP_DEPTH_MAX);
    assert(config->fpdu_max >= SW_IWARP_FPDU_LEAST);
    memset(w, 0, offsetof(struct sw_iwarp, reads)); /* an entry is written before it is read */
    w->config = *config;
    w->ring = ring;
    w->mask = entries - 1;
    w->ulpdu_max = sw_fpdu_ulpdu_max(config->fpdu_max);
    w->is_held = config->is_held;
    w->is_rtr_due = config->is_initiator && config->rtr;
    w->awaits_first = w->answers_next = true;
    for (int i = 0; i < SW_DDP_QUEUES; i++)
        w->msn_out[i] = w->msn_in[i] = 1;
}

bool sw_iwarp_supports(const struct sw_iwarp *w, const struct sw_request *request)
{
    switch ((enum sw_request_kind)request->kind) {
    case SW_REQUEST_SEND:
        return w->config.is_paired || !(request->flags & SW_REQUEST_IMM);
    case SW_REQUEST_WRITE:
    case SW_REQUEST_READ:
    case SW_REQUEST_CMP_SWAP:
    case SW_REQUEST_FETCH_ADD:
    case SW_REQUEST_LOCAL:
        return true;
    case SW_REQUEST_ATOMIC_WRITE:
    case SW_REQUEST_FLUSH:
        return w->config.is_paired && w->config.has_persistence;
    }
    return false;
}

bool sw_iwarp_post(struct sw_iwarp *w, const struct sw_request *request)
{
    assert(sw_iwarp_supports(w, request));
    if (w->tail - w->done > w->mask)
        return false;
    struct sw_request *entry = sw_iwarp_request_at(w, w->tail++);
    *entry = *request;
    entry->count = 0; /* answers that came */
    return true;
}

void sw_iwarp_advance(struct sw_iwarp *w)
{
    while (w->done != w->sent) {
        const struct sw_request *request = sw_iwarp_request_at(w, w->done);
        if (sw_request_is_answered(request)
                ? !request->count
                : w->config.is_paired && !sw_iwarp_paired_is_taken(w, request))
            return;
        w->done++;
    }
}

void sw_iwarp_nudge(struct sw_iwarp *w)
{
    w->is_nudge_due = w->config.is_initiator && w->awaits_first && !w->over;
}

void sw_iwarp_release(struct sw_iwarp *w)
{
    w->is_held &= w->config.rtr != 0; /* between peers that is agreed on */
}

bool sw_iwarp_is_local(const struct sw_iwarp *w)
{
    return !w->over && w->done == w->sent && w->sent != w->tail &&
           sw_iwarp_request_at(w, w->sent)->kind == SW_REQUEST_LOCAL;
}

void sw_iwarp_local_done(struct sw_iwarp *w)
{
    assert(sw_iwarp_is_local(w));
    w->sent++;
    w->done++;
}

void sw_iwarp_refuse_ulpdu(struct sw_iwarp *w, uint16_t cause, const uint8_t *ulpdu, uint32_t len)
{
    if (w->over)
        return;
    w->over = w->is_due = true;
    w->terminate = sw_terminate_about(cause, ulpdu, len);
}

void sw_iwarp_refuse(struct sw_iwarp *w, uint16_t cause)
{
    sw_iwarp_refuse_ulpdu(w, cause, NULL, 0);
}

uint16_t sw_iwarp_read_cause(enum sw_access_fault why)
{
    switch (why) {
    case SW_ACCESS_FAULT_KEY:
        return SW_TERMINATE_READ_STAG;
    case SW_ACCESS_FAULT_OWNER:
        return SW_TERMINATE_READ_OWNER;
    case SW_ACCESS_FAULT_RIGHTS:
        return SW_TERMINATE_RIGHTS;
    case SW_ACCESS_FAULT_BOUNDS:
        return SW_TERMINATE_READ_BOUNDS;
    case SW_ACCESS_FAULT_NONE:
        break;
    }
    return SW_TERMINATE_UNSPECIFIED;
}

void sw_iwarp_unreadable(struct sw_iwarp *w, enum sw_access_fault why)
{
    w->answer_count = 0; /* those behind it have no place in the order any more */
    sw_iwarp_refuse(w, sw_iwarp_read_cause(why));
}
