/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/serve/serve_key.h"

#include "base/guarded_copy.h"
#include "base/minmax.h"
#include "device/memory/mr_impl.h"
#include "device/queue/qp_impl.h"
#include "device/serve/execute.h"
#include "link/direct/bind/bind.h"
#include "link/direct/serve/answer.h"

static enum sw_serve direct_serve_write(struct sw_qp *qp, struct sw_direct_qp *d,
                                        const struct sw_peer_request *request)
{
    if (!sw_serve_can_answer(qp, d))
        return SW_SERVE_WAIT;
    const struct sw_record record = sw_request_whole(request);
    const uint8_t *from = sw_request_bounced(d, request, record.bounce_at);
    if (!from)
        return sw_serve_end_connection(qp, SW_NAK_INVALID);
    const bool last = request->flags & SW_REC_LAST;
    const struct sw_pieces part = {
        .from = from, .count = 1, .len_bytes = record.total_bytes ? request->len_bytes : 0};
    enum sw_verdict verdict =
        sw_execute_write(qp, &request->message, record.rkey, record.remote_addr, &part, last);
    if (verdict != SW_ACK)
        return sw_serve_refuse(qp, d, request, verdict);
    if (!last)
        return SW_SERVED;
    if (!(request->flags & SW_REC_IMM))
        return sw_serve_acknowledge(d);
    if (!sw_serve_take_receive(qp, d, request))
        return sw_serve_rnr(qp, d, request, record.rnr_retry);
    return sw_serve_deliver(qp, d, request, record.total_bytes, IBV_WC_RECV_RDMA_WITH_IMM);
}

static enum sw_serve serve_read(struct sw_qp *qp, struct sw_direct_qp *d,
                                const struct sw_peer_request *request)
{
    const struct sw_record asked = sw_request_whole(request);
    uint32_t total = asked.total_bytes;
    uint8_t *from;
    enum sw_verdict verdict = sw_execute_check(qp, &request->message, IBV_ACCESS_REMOTE_READ,
                                               asked.rkey, asked.remote_addr, total, &from);
    if (total == 0 || verdict != SW_ACK)
        return sw_serve_answer(qp, d, verdict, 0);
    if (!sw_bind_enter(qp, d))
        return SW_SERVE_WAIT;
    sw_answer_acks(d);
    while (d->serve.read_bytes < total) {
        uint32_t len = sw_min_u32(total - d->serve.read_bytes, SW_BOUNCE_CHUNK);
        const uint32_t bounce_at = d->serve.answer_bounce_at;
        struct sw_record *record = sw_answer_reserve(d, len);
        if (!record)
            break;
        if (!sw_guarded_copy(d->tx->response_bounce + record->bounce_at, from + d->serve.read_bytes,
                             len, from + d->serve.read_bytes)) {
            d->serve.answer_bounce_at = bounce_at;
            sw_bind_leave(d);
            d->serve.read_bytes = 0;
            return sw_serve_answer(qp, d, SW_NAK_ACCESS, 0);
        }
        record->kind = SW_REC_DATA;
        sw_answer_publish(d, record);
        d->serve.read_bytes += len;
    }
    sw_bind_leave(d);
    if (d->serve.read_bytes < total)
        return SW_SERVE_WAIT;
    d->serve.read_bytes = 0;
    return SW_SERVED;
}

static enum sw_serve direct_serve_atomic(struct sw_qp *qp, struct sw_direct_qp *d,
                                         const struct sw_peer_request *request)
{
    if (!sw_serve_can_answer(qp, d))
        return SW_SERVE_WAIT;
    const struct sw_record asked = sw_request_whole(request);
    uint64_t original = 0;
    enum sw_verdict verdict =
        sw_execute_atomic(qp, &request->message, asked.opcode, asked.rkey, asked.remote_addr,
                          asked.compare_add, asked.swap, &original);
    return sw_serve_answer(qp, d, verdict, original);
}

/* Left and taken up again while the memory takes its time. */
static enum sw_serve direct_serve_flush(struct sw_qp *qp, struct sw_direct_qp *d,
                                        const struct sw_peer_request *request)
{
    if (!sw_serve_can_answer(qp, d))
        return SW_SERVE_WAIT;
    const struct sw_record asked = sw_request_whole(request);
    struct sw_target_flush flush =
        sw_target_flush_of(asked.rkey, asked.remote_addr, asked.compare_add, asked.swap);
    enum sw_verdict verdict;
    if (!sw_execute_flush(qp, &request->message, flush, &d->serve.flushing, &verdict))
        return SW_SERVE_WAIT;
    return sw_serve_answer(qp, d, verdict, 0);
}

enum sw_serve sw_serve_by_key(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct sw_peer_request *request)
{
    uint32_t index = qp->index;
    enum sw_serve result = SW_SERVED;
    sw_mr_serve_begin(index);
    if (request->kind == SW_REC_WRITE)
        result = direct_serve_write(qp, d, request);
    else if (request->kind == SW_REC_READ)
        result = serve_read(qp, d, request);
    else if (request->kind == SW_REC_FLUSH)
        result = direct_serve_flush(qp, d, request);
    else
        result = direct_serve_atomic(qp, d, request);
    sw_mr_serve_end(index);
    return result;
}
