/* SPDX-License-Identifier: BSD-2-Clause */
/* How ids wait and end; what time does. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "cm/cm_impl.h"

#include "base/minmax.h"
#include "wire/ib_time.h"

uint64_t sw_cm_time_ns(uint8_t exponent)
{
    return sw_min_u64(sw_ib_time_ns(exponent), SW_CM_WAIT_MAX_NS);
}

void sw_cm_init(struct sw_cm *cm, const struct sw_cm_config *config, const struct sw_cm_ops *ops,
                void *user)
{
    const struct sw_cm_config own = *config; /* it may be that of the machine */
    memset(cm, 0, offsetof(struct sw_cm, replies));
    cm->config = own;
    cm->ops = ops;
    cm->user = user;
    if (!cm->config.timewait_max_ns)
        cm->config.timewait_max_ns = SW_CM_WAIT_MAX_NS;
}

void sw_cm_forget(struct sw_cm *cm)
{
    struct sw_cm_config config = cm->config;
    sw_cm_init(cm, &config, cm->ops, cm->user);
}

void sw_cm_id_init(struct sw_cm_id *id, void *user)
{
    *id = (struct sw_cm_id){.user = user};
}

void sw_cm_tell(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_event *event)
{
    if (id->destroyed)
        return;
    struct sw_cm_event full = *event;
    struct sw_cm_path path = full.path ? *full.path : id->path;
    full.path = &path;
    cm->ops->event(cm->user, id, &full);
}

void sw_cm_end(struct sw_cm *cm, struct sw_cm_id *id)
{
    sw_cm_detach(cm, id);
    if (id->destroyed)
        cm->ops->released(cm->user, id);
}

/* --- waiting --- */

static void arm_timer(struct sw_cm *cm, struct sw_cm_id *id, uint64_t after_ns, uint64_t now_ns)
{
    sw_cm_timer_set(&cm->timers, &id->timer, sw_min_u64(now_ns + after_ns, id->deadline_ns));
}

void sw_cm_await(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    uint64_t hurry_ns = cm->config.resend_ns ? cm->config.resend_ns : id->response_ns;
    id->mra_received = id->is_heard = false;
    id->reps_left = SW_CM_REPS_EACH - 1;
    id->copies = 1;
    id->refusals = 0;
    id->resend_ns = sw_min_u64(id->response_ns, hurry_ns);
    uint64_t patience_ns =
        sw_max_u64(id->response_ns * (1u + id->retries_max), SW_CM_PATIENCE_MIN_NS);
    id->deadline_ns =
        now_ns + (id->active ? patience_ns : sw_min_u64(patience_ns, SW_CM_PATIENCE_MAX_NS));
    arm_timer(cm, id, id->resend_ns, now_ns);
}

void sw_cm_await_again(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    if (id->is_heard)
        return;
    uint64_t hurry_ns = cm->config.resend_ns ? cm->config.resend_ns : id->response_ns;
    id->reps_left = SW_CM_REPS_EACH - 1;
    arm_timer(cm, id, sw_min_u64(id->response_ns, hurry_ns), now_ns);
}

void sw_cm_be_patient(struct sw_cm *cm, struct sw_cm_id *id, uint64_t wait_ns, uint64_t now_ns)
{
    id->is_heard = true;
    id->refusals = 0; /* somebody has taken a copy */
    id->deadline_ns += wait_ns;
    id->resend_ns = id->response_ns;
    arm_timer(cm, id, wait_ns, now_ns);
}

void sw_cm_enter_timewait(struct sw_cm *cm, struct sw_cm_id *id, uint64_t more_ns, uint64_t now_ns)
{
    uint64_t wait_ns = sw_max_u64(id->timewait_ns, cm->config.timewait_min_ns) + more_ns;
    sw_cm_forget_remote_qpn(id);
    sw_cm_uncount_asking(cm, id);
    sw_cm_keep_past(cm, id, now_ns);
    id->state = SW_CM_TIMEWAIT;
    id->deadline_ns = UINT64_MAX;
    arm_timer(cm, id, sw_min_u64(wait_ns, cm->config.timewait_max_ns), now_ns);
    if (id->destroyed)
        sw_cm_linger(cm, id);
}

void sw_cm_begin_disconnect(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data,
                            size_t len, uint64_t now_ns)
{
    id->state = SW_CM_DREQ_SENT;
    sw_cm_forget_remote_qpn(id);
    sw_cm_say_dreq(cm, id, private_data, len);
    sw_cm_await(cm, id, now_ns);
}

/* --- refusals --- */

