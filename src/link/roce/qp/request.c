/* SPDX-License-Identifier: BSD-2-Clause */
/* The send queue of a connection, between its program and the requester. */
#include "link/roce/qp/request.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/memory/mr_impl.h"
#include "device/memory/mw.h"
#include "device/queue/traffic.h"
#include "link/gather.h"
#include "link/roce/port/path.h"
#include "link/roce/qp/qp.h"
#include "link/wqe_request.h"
#include "wire/aeth.h"

enum sw_roce_outcome sw_roce_fail_request(struct sw_roce_qp *r, enum ibv_wc_status status)
{
    sw_lock_assert_held(&r->qp->lock);
    struct sw_qp *qp = r->qp;
    sw_qp_fail_send(qp, status);
    return qp->link_state == r ? SW_ROCE_ALIVE : SW_ROCE_DEAD;
}

/* What a request moves; a READ's bytes are counted when they come. */
static void roce_count_request(struct sw_roce_qp *r, const struct sw_request *request)
{
    if (request->kind == SW_REQUEST_LOCAL || request->kind == SW_REQUEST_READ)
        return;
    r->qp->moved.sent_bytes += request->len_bytes;
    r->qp->moved.sent_packets += sw_traffic_packets(request->len_bytes, r->qp->attr.path_mtu);
}

/* The request as the machine wants it; or with what status it ends without being sent. */
static enum ibv_wc_status translate_request(struct sw_roce_qp *r, uint32_t position,
                                            struct sw_request *request)
{
    const struct sw_wqe *wqe = sw_sq_at(&r->qp->sq, position);
    sw_request_of_wqe(wqe, request);
    if (request->kind == SW_REQUEST_LOCAL)
        return IBV_WC_SUCCESS;
    if (request->flags & SW_REQUEST_INV && r->qp->type == IBV_QPT_UC)
        return IBV_WC_LOC_QP_OP_ERR; /* no packet says it: IBTA Vol1 table 38 */
    if (!sw_wqe_has_good_keys(r->qp, position) || !sw_request_complete(r->qp, position, request))
        return IBV_WC_LOC_PROT_ERR;
    return IBV_WC_SUCCESS;
}

/* A bind or an invalidate whose turn it is. */
static enum sw_roce_outcome roce_run_local(struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    struct sw_qp *qp = r->qp;
    uint32_t position = sw_requester_done(&r->requester) + r->offset;
    enum ibv_wc_status status = sw_mw_execute(qp, sw_sq_at(&qp->sq, position));
    if (status != IBV_WC_SUCCESS) {
        sw_roce_settle(r);
        return sw_roce_fail_request(r, status);
    }
    sw_requester_local_done(&r->requester);
    return sw_roce_settle(r);
}

enum sw_roce_outcome sw_roce_feed(struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    struct sw_qp *qp = r->qp;
    if (qp->state != IBV_QPS_RTS)
        return SW_ROCE_ALIVE;
    for (;;) {
        if (sw_requester_is_local(&r->requester) && roce_run_local(r) == SW_ROCE_DEAD)
            return SW_ROCE_DEAD;
        /* A request behind a local one may use the keys that it makes. */
        bool waits = r->posted != qp->sq.head && !r->has_bad &&
                     sw_wqe_is_local(sw_sq_at(&qp->sq, r->posted - 1)) &&
                     sw_requester_done(&r->requester) + r->offset != r->posted;
        if (r->posted == qp->sq.tail || r->has_bad || waits || qp->state != IBV_QPS_RTS)
            break;
        struct sw_request *request = sw_requester_room(&r->requester);
        if (!request)
            break;
        r->bad_status = translate_request(r, r->posted, request);
        r->has_bad = r->bad_status != IBV_WC_SUCCESS;
        if (r->has_bad)
            break;
        sw_requester_post_room(&r->requester);
        roce_count_request(r, request);
        r->posted++;
    }
    return SW_ROCE_ALIVE;
}

