/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes from peers. Each handler is the rule of one message in every state (docs/cm.md). */
#include <assert.h>
#include <string.h>

#include "cm/cm_impl.h"
#include "wire/bytes.h"

/* A message, and where it came from. */
struct arrival {
    const struct sw_cm_message *message;
    const struct sw_cm_path *path;
    uint64_t now_ns;
};

static void count_stray(struct sw_cm *cm)
{
    cm->counts.strays++;
}

static void count_duplicate(struct sw_cm *cm, const struct arrival *in)
{
    cm->counts.duplicates[in->message->attribute - SW_CM_REQ]++;
}

static void tell_event(struct sw_cm *cm, struct sw_cm_id *id, enum sw_cm_event_kind kind,
                       const struct arrival *in)
{
    sw_cm_tell(cm, id,
               &(struct sw_cm_event){.kind = kind, .message = in->message, .path = in->path});
}

static bool is_from_peer(const struct sw_cm_id *id, const struct arrival *in)
{
    return memcmp(id->path.remote_gid, in->path->remote_gid, sizeof(id->path.remote_gid)) == 0;
}

/* The id that a message with both communication ids is about; those of the peer have theirs first.
 * NULL: there is none. */
static struct sw_cm_id *id_of(const struct sw_cm *cm, const struct arrival *in, uint32_t theirs,
                              uint32_t ours)
{
    struct sw_cm_id *id = sw_cm_by_local(cm, ours);
    if (!id || id->is_sidr || !id->remote_known || id->remote_comm_id != theirs)
        return NULL;
    return is_from_peer(id, in) ? id : NULL;
}

/* The same for what may come before the id of the peer is known. */
static struct sw_cm_id *asking_id_of(const struct sw_cm *cm, const struct arrival *in,
                                     uint32_t ours)
{
    struct sw_cm_id *id = sw_cm_by_local(cm, ours);
    return id && id->state == SW_CM_REQ_SENT && is_from_peer(id, in) ? id : NULL;
}

static void send_rej(struct sw_cm *cm, const struct arrival *in, uint32_t theirs, uint32_t ours,
                     enum sw_cm_about about, uint16_t reason)
{
    sw_cm_reply(cm, in->path,
                &(struct sw_cm_message){.attribute = SW_CM_REJ,
                                        .transaction = in->message->transaction,
                                        .rej = {.local_comm_id = ours,
                                                .remote_comm_id = theirs,
                                                .about = (uint8_t)about,
                                                .reason = reason}});
}

/* Its peer has forgotten the connection, and uses the QPN or the id for another one. */
static void make_stale(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    if (id->state != SW_CM_ESTABLISHED)
        return; /* its timers end it */
    sw_cm_begin_disconnect(cm, id, NULL, 0, now_ns);
    sw_cm_tell(cm, id, &(struct sw_cm_event){.kind = SW_CM_EVENT_STALE});
}

/* Says it again, and once more if need be: for as long as the peer asks. */
static void reject_again(struct sw_cm *cm, struct sw_cm_id *id, const struct arrival *in)
{
    sw_cm_say_again(cm, id, in->path);
    sw_cm_enter_timewait(cm, id, id->peer_response_ns, in->now_ns);
}

/* --- REQ --- */

static void again_req(struct sw_cm *cm, struct sw_cm_id *id, const struct arrival *in)
{
    count_duplicate(cm, in);
    bool mra_unheard = id->state == SW_CM_REQ_RCVD && id->mra_sent;
    if (mra_unheard || id->state == SW_CM_REP_SENT)
        sw_cm_say_again(cm, id, in->path);
    if (id->state == SW_CM_REP_SENT)
        sw_cm_await_again(cm, id, in->now_ns);
    if (id->state == SW_CM_TIMEWAIT && id->last_attribute == SW_CM_REJ)
        reject_again(cm, id, in);
}

