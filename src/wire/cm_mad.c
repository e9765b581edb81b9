/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Offsets are those of the tables of IBTA Vol1 12.7 and 12.11, which count from the end of the
 * MAD's header. Fields that share a byte are named by their lowest bit and their number of bits.
 */
#include "wire/cm_mad.h"

#include <assert.h>
#include <string.h>

#include "wire/bytes.h"

enum { BODY_BYTES = SW_MAD_BYTES - SW_MAD_HEADER_BYTES, MASK20 = 0xfffff, MASK24 = 0xffffff };

static uint8_t bits_load(uint8_t from, int lowest, int count)
{
    return (uint8_t)(from >> lowest & ((1 << count) - 1));
}

static uint8_t bits_at(unsigned value, int lowest, int count)
{
    return (uint8_t)((value & ((1u << count) - 1)) << lowest);
}

/* Two numbers of 24 and 8 bits beside each other. */
static void be24_store(uint8_t *to, uint32_t value, uint8_t beside)
{
    sw_be24_store(to, value & MASK24);
    to[3] = beside;
}

static void ids_load(const uint8_t *from, uint32_t *local, uint32_t *remote)
{
    *local = sw_be32_load(from);
    *remote = sw_be32_load(from + 4);
}

static void ids_store(uint8_t *to, uint32_t local, uint32_t remote)
{
    sw_be32_store(to, local);
    sw_be32_store(to + 4, remote);
}

static void req_path_decode(const uint8_t *from, struct sw_cm_req_path *out)
{
    out->local_lid = sw_be16_load(from);
    out->remote_lid = sw_be16_load(from + 2);
    memcpy(out->local_gid, from + 4, sizeof(out->local_gid));
    memcpy(out->remote_gid, from + 20, sizeof(out->remote_gid));
    out->flow_label = sw_be32_load(from + 36) >> 12;
    out->packet_rate = bits_load(from[39], 0, 6);
    out->traffic_class = from[40];
    out->hop_limit = from[41];
    out->sl = bits_load(from[42], 4, 4);
    out->subnet_local = bits_load(from[42], 3, 1);
    out->local_ack_timeout = bits_load(from[43], 3, 5);
}

static void req_path_encode(const struct sw_cm_req_path *path, uint8_t *to)
{
    sw_be16_store(to, path->local_lid);
    sw_be16_store(to + 2, path->remote_lid);
    memcpy(to + 4, path->local_gid, sizeof(path->local_gid));
    memcpy(to + 20, path->remote_gid, sizeof(path->remote_gid));
    sw_be32_store(to + 36, (path->flow_label & MASK20) << 12 | bits_at(path->packet_rate, 0, 6));
    to[40] = path->traffic_class;
    to[41] = path->hop_limit;
    to[42] = bits_at(path->sl, 4, 4) | bits_at(path->subnet_local, 3, 1);
    to[43] = bits_at(path->local_ack_timeout, 3, 5);
}

enum { REQ_PRIMARY = 52, REQ_ALTERNATE = 96, REQ_DATA = 140 };

static void req_decode(const uint8_t *from, struct sw_cm_req *out)
{
    out->local_comm_id = sw_be32_load(from);
    out->vendor_id = sw_be24_load(from + 5);
    out->service_id = sw_be64_load(from + 8);
    out->local_ca_guid = sw_be64_load(from + 16);
    out->local_qkey = sw_be32_load(from + 28);
    out->local_qpn = sw_be24_load(from + 32);
    out->responder_resources = from[35];
    out->local_eecn = sw_be24_load(from + 36);
    out->initiator_depth = from[39];
    out->remote_eecn = sw_be24_load(from + 40);
    out->remote_cm_response_timeout = bits_load(from[43], 3, 5);
    out->service = bits_load(from[43], 1, 2);
    out->flow_control = bits_load(from[43], 0, 1);
    out->starting_psn = sw_be24_load(from + 44);
    out->local_cm_response_timeout = bits_load(from[47], 3, 5);
    out->retry_count = bits_load(from[47], 0, 3);
    out->pkey = sw_be16_load(from + 48);
    out->path_mtu = bits_load(from[50], 4, 4);
    out->rdc_exists = bits_load(from[50], 3, 1);
    out->rnr_retry_count = bits_load(from[50], 0, 3);
    out->max_cm_retries = bits_load(from[51], 4, 4);
    out->srq = bits_load(from[51], 3, 1);
    out->extended_service = bits_load(from[51], 0, 3);
    req_path_decode(from + REQ_PRIMARY, &out->primary);
    req_path_decode(from + REQ_ALTERNATE, &out->alternate);
    out->sap_supported = bits_load(from[REQ_ALTERNATE + 43], 2, 1);
    memcpy(out->private_data, from + REQ_DATA, sizeof(out->private_data));
}

