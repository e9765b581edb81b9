/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Controllers that hosts have lost, and ask another member to end. The member asks the leader, and
 * the leader asks the member that has the controller. Each asks again until it is answered, so no
 * order is lost with a leader or a link; and an answer is true for ever, since a controller that is
 * quiet stays so.
 *
 * A process that does not answer is proved quiet by the log. As soon as it neither owns a namespace
 * nor is a former owner that is yet to be fenced, no medium takes a command of it. But it may have
 * commands that it has not looked at, and own something again later. So it is ordered before to end
 * its controllers (CALM), and owns nothing until it has. A process that the log does not have any
 * more, or that knows no such controller, needs no order.
 *
 * A leader that was replaced may not know that it was, and that the process owns something by now.
 * So it believes its state only behind an append that began after the question: that of the order,
 * or of a record that changes nothing.
 */
#include <errno.h>
#include <string.h>

#include "nvme/target/group/machine.h"

enum { ASK_AGAIN_MS = 500, LASTS_MS = 60000 /* hosts do not wait longer */ };

static bool is_same_controller(const struct nvg_controller *a, const struct nvg_controller *b)
{
    return a->slot == b->slot && nvt_instance_is(&a->lost.instance, &b->lost.instance);
}

static void tell_of_controller(struct nvg_machine *m, enum nvg_event_kind kind,
                               const struct nvg_controller *of, enum nvt_quiet quiet)
{
    memset(&m->event, 0, sizeof(m->event));
    m->event.kind = kind;
    m->event.controller = *of;
    m->event.quiet = quiet;
    m->port.tell(m->port.context, &m->event);
}

static void send_of_controller(struct nvg_machine *m, uint32_t link, enum nvg_message_kind kind,
                               const struct nvg_controller *of, enum nvt_quiet quiet)
{
    memset(&m->out, 0, offsetof(struct nvg_message, record));
    m->out.kind = kind;
    m->out.controller = *of;
    m->out.quiet = (uint8_t)quiet;
    nvg_send(m, link, &m->out);
}

/* ---- for a host of this member ---- */

static void finish_quiets(struct nvg_machine *m, const struct nvg_controller *of,
                          enum nvt_quiet quiet)
{
    for (uint32_t i = 0; i < NVG_QUIETS; i++) {
        if (!m->quiets[i].is_used || !is_same_controller(&m->quiets[i].of, of))
            continue;
        const struct nvg_controller was = m->quiets[i].of;
        m->quiets[i].is_used = false;
        tell_of_controller(m, NVG_QUIETED, &was, quiet);
    }
}

int nvg_machine_quiesce(struct nvg_machine *m, const struct nvg_controller *of)
{
    struct nvg_quiet *place = NULL;
    if (m->role == NVG_STOPPED || of->slot >= NVG_SLOTS || !of->lost.instance.cirn)
        return -EINVAL;
    for (uint32_t i = 0; i < NVG_QUIETS; i++) {
        if (m->quiets[i].is_used && is_same_controller(&m->quiets[i].of, of))
            return 0; /* one answer is for all that ask */
        if (!m->quiets[i].is_used)
            place = &m->quiets[i];
    }
    if (!place)
        return -ENOSPC;
    *place = (struct nvg_quiet){
        .is_used = true, .until_ns = m->now_ns + (uint64_t)LASTS_MS * NVG_MS, .of = *of};
    return 0;
}

void nvg_quiesce_anew(struct nvg_machine *m)
{
    for (uint32_t i = 0; i < NVG_QUIETS; i++)
        m->quiets[i].retry_ns = 0;
}

/* ---- at the leader ---- */