/* What is refused whoever listens; 0: nothing. */
static uint16_t fault_of_req(const struct sw_cm_req *req)
{
    enum { MTU_256 = 1, MTU_4096 = 5 };
    if (req->service == SW_CM_RD ||
        (req->service == SW_CM_EXTENDED && req->extended_service != SW_CM_EXTENDED_XRC))
        return SW_CM_REASON_TRANSPORT;
    if (req->path_mtu < MTU_256 || req->path_mtu > MTU_4096)
        return SW_CM_REASON_MTU;
    return 0;
}

/* true: it is about a connection that is known here, and has been dealt with. */
static bool is_known_req(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_req *req = &in->message->req;
    struct sw_cm_id *id = sw_cm_by_remote(cm, req->local_comm_id, req->local_ca_guid, in->path);
    if (id && id->request == in->message->transaction && !id->active) {
        again_req(cm, id, in);
        return true;
    }
    if (id && id->state == SW_CM_TIMEWAIT) { /* over, and its number is used again */
        sw_cm_forget_remote(id);
        id = NULL;
    }
    if (!id)
        id = sw_cm_by_remote_qpn(cm, req->local_qpn, req->local_ca_guid, in->path);
    if (!id)
        return false;
    send_rej(cm, in, req->local_comm_id, 0, SW_CM_ABOUT_REQ, SW_CM_REASON_STALE);
    make_stale(cm, id, in->now_ns);
    return true;
}

static struct sw_cm_id *take_in(struct sw_cm *cm, const struct arrival *in, uint64_t service_id,
                                uint16_t *reason)
{
    struct sw_cm_listener *listener = sw_cm_listener_of(cm, service_id);
    if (!listener)
        return NULL;
    bool is_req = in->message->attribute == SW_CM_REQ;
    *reason = is_req ? SW_CM_REASON_NO_RESOURCES : SW_CM_SIDR_REJECTED;
    if (!sw_cm_has_room(cm))
        return NULL;
    if (sw_cm_is_crowded(cm, in->path)) {
        *reason = 0; /* as if it had been lost: it comes again */
        cm->counts.crowded++;
        return NULL;
    }
    struct sw_cm_id *id = cm->ops->incoming(cm->user, listener, in->path, in->message, reason);
    if (!id) {
        cm->counts.crowded += *reason == 0;
        return NULL;
    }
    assert(id->state == SW_CM_IDLE && !id->local_known && !id->destroyed);
    sw_cm_id_init(id, id->user);
    id->is_sidr = !is_req;
    id->path = *in->path;
    id->service_id = service_id;
    id->request = id->transaction = in->message->transaction;
    return id;
}

static void receive_req(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_req *req = &in->message->req;
    if (is_known_req(cm, in) || sw_cm_replied(cm, in->path, in->message, in->now_ns))
        return;
    if (sw_cm_is_past(cm, in->path, in->message, in->now_ns))
        return count_duplicate(cm, in);
    uint16_t reason = fault_of_req(req);
    struct sw_cm_id *id = NULL;
    if (!reason) {
        reason = SW_CM_REASON_SERVICE_ID;
        id = take_in(cm, in, req->service_id, &reason);
    }
    if (!id) {
        if (reason)
            send_rej(cm, in, req->local_comm_id, 0, SW_CM_ABOUT_REQ, reason);
        return;
    }
    sw_cm_take_terms(id, req, false);
    id->remote_comm_id = req->local_comm_id;
    id->remote_ca_guid = req->local_ca_guid;
    id->remote_qpn = req->local_qpn;
    bool attached = sw_cm_attach(cm, id);
    assert(attached); /* take_in() looked */
    sw_cm_know_remote(cm, id);
    sw_cm_know_remote_qpn(cm, id);
    sw_cm_count_asking(cm, id);
    id->state = SW_CM_REQ_RCVD;
    tell_event(cm, id, SW_CM_EVENT_REQ, in);
}

/* --- REP, RTU, MRA, REJ --- */