static void req_encode(const struct sw_cm_req *req, uint8_t *to)
{
    sw_be32_store(to, req->local_comm_id);
    sw_be32_store(to + 4, req->vendor_id & MASK24);
    sw_be64_store(to + 8, req->service_id);
    sw_be64_store(to + 16, req->local_ca_guid);
    sw_be32_store(to + 28, req->local_qkey);
    be24_store(to + 32, req->local_qpn, req->responder_resources);
    be24_store(to + 36, req->local_eecn, req->initiator_depth);
    be24_store(to + 40, req->remote_eecn,
               bits_at(req->remote_cm_response_timeout, 3, 5) | bits_at(req->service, 1, 2) |
                   bits_at(req->flow_control, 0, 1));
    be24_store(to + 44, req->starting_psn,
               bits_at(req->local_cm_response_timeout, 3, 5) | bits_at(req->retry_count, 0, 3));
    sw_be16_store(to + 48, req->pkey);
    to[50] = bits_at(req->path_mtu, 4, 4) | bits_at(req->rdc_exists, 3, 1) |
             bits_at(req->rnr_retry_count, 0, 3);
    to[51] = bits_at(req->max_cm_retries, 4, 4) | bits_at(req->srq, 3, 1) |
             bits_at(req->extended_service, 0, 3);
    req_path_encode(&req->primary, to + REQ_PRIMARY);
    req_path_encode(&req->alternate, to + REQ_ALTERNATE);
    to[REQ_ALTERNATE + 43] |= bits_at(req->sap_supported, 2, 1);
    memcpy(to + REQ_DATA, req->private_data, sizeof(req->private_data));
}

static void mra_decode(const uint8_t *from, struct sw_cm_mra *out)
{
    ids_load(from, &out->local_comm_id, &out->remote_comm_id);
    out->about = bits_load(from[8], 6, 2);
    out->service_timeout = bits_load(from[9], 3, 5);
    memcpy(out->private_data, from + 10, sizeof(out->private_data));
}

static void mra_encode(const struct sw_cm_mra *mra, uint8_t *to)
{
    ids_store(to, mra->local_comm_id, mra->remote_comm_id);
    to[8] = bits_at(mra->about, 6, 2);
    to[9] = bits_at(mra->service_timeout, 3, 5);
    memcpy(to + 10, mra->private_data, sizeof(mra->private_data));
}

static void rej_decode(const uint8_t *from, struct sw_cm_rej *out)
{
    ids_load(from, &out->local_comm_id, &out->remote_comm_id);
    out->about = bits_load(from[8], 6, 2);
    out->info_len = bits_load(from[9], 1, 7);
    out->reason = sw_be16_load(from + 10);
    memcpy(out->info, from + 12, sizeof(out->info));
    memcpy(out->private_data, from + 84, sizeof(out->private_data));
}

static void rej_encode(const struct sw_cm_rej *rej, uint8_t *to)
{
    ids_store(to, rej->local_comm_id, rej->remote_comm_id);
    to[8] = bits_at(rej->about, 6, 2);
    to[9] = bits_at(rej->info_len, 1, 7);
    sw_be16_store(to + 10, rej->reason);
    memcpy(to + 12, rej->info, sizeof(rej->info));
    memcpy(to + 84, rej->private_data, sizeof(rej->private_data));
}

