/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the peer's receive is mapped, the bytes of a message are stored there. But a page that a
 * region shares with other memory is not handed out, so the ends of a receive often are not mapped.
 * A system call for them would take several times as long as a short message does. So they go along
 * in the bounce area, and the target places them when it sees the record.
 */
#include "link/direct/send/placing.h"

#include <string.h>

#include "base/fault.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/record.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/reach.h"
#include "link/direct/send/record_head.h"
#include "link/gather.h"

/* Bytes of the bounce area, with what describes them. */
static uint64_t bytes_along(const struct sw_placing *placing)
{
    return placing->unmapped_bytes + placing->unmapped * sizeof(struct sw_record_run);
}

bool sw_placing_suits(const struct sw_direct_qp *d, const struct sw_placing *placing)
{
    if (placing->count > SW_PLACING_RUNS)
        return false;
    return !placing->unmapped ||
           (d->peer->can_map && !placing->keeps_away && bytes_along(placing) <= SW_BOUNCE_CHUNK);
}

/* All runs, those that are not mapped to `along`. */
static enum sw_step copy_runs(struct sw_direct_qp *d, const struct sw_gather *gather,
                              const struct sw_placing *placing, uint8_t *along)
{
    uint32_t at = 0; /* in the message */
    for (uint32_t i = 0; i < placing->count; i++) {
        const struct sw_placing_run *run = &placing->runs[i];
        uint8_t *to = run->to;
        if (!to) {
            const struct sw_record_run head = {at, run->len_bytes};
            memcpy(along, &head, sizeof(head));
            to = along + sizeof(head);
            along = to + run->len_bytes;
        }
        const uint64_t mark = sw_fault_mark();
        if (!sw_gather_out(gather, at, to, run->len_bytes))
            return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
        const enum sw_fault fault = sw_fault_judge(mark, to, run->len_bytes);
        if (__builtin_expect(fault != SW_FAULT_NONE, 0))
            return fault == SW_FAULT_LOST ? sw_reach_lost(d) : SW_STEP_BLOCKED;
        at += run->len_bytes;
    }
    return SW_STEP_DONE;
}

enum sw_step sw_placing_send(struct sw_direct_qp *d, const struct sw_gather *gather,
                             const struct sw_placing *placing, const struct sw_record_head *head)
{
    struct sw_record *record = sw_record_reserve(d, 1, false);
    if (!record)
        return SW_STEP_BLOCKED;
    const uint32_t along = (uint32_t)bytes_along(placing);
    uint32_t end = d->send.bounce_at;
    int64_t offset = 0;
    if (along) {
        const uint32_t consumed =
            atomic_load_explicit(&d->rx->request_bounce_consumed, memory_order_acquire);
        offset = sw_area_reserve(d->send.bounce_at, consumed, SW_REQUEST_BOUNCE, along, &end);
        if (offset < 0)
            return SW_STEP_BLOCKED;
    }
    const enum sw_step step =
        copy_runs(d, gather, placing, d->tx->request_bounce + (uint32_t)offset);
    if (step != SW_STEP_DONE)
        return step;
    sw_record_head_write(record, along ? SW_REC_SEND_PARTLY : SW_REC_SEND_PLACED, SW_ACK, head);
    record->total_bytes = along;
    record->bounce_at = (uint32_t)offset;
    record->bounce_end = end;
    d->send.bounce_at = end;
    d->send.recv_used++;
    sw_record_publish(d, record, 1, true);
    return SW_STEP_DONE;
}
