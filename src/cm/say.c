/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machine sends. */
#include <string.h>

#include "cm/cm_impl.h"
#include "wire/bytes.h"

/* Which sequence that follows from the key; table.c has the other ones. */
enum { OF_TRANSACTIONS = 1 };

static uint64_t *say_count_of(uint64_t counts[SW_CM_ATTRIBUTE_COUNT],
                              enum sw_cm_attribute attribute)
{
    return &counts[attribute - SW_CM_REQ];
}

void sw_cm_say(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_message *message)
{
    sw_cm_mad_encode(message, id->last);
    id->last_attribute = message->attribute;
    id->transaction = message->transaction;
    (*say_count_of(cm->counts.sent, message->attribute))++;
    cm->ops->send(cm->user, &id->path, id->last);
}

void sw_cm_say_again(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_path *path)
{
    sw_cm_send_again(cm, path, id->last, id->last_attribute);
}

void sw_cm_send_again(struct sw_cm *cm, const struct sw_cm_path *path,
                      const uint8_t mad[SW_MAD_BYTES], enum sw_cm_attribute attribute)
{
    struct sw_cm_path other_way = *path;
    uint64_t *count = say_count_of(cm->counts.sent_again, attribute);
    other_way.attempt = (uint32_t)++ * count;
    cm->ops->send(cm->user, &other_way, mad);
}

void sw_cm_reply(struct sw_cm *cm, const struct sw_cm_path *path,
                 const struct sw_cm_message *message)
{
    uint8_t mad[SW_MAD_BYTES];
    sw_cm_mad_encode(message, mad);
    (*say_count_of(cm->counts.sent, message->attribute))++;
    cm->ops->send(cm->user, path, mad);
}

uint64_t sw_cm_new_transaction(struct sw_cm *cm)
{
    return sw_siphash(&cm->config.key, OF_TRANSACTIONS, cm->transactions_drawn++);
}

static enum sw_cm_about about_of(enum sw_cm_state state)
{
    if (state == SW_CM_REQ_RCVD)
        return SW_CM_ABOUT_REQ;
    return state == SW_CM_REP_RCVD ? SW_CM_ABOUT_REP : SW_CM_ABOUT_OTHER;
}

void sw_cm_say_rej(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_rej_text *text)
{
    struct sw_cm_message message = {.attribute = SW_CM_REJ,
                                    .transaction = id->transaction,
                                    .rej = {.local_comm_id = id->local_comm_id,
                                            .remote_comm_id = id->remote_comm_id,
                                            .about = (uint8_t)about_of(id->state),
                                            .info_len = (uint8_t)text->info_len,
                                            .reason = text->reason}};
    if (text->info_len)
        memcpy(message.rej.info, text->info, text->info_len);
    if (text->len)
        memcpy(message.rej.private_data, text->private_data, text->len);
    sw_cm_say(cm, id, &message);
}

void sw_cm_say_timeout(struct sw_cm *cm, struct sw_cm_id *id)
{
    uint8_t guid[8];
    sw_be64_store(guid, cm->config.ca_guid);
    sw_cm_say_rej(cm, id,
                  &(struct sw_cm_rej_text){
                      .reason = SW_CM_REASON_TIMEOUT, .info = guid, .info_len = sizeof(guid)});
}

void sw_cm_say_dreq(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len)
{
    struct sw_cm_message message = {.attribute = SW_CM_DREQ,
                                    .transaction = sw_cm_new_transaction(cm),
                                    .dreq = {.local_comm_id = id->local_comm_id,
                                             .remote_comm_id = id->remote_comm_id,
                                             .remote_qpn = id->remote_qpn}};
    if (len)
        memcpy(message.dreq.private_data, private_data, len);
    sw_cm_say(cm, id, &message);
}

void sw_cm_say_drep(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len)
{
    struct sw_cm_message message = {
        .attribute = SW_CM_DREP,
        .transaction = id->transaction,
        .drep = {.local_comm_id = id->local_comm_id, .remote_comm_id = id->remote_comm_id}};
    if (len)
        memcpy(message.drep.private_data, private_data, len);
    sw_cm_say(cm, id, &message);
}

void sw_cm_say_sidr_rep(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_sidr_rep *rep)
{
    struct sw_cm_message message = {
        .attribute = SW_CM_SIDR_REP, .transaction = id->request, .sidr_rep = *rep};
    message.sidr_rep.request_id = id->remote_comm_id;
    message.sidr_rep.service_id = id->service_id;
    sw_cm_say(cm, id, &message);
}