static void rep_decode(const uint8_t *from, struct sw_cm_rep *out)
{
    ids_load(from, &out->local_comm_id, &out->remote_comm_id);
    out->local_qkey = sw_be32_load(from + 8);
    out->local_qpn = sw_be24_load(from + 12);
    out->local_eecn = sw_be24_load(from + 16);
    out->starting_psn = sw_be24_load(from + 20);
    out->responder_resources = from[24];
    out->initiator_depth = from[25];
    out->vendor_id = (uint32_t)from[15] << 16 | (uint32_t)from[19] << 8 | from[23];
    out->target_ack_delay = bits_load(from[26], 3, 5);
    out->failover_accepted = bits_load(from[26], 1, 2);
    out->flow_control = bits_load(from[26], 0, 1);
    out->rnr_retry_count = bits_load(from[27], 5, 3);
    out->srq = bits_load(from[27], 4, 1);
    out->local_ca_guid = sw_be64_load(from + 28);
    memcpy(out->private_data, from + 36, sizeof(out->private_data));
}

static void rep_encode(const struct sw_cm_rep *rep, uint8_t *to)
{
    ids_store(to, rep->local_comm_id, rep->remote_comm_id);
    sw_be32_store(to + 8, rep->local_qkey);
    be24_store(to + 12, rep->local_qpn, (uint8_t)(rep->vendor_id >> 16));
    be24_store(to + 16, rep->local_eecn, (uint8_t)(rep->vendor_id >> 8));
    be24_store(to + 20, rep->starting_psn, (uint8_t)rep->vendor_id);
    to[24] = rep->responder_resources;
    to[25] = rep->initiator_depth;
    to[26] = bits_at(rep->target_ack_delay, 3, 5) | bits_at(rep->failover_accepted, 1, 2) |
             bits_at(rep->flow_control, 0, 1);
    to[27] = bits_at(rep->rnr_retry_count, 5, 3) | bits_at(rep->srq, 4, 1);
    sw_be64_store(to + 28, rep->local_ca_guid);
    memcpy(to + 36, rep->private_data, sizeof(rep->private_data));
}

static void rtu_decode(const uint8_t *from, struct sw_cm_rtu *out)
{
    ids_load(from, &out->local_comm_id, &out->remote_comm_id);
    memcpy(out->private_data, from + 8, sizeof(out->private_data));
}

static void rtu_encode(const struct sw_cm_rtu *rtu, uint8_t *to)
{
    ids_store(to, rtu->local_comm_id, rtu->remote_comm_id);
    memcpy(to + 8, rtu->private_data, sizeof(rtu->private_data));
}

static void dreq_decode(const uint8_t *from, struct sw_cm_dreq *out)
{
    ids_load(from, &out->local_comm_id, &out->remote_comm_id);
    out->remote_qpn = sw_be24_load(from + 8);
    memcpy(out->private_data, from + 12, sizeof(out->private_data));
}

static void dreq_encode(const struct sw_cm_dreq *dreq, uint8_t *to)
{
    ids_store(to, dreq->local_comm_id, dreq->remote_comm_id);
    be24_store(to + 8, dreq->remote_qpn, 0);
    memcpy(to + 12, dreq->private_data, sizeof(dreq->private_data));
}

static void drep_decode(const uint8_t *from, struct sw_cm_drep *out)
{
    ids_load(from, &out->local_comm_id, &out->remote_comm_id);
    memcpy(out->private_data, from + 8, sizeof(out->private_data));
}

static void drep_encode(const struct sw_cm_drep *drep, uint8_t *to)
{
    ids_store(to, drep->local_comm_id, drep->remote_comm_id);
    memcpy(to + 8, drep->private_data, sizeof(drep->private_data));
}