static void add_quiesce(struct nvg_machine *m, uint32_t link, const struct nvg_controller *of)
{
    struct nvg_quiesce *place = NULL;
    for (uint32_t i = 0; i < NVG_QUIETS; i++) {
        struct nvg_quiesce *q = &m->quiesces[i];
        if (q->is_used && q->link == link && is_same_controller(&q->of, of))
            return;
        if (!q->is_used)
            place = q;
    }
    if (place) /* else it is asked again later */
        *place = (struct nvg_quiesce){
            .is_used = true, .link = (uint8_t)link, .append = m->appends + 1, .of = *of};
}

static void answer_quiesce(struct nvg_machine *m, struct nvg_quiesce *q, enum nvt_quiet quiet)
{
    const struct nvg_quiesce was = *q;
    q->is_used = false;
    if (was.link == NVG_LINKS)
        finish_quiets(m, &was.of, quiet);
    else
        send_of_controller(m, was.link, NVG_TELL_QUIET, &was.of, quiet);
}

/* What the member that has the controller says of it. */
static void take_quiet(struct nvg_machine *m, const struct nvg_controller *of, enum nvt_quiet quiet,
                       uint64_t incarnation)
{
    for (uint32_t i = 0; i < NVG_QUIETS; i++) {
        struct nvg_quiesce *q = &m->quiesces[i];
        if (!q->is_used || !is_same_controller(&q->of, of))
            continue;
        if (quiet == NVT_QUIET_UNKNOWN)
            q->unknown_to = incarnation;
        else
            answer_quiesce(m, q, quiet);
    }
}

static bool place_is_quiet(const struct nvg_hold *hold, uint8_t slot, uint64_t but)
{
    if (hold->phase != NVG_FREE && hold->owner.slot == slot && hold->owner.incarnation != but)
        return false;
    for (uint32_t f = 0; f < hold->former_count; f++)
        if (hold->formers[f].slot == slot && hold->formers[f].incarnation != but)
            return false;
    return true;
}

/* No process of that slot has anything open at a medium, but the one that knows of nothing. Where
 * all members are active: none has that host. */
static bool slot_is_quiet(const struct nvg_state *state, const struct nvg_quiesce *q)
{
    struct nvg_host host = {.id = q->of.lost.host_id};
    memcpy(host.nqn, q->of.lost.host_nqn, sizeof(host.nqn));
    const uint32_t number = state->is_all_active ? nvg_state_number_of(state, &host) : 0;
    for (uint32_t i = 1; i <= NVG_PLACES_MAX; i++)
        if (state->places[i].is_used && (!state->is_all_active || i == number) &&
            !place_is_quiet(&state->places[i].hold, q->of.slot, q->unknown_to))
            return false;
    return true;
}

/* The process that has the controller may be there: it is in the log, and has not said no. */
static bool member_to_ask(const struct nvg_machine *m, const struct nvg_quiesce *q)
{
    const uint64_t incarnation = m->replica.now.members[q->of.slot].who.incarnation;
    return nvg_state_has(&m->replica.now, q->of.slot, incarnation) && incarnation != q->unknown_to;
}

static void look_at_quiesce(struct nvg_machine *m, struct nvg_quiesce *q)
{
    const struct nvg_state *now = &m->replica.now;
    const uint8_t slot = q->of.slot;
    const uint64_t incarnation = now->members[slot].who.incarnation;
    const bool is_there = member_to_ask(m, q);
    const uint32_t link = is_there ? nvg_lead_link_of(m, slot, incarnation) : NVG_LINKS;
    const bool is_self = is_there && nvg_is_self(m, slot, incarnation);
    if (link < NVG_LINKS || is_self) {
        if (m->now_ns < q->retry_ns)
            return;
        q->retry_ns = m->now_ns + (uint64_t)ASK_AGAIN_MS * NVG_MS;
        if (is_self)
            tell_of_controller(m, NVG_QUIESCE, &q->of, NVT_QUIET_LATER);
        else
            send_of_controller(m, link, NVG_ASK_QUIET, &q->of, NVT_QUIET_LATER);
        return;
    }
    const uint64_t proof = is_there ? m->calm_appended[slot] : m->appended;
    if (nvg_lead_counts(m) && proof >= q->append && slot_is_quiet(now, q))
        answer_quiesce(m, q, NVT_QUIET);
}