static void again_rep(struct sw_cm *cm, struct sw_cm_id *id, const struct arrival *in)
{
    count_duplicate(cm, in);
    bool mra_unheard = id->state == SW_CM_REP_RCVD && id->mra_sent;
    bool rtu_unheard = id->state == SW_CM_ESTABLISHED && id->last_attribute == SW_CM_RTU;
    if (mra_unheard || rtu_unheard)
        sw_cm_say_again(cm, id, in->path);
    if (id->state == SW_CM_TIMEWAIT && id->last_attribute == SW_CM_REJ)
        reject_again(cm, id, in);
}

/* The one that the peer of a REP must have forgotten. */
static struct sw_cm_id *stale_by_rep(struct sw_cm *cm, const struct arrival *in, uint32_t qpn)
{
    const struct sw_cm_rep *rep = &in->message->rep;
    struct sw_cm_id *old = sw_cm_by_remote(cm, rep->local_comm_id, rep->local_ca_guid, in->path);
    if (old && old->state == SW_CM_TIMEWAIT) { /* over, and its number is used again */
        sw_cm_forget_remote(old);
        old = NULL;
    }
    return old ? old : sw_cm_by_remote_qpn(cm, qpn, rep->local_ca_guid, in->path);
}

/* The peer's QP belongs to a connection that we still have: both end. */
static void refuse_stale_rep(struct sw_cm *cm, struct sw_cm_id *id, const struct arrival *in,
                             uint32_t qpn)
{
    const struct sw_cm_rep *rep = &in->message->rep;
    struct sw_cm_message told = {.attribute = SW_CM_REJ,
                                 .transaction = in->message->transaction,
                                 .rej = {.local_comm_id = rep->local_comm_id,
                                         .remote_comm_id = id->local_comm_id,
                                         .about = SW_CM_ABOUT_REP,
                                         .reason = SW_CM_REASON_STALE}};
    send_rej(cm, in, rep->local_comm_id, id->local_comm_id, SW_CM_ABOUT_REP, SW_CM_REASON_STALE);
    sw_cm_detach(cm, id);
    sw_cm_tell(cm, id,
               &(struct sw_cm_event){.kind = SW_CM_EVENT_REJ, .message = &told, .path = in->path});
    struct sw_cm_id *old = stale_by_rep(cm, in, qpn); /* the user may have done anything to it */
    if (old)
        make_stale(cm, old, in->now_ns);
}

static void receive_rep(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_rep *rep = &in->message->rep;
    struct sw_cm_id *id = id_of(cm, in, rep->local_comm_id, rep->remote_comm_id);
    if (id)
        return again_rep(cm, id, in);
    id = asking_id_of(cm, in, rep->remote_comm_id);
    if (!id) {
        send_rej(cm, in, rep->local_comm_id, rep->remote_comm_id, SW_CM_ABOUT_REP,
                 SW_CM_REASON_COMM_ID);
        return count_stray(cm);
    }
    uint32_t qpn = id->is_xrc ? rep->local_eecn : rep->local_qpn;
    if (stale_by_rep(cm, in, qpn))
        return refuse_stale_rep(cm, id, in, qpn);
    sw_cm_timer_clear(&cm->timers, &id->timer);
    id->remote_comm_id = rep->local_comm_id;
    id->remote_ca_guid = rep->local_ca_guid;
    id->remote_qpn = qpn;
    id->path = *in->path;
    sw_cm_know_remote(cm, id);
    sw_cm_know_remote_qpn(cm, id);
    id->state = SW_CM_REP_RCVD;
    tell_event(cm, id, SW_CM_EVENT_REP, in);
}

static void receive_rtu(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_rtu *rtu = &in->message->rtu;
    struct sw_cm_id *id = id_of(cm, in, rtu->local_comm_id, rtu->remote_comm_id);
    if (!id) { /* we gave up meanwhile */
        send_rej(cm, in, rtu->local_comm_id, rtu->remote_comm_id, SW_CM_ABOUT_OTHER,
                 SW_CM_REASON_COMM_ID);
        return count_stray(cm);
    }
    if (id->state != SW_CM_REP_SENT) {
        count_duplicate(cm, in);
        if (id->state == SW_CM_TIMEWAIT && id->last_attribute == SW_CM_REJ)
            sw_cm_say_again(cm, id, in->path);
        return;
    }
    sw_cm_timer_clear(&cm->timers, &id->timer);
    sw_cm_uncount_asking(cm, id);
    id->state = SW_CM_ESTABLISHED;
    tell_event(cm, id, SW_CM_EVENT_RTU, in);
}

