/* SPDX-License-Identifier: BSD-2-Clause */
/* What the user asks of the machine. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "cm/cm_impl.h"

#include "base/minmax.h"

static bool data_fits(const void *data, size_t len, size_t max)
{
    return len <= max && (data || !len);
}

/* How long an answer to a REQ, REP or DREQ may take: what the peer's CM needs, and both ways. */
static uint64_t answer_ns(uint8_t cm_response_timeout, uint8_t ack_timeout)
{
    uint64_t ns = sw_cm_time_ns(cm_response_timeout);
    if (ack_timeout) /* twice the packet life time, which is half of it */
        ns += sw_cm_time_ns(ack_timeout);
    return sw_max_u64(ns, SW_CM_WAIT_MIN_NS);
}

/* What a REQ says about both ends. */
void sw_cm_take_terms(struct sw_cm_id *id, const struct sw_cm_req *req, bool active)
{
    uint64_t peer_ns = answer_ns(req->remote_cm_response_timeout, req->primary.local_ack_timeout),
             our_ns = answer_ns(req->local_cm_response_timeout, req->primary.local_ack_timeout);
    id->active = active;
    id->response_ns = active ? peer_ns : our_ns;
    id->peer_response_ns = active ? our_ns : peer_ns;
    id->retries_max = req->max_cm_retries;
    id->timewait_ns = sw_cm_time_ns(req->primary.local_ack_timeout);
    if (!active) { /* a stranger says so */
        id->response_ns = sw_min_u64(id->response_ns, SW_CM_ANSWER_MAX_NS);
        id->peer_response_ns = sw_min_u64(id->peer_response_ns, SW_CM_MEMORY_MAX_NS);
        id->timewait_ns = sw_min_u64(id->timewait_ns, SW_CM_MEMORY_MAX_NS);
    }
    id->service_id = req->service_id;
    id->responder_resources = req->responder_resources;
    id->is_xrc = req->service == SW_CM_EXTENDED && req->extended_service == SW_CM_EXTENDED_XRC;
    static const uint8_t none[16];
    id->has_alternate = memcmp(req->alternate.remote_gid, none, sizeof(none)) != 0;
}

int sw_cm_connect(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_path *path,
                  const struct sw_cm_req *req, uint64_t now_ns)
{
    if (id->state != SW_CM_IDLE || id->destroyed)
        return -EINVAL;
    sw_cm_id_init(id, id->user);
    if (!sw_cm_attach(cm, id))
        return -ENOSPC;
    struct sw_cm_message message = {
        .attribute = SW_CM_REQ, .transaction = sw_cm_new_transaction(cm), .req = *req};
    message.req.local_comm_id = id->local_comm_id;
    message.req.local_ca_guid = cm->config.ca_guid;
    sw_cm_take_terms(id, req, true);
    id->path = *path;
    id->local_qpn = req->local_qpn;
    id->request = message.transaction;
    id->state = SW_CM_REQ_SENT;
    sw_cm_say(cm, id, &message);
    sw_cm_await(cm, id, now_ns);
    return 0;
}

int sw_cm_mra(struct sw_cm *cm, struct sw_cm_id *id, uint8_t timeout, const void *private_data,
              size_t len, uint64_t now_ns)
{
    (void)now_ns;
    bool is_req = id->state == SW_CM_REQ_RCVD;
    if ((!is_req && id->state != SW_CM_REP_RCVD) ||
        !data_fits(private_data, len, SW_CM_MRA_PRIVATE))
        return -EINVAL;
    struct sw_cm_message message = {.attribute = SW_CM_MRA,
                                    .transaction = id->transaction,
                                    .mra = {.local_comm_id = id->local_comm_id,
                                            .remote_comm_id = id->remote_comm_id,
                                            .about = is_req ? SW_CM_ABOUT_REQ : SW_CM_ABOUT_REP,
                                            .service_timeout = timeout}};
    if (len)
        memcpy(message.mra.private_data, private_data, len);
    id->mra_sent = true;
    sw_cm_say(cm, id, &message);
    return 0;
}

