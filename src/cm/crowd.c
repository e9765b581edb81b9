/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What strangers can make the machine keep: requests that wait, answers that may have to be said
 * again, and destroyed ids. Each is bounded, in all and for one address, whatever a message says
 * about timeouts (docs/security.md).
 */
#include <string.h>

#include "cm/cm_impl.h"

#include "base/clock.h"
#include "base/minmax.h"

static uint64_t hash_of(const struct sw_cm *cm, const uint8_t gid[16])
{
    uint64_t halves[2];
    memcpy(halves, gid, sizeof(halves));
    return sw_siphash(&cm->config.key, halves[0], halves[1]);
}

/* --- requests that wait --- */

static uint32_t crowd_source_of(const struct sw_cm *cm, const struct sw_cm_path *path)
{
    return (uint32_t)(hash_of(cm, path->remote_gid) % SW_CM_SOURCES);
}

uint32_t sw_cm_asking_from(const struct sw_cm *cm, const struct sw_cm_path *path)
{
    return path->slot ? 0 : cm->asking[crowd_source_of(cm, path)];
}

bool sw_cm_is_crowded(const struct sw_cm *cm, const struct sw_cm_path *path)
{
    return !path->slot && (cm->asking_count >= SW_CM_ASKING_MAX ||
                           sw_cm_asking_from(cm, path) >= SW_CM_ASKING_EACH_MAX);
}

void sw_cm_count_asking(struct sw_cm *cm, struct sw_cm_id *id)
{
    if (id->path.slot)
        return;
    uint32_t source = crowd_source_of(cm, &id->path);
    id->source = (uint16_t)(source + 1);
    cm->asking[source]++;
    cm->asking_count++;
}

void sw_cm_uncount_asking(struct sw_cm *cm, struct sw_cm_id *id)
{
    if (!id->source)
        return;
    cm->asking[id->source - 1]--;
    cm->asking_count--;
    id->source = 0;
}

/* --- answers that may have to be said again --- */

/* One set for an address, whose oldest makes room: a flood from one address pushes out its own. */
static uint32_t set_of(const struct sw_cm *cm, const uint8_t gid[16])
{
    return (uint32_t)(hash_of(cm, gid) >> 32) % SW_CM_REPLY_SETS;
}

static void keep_reply(struct sw_cm *cm, const struct sw_cm_id *id, uint64_t now_ns)
{
    uint32_t set = set_of(cm, id->path.remote_gid);
    uint8_t at = cm->reply_next[set];
    struct sw_cm_reply *reply = &cm->replies[set][at];
    *reply = (struct sw_cm_reply){.span_ns = id->peer_response_ns + id->timewait_ns,
                                  .request = id->request,
                                  .remote_ca_guid = id->remote_ca_guid,
                                  .remote_comm_id = id->remote_comm_id,
                                  .is_sidr = id->is_sidr,
                                  .attribute = id->last_attribute};
    reply->until_ns = now_ns + reply->span_ns;
    memcpy(reply->remote_gid, id->path.remote_gid, sizeof(reply->remote_gid));
    if (id->last_attribute)
        memcpy(reply->mad, id->last, sizeof(reply->mad));
    cm->reply_next[set] = (uint8_t)((at + 1) % SW_CM_REPLY_WAYS);
    if (cm->reply_count[set] < SW_CM_REPLY_WAYS)
        cm->reply_count[set]++;
}

static bool is_reply_to(const struct sw_cm_reply *reply, const struct sw_cm_path *path,
                        const struct sw_cm_message *message)
{
    bool is_sidr = message->attribute == SW_CM_SIDR_REQ;
    if (reply->request != message->transaction || reply->is_sidr != is_sidr ||
        memcmp(reply->remote_gid, path->remote_gid, sizeof(reply->remote_gid)) != 0)
        return false;
    if (is_sidr)
        return reply->remote_comm_id == message->sidr_req.request_id;
    return reply->remote_comm_id == message->req.local_comm_id &&
           reply->remote_ca_guid == message->req.local_ca_guid;
}