static void receive_mra(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_mra *mra = &in->message->mra;
    struct sw_cm_id *id = NULL;
    if (mra->about == SW_CM_ABOUT_REQ) {
        id = asking_id_of(cm, in, mra->remote_comm_id);
    } else if (mra->about == SW_CM_ABOUT_REP) {
        id = id_of(cm, in, mra->local_comm_id, mra->remote_comm_id);
        if (id && id->state != SW_CM_REP_SENT)
            id = NULL;
    }
    if (!id)
        return count_stray(cm);
    if (id->mra_received)
        return count_duplicate(cm, in);
    id->mra_received = true;
    sw_cm_be_patient(cm, id, sw_cm_time_ns(mra->service_timeout), in->now_ns);
    tell_event(cm, id, SW_CM_EVENT_MRA, in);
}

/* A peer that gives up may not know our id, but has told us its GUID. */
static struct sw_cm_id *rejected_id(const struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_rej *rej = &in->message->rej;
    struct sw_cm_id *id = id_of(cm, in, rej->local_comm_id, rej->remote_comm_id);
    if (!id)
        id = asking_id_of(cm, in, rej->remote_comm_id);
    if (!id && rej->reason == SW_CM_REASON_TIMEOUT && rej->info_len >= 8)
        id = sw_cm_by_remote(cm, rej->local_comm_id, sw_be64_load(rej->info), in->path);
    return id;
}

/* A peer that says so has made no connection of the REQ, and knows of no other copy. */
static bool is_from_nobody(const struct sw_cm_rej *rej)
{
    return rej->reason == SW_CM_REASON_SERVICE_ID && !rej->local_comm_id;
}

static void receive_rej(struct sw_cm *cm, const struct arrival *in)
{
    struct sw_cm_id *id = rejected_id(cm, in);
    enum sw_cm_state state = id ? id->state : SW_CM_IDLE;
    switch (state) {
    case SW_CM_REQ_SENT:
        if (is_from_nobody(&in->message->rej) && sw_cm_awaits_other_answer(cm, id, in->now_ns))
            return;
        sw_cm_detach(cm, id);
        return tell_event(cm, id, SW_CM_EVENT_REJ, in);
    case SW_CM_REQ_RCVD:
    case SW_CM_REP_SENT:
    case SW_CM_REP_RCVD:
    case SW_CM_ESTABLISHED:
        id->last_attribute = (enum sw_cm_attribute)0; /* nobody wants to hear it again */
        sw_cm_enter_timewait(cm, id, 0, in->now_ns);
        return tell_event(cm, id, SW_CM_EVENT_REJ, in);
    case SW_CM_DREQ_SENT:
        sw_cm_enter_timewait(cm, id, 0, in->now_ns);
        return sw_cm_tell(cm, id, &(struct sw_cm_event){.kind = SW_CM_EVENT_DREP});
    case SW_CM_DREQ_RCVD:
    case SW_CM_TIMEWAIT:
        return count_duplicate(cm, in);
    case SW_CM_IDLE:
    case SW_CM_SIDR_REQ_SENT:
    case SW_CM_SIDR_REQ_RCVD:
    case SW_CM_STATE_COUNT:
        return count_stray(cm);
    }
}

/* --- DREQ, DREP --- */

static void drep_for(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_dreq *dreq = &in->message->dreq;
    sw_cm_reply(cm, in->path,
                &(struct sw_cm_message){.attribute = SW_CM_DREP,
                                        .transaction = in->message->transaction,
                                        .drep = {.local_comm_id = dreq->remote_comm_id,
                                                 .remote_comm_id = dreq->local_comm_id}});
}