static void sidr_req_decode(const uint8_t *from, struct sw_cm_sidr_req *out)
{
    out->request_id = sw_be32_load(from);
    out->pkey = sw_be16_load(from + 4);
    out->service_id = sw_be64_load(from + 8);
    memcpy(out->private_data, from + 16, sizeof(out->private_data));
}

static void sidr_req_encode(const struct sw_cm_sidr_req *req, uint8_t *to)
{
    sw_be32_store(to, req->request_id);
    sw_be16_store(to + 4, req->pkey);
    sw_be64_store(to + 8, req->service_id);
    memcpy(to + 16, req->private_data, sizeof(req->private_data));
}

static void sidr_rep_decode(const uint8_t *from, struct sw_cm_sidr_rep *out)
{
    out->request_id = sw_be32_load(from);
    out->status = from[4];
    out->info_len = from[5];
    out->qpn = sw_be24_load(from + 8);
    out->vendor_id = (uint32_t)sw_be16_load(from + 6) << 8 | from[11];
    out->service_id = sw_be64_load(from + 12);
    out->qkey = sw_be32_load(from + 20);
    memcpy(out->info, from + 24, sizeof(out->info));
    memcpy(out->private_data, from + 96, sizeof(out->private_data));
}

static void sidr_rep_encode(const struct sw_cm_sidr_rep *rep, uint8_t *to)
{
    sw_be32_store(to, rep->request_id);
    to[4] = rep->status;
    to[5] = rep->info_len;
    sw_be16_store(to + 6, (uint16_t)(rep->vendor_id >> 8));
    be24_store(to + 8, rep->qpn, (uint8_t)rep->vendor_id);
    sw_be64_store(to + 12, rep->service_id);
    sw_be32_store(to + 20, rep->qkey);
    memcpy(to + 24, rep->info, sizeof(rep->info));
    memcpy(to + 96, rep->private_data, sizeof(rep->private_data));
}

/* Its path is that of a REQ with the last numbers in another order. */
static void lap_decode(const uint8_t *from, struct sw_cm_lap *out)
{
    ids_load(from, &out->local_comm_id, &out->remote_comm_id);
    out->remote_qpn = sw_be24_load(from + 12);
    out->remote_cm_response_timeout = bits_load(from[15], 3, 5);
    struct sw_cm_req_path *path = &out->alternate;
    path->local_lid = sw_be16_load(from + 20);
    path->remote_lid = sw_be16_load(from + 22);
    memcpy(path->local_gid, from + 24, sizeof(path->local_gid));
    memcpy(path->remote_gid, from + 40, sizeof(path->remote_gid));
    path->flow_label = sw_be32_load(from + 56) >> 12;
    path->traffic_class = from[59];
    path->hop_limit = from[60];
    path->packet_rate = bits_load(from[61], 0, 6);
    path->sl = bits_load(from[62], 4, 4);
    path->subnet_local = bits_load(from[62], 3, 1);
    path->local_ack_timeout = bits_load(from[63], 3, 5);
    memcpy(out->private_data, from + 64, sizeof(out->private_data));
}

static void lap_encode(const struct sw_cm_lap *lap, uint8_t *to)
{
    const struct sw_cm_req_path *path = &lap->alternate;
    ids_store(to, lap->local_comm_id, lap->remote_comm_id);
    be24_store(to + 12, lap->remote_qpn, bits_at(lap->remote_cm_response_timeout, 3, 5));
    sw_be16_store(to + 20, path->local_lid);
    sw_be16_store(to + 22, path->remote_lid);
    memcpy(to + 24, path->local_gid, sizeof(path->local_gid));
    memcpy(to + 40, path->remote_gid, sizeof(path->remote_gid));
    sw_be32_store(to + 56, (path->flow_label & MASK20) << 12 | path->traffic_class);
    to[60] = path->hop_limit;
    to[61] = bits_at(path->packet_rate, 0, 6);
    to[62] = bits_at(path->sl, 4, 4) | bits_at(path->subnet_local, 3, 1);
    to[63] = bits_at(path->local_ack_timeout, 3, 5);
    memcpy(to + 64, lap->private_data, sizeof(lap->private_data));
}

