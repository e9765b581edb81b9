/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/serve/serve_send.h"

#include <string.h>

#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"
#include "device/serve/execute.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/record_payload.h"
#include "link/direct/bind/step.h"
#include "link/direct/send/pull.h"

#define PULL_BUDGET_BYTES (1u << 20) /* fetched in one step, so that a poll does not take long */

static struct sw_target_qp own_side(const struct sw_qp *qp, const struct sw_peer_request *request)
{
    return (struct sw_target_qp){qp->qpn, request->message.pd, (uint32_t)qp->attr.qp_access_flags};
}

static enum sw_serve serve_refuse_send(struct sw_qp *qp, struct sw_direct_qp *d,
                                       const struct sw_peer_request *request,
                                       enum sw_verdict verdict)
{
    const enum ibv_wc_status status = sw_receive_refusal(qp, verdict);
    if (status != IBV_WC_SUCCESS)
        sw_receive_complete(qp, &d->serve.receive, &request->message, 0, IBV_WC_RECV, status);
    return sw_serve_refuse(qp, d, request, verdict);
}

/* Takes the receive for a message. *taken: it is there and fits; else the result is the request's.
 */
static enum sw_serve begin_send(struct sw_qp *qp, struct sw_direct_qp *d,
                                const struct sw_peer_request *request, uint32_t total_bytes,
                                uint8_t rnr_retry, bool *taken)
{
    *taken = false;
    /* An unreliable message must not begin to fill a receive that is for the next one. */
    if (request->flags & SW_REC_INV && d->rules[SW_NAK_ACCESS].lost &&
        sw_target_check_invalidate(sw_nic.pub, request->imm, own_side(qp, request)) != SW_ACK)
        return sw_serve_refuse(qp, d, request, SW_NAK_ACCESS);
    if (!sw_serve_take_receive(qp, d, request))
        return sw_serve_rnr(qp, d, request, rnr_retry);
    d->serve.received_bytes = 0;
    const enum sw_verdict verdict =
        sw_target_check_room(d->serve.receive.claim.len_bytes, 0, total_bytes);
    if (verdict != SW_ACK)
        return serve_refuse_send(qp, d, request, verdict);
    *taken = true;
    return SW_SERVED;
}

static enum sw_serve end_send(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct sw_peer_request *request)
{
    /* Where the program was faster with its key, an unreliable message has what it wants: it cannot
     * be lost any more, since its sender has counted the receive. */
    if (sw_execute_invalidate(qp, &request->message, request->imm) != SW_ACK &&
        !d->rules[SW_NAK_ACCESS].lost)
        return serve_refuse_send(qp, d, request, SW_NAK_ACCESS);
    return sw_serve_deliver(qp, d, request, d->serve.received_bytes, IBV_WC_RECV);
}

enum sw_serve sw_serve_send(struct sw_qp *qp, struct sw_direct_qp *d,
                            const struct sw_peer_request *request)
{
    if (!sw_serve_can_answer(qp, d))
        return SW_SERVE_WAIT;
    const struct sw_record record = sw_request_whole(request);
    const uint8_t *from = sw_request_bounced(d, request, record.bounce_at);
    if (request->flags & SW_REC_FIRST) {
        bool taken;
        enum sw_serve result =
            begin_send(qp, d, request, record.total_bytes, record.rnr_retry, &taken);
        if (!taken)
            return result;
    }
    if (!d->serve.receive.is_taken || !from)
        return sw_serve_end_connection(qp, SW_NAK_INVALID);
    enum sw_verdict verdict =
        sw_execute_fill(&d->serve.receive.claim, d->serve.received_bytes, from, request->len_bytes);
    if (verdict != SW_ACK)
        return serve_refuse_send(qp, d, request, verdict);
    d->serve.received_bytes += request->len_bytes;
    return request->flags & SW_REC_LAST ? end_send(qp, d, request) : SW_SERVED;
}

enum sw_serve sw_serve_whole(struct sw_qp *qp, struct sw_direct_qp *d,
                             const struct sw_peer_request *request)
{
    if (!sw_serve_can_answer(qp, d))
        return SW_SERVE_WAIT;
    if (request->len_bytes > SW_WHOLE_BYTES)
        return sw_serve_end_connection(qp, SW_NAK_INVALID);
    bool taken;
    enum sw_serve result =
        begin_send(qp, d, request, request->len_bytes, request->slot->rnr_retry, &taken);
    if (!taken)
        return result;
    if (sw_record_scatter(d, request->len_bytes, SW_WHOLE_FIRST) != IBV_WC_SUCCESS)
        return serve_refuse_send(qp, d, request, SW_NAK_OPERATIONAL);
    d->serve.received_bytes = request->len_bytes;
    return end_send(qp, d, request);
}

