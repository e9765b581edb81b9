/* SPDX-License-Identifier: BSD-2-Clause */
/* The send queue of a connection, between its program and the machine. */
#include "device/memory/mw.h"
#include "link/gather.h"
#include "link/iwarp/connection.h"
#include "link/wqe_request.h"

static enum sw_iwarp_life life_of(const struct sw_iwarp_connection *c)
{
    return c->qp->link_state == c ? SW_IWARP_ALIVE : SW_IWARP_DEAD;
}

/* A bind or an invalidate whose turn it is. */
static enum sw_iwarp_life iwarp_run_local(struct sw_iwarp_connection *c)
{
    struct sw_qp *qp = c->qp;
    const uint32_t position = sw_iwarp_sq_position(c, sw_iwarp_done(&c->machine));
    const enum ibv_wc_status status = sw_mw_execute(qp, sw_sq_at(&qp->sq, position));
    if (status != IBV_WC_SUCCESS) {
        sw_iwarp_settle(c);
        c->send_status = status;
        return sw_iwarp_fail(c, 0);
    }
    sw_iwarp_local_done(&c->machine);
    return sw_iwarp_settle(c);
}

/* What a request moves; a READ's bytes are counted when they come. */
static void iwarp_count_request(struct sw_qp *qp, const struct sw_request *request)
{
    if (request->kind == SW_REQUEST_LOCAL || request->kind == SW_REQUEST_READ ||
        request->kind == SW_REQUEST_FLUSH)
        return;
    qp->moved.sent_bytes += request->len_bytes;
    qp->moved.sent_packets += sw_traffic_packets(request->len_bytes, IBV_MTU_1024);
}

/* A request behind a local one may use the keys that it makes. */
static bool is_behind_local(struct sw_iwarp_connection *c)
{
    struct sw_qp *qp = c->qp;
    return c->posted != qp->sq.head && sw_wqe_is_local(sw_sq_at(&qp->sq, c->posted - 1)) &&
           sw_iwarp_sq_position(c, sw_iwarp_done(&c->machine)) != c->posted;
}

enum sw_iwarp_life sw_iwarp_feed(struct sw_iwarp_connection *c)
{
    sw_lock_assert_held(&c->qp->lock);
    struct sw_qp *qp = c->qp;
    for (;;) {
        if (sw_iwarp_is_local(&c->machine) && !c->out.count && iwarp_run_local(c) == SW_IWARP_DEAD)
            return SW_IWARP_DEAD;
        if (c->is_paired && qp->state != IBV_QPS_RTS)
            return SW_IWARP_ALIVE;
        if (c->posted == qp->sq.tail || c->has_bad || c->machine.over || is_behind_local(c))
            return SW_IWARP_ALIVE;
        struct sw_request request;
        sw_request_of_wqe(sw_sq_at(&qp->sq, c->posted), &request);
        if (request.kind != SW_REQUEST_LOCAL && (!sw_wqe_has_good_keys(qp, c->posted) ||
                                                 !sw_request_complete(qp, c->posted, &request))) {
            c->has_bad = true;
            c->bad_status = IBV_WC_LOC_PROT_ERR;
            return SW_IWARP_ALIVE;
        }
        if (request.kind == SW_REQUEST_READ && !c->machine.config.ord) {
            c->has_bad = true; /* the peer takes none, and would never be asked */
            c->bad_status = IBV_WC_LOC_QP_OP_ERR;
            return SW_IWARP_ALIVE;
        }
        if (!sw_iwarp_supports(&c->machine, &request)) { /* a peer without FLUSH, ATOMIC WRITE */
            c->has_bad = true;
            c->bad_status = IBV_WC_LOC_QP_OP_ERR;
            return SW_IWARP_ALIVE;
        }
        if (!sw_iwarp_post(&c->machine, &request))
            return SW_IWARP_ALIVE;
        iwarp_count_request(qp, &request);
        c->posted++;
    }
}

/* A request is complete when the kernel has all of it, even if the machine has given it out. */
static uint32_t complete_to(const struct sw_iwarp_connection *c)
{
    const uint32_t done = sw_iwarp_done(&c->machine);
    if (c->out.count && (int32_t)(done - c->out.first_position) > 0)
        return c->out.first_position;
    return done;
}

enum sw_iwarp_life sw_iwarp_settle(struct sw_iwarp_connection *c)
{
    sw_lock_assert_held(&c->qp->lock);
    struct sw_qp *qp = c->qp;
    struct sw_sq *sq = &qp->sq;
    const uint32_t done = sw_iwarp_sq_position(c, complete_to(c));
    const uint32_t sent = sw_iwarp_sq_position(c, c->machine.sent);
    if ((int32_t)(sent - sq->next) > 0)
        sq->next = sent;
    if (done != sq->head)
        sw_sq_retire_run(qp, done - sq->head);
    if (__builtin_expect(qp->state == IBV_QPS_SQD, 0))
        sw_qp_tell_drained(qp);
    /* Its turn has come: all before it is complete. */
    if (__builtin_expect(c->has_bad, 0) && c->posted == sq->head) {
        c->send_status = c->bad_status;
        return sw_iwarp_fail(c, 0);
    }
    return life_of(c);
}

bool sw_iwarp_store(struct sw_iwarp_connection *c, const struct sw_iwarp_input *input)
{
    struct sw_gather gather = sw_gather_of(c->qp, sw_iwarp_sq_position(c, input->position));
    uint32_t from = c->placed_from, to = c->placed_to;
    if (!input->bytes)
        return sw_gather_in(&gather, 0, (const uint8_t *)&input->value, sizeof(input->value));
    c->qp->moved.received_bytes += input->len_bytes;
    c->qp->moved.received_packets++;
    if (from >= to)
        from = to = input->len_bytes;
    return sw_gather_in(&gather, input->offset, input->bytes, from) &&
           sw_gather_in(&gather, input->offset + to, input->bytes + to, input->len_bytes - to);
}