/* As the peer would have said it. */
static void tell_rej(struct sw_cm *cm, struct sw_cm_id *id, enum sw_cm_about about,
                     enum sw_cm_reason reason)
{
    struct sw_cm_message message = {.attribute = SW_CM_REJ,
                                    .transaction = id->transaction,
                                    .rej = {.local_comm_id = id->remote_comm_id,
                                            .remote_comm_id = id->local_comm_id,
                                            .about = (uint8_t)about,
                                            .reason = (uint16_t)reason}};
    sw_cm_tell(cm, id, &(struct sw_cm_event){.kind = SW_CM_EVENT_REJ, .message = &message});
}

static void end_refused(struct sw_cm *cm, struct sw_cm_id *id)
{
    sw_cm_detach(cm, id);
    tell_rej(cm, id, SW_CM_ABOUT_REQ, SW_CM_REASON_SERVICE_ID);
}

/* Another copy may have come while somebody still listened, and his answer be on its way: that one
 * counts. */
bool sw_cm_awaits_other_answer(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    id->refusals++;
    if (id->refusals >= id->copies)
        return false;
    if (id->refusals == 1) {
        id->deadline_ns = sw_min_u64(id->deadline_ns, now_ns + SW_CM_OTHER_ANSWER_NS);
        arm_timer(cm, id, SW_CM_OTHER_ANSWER_NS, now_ns);
    }
    return true;
}

/* --- time --- */

static void life_give_up(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    struct sw_cm_event event = {.kind = SW_CM_EVENT_TIMEOUT, .about = id->last_attribute};
    if (id->state == SW_CM_REQ_SENT)
        sw_cm_say_timeout(cm, id);
    if (id->state == SW_CM_REP_SENT) {
        sw_cm_say_timeout(cm, id);
        sw_cm_enter_timewait(cm, id, 0, now_ns);
        return sw_cm_tell(cm, id, &event);
    }
    if (id->state == SW_CM_DREQ_SENT) {
        sw_cm_enter_timewait(cm, id, 0, now_ns);
        return sw_cm_tell(cm, id, &event);
    }
    sw_cm_detach(cm, id); /* destroyed ones do not ask */
    sw_cm_tell(cm, id, &event);
}

/* To an address that may have asked for nothing. Its second repetition comes late: what lost the
 * first may still be going on. */
static void repeat_unheard_rep(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    if (id->reps_left) {
        id->reps_left--;
        sw_cm_say_again(cm, id, &id->path);
    }
    arm_timer(cm, id, id->reps_left ? id->response_ns : id->deadline_ns - now_ns, now_ns);
}

/* By packets each copy leaves from another source port: the kernel of the peer's host may give
 * those of one port to a process that is stopped. The more were in vain, the more leave at a time,
 * since the next ones come later and later. */
static void repeat_unanswered(struct sw_cm *cm, struct sw_cm_id *id)
{
    const uint16_t more = id->copies < SW_CM_COPIES_MAX ? id->copies : SW_CM_COPIES_MAX;
    for (uint16_t i = 0; i < (id->path.slot ? 1 : more); i++) {
        sw_cm_say_again(cm, id, &id->path);
        id->copies++;
    }
}

static void time_out(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    if (id->state == SW_CM_TIMEWAIT) {
        bool destroyed = id->destroyed; /* then it is its user's */
        sw_cm_end(cm, id);
        if (!destroyed)
            sw_cm_tell(cm, id, &(struct sw_cm_event){.kind = SW_CM_EVENT_EXIT});
        return;
    }
    if (id->state == SW_CM_REQ_SENT && id->refusals)
        return end_refused(cm, id);
    if (now_ns >= id->deadline_ns)
        return life_give_up(cm, id, now_ns);
    if (id->state == SW_CM_REP_SENT && !id->is_heard)
        return repeat_unheard_rep(cm, id, now_ns);
    repeat_unanswered(cm, id);
    id->resend_ns = sw_min_u64(2 * id->resend_ns, id->response_ns);
    arm_timer(cm, id, id->resend_ns, now_ns);
}

void sw_cm_count_copy(struct sw_cm_id *id)
{
    id->copies++;
}

uint64_t sw_cm_due_ns(const struct sw_cm *cm)
{
    return cm->timers.first ? cm->timers.first->due_ns : UINT64_MAX;
}

void sw_cm_tick(struct sw_cm *cm, uint64_t now_ns)
{
    while (sw_cm_due_ns(cm) <= now_ns) {
        struct sw_cm_timer *timer = cm->timers.first;
        sw_cm_timer_clear(&cm->timers, timer);
        time_out(cm, (struct sw_cm_id *)(void *)((char *)timer - offsetof(struct sw_cm_id, timer)),
                 now_ns);
    }
}