int sw_cm_accept(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_rep *rep,
                 uint64_t now_ns)
{
    if (id->state != SW_CM_REQ_RCVD)
        return -EINVAL;
    struct sw_cm_message message = {
        .attribute = SW_CM_REP, .transaction = id->transaction, .rep = *rep};
    message.rep.local_comm_id = id->local_comm_id;
    message.rep.remote_comm_id = id->remote_comm_id;
    message.rep.local_ca_guid = cm->config.ca_guid;
    if (rep->initiator_depth > id->responder_resources)
        message.rep.initiator_depth = id->responder_resources;
    if (id->has_alternate)
        message.rep.failover_accepted = 1; /* not supported */
    id->local_qpn = id->is_xrc ? rep->local_eecn : rep->local_qpn;
    id->state = SW_CM_REP_SENT;
    sw_cm_say(cm, id, &message);
    sw_cm_await(cm, id, now_ns);
    return 0;
}

int sw_cm_ready(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len,
                uint64_t now_ns)
{
    (void)now_ns;
    if (id->state != SW_CM_REP_RCVD || !data_fits(private_data, len, SW_CM_RTU_PRIVATE))
        return -EINVAL;
    struct sw_cm_message message = {
        .attribute = SW_CM_RTU,
        .transaction = id->transaction,
        .rtu = {.local_comm_id = id->local_comm_id, .remote_comm_id = id->remote_comm_id}};
    if (len)
        memcpy(message.rtu.private_data, private_data, len);
    id->state = SW_CM_ESTABLISHED;
    sw_cm_say(cm, id, &message);
    return 0;
}

int sw_cm_established(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    (void)now_ns;
    if (id->state != SW_CM_REP_SENT)
        return 0;
    id->state = SW_CM_ESTABLISHED;
    sw_cm_timer_clear(&cm->timers, &id->timer);
    sw_cm_uncount_asking(cm, id);
    sw_cm_tell(cm, id, &(struct sw_cm_event){.kind = SW_CM_EVENT_RTU});
    return 0;
}

static void send_reject(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_rej_text *text,
                        uint64_t now_ns)
{
    if (id->state == SW_CM_REQ_SENT) {
        sw_cm_say_timeout(cm, id);
        return sw_cm_detach(cm, id);
    }
    sw_cm_say_rej(cm, id, text);
    /* Until the peer would have asked again, had the REJ been lost. */
    sw_cm_enter_timewait(cm, id, id->peer_response_ns, now_ns);
}

int sw_cm_reject(struct sw_cm *cm, struct sw_cm_id *id, uint16_t reason, const void *info,
                 size_t info_len, const void *private_data, size_t len, uint64_t now_ns)
{
    if (id->state < SW_CM_REQ_SENT || id->state > SW_CM_REP_RCVD ||
        !data_fits(info, info_len, SW_CM_INFO_MAX) ||
        !data_fits(private_data, len, SW_CM_REJ_PRIVATE))
        return -EINVAL;
    send_reject(cm, id,
                &(struct sw_cm_rej_text){.reason = reason,
                                         .info = info,
                                         .info_len = info_len,
                                         .private_data = private_data,
                                         .len = len},
                now_ns);
    return 0;
}

int sw_cm_disconnect(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len,
                     uint64_t now_ns)
{
    if (id->state != SW_CM_ESTABLISHED || !data_fits(private_data, len, SW_CM_DREQ_PRIVATE))
        return -EINVAL;
    sw_cm_begin_disconnect(cm, id, private_data, len, now_ns);
    return 0;
}