/* Both sides disconnect at once: neither needs to ask its user. */
static void cross_requests(struct sw_cm *cm, struct sw_cm_id *id, const struct arrival *in)
{
    id->transaction = in->message->transaction;
    sw_cm_say_drep(cm, id, NULL, 0);
    sw_cm_enter_timewait(cm, id, 0, in->now_ns);
    sw_cm_tell(cm, id, &(struct sw_cm_event){.kind = SW_CM_EVENT_DREP, .path = in->path});
}

static void receive_dreq(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_dreq *dreq = &in->message->dreq;
    struct sw_cm_id *id = id_of(cm, in, dreq->local_comm_id, dreq->remote_comm_id);
    if (!id) { /* over and forgotten here; the peer is to get there, too */
        count_stray(cm);
        return drep_for(cm, in);
    }
    if (dreq->remote_qpn != id->local_qpn)
        return count_stray(cm);
    switch (id->state) {
    case SW_CM_REP_SENT: /* its RTU was lost */
    case SW_CM_ESTABLISHED:
        sw_cm_timer_clear(&cm->timers, &id->timer);
        sw_cm_uncount_asking(cm, id);
        sw_cm_forget_remote_qpn(id);
        id->state = SW_CM_DREQ_RCVD;
        id->transaction = in->message->transaction;
        return tell_event(cm, id, SW_CM_EVENT_DREQ, in);
    case SW_CM_DREQ_SENT:
        return cross_requests(cm, id, in);
    case SW_CM_TIMEWAIT:
        count_duplicate(cm, in);
        if (id->last_attribute == SW_CM_DREP && id->transaction == in->message->transaction)
            return sw_cm_say_again(cm, id, in->path);
        return drep_for(cm, in);
    case SW_CM_DREQ_RCVD:
        return count_duplicate(cm, in);
    case SW_CM_REQ_RCVD:
    case SW_CM_REP_RCVD:
    case SW_CM_IDLE:
    case SW_CM_REQ_SENT:
    case SW_CM_SIDR_REQ_SENT:
    case SW_CM_SIDR_REQ_RCVD:
    case SW_CM_STATE_COUNT:
        return count_stray(cm);
    }
}

static void receive_drep(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_drep *drep = &in->message->drep;
    struct sw_cm_id *id = id_of(cm, in, drep->local_comm_id, drep->remote_comm_id);
    if (!id)
        return count_stray(cm);
    if (id->state != SW_CM_DREQ_SENT)
        return count_duplicate(cm, in);
    sw_cm_enter_timewait(cm, id, 0, in->now_ns);
    tell_event(cm, id, SW_CM_EVENT_DREP, in);
}

/* --- LAP --- */

/* Alternate paths are for fabrics with more than one way; always refused. */
static void receive_lap(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_lap *lap = &in->message->lap;
    bool known = id_of(cm, in, lap->local_comm_id, lap->remote_comm_id);
    if (!known)
        count_stray(cm);
    sw_cm_reply(cm, in->path,
                &(struct sw_cm_message){
                    .attribute = SW_CM_APR,
                    .transaction = in->message->transaction,
                    .apr = {.local_comm_id = lap->remote_comm_id,
                            .remote_comm_id = lap->local_comm_id,
                            .status = known ? SW_CM_APR_UNSUPPORTED : SW_CM_APR_COMM_ID}});
}

/* --- SIDR --- */

static void receive_sidr_req(struct sw_cm *cm, const struct arrival *in)
{
    const struct sw_cm_sidr_req *req = &in->message->sidr_req;
    struct sw_cm_id *id = sw_cm_by_request(cm, req->request_id, in->path);
    if (id && id->request == in->message->transaction) {
        count_duplicate(cm, in);
        if (id->state == SW_CM_TIMEWAIT)
            sw_cm_say_again(cm, id, in->path);
        return;
    }
    if (sw_cm_replied(cm, in->path, in->message, in->now_ns))
        return;
    uint16_t status = SW_CM_SIDR_UNSUPPORTED;
    id = take_in(cm, in, req->service_id, &status);
    if (!id) {
        if (status)
            sw_cm_reply(cm, in->path,
                        &(struct sw_cm_message){.attribute = SW_CM_SIDR_REP,
                                                .transaction = in->message->transaction,
                                                .sidr_rep = {.request_id = req->request_id,
                                                             .status = (uint8_t)status,
                                                             .service_id = req->service_id}});
        return;
    }
    id->remote_comm_id = req->request_id;
    id->peer_response_ns = SW_CM_SIDR_MEMORY_NS;
    bool attached = sw_cm_attach(cm, id);
    assert(attached);
    sw_cm_know_remote(cm, id);
    sw_cm_count_asking(cm, id);
    id->state = SW_CM_SIDR_REQ_RCVD;
    tell_event(cm, id, SW_CM_EVENT_SIDR_REQ, in);
}