static enum sw_roce_outcome settle_to(struct sw_roce_qp *r, uint32_t done)
{
    struct sw_qp *qp = r->qp;
    struct sw_sq *sq = &qp->sq;
    if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
        return SW_ROCE_ALIVE; /* SQE: the queue went on without the requester */
    if (done != sq->head)
        sw_sq_retire_run(qp, done - sq->head);
    sq->next = r->requester.sent + r->offset;
    if (sq->next != sq->tail && sq->next != r->posted && !sw_requester_is_drained(&r->requester) &&
        r->requester.done == r->requester.sent)
        sw_sq_at(sq, sq->next)->via_ring = 1; /* parts of it were sent */
    if (__builtin_expect(qp->state == IBV_QPS_SQD, 0) && sw_requester_is_drained(&r->requester))
        sw_qp_tell_drained(qp);
    /* Its turn has come: all before it is complete. */
    if (__builtin_expect(r->has_bad, 0) && r->posted == sq->head && qp->state == IBV_QPS_RTS)
        return sw_roce_fail_request(r, r->bad_status);
    return SW_ROCE_ALIVE;
}

enum sw_roce_outcome sw_roce_settle(struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    return settle_to(r, sw_requester_done(&r->requester) + r->offset);
}

/* Bytes that came for a request. */
static bool store_response(struct sw_roce_qp *r, const struct sw_progress *progress)
{
    struct sw_gather gather = sw_gather_of(r->qp, progress->place_position + r->offset);
    r->qp->moved.received_bytes += progress->place_len;
    r->qp->moved.received_packets++;
    if (progress->place_bytes)
        return sw_gather_in(&gather, progress->place_offset, progress->place_bytes,
                            progress->place_len);
    return sw_gather_in(&gather, 0, (const uint8_t *)&progress->value, sizeof(progress->value));
}

static enum ibv_wc_status request_status_of(const struct sw_progress *progress)
{
    switch (progress->failure) {
    case SW_FAILURE_NAK:
        for (int i = 0; i < SW_VERDICT_COUNT; i++)
            if (sw_verdict_rules[i].requester_fatal &&
                sw_verdict_rules[i].aeth_syndrome == progress->syndrome)
                return sw_verdict_rules[i].requester;
        return sw_verdict_rules[SW_NAK_INVALID].requester;
    case SW_FAILURE_RETRY:
        return sw_verdict_rules[SW_UNREACHABLE].requester;
    case SW_FAILURE_RNR_RETRY:
        return sw_verdict_rules[SW_RNR_EXHAUSTED].requester;
    case SW_FAILURE_BAD_RESPONSE:
    case SW_FAILURE_NONE:
        break;
    }
    return IBV_WC_BAD_RESP_ERR;
}

/* For whoever asks why (SIDEWIRE_LOG=info). */
static void request_tell_failure(const struct sw_roce_qp *r, const struct sw_progress *progress)
{
    const struct sw_requester *q = &r->requester;
    char text[SW_ROCE_ADDRESS_TEXT];
    sw_info("QP 0x%x: request %u to %s QP 0x%x failed (status %d): %" PRIu64
            " packets sent, %" PRIu64 " of them again, %" PRIu64 " timeouts, %" PRIu64
            " NAKs, %" PRIu64 " ms since the last sign of life",
            r->qp->qpn, progress->done, sw_roce_address_text(&r->path.dest, text), r->qp->dest_qpn,
            (int)request_status_of(progress), q->counts.packets, q->counts.resent,
            q->counts.timeouts, q->counts.naks,
            (uint64_t)((sw_clock_ns() - q->retry.alive_ns) / SW_NS_PER_MS));
}

enum sw_roce_outcome sw_roce_take_progress(struct sw_roce_qp *r, const struct sw_progress *progress)
{
    sw_lock_assert_held(&r->qp->lock);
    if (progress->places && !store_response(r, progress)) {
        /* It may be the last answer: for the machine the request is done then. */
        settle_to(r, progress->place_position + r->offset);
        return sw_roce_fail_request(r, IBV_WC_LOC_PROT_ERR);
    }
    enum sw_roce_outcome life = sw_roce_settle(r);
    if (life == SW_ROCE_ALIVE && progress->failure != SW_FAILURE_NONE) {
        request_tell_failure(r, progress);
        life = sw_roce_fail_request(r, request_status_of(progress));
    }
    return life;
}