static void apr_decode(const uint8_t *from, struct sw_cm_apr *out)
{
    ids_load(from, &out->local_comm_id, &out->remote_comm_id);
    out->info_len = from[8];
    out->status = from[9];
    memcpy(out->info, from + 12, sizeof(out->info));
    memcpy(out->private_data, from + 84, sizeof(out->private_data));
}

static void apr_encode(const struct sw_cm_apr *apr, uint8_t *to)
{
    ids_store(to, apr->local_comm_id, apr->remote_comm_id);
    to[8] = apr->info_len;
    to[9] = apr->status;
    memcpy(to + 12, apr->info, sizeof(apr->info));
    memcpy(to + 84, apr->private_data, sizeof(apr->private_data));
}

static_assert(REQ_DATA + SW_CM_REQ_PRIVATE == BODY_BYTES, "REQ");
static_assert(10 + SW_CM_MRA_PRIVATE == BODY_BYTES, "MRA");
static_assert(84 + SW_CM_REJ_PRIVATE == BODY_BYTES && 12 + SW_CM_INFO_MAX == 84, "REJ, APR");
static_assert(36 + SW_CM_REP_PRIVATE == BODY_BYTES, "REP");
static_assert(8 + SW_CM_RTU_PRIVATE == BODY_BYTES && 8 + SW_CM_DREP_PRIVATE == BODY_BYTES, "RTU");
static_assert(12 + SW_CM_DREQ_PRIVATE == BODY_BYTES, "DREQ");
static_assert(16 + SW_CM_SIDR_REQ_PRIVATE == BODY_BYTES, "SIDR_REQ");
static_assert(96 + SW_CM_SIDR_REP_PRIVATE == BODY_BYTES && 24 + SW_CM_INFO_MAX == 96, "SIDR_REP");
static_assert(64 + SW_CM_LAP_PRIVATE == BODY_BYTES, "LAP");

static void body_decode(const uint8_t *from, struct sw_cm_message *message)
{
    switch (message->attribute) {
    case SW_CM_REQ:
        return req_decode(from, &message->req);
    case SW_CM_MRA:
        return mra_decode(from, &message->mra);
    case SW_CM_REJ:
        return rej_decode(from, &message->rej);
    case SW_CM_REP:
        return rep_decode(from, &message->rep);
    case SW_CM_RTU:
        return rtu_decode(from, &message->rtu);
    case SW_CM_DREQ:
        return dreq_decode(from, &message->dreq);
    case SW_CM_DREP:
        return drep_decode(from, &message->drep);
    case SW_CM_SIDR_REQ:
        return sidr_req_decode(from, &message->sidr_req);
    case SW_CM_SIDR_REP:
        return sidr_rep_decode(from, &message->sidr_rep);
    case SW_CM_LAP:
        return lap_decode(from, &message->lap);
    case SW_CM_APR:
        return apr_decode(from, &message->apr);
    }
}

static void body_encode(const struct sw_cm_message *message, uint8_t *to)
{
    switch (message->attribute) {
    case SW_CM_REQ:
        return req_encode(&message->req, to);
    case SW_CM_MRA:
        return mra_encode(&message->mra, to);
    case SW_CM_REJ:
        return rej_encode(&message->rej, to);
    case SW_CM_REP:
        return rep_encode(&message->rep, to);
    case SW_CM_RTU:
        return rtu_encode(&message->rtu, to);
    case SW_CM_DREQ:
        return dreq_encode(&message->dreq, to);
    case SW_CM_DREP:
        return drep_encode(&message->drep, to);
    case SW_CM_SIDR_REQ:
        return sidr_req_encode(&message->sidr_req, to);
    case SW_CM_SIDR_REP:
        return sidr_rep_encode(&message->sidr_rep, to);
    case SW_CM_LAP:
        return lap_encode(&message->lap, to);
    case SW_CM_APR:
        return apr_encode(&message->apr, to);
    }
}