static void receive_sidr_rep(struct sw_cm *cm, const struct arrival *in)
{
    struct sw_cm_id *id = sw_cm_by_local(cm, in->message->sidr_rep.request_id);
    if (!id || id->state != SW_CM_SIDR_REQ_SENT || !is_from_peer(id, in))
        return count_stray(cm);
    sw_cm_detach(cm, id);
    tell_event(cm, id, SW_CM_EVENT_SIDR_REP, in);
}

static void dispatch_message(struct sw_cm *cm, const struct arrival *in)
{
    switch (in->message->attribute) {
    case SW_CM_REQ:
        return receive_req(cm, in);
    case SW_CM_MRA:
        return receive_mra(cm, in);
    case SW_CM_REJ:
        return receive_rej(cm, in);
    case SW_CM_REP:
        return receive_rep(cm, in);
    case SW_CM_RTU:
        return receive_rtu(cm, in);
    case SW_CM_DREQ:
        return receive_dreq(cm, in);
    case SW_CM_DREP:
        return receive_drep(cm, in);
    case SW_CM_SIDR_REQ:
        return receive_sidr_req(cm, in);
    case SW_CM_SIDR_REP:
        return receive_sidr_rep(cm, in);
    case SW_CM_LAP:
        return receive_lap(cm, in);
    case SW_CM_APR:
        return count_stray(cm);
    }
}

enum sw_cm_mad_fault sw_cm_receive(struct sw_cm *cm, const struct sw_cm_path *path,
                                   const uint8_t *mad, size_t len, uint64_t now_ns)
{
    struct sw_cm_message message;
    enum sw_cm_mad_fault fault = sw_cm_mad_decode(mad, len, &message);
    if (fault) {
        cm->counts.malformed++;
        return fault;
    }
    cm->counts.received[message.attribute - SW_CM_REQ]++;
    dispatch_message(cm, &(struct arrival){.message = &message, .path = path, .now_ns = now_ns});
    return SW_CM_MAD_FAULT_NONE;
}

/* The body of a message of CM; NULL: it is none. */
static const uint8_t *body_of(const uint8_t *mad, size_t len, uint16_t *attribute)
{
    struct sw_mad_header header;
    if (len != SW_MAD_BYTES)
        return NULL;
    sw_mad_header_decode(mad, &header);
    *attribute = header.attribute;
    return header.class == SW_MAD_CLASS_CM && sw_cm_attribute_name(header.attribute)
               ? mad + SW_MAD_HEADER_BYTES
               : NULL;
}

static bool is_request(uint16_t attribute)
{
    return attribute == SW_CM_REQ || attribute == SW_CM_SIDR_REQ;
}

bool sw_cm_asks(const uint8_t *mad, size_t len, uint64_t *service_id)
{
    uint16_t attribute;
    const uint8_t *body = body_of(mad, len, &attribute);
    if (!body || !is_request(attribute))
        return false;
    *service_id = sw_be64_load(body + 8);
    return true;
}

uint16_t sw_cm_addressee(const uint8_t *mad, size_t len)
{
    uint16_t attribute;
    const uint8_t *body = body_of(mad, len, &attribute);
    if (!body || is_request(attribute))
        return 0;
    /* SIDR_REP names the request, that is us; all others have our id second. */
    return sw_cm_slot_of(sw_be32_load(attribute == SW_CM_SIDR_REP ? body : body + 4));
}