bool sw_cm_replied(struct sw_cm *cm, const struct sw_cm_path *path,
                   const struct sw_cm_message *message, uint64_t now_ns)
{
    uint32_t set = set_of(cm, path->remote_gid);
    for (uint32_t i = 0; i < cm->reply_count[set]; i++) {
        struct sw_cm_reply *reply = &cm->replies[set][i];
        if (reply->until_ns < now_ns || !is_reply_to(reply, path, message))
            continue;
        reply->until_ns = now_ns + reply->span_ns; /* it may be lost again */
        cm->counts.duplicates[message->attribute - SW_CM_REQ]++;
        if (reply->attribute) /* else the peer has said itself that it is over */
            sw_cm_send_again(cm, path, reply->mad, reply->attribute);
        return true;
    }
    return false;
}

/* --- requests that are over --- */

#define PAST_NS (10 * SW_NS_PER_S) /* longer, no process waits for a processor */

static uint64_t past_mark(const struct sw_cm *cm, const uint8_t gid[16], uint64_t transaction,
                          uint64_t ca_guid, uint32_t comm_id)
{
    const uint64_t who = sw_siphash(&cm->config.key, hash_of(cm, gid), ca_guid);
    return sw_siphash(&cm->config.key, sw_siphash(&cm->config.key, who, transaction), comm_id);
}

void sw_cm_keep_past(struct sw_cm *cm, const struct sw_cm_id *id, uint64_t now_ns)
{
    if (id->active || id->is_sidr || id->last_attribute == SW_CM_REJ)
        return; /* a refusal is said again: keep_reply() */
    cm->past[cm->past_next] =
        (struct sw_cm_past){.mark = past_mark(cm, id->path.remote_gid, id->request,
                                              id->remote_ca_guid, id->remote_comm_id),
                            .until_ns = now_ns + PAST_NS};
    cm->past_next = (cm->past_next + 1) % SW_CM_PAST_MAX;
    cm->past_count = sw_min_u32(cm->past_count + 1, SW_CM_PAST_MAX);
}

bool sw_cm_is_past(const struct sw_cm *cm, const struct sw_cm_path *path,
                   const struct sw_cm_message *message, uint64_t now_ns)
{
    const struct sw_cm_req *req = &message->req;
    const uint64_t mark = past_mark(cm, path->remote_gid, message->transaction, req->local_ca_guid,
                                    req->local_comm_id);
    for (uint32_t i = 0; i < cm->past_count; i++)
        if (cm->past[i].mark == mark && now_ns <= cm->past[i].until_ns)
            return true;
    return false;
}

/* --- destroyed ids --- */

void sw_cm_linger(struct sw_cm *cm, struct sw_cm_id *id)
{
    if (id->lingers)
        return;
    id->older = cm->linger_newest;
    *(id->older ? &id->older->newer : &cm->linger_oldest) = id;
    cm->linger_newest = id;
    id->lingers = true;
    cm->linger_count++;
    if (cm->linger_count > SW_CM_LINGER_MAX)
        sw_cm_end(cm, cm->linger_oldest);
}

void sw_cm_stop_lingering(struct sw_cm *cm, struct sw_cm_id *id)
{
    if (!id->lingers)
        return;
    *(id->older ? &id->older->newer : &cm->linger_oldest) = id->newer;
    *(id->newer ? &id->newer->older : &cm->linger_newest) = id->older;
    id->older = id->newer = NULL;
    id->lingers = false;
    cm->linger_count--;
}

void sw_cm_let_go(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    bool is_refusal = !id->last_attribute || id->last_attribute == SW_CM_REJ ||
                      id->last_attribute == SW_CM_SIDR_REP;
    if (id->active || !is_refusal)
        return sw_cm_linger(cm, id);
    if (id->remote_known)
        keep_reply(cm, id, now_ns);
    sw_cm_end(cm, id);
}