static enum sw_cm_mad_fault check_header(const struct sw_mad_header *header)
{
    if (header->base_version != SW_MAD_BASE_VERSION)
        return SW_CM_MAD_FAULT_VERSION;
    if (header->class != SW_MAD_CLASS_CM)
        return SW_CM_MAD_FAULT_CLASS;
    if (header->class_version != SW_MAD_CLASS_CM_VERSION)
        return SW_CM_MAD_FAULT_VERSION;
    if (header->method != SW_MAD_METHOD_SEND)
        return SW_CM_MAD_FAULT_METHOD;
    return sw_cm_attribute_name(header->attribute) ? SW_CM_MAD_FAULT_NONE
                                                   : SW_CM_MAD_FAULT_ATTRIBUTE;
}

static bool info_fits(const struct sw_cm_message *message)
{
    if (message->attribute == SW_CM_REJ)
        return message->rej.info_len <= SW_CM_INFO_MAX;
    if (message->attribute == SW_CM_SIDR_REP)
        return message->sidr_rep.info_len <= SW_CM_INFO_MAX;
    return message->attribute != SW_CM_APR || message->apr.info_len <= SW_CM_INFO_MAX;
}

/* The one field of some messages that lies in the header. */
static uint32_t modifier_of(const struct sw_cm_message *message)
{
    if (message->attribute == SW_CM_REQ)
        return message->req.ece_options;
    if (message->attribute == SW_CM_REP)
        return message->rep.ece_options;
    return message->attribute == SW_CM_SIDR_REP ? message->sidr_rep.ece_options : 0;
}

static void take_modifier(struct sw_cm_message *message, uint32_t modifier)
{
    if (message->attribute == SW_CM_REQ)
        message->req.ece_options = modifier;
    if (message->attribute == SW_CM_REP)
        message->rep.ece_options = modifier;
    if (message->attribute == SW_CM_SIDR_REP)
        message->sidr_rep.ece_options = modifier;
}

enum sw_cm_mad_fault sw_cm_mad_decode(const uint8_t *mad, size_t len, struct sw_cm_message *out)
{
    if (len != SW_MAD_BYTES)
        return SW_CM_MAD_FAULT_LENGTH;
    struct sw_mad_header header;
    sw_mad_header_decode(mad, &header);
    enum sw_cm_mad_fault fault = check_header(&header);
    if (fault)
        return fault;
    struct sw_cm_message message = {.attribute = (enum sw_cm_attribute)header.attribute,
                                    .transaction = header.transaction};
    body_decode(mad + SW_MAD_HEADER_BYTES, &message);
    take_modifier(&message, header.modifier);
    if (!info_fits(&message))
        return SW_CM_MAD_FAULT_INFO;
    *out = message;
    return SW_CM_MAD_FAULT_NONE;
}

void sw_cm_mad_encode(const struct sw_cm_message *message, uint8_t mad[SW_MAD_BYTES])
{
    memset(mad, 0, SW_MAD_BYTES);
    sw_mad_header_encode(&(struct sw_mad_header){.base_version = SW_MAD_BASE_VERSION,
                                                 .class = SW_MAD_CLASS_CM,
                                                 .class_version = SW_MAD_CLASS_CM_VERSION,
                                                 .method = SW_MAD_METHOD_SEND,
                                                 .transaction = message->transaction,
                                                 .attribute = (uint16_t)message->attribute,
                                                 .modifier = modifier_of(message)},
                         mad);
    body_encode(message, mad + SW_MAD_HEADER_BYTES);
}