/* --- the end of others --- */

static void lose_connection(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns)
{
    switch (id->state) {
    case SW_CM_REQ_SENT:
    case SW_CM_REP_SENT:
    case SW_CM_DREQ_SENT:
    case SW_CM_SIDR_REQ_SENT:
        return life_give_up(cm, id, now_ns);
    case SW_CM_REQ_RCVD:
    case SW_CM_REP_RCVD:
        id->last_attribute = (enum sw_cm_attribute)0;
        sw_cm_enter_timewait(cm, id, 0, now_ns);
        return tell_rej(cm, id, SW_CM_ABOUT_OTHER, SW_CM_REASON_TIMEOUT);
    case SW_CM_ESTABLISHED:
        id->state = SW_CM_DREQ_RCVD;
        sw_cm_forget_remote_qpn(id);
        id->transaction = sw_cm_new_transaction(cm);
        return sw_cm_tell(cm, id, &(struct sw_cm_event){.kind = SW_CM_EVENT_DREQ});
    case SW_CM_IDLE:
    case SW_CM_DREQ_RCVD:
    case SW_CM_TIMEWAIT:
    case SW_CM_SIDR_REQ_RCVD:
    case SW_CM_STATE_COUNT:
        return;
    }
}

void sw_cm_gone(struct sw_cm *cm, uint16_t slot, uint64_t now_ns)
{
    assert(slot);
    for (struct sw_cm_id *id; (id = sw_cm_by_slot(cm, slot));) {
        id->path.slot = 0; /* another process may have it next */
        lose_connection(cm, id, now_ns);
    }
}

void sw_cm_gone_far(struct sw_cm *cm, struct sw_cm_id *id, const uint8_t gid[16], uint16_t slot,
                    uint64_t now_ns)
{
    const bool is_connected = id->state == SW_CM_REP_SENT || id->state == SW_CM_REP_RCVD ||
                              id->state == SW_CM_ESTABLISHED || id->state == SW_CM_DREQ_SENT;
    if (is_connected && !id->path.slot && memcmp(id->path.remote_gid, gid, 16) == 0 &&
        sw_cm_slot_of(id->remote_comm_id) == slot)
        lose_connection(cm, id, now_ns);
}

uint32_t sw_cm_dreqs_unanswered(struct sw_cm *cm, bool again)
{
    uint32_t count = 0;
    for (struct sw_cm_id *id = NULL; (id = sw_cm_id_after(cm, id));) {
        if (id->state != SW_CM_DREQ_SENT || id->path.slot)
            continue;
        count++;
        if (again)
            sw_cm_say_again(cm, id, &id->path);
    }
    return count;
}

/* --- names --- */

const char *sw_cm_state_name(enum sw_cm_state state)
{
    static const char names[SW_CM_STATE_COUNT][20] = {
        [SW_CM_IDLE] = "idle",
        [SW_CM_REQ_SENT] = "REQ sent",
        [SW_CM_REQ_RCVD] = "REQ received",
        [SW_CM_REP_SENT] = "REP sent",
        [SW_CM_REP_RCVD] = "REP received",
        [SW_CM_ESTABLISHED] = "established",
        [SW_CM_DREQ_SENT] = "DREQ sent",
        [SW_CM_DREQ_RCVD] = "DREQ received",
        [SW_CM_TIMEWAIT] = "timewait",
        [SW_CM_SIDR_REQ_SENT] = "SIDR_REQ sent",
        [SW_CM_SIDR_REQ_RCVD] = "SIDR_REQ received",
    };
    return names[state];
}

const char *sw_cm_event_name(enum sw_cm_event_kind kind)
{
    static const char names[SW_CM_EVENT_COUNT][20] = {
        [SW_CM_EVENT_REQ] = "REQ",           [SW_CM_EVENT_REP] = "REP",
        [SW_CM_EVENT_RTU] = "RTU",           [SW_CM_EVENT_REJ] = "REJ",
        [SW_CM_EVENT_MRA] = "MRA",           [SW_CM_EVENT_TIMEOUT] = "timeout",
        [SW_CM_EVENT_DREQ] = "DREQ",         [SW_CM_EVENT_DREP] = "DREP",
        [SW_CM_EVENT_STALE] = "stale",       [SW_CM_EVENT_EXIT] = "exit of timewait",
        [SW_CM_EVENT_SIDR_REQ] = "SIDR_REQ", [SW_CM_EVENT_SIDR_REP] = "SIDR_REP",
    };
    return names[kind];
}