/* Places what came along with a message: runs of it, as the peer says. */
static enum sw_verdict fill_runs(const struct sw_recv_claim *claim, const uint8_t *from,
                                 uint32_t len_bytes, uint32_t message_bytes)
{
    struct sw_record_run run;
    for (uint32_t at = 0; at < len_bytes; at += run.len_bytes) {
        if (len_bytes - at < sizeof(run))
            return SW_NAK_INVALID;
        memcpy(&run, from + at, sizeof(run));
        atomic_signal_fence(memory_order_seq_cst); /* what is checked must not be read again */
        at += (uint32_t)sizeof(run);
        if (run.len_bytes > len_bytes - at || run.at > message_bytes ||
            run.len_bytes > message_bytes - run.at)
            return SW_NAK_INVALID;
        const enum sw_verdict verdict = sw_execute_fill(claim, run.at, from + at, run.len_bytes);
        if (verdict != SW_ACK)
            return verdict;
    }
    return SW_ACK;
}

enum sw_serve sw_serve_partly(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct sw_peer_request *request)
{
    const struct sw_record record = sw_request_whole(request);
    const struct sw_recv_claim *claim = &d->serve.receive.claim;
    const uint32_t along = record.total_bytes;
    if (along > SW_BOUNCE_CHUNK || record.bounce_at > SW_REQUEST_BOUNCE - along ||
        !sw_receive_take(qp, &d->serve.receive, &request->message))
        return sw_serve_end_connection(qp, SW_NAK_INVALID); /* the peer broke the protocol */
    /* A program must never be told of more than its buffer holds. */
    enum sw_verdict verdict = sw_target_check_room(claim->len_bytes, 0, request->len_bytes);
    if (verdict == SW_ACK)
        verdict =
            fill_runs(claim, d->rx->request_bounce + record.bounce_at, along, request->len_bytes);
    sw_receive_complete(qp, &d->serve.receive, &request->message, request->len_bytes, IBV_WC_RECV,
                        sw_verdict_rules[verdict].responder);
    return verdict == SW_ACK ? SW_SERVED : sw_serve_end_connection(qp, verdict);
}

/* Where the bytes of a message are, as the peer says. 0: not a sane list. */
static uint32_t serve_send_read_list(const struct sw_direct_qp *d,
                                     const struct sw_peer_request *request,
                                     const struct sw_record *record,
                                     struct ibv_sge list[SW_MAX_SGE])
{
    const uint8_t *from = sw_request_bounced(d, request, record->bounce_at);
    uint32_t count = request->len_bytes / sizeof(*list);
    uint64_t total = 0;
    if (!from || count > SW_MAX_SGE || request->len_bytes != count * sizeof(*list))
        return 0;
    memcpy(list, from, request->len_bytes);
    for (uint32_t i = 0; i < count; i++)
        total += list[i].length;
    return total == record->total_bytes ? count : 0;
}

enum sw_serve sw_serve_pull(struct sw_qp *qp, struct sw_direct_qp *d,
                            const struct sw_peer_request *request)
{
    struct ibv_sge list[SW_MAX_SGE];
    qp->rx_goes_on = false;
    if (!sw_serve_can_answer(qp, d))
        return SW_SERVE_WAIT;
    const struct sw_record record = sw_request_whole(request);
    uint32_t count = serve_send_read_list(d, request, &record, list);
    if (!count)
        return sw_serve_end_connection(qp, SW_NAK_INVALID);
    if (!d->serve.receive.is_taken) {
        if (!sw_serve_take_receive(qp, d, request))
            return sw_serve_rnr(qp, d, request, record.rnr_retry);
        d->serve.received_bytes = 0;
    }
    const enum sw_verdict verdict =
        sw_target_check_room(d->serve.receive.claim.len_bytes, 0, record.total_bytes);
    if (verdict != SW_ACK)
        return serve_refuse_send(qp, d, request, verdict);
    if (!sw_bind_enter(qp, d))
        return SW_SERVE_WAIT;
    d->send.budget_bytes = PULL_BUDGET_BYTES;
    enum sw_step step = sw_pull(d, list, count);
    sw_bind_leave(d);
    qp->rx_goes_on = step == SW_STEP_BLOCKED && !d->send.budget_bytes;
    if (step == SW_STEP_FAILED)
        return serve_refuse_send(qp, d, request, SW_NAK_OPERATIONAL);
    if (step != SW_STEP_DONE)
        return SW_SERVE_WAIT;
    return sw_serve_deliver(qp, d, request, record.total_bytes, IBV_WC_RECV);
}