bool nvg_quiesce_decide(struct nvg_machine *m)
{
    const struct nvg_state *now = &m->replica.now;
    for (uint32_t i = 0; i < NVG_QUIETS; i++) {
        const struct nvg_quiesce *q = &m->quiesces[i];
        const uint8_t slot = q->of.slot;
        const uint64_t incarnation = now->members[slot].who.incarnation;
        if (!q->is_used)
            continue;
        if (!member_to_ask(m, q)) {
            if (m->appended >= q->append)
                continue;
            nvg_lead_prove(m);
            return true;
        }
        if (m->calm_appended[slot] >= q->append || !nvg_lead_suspects(m, slot, incarnation))
            continue;
        nvg_lead_order_calm(m, slot);
        return true;
    }
    return false;
}

void nvg_quiesce_hear(struct nvg_machine *m, uint32_t link)
{
    const struct nvg_link *from = &m->links[link];
    const struct nvg_controller of = m->in.controller;
    if (m->in.kind == NVG_ASK_QUIET)
        add_quiesce(m, link, &of);
    else if (from->slot == of.slot)
        take_quiet(m, &of, (enum nvt_quiet)m->in.quiet, from->incarnation);
    nvg_quiesce_tick(m);
}

void nvg_quiesce_link_lost(struct nvg_machine *m, uint32_t link)
{
    for (uint32_t i = 0; i < NVG_QUIETS; i++)
        if (m->quiesces[i].link == link)
            m->quiesces[i].is_used = false;
}

/* ---- at the member that has it ---- */

void nvg_quiesce_hear_leader(struct nvg_machine *m)
{
    const struct nvg_controller of = m->in.controller;
    if (m->in.kind == NVG_TELL_QUIET)
        finish_quiets(m, &of, (enum nvt_quiet)m->in.quiet);
    else if (m->has_joined && of.slot == m->slot)
        tell_of_controller(m, NVG_QUIESCE, &of, NVT_QUIET_LATER);
}

void nvg_machine_quieted(struct nvg_machine *m, const struct nvg_controller *of,
                         enum nvt_quiet quiet)
{
    if (m->role == NVG_LEADER)
        take_quiet(m, of, quiet, m->setup.self.who.incarnation);
    else if (m->role == NVG_FOLLOWER)
        send_of_controller(m, m->leader_link, NVG_TELL_QUIET, of, quiet);
}

/* ---- time ---- */

static void ask_leader(struct nvg_machine *m, struct nvg_quiet *quiet)
{
    quiet->retry_ns = m->now_ns + (uint64_t)ASK_AGAIN_MS * NVG_MS;
    if (m->role == NVG_LEADER)
        add_quiesce(m, NVG_LINKS, &quiet->of);
    else
        send_of_controller(m, m->leader_link, NVG_ASK_QUIET, &quiet->of, NVT_QUIET_LATER);
}

void nvg_quiesce_tick(struct nvg_machine *m)
{
    const bool has_leader = m->is_synced && (m->role == NVG_LEADER || m->role == NVG_FOLLOWER);
    for (uint32_t i = 0; i < NVG_QUIETS; i++) {
        struct nvg_quiet *quiet = &m->quiets[i];
        if (!quiet->is_used)
            continue;
        if (m->now_ns >= quiet->until_ns)
            quiet->is_used = false; /* its host has given it up, too */
        else if (has_leader && m->has_joined && m->now_ns >= quiet->retry_ns)
            ask_leader(m, quiet);
    }
    for (uint32_t i = 0; i < NVG_QUIETS && m->role == NVG_LEADER; i++)
        if (m->quiesces[i].is_used)
            look_at_quiesce(m, &m->quiesces[i]);
}