int sw_cm_disconnected(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len,
                       uint64_t now_ns)
{
    if (id->state != SW_CM_DREQ_RCVD || !data_fits(private_data, len, SW_CM_DREP_PRIVATE))
        return -EINVAL;
    sw_cm_say_drep(cm, id, private_data, len);
    sw_cm_enter_timewait(cm, id, 0, now_ns);
    return 0;
}

int sw_cm_resolve(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_path *path,
                  const struct sw_cm_sidr_req *req, uint64_t timeout_ns, uint8_t retries,
                  uint64_t now_ns)
{
    if (id->state != SW_CM_IDLE || id->destroyed)
        return -EINVAL;
    sw_cm_id_init(id, id->user);
    id->is_sidr = true;
    if (!sw_cm_attach(cm, id))
        return -ENOSPC;
    struct sw_cm_message message = {
        .attribute = SW_CM_SIDR_REQ, .transaction = sw_cm_new_transaction(cm), .sidr_req = *req};
    message.sidr_req.request_id = id->local_comm_id;
    id->active = true;
    id->path = *path;
    id->service_id = req->service_id;
    id->request = message.transaction;
    id->response_ns = sw_max_u64(timeout_ns, SW_CM_WAIT_MIN_NS);
    if (id->response_ns > SW_CM_WAIT_MAX_NS)
        id->response_ns = SW_CM_WAIT_MAX_NS;
    id->retries_max = retries;
    id->state = SW_CM_SIDR_REQ_SENT;
    sw_cm_say(cm, id, &message);
    sw_cm_await(cm, id, now_ns);
    return 0;
}

int sw_cm_answer(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_sidr_rep *rep,
                 uint64_t now_ns)
{
    if (id->state != SW_CM_SIDR_REQ_RCVD || rep->info_len > SW_CM_INFO_MAX)
        return -EINVAL;
    sw_cm_say_sidr_rep(cm, id, rep);
    sw_cm_enter_timewait(cm, id, id->peer_response_ns, now_ns);
    return 0;
}

int sw_cm_drop(struct sw_cm *cm, struct sw_cm_id *id)
{
    if (id->state != SW_CM_REQ_RCVD && id->state != SW_CM_SIDR_REQ_RCVD)
        return -EINVAL;
    cm->counts.crowded++;
    sw_cm_detach(cm, id);
    return 0;
}

/* What the peer is told of an id that nobody wants any more. */
static void command_say_goodbye(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    static const struct sw_cm_sidr_rep refusal = {.status = SW_CM_SIDR_REJECTED};
    switch (id->state) {
    case SW_CM_REQ_SENT:
    case SW_CM_REQ_RCVD:
    case SW_CM_REP_SENT:
    case SW_CM_REP_RCVD:
        return send_reject(cm, id, &(struct sw_cm_rej_text){.reason = SW_CM_REASON_CONSUMER},
                           now_ns);
    case SW_CM_ESTABLISHED:
        return sw_cm_begin_disconnect(cm, id, NULL, 0, now_ns);
    case SW_CM_DREQ_RCVD:
        sw_cm_say_drep(cm, id, NULL, 0);
        return sw_cm_enter_timewait(cm, id, 0, now_ns);
    case SW_CM_SIDR_REQ_RCVD:
        sw_cm_say_sidr_rep(cm, id, &refusal);
        return sw_cm_enter_timewait(cm, id, id->peer_response_ns, now_ns);
    case SW_CM_SIDR_REQ_SENT:
        return sw_cm_detach(cm, id);
    case SW_CM_IDLE:
    case SW_CM_DREQ_SENT:
    case SW_CM_TIMEWAIT:
    case SW_CM_STATE_COUNT:
        return;
    }
}

void sw_cm_id_destroy(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    assert(!id->destroyed);
    id->destroyed = true;
    command_say_goodbye(cm, id, now_ns);
    if (id->state == SW_CM_IDLE)
        sw_cm_end(cm, id);
    else if (id->state == SW_CM_TIMEWAIT)
        sw_cm_let_go(cm, id, now_ns);
}