const char *sw_cm_mad_fault_name(enum sw_cm_mad_fault fault)
{
    static const char *const names[SW_CM_MAD_FAULT_COUNT] = {
        [SW_CM_MAD_FAULT_NONE] = "ok",
        [SW_CM_MAD_FAULT_LENGTH] = "no MAD by its length",
        [SW_CM_MAD_FAULT_VERSION] = "another version",
        [SW_CM_MAD_FAULT_CLASS] = "another class",
        [SW_CM_MAD_FAULT_METHOD] = "another method than Send",
        [SW_CM_MAD_FAULT_ATTRIBUTE] = "unknown message",
        [SW_CM_MAD_FAULT_INFO] = "more additional information than fits",
    };
    return names[fault];
}

const char *sw_cm_attribute_name(uint16_t attribute)
{
    static const char *const names[] = {"REQ",  "MRA",      "REJ",      "REP", "RTU", "DREQ",
                                        "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};
    return attribute >= SW_CM_REQ && attribute <= SW_CM_APR ? names[attribute - SW_CM_REQ] : NULL;
}

const char *sw_cm_reason_name(uint16_t reason)
{
    static const char *const names[] = {
        [SW_CM_REASON_NO_QP] = "no QP available",
        [SW_CM_REASON_NO_EEC] = "no EEC available",
        [SW_CM_REASON_NO_RESOURCES] = "no resources available",
        [SW_CM_REASON_TIMEOUT] = "timeout",
        [SW_CM_REASON_UNSUPPORTED] = "unsupported request",
        [SW_CM_REASON_COMM_ID] = "invalid communication ID",
        [SW_CM_REASON_COMM_INSTANCE] = "invalid communication instance",
        [SW_CM_REASON_SERVICE_ID] = "invalid service ID",
        [SW_CM_REASON_TRANSPORT] = "invalid transport service type",
        [SW_CM_REASON_STALE] = "stale connection",
        [SW_CM_REASON_RDC] = "RDC does not exist",
        [SW_CM_REASON_GID] = "primary remote port GID rejected",
        [SW_CM_REASON_LID] = "primary remote port LID rejected",
        [SW_CM_REASON_SL] = "invalid primary SL",
        [SW_CM_REASON_TRAFFIC_CLASS] = "invalid primary traffic class",
        [SW_CM_REASON_HOP_LIMIT] = "invalid primary hop limit",
        [SW_CM_REASON_PACKET_RATE] = "invalid primary packet rate",
        [SW_CM_REASON_ALTERNATE_GID] = "alternate remote port GID rejected",
        [SW_CM_REASON_ALTERNATE_LID] = "alternate remote port LID rejected",
        [SW_CM_REASON_ALTERNATE_SL] = "invalid alternate SL",
        [SW_CM_REASON_ALTERNATE_TRAFFIC_CLASS] = "invalid alternate traffic class",
        [SW_CM_REASON_ALTERNATE_HOP_LIMIT] = "invalid alternate hop limit",
        [SW_CM_REASON_ALTERNATE_PACKET_RATE] = "invalid alternate packet rate",
        [SW_CM_REASON_PORT_CM_REDIRECT] = "port and CM redirection",
        [SW_CM_REASON_PORT_REDIRECT] = "port redirection",
        [SW_CM_REASON_MTU] = "invalid path MTU",
        [SW_CM_REASON_RESPONDER_RESOURCES] = "insufficient responder resources",
        [SW_CM_REASON_CONSUMER] = "consumer reject",
        [SW_CM_REASON_RNR_RETRY] = "RNR retry count rejected",
        [SW_CM_REASON_DUPLICATE_COMM_ID] = "duplicate local communication ID",
        [SW_CM_REASON_CLASS_VERSION] = "unsupported class version",
        [SW_CM_REASON_FLOW_LABEL] = "invalid primary flow label",
        [SW_CM_REASON_ALTERNATE_FLOW_LABEL] = "invalid alternate flow label",
        [SW_CM_REASON_VENDOR_OPTION] = "vendor option not supported",
    };
    return reason < sizeof(names) / sizeof(names[0]) ? names[reason] : NULL;
}
